"""ONNX graphs in onnxruntime: decision values and labels of every kind of model are the model's."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
from exchange.made import GRAPHS, SUMS, local_budget_model, local_model, model_of, pooled_model, raw_rows
from pairwise import pairwise

from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.exchange import onnx as ours
from streamsvm.exchange.onnx import onnx_model, write_onnx
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.distance import Laplacian
from streamsvm.kernels.kmeans import Partition
from streamsvm.models import KernelModel
from streamsvm.models.calibration import Calibration
from streamsvm.online import BSGDClassifier
from streamsvm.solvers.additive import TRACKS

SCALES = ("none", "minmax", "maxabs")
PLANES = ("linear", "ordinal", "rank")  # decide by weights of columns, without a kernel


def run(proto, X):
    onnx.checker.check_model(proto, full_check=True)
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    names = [output.name for output in session.get_outputs()]
    answers = session.run(names, {"X": np.asarray(X, np.float32)})
    for output, answer in zip(session.get_outputs(), answers, strict=True):
        assert [size for size in output.shape if isinstance(size, int)] == list(answer.shape[1:])
    return dict(zip(names, answers, strict=True))


def assert_same(model, rows):
    answers, expected = run(onnx_model(model), rows.X), model.decision_function(rows)
    assert answers["scores"].shape == expected.shape
    assert answers["scores"].dtype == np.float32
    np.testing.assert_allclose(answers["scores"], expected, atol=1e-5 * max(1, np.abs(expected).max(initial=0)))
    if model.task in ("rank", "regress"):
        assert set(answers) == {"scores"}
    else:
        labels = model.predict(rows)
        assert answers["label"].tolist() == labels.tolist()
        assert answers["label"].dtype.kind in (labels.dtype.kind, "O")


@pytest.mark.parametrize(
    ("kind", "kernel", "k", "scale"),
    [
        *pairwise([kind for kind in SUMS if kind not in PLANES], GRAPHS, (2, 3), SCALES),
        *pairwise(PLANES, ["linear"], (2, 3), SCALES),
    ],
)
def test_sums(kind, kernel, k, scale):
    assert_same(model_of(kind, kernel, k, scale, seed=k), raw_rows())


@pytest.mark.parametrize("kernel", ["rbf", "linear"])
@pytest.mark.parametrize("metric", [None, Metric(np.array([1.0, 0.0, 0.5, 2.0])), Metric(np.eye(4)[:, :3] - 0.2)])
def test_quantiles(kernel, metric):
    model, rows = model_of("kernel", kernel, 3, "quantile"), raw_rows(200)
    if metric is not None:
        support = metric.of_rows(model.support)
        scaling = model.header.scaling.under(metric)
        model = replace(model, header=replace(model.header, scaling=scaling), support=support)
    assert_same(model, Rows(np.concatenate([rows.X, 40 * rows.X])))


@pytest.mark.parametrize("kind", ["kernel", "linear"])
def test_labels_of_a_threshold(kind):
    plain, rows = model_of(kind, k=2, labels="text"), raw_rows()
    middle = float(np.mean(np.sort(plain.decision_function(rows))[[3, 4]]))
    model = replace(plain, header=replace(plain.header, threshold=middle))
    assert np.count_nonzero(model.predict(rows) == model.classes[1]) == len(rows) - 4
    assert_same(model, rows)


@pytest.mark.parametrize("kernel", GRAPHS)
def test_sparse_support(kernel):
    assert_same(model_of("kernel", kernel, 3, "maxabs", is_sparse=True), raw_rows())


@pytest.mark.parametrize("labels", ["text", "int", "float", "half"])
def test_labels_of_any_kind(labels):
    assert_same(model_of("expansion", k=2, labels=labels), raw_rows())
    assert_same(model_of("kernel", k=4, labels=labels), raw_rows())


@pytest.mark.parametrize(("kernel", "k", "scale", "clustering"), pairwise(GRAPHS, (2, 3), SCALES, ("linear", "rbf")))
def test_routes(kernel, k, scale, clustering):
    model, rows = local_model(kernel, k, scale, clustering=clustering), raw_rows(200)
    parts = np.unique(model.partition.assign(model.header.scaling.apply(rows)))
    assert len(parts) >= 3
    assert_same(model, rows)
    for i in range(3):
        assert_same(model, rows.take(slice(i, i + 1)))


@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("k", [2, 3])
def test_routes_to_parts_with_metrics_of_their_own(k, scale):
    assert_same(local_model("matern 1/2", k, scale, weighed=True), raw_rows(200))


@pytest.mark.parametrize(("k", "kernel", "scale"), [(2, "rbf", "minmax"), (3, "poly", "none")])
def test_routes_to_budgets(k, kernel, scale):
    assert_same(local_budget_model(kernel, k, scale), raw_rows(200))


@pytest.mark.parametrize("clustering", ["matern", "sigmoid"])
def test_routes_by_other_kernels(clustering):
    """Of nodes that have a gamma each, and of nodes that share it."""
    assert_same(local_model("rbf", 3, "minmax", clustering=clustering), raw_rows(200))


def test_a_kernel_that_no_operator_knows_is_one_line():
    class Unknown(Laplacian):
        onnx = Kernel.onnx

    model = model_of("kernel")
    model = replace(model, header=replace(model.header, kernel=Unknown(0.3)))
    with pytest.raises(ModelError, match="the laplacian kernel has no ONNX graph; fit with one of rbf, "):
        onnx_model(model)


@pytest.mark.parametrize("neighbours", [2, 3, 9])
@pytest.mark.parametrize("seed", range(3))
def test_routes_to_several_parts(neighbours, seed):
    assert_same(local_model("rbf", 3, neighbours=neighbours, seed=seed), raw_rows(200))


def test_one_part_alone():
    model = replace(local_model("rbf", 2), partition=Partition((), ()))
    assert_same(model, raw_rows())


@pytest.mark.parametrize(
    "make",
    [
        lambda: model_of("kernel", k=3),
        lambda: model_of("kernel", "laplacian"),
        lambda: local_model("rbf", 2, neighbours=2),
    ],
)
def test_no_rows_no_answers(make):
    assert_same(make(), raw_rows().take(slice(0, 0)))


def exact_decisions(model, rows):
    """(m, columns) of a pool, with kernels in float64: early in a stream coefficients are large."""
    Z, pooled, said = model.bounded(model.header.scaling.apply(rows)), model.as_pooled(), []
    for learner in pooled.kernels:
        A, bias = learner.coefficients()
        said.append(learner.kernel.exact(Rows(Z), learner.supports()) @ A + bias)
    return pooled.pool.decide(np.concatenate([pooled.additive.decide(Z), said]), len(TRACKS))


@pytest.mark.parametrize(
    ("k", "kernel"),
    [
        (2, "rbf"),
        *(  # each compiles steps of its own
            pytest.param(k, kernel, marks=pytest.mark.slow)
            for k in (2, 3)
            for kernel in ("rbf", "matern", "laplacian", "poly", "linear")
            if (k, kernel) != (2, "rbf")
        ),
    ],
)
def test_pools(k, kernel):
    """With columns that come late, are often absent, far from 0, or constant."""
    model, X = pooled_model(k, kernel)
    wide = np.full((len(X), model.d), np.nan, np.float32)
    wide[:, : X.shape[1]] = X
    answers = run(onnx_model(model), X)
    scores = answers["scores"][:, None] if k == 2 else answers["scores"]
    exact = exact_decisions(model, Rows(wide))
    np.testing.assert_allclose(scores, exact, atol=1e-5)
    expected = model.answers_from(exact, Rows(wide))[1]
    np.testing.assert_allclose(answers["probabilities"], expected, atol=1e-6)
    assert answers["label"].tolist() == model.predict(Rows(wide)).tolist()
    assert answers["label"].dtype == (bool if k == 2 else np.int64)


def test_pools_that_have_no_graph_are_one_line():
    with pytest.raises(ModelError, match="knows 1 classes so far, an export needs two"):
        onnx_model(pooled_model(1, "rbf")[0])


def test_columns_of_a_stream_are_those_that_have_names():
    learner = BSGDClassifier(lam=1e-2, gamma=0.5)
    for i in range(40):
        learner.learn_one({f"x{j}": float(i % (j + 2)) for j in range(3 if i else 2)}, i % 2)
    model = learner.to_model()
    assert model.d > 3
    X = np.arange(12, dtype=np.float32).reshape(4, 3)
    wide = np.pad(X, ((0, 0), (0, model.d - 3)))
    answers = run(onnx_model(model), X)
    np.testing.assert_allclose(answers["scores"], model.decision_function(Rows(wide)), atol=1e-5)


def test_no_support_vectors():
    assert_same(model_of("budget", n_support=0), raw_rows())


def test_equal_votes_are_as_the_model_says():
    """Three pairs in a circle: without confidence the first class wins, with it the largest margin."""
    made = model_of("kernel", k=3)
    for break_ties in (False, True):
        model = KernelModel(
            made.header,
            made.support,
            0 * made.alpha,
            made.codes,
            made.ids,
            np.array([1.0, -1.0, 3.0]),
            break_ties,
        )
        assert_same(model, raw_rows(3))
        assert run(onnx_model(model), raw_rows(1).X)["label"][0] == ("\u00fcber" if break_ties else "ant")


def test_features_far_from_zero_lose_nothing():
    """|x|^2 of 10^8: distances by float32 norms would be off by ten."""
    model, rows = model_of("expansion"), Rows(raw_rows().X + np.float32(5000))
    far = replace(model, support=Rows(model.support.X + np.float32(5000)))
    exact = far.header.kernel.exact(rows, far.support) @ far.coef[:, 0] + far.intercept
    np.testing.assert_allclose(run(onnx_model(far), rows.X)["scores"], exact, atol=1e-5)


def test_large_coefficients_leave_the_sums_exact():
    """To float32's rounding of the answer: not of the kernel values, which coefficients multiply."""
    made, rows = model_of("expansion", n_support=200), raw_rows()
    model = replace(made, coef=1e4 * made.coef)
    exact = model.header.kernel.exact(rows, model.support) @ model.coef[:, 0] + model.intercept
    scores = run(onnx_model(model), rows.X)["scores"]
    np.testing.assert_allclose(scores, exact, rtol=1e-7, atol=1e-7 * np.abs(exact).max())


def test_scaling_of_large_features_is_that_of_the_model():
    made, offset = model_of("linear"), np.full(4, 1e6)
    scaling = Scaling("standard", offset, np.full(4, 3.0))
    rows = Rows((offset + np.arange(8).reshape(2, 4) / 4).astype(np.float32))
    assert_same(replace(made, header=replace(made.header, scaling=scaling)), rows)


@pytest.mark.parametrize("combine", ["naive", "committee"])
def test_what_asks_all_parts_is_refused(combine):
    with pytest.raises(ModelError, match=f"combine = '{combine}' asks all partitions"):
        onnx_model(replace(local_model("rbf", 2), combine=combine))


@pytest.mark.parametrize(
    "make", [lambda: model_of("kernel"), lambda: model_of("linear"), lambda: local_model("rbf", 2)]
)
def test_models_beyond_a_file_of_protobuf_are_refused(make, monkeypatch):
    monkeypatch.setattr(ours, "MOST_BYTES", 30)
    with pytest.raises(ModelError, match="ONNX file holds 2 GiB"):
        onnx_model(make())


def test_written_whole_or_not_at_all(tmp_path):
    facts = write_onnx(model_of("kernel"), tmp_path / "m.onnx")
    assert facts == {"n_support": 15, "files": [], "notes": []}
    onnx.checker.check_model(str(tmp_path / "m.onnx"))
    with pytest.raises(ModelError):
        write_onnx(replace(local_model("rbf", 2), combine="naive"), tmp_path / "no.onnx")
    assert [path.name for path in tmp_path.iterdir()] == ["m.onnx"]


def points_of(method, problems, seed=0):
    """Maps of random numbers; of a stream as `OnlineCalibration` keeps them."""
    rng = np.random.default_rng(seed)
    if method == "sigmoid":
        return Calibration.of(method, list(rng.normal(size=(problems, 1, 2))))
    if method == "isotonic":
        sizes = [1, 2, *rng.integers(3, 9, problems)][:problems]
        maps = [np.sort(rng.random((2, n)) * [[4], [0.9]] + [[-2], [0.05]]).T for n in sizes]
        return Calibration.of(method, maps)
    columns = 1 if problems == 1 or method == "of its own" else problems
    size = np.full((problems, 1), 0.7)
    return Calibration.of("stream", list(np.hstack([rng.normal(size=(problems, columns + 1)), size])[:, None]))


def columns_of(model):
    return model.binary_decisions(raw_rows(1)).shape[1]


def assert_probable(model, rows, calibration, **more):
    model = replace(model, header=replace(model.header, calibration=calibration, **more))
    assert_same(model, rows)
    np.testing.assert_allclose(
        run(onnx_model(model), rows.X)["probabilities"], model.predict_proba(rows), rtol=0, atol=1e-6
    )


@pytest.mark.parametrize("method", ["sigmoid", "isotonic"])
@pytest.mark.parametrize(("kind", "k"), [("kernel", 2), ("kernel", 3), ("kernel", 4), ("linear", 3), ("budget", 4)])
def test_probabilities(kind, k, method):
    model = model_of(kind, k=k)
    assert_probable(model, raw_rows(200), points_of(method, columns_of(model)))


@pytest.mark.parametrize("method", ["of all", "of its own"])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_probabilities_of_streams(method, k):
    model = model_of("budget", k=k)
    assert_probable(model, raw_rows(200), points_of(method, columns_of(model)))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("neighbours", [1, 2])
def test_probabilities_of_parts(k, neighbours):
    model = local_model("rbf", k, neighbours=neighbours)
    problems, rng = 1 if k == 2 else 3, np.random.default_rng(1)
    calibration = points_of("sigmoid", problems)
    by_part = rng.normal(size=(model.n_parts, problems, 2))
    assert_probable(model, raw_rows(200), replace(calibration, by_part=by_part))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize(
    ("kind", "method"),
    [("kernel", "sigmoid"), ("kernel", "isotonic"), ("budget", "of all"), ("budget", "sigmoid")],
)
def test_labels_of_weighted_classes_follow_decisions(kind, method, k):
    model = model_of(kind, k=k)
    calibration = replace(points_of(method, columns_of(model)), by_decisions=True)
    assert_probable(model, raw_rows(200), calibration)
    if (kind, k, method) == ("budget", 3, "sigmoid"):
        assert_probable(model, raw_rows(200), replace(calibration, class_weight=np.array([1.0, 5.0, 0.2])))


def test_a_threshold_is_before_probabilities():
    assert_probable(model_of("kernel"), raw_rows(), points_of("sigmoid", 1), threshold=0.3)


@pytest.mark.parametrize(
    ("kind", "k", "method"),
    [("kernel", 2, "sigmoid"), ("kernel", 4, "isotonic"), ("budget", 3, "of its own")],
)
def test_labels_of_the_least_cost(kind, k, method):
    model, costs = model_of(kind, k=k), np.random.default_rng(3).uniform(0, 9, (k, k)) * (1 - np.eye(k))
    calibration = points_of(method, columns_of(model))
    plain = replace(model, header=replace(model.header, calibration=calibration))
    costly = replace(plain, header=replace(plain.header, costs=costs))
    assert np.any(plain.predict(raw_rows(200)) != costly.predict(raw_rows(200)))
    assert_probable(model, raw_rows(200), calibration, costs=costs)


def test_pairs_that_are_sure_have_probabilities():
    """Of 0 and 1 to rounding, also in circles."""
    model, steep = model_of("kernel", k=4), np.tile([[[1e4, 0.0]]], (6, 1, 1))
    assert_probable(model, raw_rows(200), Calibration.of("sigmoid", list(steep)))
