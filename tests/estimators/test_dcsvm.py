"""DCSVC: scikit-learn's habits, and one model whatever holds the rows."""

from __future__ import annotations

import inspect
import pickle

import dask.array as da
import numpy as np
import pytest
from cases import labelled
from every_case import every_case
from pairwise import pairwise
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from streamsvm import DCSVC, Store, load_model
from streamsvm.config import DCSVMConfig, FitConfig, KernelConfig
from streamsvm.data.rows import Rows
from streamsvm.models.local import LocalModel
from streamsvm.progress import Rounds

DIVIDED = {"levels": 1, "part_rows": 64}


def data(k: int = 2, n: int = 300) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(int) + (k - 2) * (X[:, 2] > 0.5)


def test_defaults_are_those_of_the_configuration():
    given = {name: p.default for name, p in inspect.signature(DCSVC).parameters.items()}
    homes = {"random_state": None, "n_jobs": None, "verbose": 0, "memory_limit": FitConfig().memory_limit}
    homes |= {"device": FitConfig().device}
    homes |= {"metric": FitConfig().metric.kind}
    homes |= dict.fromkeys(("kernel_params", "metric_params", "search_params", "client", "target_encode", "category"))
    homes |= {"cache_size": FitConfig().cache_size >> 20}
    expected = homes | {
        name: getattr(FitConfig(), name) for name in ("C", "tol", "class_weight", "scale", "gaps", "mark_gaps")
    }
    asked = FitConfig().probability
    expected |= {"probability": asked.method is not None, "threshold": asked.threshold, "costs": asked.costs}
    expected |= {"kernel": KernelConfig().name} | {n: getattr(KernelConfig(), n) for n in ("gamma", "degree", "coef0")}
    own = {DCSVMConfig.parameters.get(n, n): value for n, value in DCSVMConfig().model_dump().items()}
    assert FitConfig().multiclass == "pairs"
    assert given == expected | own | {"loss": "hinge", "nu": FitConfig().nu, "multi_class": "ovo"}


@every_case(
    ("options", "match"),
    [
        ({"C": 0}, "C: found 0, expected a number above 0"),
        ({"gamma": -1.0}, "DCSVC: gamma: found -1.0"),
        ({"kernel": "sigmoid"}, "kernel.name is 'sigmoid', which need not be positive semidefinite"),
        ({"kernel": "gauss"}, "DCSVC: kernel: found 'gauss', expected 'rbf', "),
        ({"kernel": "poly", "coef0": -1.0}, "DCSVC: coef0: found -1.0, expected a number at least 0"),
        ({"tol": 0}, "tol: found 0"),
        ({"clustering": "random"}, "DCSVC: clustering: found 'random'"),
        ({"class_weight": "even"}, "class_weight: "),
        ({"class_weight": {0: -1.0, 1: 1.0}}, "class_weight: expected weights above 0"),
        ({"class_weight": {7: 1.0}}, "are not in class_weight"),
        ({"memory_limit": "much"}, "memory_limit: "),
        ({"random_state": "x"}, "cannot be used to seed"),
        ({"levels": 1, "early_level": 2}, "early_level is 2, expected at most levels, 1"),
        ({"early": True, "fit_intercept": True, "combine": "naive"}, "would add up their constants"),
    ],
)
def test_parameters_are_checked_when_fitting(options, match):
    estimator = DCSVC(**options)  # not before
    with pytest.raises(ValueError, match=match):
        estimator.fit(*data())
    assert not hasattr(estimator, "classes_")


@pytest.mark.parametrize(
    ("options", "weighed", "k"), pairwise([{}, DIVIDED | {"children": 3}], [False, True], [2, 3]), ids=str
)
def test_with_an_intercept_it_is_the_problem_of_svc(k, weighed, options):
    X, y = data(k)
    weight = np.random.default_rng(1).uniform(0.2, 3, len(X)) if weighed else None
    same = {"gamma": 0.5, "C": 3.0, "tol": 1e-4}
    ours = DCSVC(**same, **options, fit_intercept=True, random_state=0).fit(X, y, weight)
    theirs = SVC(**same, decision_function_shape="ovo").fit(X, y, weight)
    np.testing.assert_allclose(ours.intercept_, theirs.intercept_, atol=2e-3)
    if k == 2:
        np.testing.assert_allclose(ours.decision_function(X), theirs.decision_function(X), atol=2e-3)
    assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.99


@pytest.mark.parametrize(
    ("kernel", "has_intercept"),
    [
        ({"kernel": "linear"}, True),
        ({"kernel": "poly"}, True),
        ({"kernel": "poly", "coef0": 1.0}, False),
        ({"kernel": "rbf"}, False),
        ({"kernel": "linear", "fit_intercept": False}, False),
        ({"kernel": "linear", **DIVIDED, "early": True}, True),
        ({"kernel": "linear", **DIVIDED, "early": True, "combine": "naive"}, False),
    ],
)
def test_a_kernel_that_is_0_at_the_origin_has_an_intercept(kernel, has_intercept):
    model = DCSVC(random_state=0, **kernel).fit(*data(2, 300)).model_
    intercept = model.bias if isinstance(model, LocalModel) else model.intercept
    assert (intercept is not None and np.any(intercept)) == has_intercept


@pytest.mark.parametrize("options", [{}, DIVIDED | {"early": True}, DIVIDED], ids=["whole", "early", "divided"])
@pytest.mark.parametrize("k", [2, pytest.param(3, marks=pytest.mark.slow)])  # three problems, each to its last step
def test_a_tolerance_out_of_reach_is_one_warning(options, k):
    X, y = data(k, 60)  # few: a block that cannot get there takes all the steps that it may
    svm = DCSVC(kernel="linear", fit_intercept=True, tol=1e-30, random_state=0, **options)
    with pytest.warns(ConvergenceWarning, match="rounding ended the fit at a violation of .* larger tol") as told:
        svm.fit(X, y)
    assert len(told) == 1
    certificate = svm.model_.header.certificate
    assert certificate["converged"] is False
    assert 1e-30 < certificate["violation"] < 1e-3
    near = DCSVC(kernel="linear", fit_intercept=True, random_state=0, **options).fit(X, y)
    assert svm.score(X, y) == pytest.approx(near.score(X, y), abs=0.02)


@pytest.mark.parametrize("k", [2, 3])
def test_parts_of_an_early_model_have_intercepts_of_their_own(k):
    """Each is the problem of `SVC` over the rows of its part."""
    X, y = data(k, 600)
    same = {"gamma": 0.5, "C": 3.0, "tol": 1e-4}
    ours = DCSVC(**same, **DIVIDED, early=True, fit_intercept=True, random_state=0).fit(X, y)
    parts = ours.model_.partition.assign(Rows(X))
    assert len(ours.model_.present) > 2
    for part, present in enumerate(ours.model_.present):
        here = parts == part
        if not present.all():
            continue
        theirs = SVC(**same, decision_function_shape="ovo").fit(X[here], y[here])
        sign = 1 if k == 2 else -1
        np.testing.assert_allclose(ours.model_.bias[part], sign * theirs.intercept_, atol=3e-3)
        assert np.mean(ours.predict(X[here]) == theirs.predict(X[here])) > 0.97


@pytest.mark.parametrize("k", [2, 3])
def test_attributes_are_laid_out_as_those_of_svc(k):
    X, y = data(k)
    ours, theirs = DCSVC(gamma=0.5, C=10.0, random_state=0).fit(X, y), SVC(gamma=0.5, C=10.0).fit(X, y)
    assert ours.dual_coef_.shape == (k - 1, len(ours.support_))
    assert ours.n_support_.dtype == theirs.n_support_.dtype
    np.testing.assert_array_equal(ours.support_vectors_, X[ours.support_])
    np.testing.assert_array_equal(ours.n_support_, np.bincount(y[ours.support_], minlength=k))
    codes = np.repeat(np.arange(k), ours.n_support_)
    np.testing.assert_array_equal(codes, y[ours.support_])
    if k == 3:  # signs of every block of the table; zeros on either side tell nothing
        theirs_codes = np.repeat(np.arange(k), theirs.n_support_)
        for row in range(k - 1):
            for c in range(k):
                signs = ours.dual_coef_[row, codes == c], theirs.dual_coef_[row, theirs_codes == c]
                assert np.sign(signs[0].sum()) == np.sign(signs[1].sum())
    else:
        K = np.exp(-0.5 * ((X[:, None].astype(float) - ours.support_vectors_) ** 2).sum(axis=2))
        np.testing.assert_allclose(ours.decision_function(X), K @ ours.dual_coef_[0], atol=1e-4)
    assert np.mean(ours.predict(X) == theirs.predict(X)) > 0.97


def test_early_models_have_no_such_attributes_and_say_so():
    estimator = DCSVC(early=True, levels=1, random_state=0).fit(*data())
    with pytest.raises(AttributeError, match=r"support vectors by part, in model_.part\(p\)"):
        _ = estimator.support_
    assert not hasattr(estimator, "dual_coef_")
    assert estimator.n_iter_ == 0


def test_rows_far_from_the_origin_come_back_as_given():
    X, y = data()
    estimator = DCSVC(gamma=0.5, random_state=0).fit(X.astype(np.float64) + 1e4, y)
    np.testing.assert_allclose(estimator.support_vectors_, X[estimator.support_] + 1e4, atol=2e-3)


def test_a_weight_is_a_repetition_within_the_tolerance():
    X, y = data()
    times = np.random.default_rng(0).integers(0, 4, len(X))
    weighted = DCSVC(gamma=0.5, tol=1e-5, random_state=0).fit(X, y, sample_weight=times)
    repeated = DCSVC(gamma=0.5, tol=1e-5, random_state=0).fit(X.repeat(times, axis=0), y.repeat(times))
    np.testing.assert_allclose(weighted.decision_function(X), repeated.decision_function(X), atol=1e-3)
    assert np.all(times[weighted.support_] > 0)


@pytest.mark.parametrize(
    ("weight", "match"),
    [
        (lambda y: np.zeros(len(y)), "all samples have zero or negative weights|at least one non-zero"),
        (lambda y: (y == 1).astype(float), "all samples with positive weights belong to the same class"),
        (lambda y: np.where(y == 1, -1.0, 1.0), "belong to the same class|expected a finite number >= 0"),
        (lambda y: np.ones(3), "incompatible shapes|sample_weight.shape"),
    ],
)
def test_bad_sample_weights(weight, match):
    X, y = data()
    with pytest.raises(ValueError, match=match):
        DCSVC().fit(X, y, sample_weight=weight(y))


@pytest.mark.parametrize("labels", [[True, False], [2.0, 1.0], ["b", "a"], [np.int8(3), np.int8(-3)]])
@pytest.mark.parametrize("weights", [None, "balanced", "by label"])
def test_labels_of_any_type_come_back(labels, weights, tmp_path):
    X, codes = data()
    y = np.array(labels)[codes]
    class_weight = dict.fromkeys(np.unique(y).tolist(), 2.0) if weights == "by label" else weights
    estimator = DCSVC(class_weight=class_weight, random_state=0).fit(X, y)
    assert estimator.predict(X).dtype == estimator.classes_.dtype == y.dtype
    assert estimator.score(X, y) > 0.9


def test_text_objects_stay_objects():
    X, codes = data()
    y = np.array(["b", "a"], dtype=object)[codes]
    estimator = DCSVC(random_state=0).fit(X, y)
    assert estimator.predict(X).dtype == object
    assert estimator.model_.classes.tolist() == ["a", "b"]


def test_search_over_parameters_and_pipelines():
    X, y = data()
    search = GridSearchCV(DCSVC(random_state=0), {"C": [0.01, 10.0], "gamma": [0.5, "scale"]}, cv=2).fit(X, y)
    assert search.best_params_["C"] == 10.0
    assert cross_val_score(make_pipeline(StandardScaler(), DCSVC(random_state=0)), X, y, cv=3).min() > 0.8


def test_a_store_brings_its_labels_and_weights():
    X, y = data()
    weight = np.random.default_rng(0).uniform(0.5, 2, len(X))
    store = Store.from_arrays(X, y, sample_weight=weight)
    ours, same = DCSVC(random_state=0).fit(store), DCSVC(random_state=0).fit(X, y, sample_weight=weight)
    np.testing.assert_array_equal(ours.decision_function(X), same.decision_function(X))
    assert ours.score(store) == pytest.approx(same.score(X, y, weight))
    with pytest.raises(ValueError, match="brings its own y"):
        DCSVC().fit(store, y)


def test_dask_labels_and_unknown_sizes():
    X, y = data()
    chunked = da.from_array(X, chunks=(100, 3))
    fitted = DCSVC(random_state=0).fit(chunked, da.from_array(y, chunks=50))
    assert fitted.score(chunked, da.from_array(y, chunks=50)) > 0.9
    with pytest.raises(ValueError, match="compute_chunk_sizes"):
        DCSVC().fit(chunked[chunked[:, 0] > 0], y)
    with pytest.raises(ValueError, match="requires y to be passed"):
        DCSVC().fit(chunked)


def test_prediction_never_holds_more_than_blocks_of_a_dask_array():
    X, y = data()
    fitted = DCSVC(random_state=0).fit(X, y)
    sizes = []

    def block(block_info=None):
        (start, stop), _ = block_info[None]["array-location"]
        sizes.append(stop - start)
        return X[start:stop]

    rows = da.map_blocks(block, chunks=((100, 100, 100), (3,)), dtype=np.float32, meta=np.empty((0, 3), np.float32))
    np.testing.assert_array_equal(fitted.predict(rows), fitted.predict(X))
    assert max(sizes) == 100


def test_saved_models_are_models_of_the_command_line(tmp_path):
    X, y = data()
    estimator = DCSVC(random_state=0).fit(X, np.array(["no", "yes"])[y])
    estimator.save(tmp_path / "model")
    model = load_model(tmp_path / "model")
    assert model.classes.tolist() == ["no", "yes"]
    assert model.header.config["kernel"]["name"] == "rbf"
    assert pickle.loads(pickle.dumps(estimator)).model_.classes.tolist() == ["no", "yes"]


def test_n_iter_counts_rounds_on_the_whole_problem_alone(monkeypatch):
    kinds: list[str] = []
    monkeypatch.setattr(
        Rounds,
        "__call__",
        lambda self, problem, facts, real=Rounds.__call__: kinds.append(self._phase) or real(self, problem, facts),
    )
    X, y = labelled(2)
    svm = DCSVC(C=5, gamma=0.5, levels=2, part_rows=200, random_state=0).fit(X, y)
    assert set(kinds) == {"refine", "top"}
    assert svm.n_iter_ == kinds.count("top")
