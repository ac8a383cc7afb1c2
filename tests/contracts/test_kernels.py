"""What every solver keeps to under every kernel: the table says what goes together. A new kernel is a row there."""

from __future__ import annotations

import numpy as np
import pytest
import reference
from cases import GAPS, SOLVERS, config, labelled
from every_case import every_case
from sklearn.svm import SVC

from streamsvm import ALFPGMSVC, Store, load_model
from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.kernels.base import kernel_from
from streamsvm.kernels.table import KERNELS, kernel_names, mergers
from streamsvm.models.files import save_model
from streamsvm.online import BSGDClassifier
from streamsvm.solvers.catalogue import solver_row
from streamsvm.train import plan, train_in_memory

PARAMETERS = {"gamma": 0.4, "degree": 2, "coef0": 0.5, "nu": 2.5}
DEFINITE = [name for name in kernel_names() if KERNELS[name].definite]


def kernel(name: str) -> dict[str, object]:
    return {"name": name} | {parameter: PARAMETERS[parameter] for parameter in KERNELS[name].parameters}


def asked(solver: str, name: str) -> FitConfig:
    """The solver's small configuration with this kernel."""
    values = {"kernel": kernel(name)}
    if solver == "bsgd" and name not in mergers():
        values["bsgd"] = {"strategy": "project"}
    return config(solver, **values)


def goes(solver: str, name: str) -> bool:
    is_linear = KERNELS[name].is_linear
    return is_linear if solver in ("cutting-plane", "logistic") else not (solver == "landmarks" and is_linear)


PAIRS = [(solver, name) for solver in SOLVERS for name in DEFINITE if goes(solver, name)]


@pytest.mark.parametrize(("solver", "name"), [*PAIRS, ("alfpgm", "sigmoid")])
def test_a_model_is_certified_saved_and_loaded(solver, name, tmp_path):
    X, y = labelled(3, n=240)
    model, report = train_in_memory(Store.from_arrays(X, y), asked(solver, name))
    assert report["n"] == 240
    assert report.get("gamma") == kernel(name).get("gamma")
    expected = model.decision_function(Rows(X))
    assert np.mean(model.predict(Rows(X)) == y) > (0.4 if KERNELS[name].definite else 0.3)
    if "tol" in solver_row(config(solver).solver).reads:
        assert report["converged"]
        assert report["gap"] <= GAPS.get(solver, 1e-3) * abs(report["objective"])
    save_model(model, tmp_path / "model")
    loaded = load_model(tmp_path / "model")
    assert loaded.header.kernel == model.header.kernel == kernel_from(kernel(name))
    np.testing.assert_array_equal(loaded.decision_function(Rows(X)), expected)


@every_case("coef0", [0.0, 0.5])
@every_case("name", kernel_names())
def test_a_kernel_says_whether_it_is_0_at_the_origin(name, coef0):
    own = kernel(name)
    made = kernel_from(own | ({"coef0": coef0} if "coef0" in own else {}))
    values = reference.kernel_matrix(made, labelled(2, n=20)[0], np.zeros((1, 3)))
    assert made.is_zero_at_origin == (not np.any(values))


@every_case("solver", [s for s in SOLVERS if not solver_row(config(s).solver).takes_indefinite])
def test_a_kernel_that_is_not_definite_is_refused(solver):
    with pytest.raises(ConfigError, match="need not be positive semidefinite; found solver .*expected alfpgm"):
        config(solver, kernel=kernel("sigmoid"))


@pytest.mark.parametrize("name", kernel_names())
def test_libsvms_problem_is_solved(name):
    X, y = labelled(2, n=240)
    made = kernel_from(kernel(name))

    def twin(a, b):
        return reference.kernel_matrix(made, a, b)

    own = {parameter: value for parameter, value in kernel(name).items() if parameter not in ("name", "nu")}
    more = {"nu": 2.5} if "nu" in KERNELS[name].parameters else None
    ours = ALFPGMSVC(kernel=name, tol=1e-4, **own, kernel_params=more).fit(X, y)
    libsvm = SVC(kernel=twin, tol=1e-4).fit(X, y)
    if KERNELS[name].definite:
        np.testing.assert_allclose(ours.decision_function(X), libsvm.decision_function(X), atol=1e-2)
    assert ours.score(X, y) == pytest.approx(libsvm.score(X, y), abs=0.05)


@pytest.mark.parametrize("gamma", ["scale", "auto"])
@pytest.mark.parametrize("name", [name for name in DEFINITE if "gamma" in KERNELS[name].parameters])
def test_gamma_comes_from_the_data(name, gamma):
    X, y = labelled(2, n=240)
    values = kernel(name) | {"gamma": gamma}
    store, grown = (Store.from_arrays(size * X, y) for size in (np.float32(1), np.float32(8)))
    model, report = train_in_memory(store, config("dcsvm", kernel=values))
    assert plan(store, config("dcsvm", kernel=values))
    assert 0 < report["gamma"] < 10
    if gamma == "scale" and KERNELS[name].parameters != ("gamma", "degree", "coef0"):  # poly adds coef0
        again, _ = train_in_memory(grown, config("dcsvm", kernel=values))
        found, expected = again.decision_function(Rows(8 * X)), model.decision_function(Rows(X))
        np.testing.assert_allclose(found, expected, atol=5e-3)


@pytest.mark.parametrize("name", ["rbf", "laplacian", "matern", "cauchy"])
def test_rows_far_from_the_origin_are_as_good_as_near_ones(name):
    """Distances by inner products would cancel in float32: such rows are moved, and differences need not be."""
    X, y = labelled(2, n=240)
    near, far = X.astype(np.float64), X.astype(np.float64) + 4096
    models = [train_in_memory(Store.from_arrays(rows, y), asked("dcsvm", name))[0] for rows in (near, far)]
    assert [model.header.scaling.kind for model in models] == [
        "none",
        "none" if name == "laplacian" else "centre",
    ]
    one, other = (model.decision_function(Rows(rows)) for model, rows in zip(models, (near, far), strict=True))
    np.testing.assert_allclose(one, other, atol=5e-3)


@pytest.mark.parametrize("gamma", [0.4, "scale"])
@pytest.mark.parametrize("name", DEFINITE)
def test_a_stream_is_learnt_and_gone_on_with(name, gamma):
    X, y = labelled(2, n=240)
    own = {parameter: value for parameter, value in kernel(name).items() if parameter in ("degree", "coef0")}
    more = {"nu": 2.5} if "nu" in KERNELS[name].parameters else None
    learner = BSGDClassifier(lam=1e-2, kernel=name, gamma=gamma, budget=30, kernel_params=more, **own)
    events = [(dict(enumerate(row.tolist())), label) for row, label in zip(X, y.tolist(), strict=True)]
    for x, label in events[:200]:
        learner.learn_one(x, label)
    again = BSGDClassifier.from_model(learner.to_model())
    for x, label in events[200:]:
        learner.learn_one(x, label)
        again.learn_one(x, label)
        np.testing.assert_array_equal(again.decision_one(x), learner.decision_one(x))
    assert again.kernel == name
    assert again.kernel_params == more
