"""A metric learned before a fit: it finds the columns that count, in every solver, and says no where none do."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import config
from clusters import inside
from making import write
from scipy import sparse

from streamsvm import ALFPGMSVR, DCSVC, BudgetedSVC
from streamsvm.choosing import sample_fits
from streamsvm.choosing.metric_search import Trial
from streamsvm.choosing.sample_fits import TrialFit, losses, solve
from streamsvm.choosing.trials import Sample, SampleTrials, TrialSettings, region_samples
from streamsvm.config import KernelConfig, build_config
from streamsvm.data.metric import Metric
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Event, Events, Progress, Record, ignore
from streamsvm.fits.earlier import is_made_by
from streamsvm.fits.prepare import prepare
from streamsvm.kernels.base import kernel_class, kernel_from
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.problems.subproblems import DualData
from streamsvm.search.folds import can_share
from streamsvm.tasks import task_of
from streamsvm.train import train, train_in_memory

D = 10
ITERATIONS = {"iterations": 3}
MOST_BYTES = 1 << 30
FEW: dict[str, Any] = {"metric_params": ITERATIONS, "search_params": {"sample": 700}}
DIAGONAL: dict[str, Any] = {"metric": {"kind": "diagonal"} | ITERATIONS, "search": {"sample": 700}}


def noisy(k: int = 2, n: int = 900, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    """(n, D) of which the first two columns tell k classes, and the others nothing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, D)).astype(np.float32)
    return X, np.digitize(X[:, 0] * X[:, 1], np.linspace(-0.5, 0.5, k)[: k - 1] if k > 2 else [0.0])


def score(model: Any, k: int = 2) -> float:
    X, y = noisy(k, 600, seed=1)
    return float(np.mean(model.predict(Rows(X)) == y))


def fitted(X: Any, y: np.ndarray, **options: Any) -> tuple[Any, dict[str, Any]]:
    return train_in_memory(Store.from_arrays(X, y), build_config(("test", {"threads": 2, "tol": 1e-2} | options)))


@pytest.mark.parametrize("name", ["dcsvm", "dcsvm early", "alfpgm", "admm-hss", "bsgd", "landmarks"])
@pytest.mark.slow  # a search for each solver
def test_every_solver_decides_better_by_the_columns_that_count(name):
    there = Store.from_arrays(*noisy())
    plain, _ = train_in_memory(there, config(name), ignore)
    model, report = train_in_memory(there, config(name, **DIAGONAL), ignore)
    assert score(model) > score(plain) + 0.02
    metric = model.header.scaling.metric
    assert metric.importances[:2].sum() > 0.8
    assert report["metric"]["columns"] == metric.width
    assert dict(report["metric"]["importances"][:2]).keys() == {"0", "1"}
    assert report["metric"]["score"] > report["metric"]["plain_score"]


@pytest.mark.parametrize("kind", ["diagonal", "full"])
def test_of_three_classes_one_metric(kind):
    X, y = noisy(3)
    plain, _ = fitted(X, y)
    model, report = fitted(X, y, metric={"kind": kind, "rank": 4} | ITERATIONS, search={"sample": 700})
    assert report["metric"]["kind"] == kind
    assert model.header.scaling.width <= (4 if kind == "full" else D)
    assert score(model, 3) > score(plain, 3) + 0.03


def test_a_full_metric_finds_a_direction_across_columns():
    X, _ = noisy(n=1200)
    direction = np.ones(D) / D**0.5
    y = (np.sin(4 * X @ direction) > 0).astype(int)
    model, _ = fitted(X, y, metric={"kind": "full", "iterations": 5})
    factor = model.header.scaling.metric.factor
    first = np.linalg.svd(factor)[0][:, 0]
    assert abs(first @ direction) > 0.95


@pytest.mark.slow  # searches
def test_numbers_to_regress_on():
    X, _ = noisy()
    rng = np.random.default_rng(5)
    t = 3 + np.sin(2 * X[:, 0]) + 0.1 * rng.normal(size=len(X))
    plain, model = ALFPGMSVR(tol=1e-2), ALFPGMSVR(metric="diagonal", **FEW, tol=1e-2)
    new, _ = noisy(seed=9)
    expected = 3 + np.sin(2 * new[:, 0])
    assert model.fit(X, t).score(new, expected) > plain.fit(X, t).score(new, expected) + 0.05
    assert model.metric_["importances"][0][0] == "0"


def test_labels_by_chance_are_left_to_the_plain_fit():
    X, _ = noisy()
    y = np.random.default_rng(3).integers(0, 2, len(X))
    plain, _ = fitted(X, y)
    with pytest.warns(UserWarning, match="no better, beyond chance"):
        model, report = fitted(X, y, **DIAGONAL)
    assert report["metric"]["kind"] == "none"
    assert report["metric"]["reason"] == "held-out rows are predicted equally well without one"
    assert model.header.scaling.metric is None
    if report["metric"]["kernel"] == "rbf" and report["metric"]["C"] == 1.0:
        np.testing.assert_array_equal(model.decision_function(Rows(X)), plain.decision_function(Rows(X)))


@pytest.mark.parametrize("given", [{"C": 2.0}, {"kernel": {"name": "rbf", "gamma": 0.3}}, {}])
def test_what_is_given_stays_and_what_is_not_is_chosen(given):
    X, y = noisy()
    model, report = fitted(X, y, **given, **DIAGONAL)
    kept, asked = model.header.config, set(model.header.config["search"]["options"])
    assert asked == {"metric", "kernel", "C", "gamma"} - (
        {"C"} if "C" in given else {"kernel", "gamma"} if given else set()
    )
    if "C" in given:
        assert kept["C"] == report["metric"]["C"] == 2.0
    if "kernel" in given:
        assert (model.header.kernel.name, model.header.kernel.gamma) == ("rbf", 0.3)
    assert kept["kernel"]["gamma"] == model.header.kernel.gamma


def test_estimators_search_what_is_at_its_default():
    X, y = noisy()
    svm = DCSVC(metric="diagonal", **FEW, kernel="cauchy").fit(X, y)
    assert svm.model_.header.config["search"]["options"] == ["C", "gamma", "metric"]
    assert svm.model_.header.kernel.name == svm.metric_["kernel"] == "cauchy"
    new, labels = noisy(seed=1)
    assert svm.score(new, labels) > DCSVC(kernel="cauchy").fit(X, y).score(new, labels) + 0.02
    assert not hasattr(DCSVC().fit(X, y), "metric_")
    budgeted = BudgetedSVC(metric="diagonal", **FEW, random_state=0).fit(X, y)
    assert budgeted.partial_fit(X, y).score(new, labels) > 0.8
    with pytest.raises(ConfigError, match="metric needs all rows"):
        BudgetedSVC(metric="diagonal").partial_fit(X, y, classes=[0, 1])


def test_columns_in_any_unit_need_no_scaling():
    X, y = noisy()
    units = 10.0 ** np.arange(-4, 6)
    model, report = fitted(X * units, y, **DIAGONAL)
    assert report["metric"]["kind"] == "diagonal"
    assert np.mean(model.predict(Rows(X * units)) == y) > 0.9


@pytest.mark.parametrize("case", ["constant", "one column", "wide", "few rows", "one class in the sample", "uint8"])
@pytest.mark.slow  # searches
def test_odd_data_are_learned_from_all_the_same(case):
    X, y = noisy()
    if case == "constant":
        X[:, 3] = 7.0
    elif case == "one column":
        X = X[:, :1]
        y = (X[:, 0] > 0).astype(int)
    elif case == "wide":
        X, y = np.hstack([X[:120]] * 20), y[:120]
    elif case == "few rows":
        X, y = X[:25], y[:25]
    elif case == "one class in the sample":
        y = (np.arange(len(y)) == 0).astype(int)
    else:
        X = np.clip(40 * X + 128, 0, 255).astype(np.uint8)
    model, report = fitted(X, y, **DIAGONAL)
    assert np.mean(model.predict(Rows(X)) == y) > 0.8
    if case == "constant":
        assert model.header.scaling.metric.factor[3] == 0
    if case in ("few rows", "one class in the sample"):
        assert report["metric"]["kind"] == "none"
        assert report["metric"]["reason"]


@pytest.mark.slow  # searches
def test_sparse_rows_have_a_diagonal_metric_and_no_full_one(tmp_path):
    X, y = noisy()
    X[np.random.default_rng(0).random(X.shape) < 0.3] = 0
    y = (X[:, 0] * X[:, 1] > 0).astype(int)
    there = write(tmp_path / "s", Rows(sparse.csr_array(X)), y, step=100, chunk_rows=128)
    options = {"threads": 2, "tol": 1e-2}
    model, _ = train_in_memory(there, build_config(("t", options | DIAGONAL)))
    assert model.support.is_sparse
    assert model.header.scaling.metric.importances[:2].sum() > 0.8
    dense, _ = fitted(X, y, **DIAGONAL)
    np.testing.assert_allclose(
        model.header.scaling.metric.importances, dense.header.scaling.metric.importances, atol=0.05
    )
    with pytest.raises(ConfigError, match="metric.kind is 'full', which would fill a sparse store; take diagonal"):
        train_in_memory(there, build_config(("t", {"metric": {"kind": "full"}})))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"task": "ordinal", "solver": "cutting-plane", "cutting_plane": {"landmarks": 9}},
            "found task 'ordinal'",
        ),
        ({"kernel": {"name": "linear"}}, "which needs a nonlinear kernel; found linear"),
        (
            {"search": {"options": ["nu"]}},
            "options: found 'nu', expected 'solver', 'early'",
        ),
    ],
)
def test_what_has_no_metric_is_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        fitted(*noisy(), **{**DIAGONAL, **options})


def test_a_row_that_is_not_finite_is_named():
    X, y = noisy()
    X[:, 4] = np.nan
    with pytest.raises(DataError, match=r"column 4 .* is nan"):
        fitted(X, y, kernel={"gamma": 1.0}, **DIAGONAL)


class Stop(Exception):
    pass


@pytest.mark.slow  # searches
@pytest.mark.parametrize("at", [1, pytest.param(7, marks=pytest.mark.slow)])  # later in the same search
def test_killed_while_it_learns_it_goes_on_to_the_same_model(tmp_path, at):
    there = write(tmp_path / "s", Rows(noisy()[0]), noisy()[1], step=100, chunk_rows=128)
    options = build_config(("t", {"threads": 2, "checkpoint_every": "1 steps"} | DIAGONAL))
    train(there, options, model_path=tmp_path / "whole", events=ignore)

    def stop(record: Record[Event]) -> None:
        event = record.event
        if isinstance(event, Progress) and event.phase == "search" and event.done == at:
            raise Stop

    run: dict[str, Any] = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
    with pytest.raises(Stop):
        train(there, options, **run, events=Events(stop))
    seen: list[float] = []

    def note(record: Record[Event]) -> None:
        if isinstance(record.event, Progress) and record.event.phase == "search":
            seen.append(record.event.done)

    train(there, options, **run, resume=True, events=Events(note))
    assert min(seen) >= at  # what was learned is not learned again
    X = Rows(noisy(seed=1)[0])
    whole, resumed = (load_model(Path(tmp_path / name)) for name in ("whole", "m"))
    np.testing.assert_array_equal(whole.decision_function(X), resumed.decision_function(X))
    assert is_made_by(tmp_path / "m", there, [options])
    assert not is_made_by(tmp_path / "m", there, [build_config(("t", {"threads": 2, "metric": {"kind": "full"}}))])


def test_each_fold_has_its_own_metric():
    there = Store.from_arrays(*noisy())
    assert can_share(there, config("dcsvm", dcsvm={"levels": None}), 3)
    assert not can_share(there, config("dcsvm", dcsvm={"levels": None}, **DIAGONAL), 3)
    model, _ = train_in_memory(there, config("alfpgm", probability={"method": "sigmoid", "folds": 2}, **DIAGONAL))
    X, y = noisy(seed=1)
    assert np.mean(np.argmax(model.predict_proba(Rows(X)), axis=1) == y) > 0.85


@pytest.mark.slow  # a fit on a cluster
def test_on_a_cluster_it_is_the_same():
    there, options = Store.from_arrays(*noisy()), {"tol": 1e-2} | DIAGONAL
    here, _ = train_in_memory(there, build_config(("t", options | {"threads": 2})))
    with inside() as scheduler:
        far, _ = train_in_memory(there, build_config(("t", options | {"scheduler": scheduler})))
    np.testing.assert_allclose(here.header.scaling.metric.factor, far.header.scaling.metric.factor, rtol=1e-4)


@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern", "cauchy"])
def test_the_median_gamma_halves_all_pairs(name):
    rng = np.random.default_rng(0)
    a, b = (Rows(rng.normal(size=(m, 4)).astype(np.float32) * [1, 9, 0.1, 1]) for m in (61, 40))
    kernel: Any = kernel_from({"name": name, "gamma": 1e-3, "nu": 0.5})
    gamma = kernel.median_gamma(a, b)
    above = kernel_class(name)(gamma=gamma, **({"nu": 0.5} if name == "matern" else {})).exact(a, b) > 1 / np.e
    assert abs(above.mean() - 0.5) < 1e-3
    assert kernel.median_gamma(a.take(slice(1)), a.take(slice(1))) == 1.0
    same = Rows(np.full((1, 3), 1e6 + 0.1))
    assert kernel.median_gamma(same, same) == 1.0


@pytest.mark.parametrize("dtype", [np.uint8, np.float32])
@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern"])
def test_the_median_gamma_is_the_same_of_bytes_and_of_sparse_rows(name, dtype):
    X = np.random.default_rng(0).integers(0, 3, (50, 12)).astype(dtype)
    kernel = kernel_from({"name": name, "gamma": 1.0, "nu": 0.5})
    gammas = [
        kernel.median_gamma(rows.take(slice(25)), rows.take(slice(25, 50)))
        for rows in (Rows(X), Rows(X.astype(np.float64)), Rows(sparse.csr_array(X)))
    ]
    np.testing.assert_allclose(gammas, gammas[0], rtol=1e-6)


@pytest.mark.parametrize("k", [2, 3])
def test_a_trial_is_a_fit_its_losses_and_its_gradients(k):
    """All of it against NumPy, float64, in loops."""
    X, y = noisy(k, 160)
    store = Store.from_arrays(X[:120], y[:120], sample_weight=np.linspace(0.5, 2, 120))
    data = prepare(store, build_config(("t", {"C": 3.0, "kernel": {"gamma": 0.2}})), Engine(1))
    asked = DualData(task_of("classify"), data.targets, data.upper)
    held_out_data = DualData(asked.task, type(data.targets)(data.targets.classes, y[120:]), np.linspace(1, 2, 40))
    rows, held, kernel = Rows(X[:120]), Rows(X[120:]), data.kernel
    found = TrialFit(kernel, asked)
    solve([found], rows, MOST_BYTES)
    K = np.exp(-0.2 * ((X[:, None].astype(float) - X[None, :120]) ** 2).sum(axis=2))
    votes, squares, number = np.zeros((40, k)), np.zeros(D), 0
    for part in asked.task.subproblems(asked.targets):
        coef = np.zeros(120)
        coef[part.ids] = part.coefficients(found.alpha[part.places])
        i, j = np.unique(y[:120][part.ids])
        f = K[120:] @ coef
        votes[:, j] += f > 0
        votes[:, i] += f < 0
        confidence = f / (3 * (np.abs(f) + 1)) if k == 2 else np.zeros(40)
        votes[:, j] += confidence
        votes[:, i] -= confidence
        for row in part.ids:
            slope = sum(c * K[row, s] * -0.4 * (X[row].astype(float) - X[s]) for s, c in enumerate(coef))
            squares += asked.upper[row] * slope**2
        number += 1
    wrong = losses([found], rows, held, held_out_data)[0] > 0
    clear = np.sort(votes, axis=1)[:, -1] - np.sort(votes, axis=1)[:, -2] > 0.5
    np.testing.assert_array_equal(wrong[clear], (votes.argmax(axis=1) != y[120:])[clear])
    learner = TrialSettings(KernelConfig(gamma=0.2), None, rows)
    trials = SampleTrials((Sample(rows, asked, held, held_out_data, np.ones(2)),), learner, Engine(1))
    [factor] = trials.refitted(120, np.ones((1, D)), Trial("rbf", math.nan, 3.0), found.alpha)
    np.testing.assert_allclose(factor**2 / np.sum(factor**2), squares / squares.sum(), rtol=1e-3)
    assert number == k * (k - 1) // 2


@pytest.mark.parametrize("loss", ["linear", "squared"])
def test_pairs_of_many_classes_are_solved_as_each_alone(loss, monkeypatch):
    rng, k = np.random.default_rng(0), 24
    y = np.concatenate([np.arange(k), rng.integers(0, k - 1, 150)])  # a class of one row
    X = (rng.normal(size=(k, D))[y] + 0.5 * rng.normal(size=(len(y), D))).astype(np.float32)
    config = build_config(("t", {"C": 3.0, "kernel": {"gamma": 0.2}}))
    data = prepare(Store.from_arrays(X, y, sample_weight=np.linspace(0.5, 2, len(y))), config, Engine(1))
    asked = DualData(task_of("classify"), data.targets, data.upper)
    first, held = asked.take(slice(150)), asked.take(slice(150, None))
    rows, unseen = Rows(X[:150]), Rows(X[150:])
    start = None
    for _ in range(2):  # from zero, and from a solution
        made = []
        for many, most_bytes in ((sample_fits.MANY, MOST_BYTES), (k + 1, 0)):
            monkeypatch.setattr(sample_fits, "MANY", many)
            found = TrialFit(data.kernel, first, start, squared=loss == "squared")
            solve([found], rows, most_bytes)
            made.append((found.alpha, losses([found], rows, unseen, held)[0]))
            monkeypatch.undo()
        (alpha, lost), (alone, lost_alone) = made
        np.testing.assert_allclose(alpha, alone, atol=1e-3)
        np.testing.assert_array_equal(lost, lost_alone)
        start = 0.5 * alone


def test_trials_that_have_no_end_lose():
    X, y = noisy(2, 200)
    data = prepare(Store.from_arrays(X, y), build_config(("t", {})), Engine(1))
    asked = DualData(task_of("classify"), data.targets, data.upper)
    sample = Sample(Rows(1e12 * X), asked, Rows(X[:40]), asked.take(np.arange(40)), np.ones(2))
    learner = TrialSettings(KernelConfig(name="poly", degree=9, gamma=1.0), None, sample.rows)
    [found] = SampleTrials((sample,), learner, Engine(1)).tried(
        200, np.ones((1, D)), [Trial("poly", math.nan, 1.0)], None
    )
    assert np.isposinf(found.losses).all()


@pytest.mark.parametrize("layout", ["dense", "csr"])
def test_regions_are_the_rows_nearest_to_their_centres(tmp_path, layout):
    X, y = noisy(3, 1000)
    there = write(tmp_path / "s", Rows(X if layout == "dense" else sparse.csr_array(X)), y, step=100, chunk_rows=128)
    data = prepare(there, build_config(("t", {"C": 2.0})), Engine(2))
    metric, centres = Metric(np.linspace(0, 2, D)), Rows(X[:3])
    found = region_samples(data, centres, metric, 150, Engine(2), ignore)
    distances = (((X[:, None] - X[:3]) * metric.factor).astype(float) ** 2).sum(axis=2)
    for sample, own in zip(found, np.argsort(distances, axis=0).T[:, :150], strict=True):
        rows = np.concatenate([sample.rows.dense(), sample.held_out.dense()])
        assert len(sample.held_out) == 30
        np.testing.assert_array_equal(np.unique(rows, axis=0), np.unique(X[own], axis=0))
        place = {row.tobytes(): i for i, row in enumerate(X)}
        codes = [y[place[row.tobytes()]] for row in sample.rows.dense()]
        np.testing.assert_array_equal(sample.dual_data.targets.codes, codes)
        np.testing.assert_array_equal(sample.dual_data.upper, np.ones(120))


@pytest.mark.slow  # searches
@pytest.mark.parametrize("at", [None, pytest.param(2, marks=pytest.mark.slow)])  # the same, with a stop
def test_where_rows_are_many_the_search_goes_on_in_regions(tmp_path, monkeypatch, at):
    """Killed in between or not, and the phase is said."""
    monkeypatch.setattr("streamsvm.choosing.choices.REGION_ROWS", 300)
    X, y = noisy(n=2500)
    there = write(tmp_path / "s", Rows(X), y, step=500, chunk_rows=500)
    early = {"early": True, "levels": 1, "part_metric": 1}
    chosen = {"metric": {"kind": "diagonal"} | ITERATIONS, "search": {"sample": 600}}
    options = build_config(("t", {"threads": 2, "checkpoint_every": "1 steps", "dcsvm": early} | chosen))
    run: dict[str, Any] = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
    if at is not None:

        def stop(record: Record[Event]) -> None:
            event = record.event
            if isinstance(event, Progress) and event.phase == "regions" and event.done == at:
                raise Stop

        with pytest.raises(Stop):
            train(there, options, **run, events=Events(stop))
    report = train(there, options, **run, resume=at is not None, events=ignore)
    steps = report["metric"]["regions"]
    assert {step["rows"] for step in steps} == {240}
    assert steps[-1]["score"] > 0.85
    model = load_model(tmp_path / "m")
    assert score(model) > 0.9
    assert report["parts"]["columns"][:2] in (["0", "1"], ["1", "0"])
    budgeted = config("bsgd", **chosen)
    assert "regions" not in train_in_memory(there, budgeted, ignore)[1]["metric"]
