"""HSSSVC: paths of C, polishing, bad input, and what its reports say."""

from __future__ import annotations

import inspect
import json

import numpy as np
import pytest
from every_case import every_case
from sklearn.datasets import load_digits, load_iris
from sklearn.exceptions import ConvergenceWarning, NotFittedError
from sklearn.svm import SVC

from streamsvm import HSSSVC, Store
from streamsvm.config import ADMMHSSConfig, build_config
from streamsvm.events import Events, Warned
from streamsvm.train import plan, train, train_in_memory

FINE = {"rtol": 1e-6, "atol": 0.0, "max_rank": 1000, "iterations": 1000, "beta": 1.0}


def test_defaults_are_those_of_the_configuration():
    given = {name: p.default for name, p in inspect.signature(HSSSVC).parameters.items()}
    own = set(ADMMHSSConfig.model_fields)
    assert own <= set(given)
    assert ADMMHSSConfig().model_dump() == {name: given[name] for name in own}


def two_moons(n: int = 900, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    angle, side = np.pi * rng.random(n), rng.integers(0, 2, n)
    X = np.column_stack([np.cos(angle) + side, np.where(side, 0.3 - np.sin(angle), np.sin(angle))])
    return X + 0.2 * rng.normal(size=X.shape), side


def libsvm_objective(svm: SVC, X: np.ndarray, gamma: float) -> float:
    signed = np.zeros(len(X))
    signed[svm.support_] = svm.dual_coef_[0]
    K = np.exp(-gamma * ((X[:, None] - X[None]) ** 2).sum(axis=2))
    return 0.5 * signed @ K @ signed - np.abs(signed).sum()


class TestAgainstLIBSVM:
    @pytest.mark.parametrize("definite", [True, False])
    @pytest.mark.parametrize("landmarks", [0, 100])
    @pytest.mark.slow  # many steps
    def test_a_fine_compression_and_many_steps_reach_its_solution(self, definite, landmarks):
        X, y = two_moons()
        svm = SVC(C=10, gamma=2, tol=1e-5).fit(X, y)
        ours = HSSSVC(C=10, gamma=2, definite=definite, landmarks=landmarks, random_state=0, **FINE).fit(X, y)
        assert ours.objective_ == pytest.approx(libsvm_objective(svm, X, 2), rel=2e-3)
        assert 0 <= ours.dual_gap_ < 0.02 * -ours.objective_
        np.testing.assert_allclose(ours.decision_function(X), svm.decision_function(X), atol=0.15)
        assert np.mean(ours.predict(X) == svm.predict(X)) > 0.995

    def test_polishing_reaches_it_from_a_coarse_one(self):
        X, y = two_moons()
        svm = SVC(C=10, gamma=2, tol=1e-5).fit(X, y)
        ours = HSSSVC(C=10, gamma=2, iterations=10, polish=10_000, tol=1e-4, random_state=0).fit(X, y)
        report = ours.reports_[10]
        assert report["converged"]
        assert 0 <= ours.dual_gap_ < 1e-3 * -ours.objective_ < report["gap_before_polish"]
        assert ours.objective_ == pytest.approx(libsvm_objective(svm, X, 2), rel=1e-5)
        assert ours.model_.intercept[0] == pytest.approx(svm.intercept_[0], abs=1e-2)
        np.testing.assert_array_equal(ours.predict(X), svm.predict(X))

    def test_few_rounds_of_polishing_stop_in_time(self):
        X, y = two_moons(3000)
        with pytest.warns(ConvergenceWarning, match="not converged: the gap is"):
            ours = HSSSVC(C=100, gamma=20, iterations=1, polish=1, random_state=0).fit(X, y)
        report = ours.reports_[100]
        assert (report["polish_rounds"], report["converged"]) == (1, False)
        assert ours.dual_gap_ > 0

    def test_weights_bound_the_coefficients(self):
        X, y = two_moons()
        weight = np.random.default_rng(1).choice([0.0, 0.5, 2.0], len(y))
        ours = HSSSVC(C=3, gamma=2, class_weight={0: 1, 1: 3}, beta="balance", iterations=300, random_state=0)
        ours.fit(X, y, weight)
        upper = 3 * weight * np.where(y == 1, 3, 1)
        assert np.all(np.abs(ours.model_.coef[:, 0]) <= upper[ours.model_.ids] * (1 + 1e-6))
        assert np.all(weight[ours.model_.ids] > 0)


class TestPath:
    def test_each_C_has_the_model_of_a_fit_of_its_own(self):
        X, y = load_iris(return_X_y=True)
        path = HSSSVC(C=[0.1, 1, 2], random_state=0).fit(X, y)
        assert (list(path.path_), path.C_) == ([0.1, 1.0, 2.0], 2.0)
        for C in (0.1, 1, 2):
            one = HSSSVC(C=C, random_state=0).fit(X, y)
            np.testing.assert_allclose(path.choose(C).decision_function(X), one.decision_function(X), atol=1e-5)
            assert path.model_.header.config["C"] == C

    @every_case(
        ("C", "message"),
        [
            ([], "C: found"),
            ([1, 1], "C: found"),
            ([1, -2], "C: found -2"),
            ("a", "C: found 'a'"),
            (0, "C: found 0"),
        ],
    )
    def test_wrong_C(self, C, message):
        with pytest.raises(ValueError, match=message):
            HSSSVC(C=C).fit(*load_iris(return_X_y=True))

    def test_a_C_that_is_not_on_the_path(self):
        svm = HSSSVC(C=[1, 2]).fit(*load_iris(return_X_y=True))
        with pytest.raises(ValueError, match=r"C=3 is not on the path; expected one of 1\.0, 2\.0"):
            svm.choose(3)

    def test_unfitted(self):
        with pytest.raises(NotFittedError):
            HSSSVC().choose(1.0)


class TestInput:
    """Duplicates, constants and few rows are documented to work."""

    @pytest.mark.parametrize(
        "X",
        [np.repeat(np.eye(3), 100, axis=0), np.ones((300, 3)), np.random.default_rng(0).random((300, 3))],
        ids=["duplicates", "constant", "fewer rows than a leaf"],
    )
    @pytest.mark.parametrize("leaf", [16, 1000])
    def test_degenerate_rows(self, X, leaf):
        svm = HSSSVC(leaf=leaf, random_state=0).fit(X, np.arange(300) % 2)
        assert np.all(np.isfinite(svm.decision_function(X)))

    @pytest.mark.parametrize("kernel", ["linear", "poly"])
    def test_other_kernels_whatever_their_scale(self, kernel):
        X, y = load_digits(return_X_y=True)
        with pytest.warns(ConvergenceWarning):  # their values reach thousands
            svm = HSSSVC(kernel=kernel, random_state=0).fit(100 * X, y)
        assert svm.score(100 * X, y) > 0.97

    def test_an_indefinite_factor_is_told(self):
        X, y = load_digits(return_X_y=True)
        svm = HSSSVC(definite=False, atol=0.0, max_rank=2, landmarks=0, leaf=32, gamma=1e-4, beta=0.01, random_state=0)
        with pytest.raises(ValueError, match=r"plus beta = 0\.01 is not positive definite .* larger beta"):
            svm.fit(X, y)

    def test_least_squares_that_turn_out_indefinite_are_made_definite(self):
        X, y = load_digits(return_X_y=True)
        said = []
        values = {"max_rank": 1, "landmarks": 2, "leaf": 32, "beta": 1e-3, "iterations": 1}
        config = build_config(("t", {"solver": "admm-hss", "kernel": {"gamma": 1e-3}, "hss": values}))
        train_in_memory(Store.from_arrays(X, y), config, Events(said.append))
        messages = [event.message for _, event in said if isinstance(event, Warned)]
        assert any("compressed again, with admm_hss.definite" in message for message in messages)

    def test_a_limit_too_small_for_anything(self):
        X, y = two_moons(3000)
        with pytest.raises(MemoryError, match=r"a memory limit of 50.0 MiB is too small for .*: give at least \d+ MiB"):
            HSSSVC(memory_limit="50MiB").fit(X, y)


def options(**hss):
    return build_config(("test", {"solver": "admm-hss", "kernel": {"gamma": 2.0}, "C": 10, "hss": hss}))


@pytest.mark.filterwarnings("ignore:not converged")
class TestFits:
    def test_a_report_tells_ranks_bytes_and_errors(self):
        store = Store.from_arrays(*two_moons())
        _, report = train_in_memory(store, options(rtol=1e-4))
        json.dumps(report)
        assert [set(level) for level in report["hss_ranks"]] == 3 * [{"mean", "most"}]
        assert report["hss_bytes"] > 900 * 8 * 100
        assert report["factor_bytes"] > 900 * 8 * 100
        assert report["product_error"] < 1e-2
        assert report["solve_error"] < 1e-4
        assert 0 <= report["dropped_bound"] <= 1e-3
        assert {"compress", "factorise", "admm", "bias"} <= set(report["seconds_by_phase"])

    def test_residuals_end_it_sooner(self):
        store = Store.from_arrays(*two_moons())
        _, long = train_in_memory(store, options(iterations=2000, beta=1.0))
        _, short = train_in_memory(store, options(iterations=2000, beta=1.0, residual=1e-2))
        assert short["steps"] < long["steps"] == 2000
        assert max(short["primal_residual"], short["dual_residual"]) <= 1e-2

    def test_text_is_warned_of(self):
        X = np.eye(600, dtype=np.float32) + 0.01 * np.random.default_rng(0).random((600, 600))
        said = []
        store = Store.from_arrays(X, np.arange(600) % 2)
        train_in_memory(store, options(rtol=1e-6, atol=0.0, landmarks=0), Events(said.append))
        warnings = [event.message for _, event in said if isinstance(event, Warned)]
        assert any("compresses badly" in message and "use solver dcsvm" in message for message in warnings)
        with pytest.warns(UserWarning, match="compresses badly"):
            HSSSVC(gamma=2.0, rtol=1e-6, atol=0.0, landmarks=0, random_state=0).fit(X, np.arange(600) % 2)

    def test_a_plan_trains_nothing(self):
        found = plan(Store.from_arrays(*two_moons()), options())
        assert {"rows_bytes", "vector_bytes", "least_hss_bytes"} <= set(found)

    def test_resumed_is_the_same_and_factorises_nothing(self, tmp_path):
        store = Store.from_arrays(*two_moons())
        whole = train(store, options(), model_path=tmp_path / "a", run_dir=tmp_path / "run")
        again = train(store, options(), model_path=tmp_path / "b", run_dir=tmp_path / "run", resume=True)
        assert again["objective"] == whole["objective"]
        assert "factorise" not in again["seconds_by_phase"]

    @pytest.mark.filterwarnings("ignore:.*holds no whole checkpoint")
    def test_another_runs_factor_is_not_taken(self, tmp_path):
        store = Store.from_arrays(*two_moons())
        train(store, options(), model_path=tmp_path / "a", run_dir=tmp_path / "run")
        for state in (tmp_path / "run").glob("state-*.npz"):
            state.unlink()
        found = train(store, options(leaf=50), model_path=tmp_path / "b", run_dir=tmp_path / "run", resume=True)
        assert "factorise" in found["seconds_by_phase"]
