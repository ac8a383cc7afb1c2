"""ALFPGMSVC and ALFPGMSVR: scikit-learn's checks, its own tests of SVC, and LIBSVM's answers at the corners."""

from __future__ import annotations

import bz2
import inspect
import json
from types import SimpleNamespace

import numpy as np
import pytest
from every_case import every_case
from making import write
from private_sklearn import svc_tests
from sklearn.datasets import load_breast_cancer, load_diabetes, load_digits, load_iris, load_svmlight_file
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import minmax_scale
from sklearn.svm import SVC, SVR

from streamsvm import ALFPGMSVC, ALFPGMSVR, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.config import ALFPGMConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError, MemoryLimitError
from streamsvm.events import Events, Round
from streamsvm.train import plan, train

LIBSVMS_OWN = [
    "test_libsvm_iris",
    "test_decision_function_shape",
    "test_weight",
    "test_svr",
    "test_n_support",
    "test_svr_coef_sign",
    "test_svc_invalid_break_ties_param",
    "test_svm_equivalence_sample_weight_C",
    "test_auto_weight",
    "test_decision_function_shape_two_class",
]


@pytest.mark.filterwarnings("ignore:nearly all values of the rbf kernel vanish")  # at their gamma of 1e6
@pytest.mark.parametrize("name", LIBSVMS_OWN)
def test_scikit_learns_own_tests_of_svc(name, monkeypatch):
    """Its expectations of SVC and SVR, with ours in their places."""
    ours = SimpleNamespace(**vars(svc_tests.svm) | {"SVC": ALFPGMSVC, "SVR": ALFPGMSVR})
    monkeypatch.setattr(svc_tests, "svm", ours)
    test = getattr(svc_tests, name)
    given = {"global_random_seed": 42, "SVM": ALFPGMSVC, "SVCClass": ALFPGMSVC, "Klass": ALFPGMSVR}
    test(**{name: given[name] for name in inspect.signature(test).parameters})


def test_defaults_are_those_of_the_configuration():
    given = {name: p.default for name, p in inspect.signature(ALFPGMSVC).parameters.items()}
    given |= {"epsilon": inspect.signature(ALFPGMSVR).parameters["epsilon"].default, "max_iter": None}
    assert ALFPGMConfig().model_dump() == {name: given[name] for name in ALFPGMConfig.model_fields}


def both(X, y, weight=None, tol=1e-5, **options) -> tuple[SVC, ALFPGMSVC]:
    libsvm = SVC(tol=tol, **options).fit(X, y, weight)
    return libsvm, ALFPGMSVC(tol=tol, **options).fit(X, y, weight)


def assert_equal(libsvm: SVC, ours: ALFPGMSVC, X, atol=1e-2) -> None:
    np.testing.assert_allclose(ours.decision_function(X), libsvm.decision_function(X), atol=atol)
    assert np.mean(ours.predict(X) == libsvm.predict(X)) >= 0.999
    np.testing.assert_allclose(ours.intercept_, libsvm.intercept_, atol=atol)
    assert ours.dual_coef_.shape[0] == libsvm.dual_coef_.shape[0]
    assert objective(ours, X) == pytest.approx(objective(libsvm, X), rel=1e-5)


def objective(svm, X) -> float:
    """The dual objective summed over pairs, from the attributes alone."""
    V, k = svm.support_vectors_.astype(float), len(svm.classes_)
    squares = np.square(V).sum(axis=1)
    gamma = 1 / (X.shape[1] * X.var()) if svm.gamma == "scale" else svm.gamma
    K = np.exp(-gamma * (squares[:, None] + squares - 2 * V @ V.T)) if svm.kernel == "rbf" else V @ V.T
    ends = np.cumsum([0, *svm.n_support_])
    total = 0.0
    for i in range(k):
        for j in range(i + 1, k):
            rows = np.r_[ends[i] : ends[i + 1], ends[j] : ends[j + 1]]
            row_i = np.full(ends[i + 1] - ends[i], j - 1)
            column = np.concatenate([row_i, np.full(ends[j + 1] - ends[j], i)])
            a = svm.dual_coef_[column, rows]
            total += 0.5 * a @ K[np.ix_(rows, rows)] @ a - np.abs(a).sum()
    return total


class TestAgainstLIBSVM:
    @pytest.mark.parametrize("kernel", ["rbf", "linear"])
    @pytest.mark.parametrize("C", [1e-3, 1.0, 1e5])
    def test_two_classes(self, kernel, C):
        X, y = load_breast_cancer(return_X_y=True)
        X = minmax_scale(X)
        if kernel == "linear" and C > 1:
            C = 100.0  # separable: beyond that LIBSVM needs minutes
        assert_equal(*both(X, y, kernel=kernel, C=C, tol=1e-4), X)

    @pytest.mark.parametrize("shape", ["ovr", "ovo"])
    def test_ten_classes(self, shape):
        X, y = load_digits(return_X_y=True)
        assert_equal(*both(X, y, C=10, decision_function_shape=shape), X)

    @pytest.mark.slow  # LIBSVM's 325 pairs
    def test_letters(self, shared_data):
        with bz2.open(shared_data("letter.bz2")) as file:
            X, y = load_svmlight_file(file, n_features=16)
        X, y = X.toarray()[:3000], y[:3000]
        assert_equal(*both(X, y, C=10, gamma=0.1, tol=1e-4, decision_function_shape="ovo"), X)

    def test_sparse_rows_and_weights(self, shared_data):
        with bz2.open(shared_data("a9a.bz2")) as file:
            X, y = load_svmlight_file(file, n_features=123)
        X, y = X[:2000], y[:2000]
        weight = np.random.default_rng(0).choice([0.0, 0.5, 3.0], len(y))
        libsvm, ours = both(X, y, weight, C=1, gamma=0.05, class_weight={-1.0: 0.7, 1.0: 2.0})
        np.testing.assert_allclose(ours.decision_function(X), libsvm.decision_function(X), atol=1e-3)
        np.testing.assert_array_equal(ours.class_weight_, libsvm.class_weight_)

    def test_unbalanced(self):
        X, y = load_breast_cancer(return_X_y=True)
        kept = np.r_[np.flatnonzero(y == 1), np.flatnonzero(y == 0)[:4]]
        X = minmax_scale(X[kept])
        for weight in (None, "balanced"):
            assert_equal(*both(X, y[kept], C=10, class_weight=weight), X)

    def test_duplicate_rows_with_opposite_labels(self):
        rng = np.random.default_rng(0)
        X = np.repeat(rng.normal(size=(60, 3)), 2, axis=0)
        y = np.where(X[:, 0] > 0, 1, 0)
        y[1::6] = 1 - y[1::6]
        libsvm, ours = both(X, y, C=10)
        assert_equal(libsvm, ours, X)

    @pytest.mark.parametrize("options", [{}, {"kernel": "linear", "epsilon": 5.0}, {"C": 1e4}])
    def test_regression(self, options):
        X, y = load_diabetes(return_X_y=True)
        X = minmax_scale(X)
        libsvm, ours = (svr(tol=1e-4, **options).fit(X, y) for svr in (SVR, ALFPGMSVR))
        np.testing.assert_allclose(ours.predict(X), libsvm.predict(X), rtol=2e-3)
        assert ours.intercept_ == pytest.approx(libsvm.intercept_, rel=2e-3)
        if "kernel" in options:
            np.testing.assert_allclose(ours.coef_, libsvm.coef_, atol=2e-2)
        assert ours.score(X, y) == pytest.approx(libsvm.score(X, y), abs=1e-3)


def test_max_iter_ends_with_a_warning():
    X, y = load_digits(return_X_y=True)
    with pytest.warns(ConvergenceWarning, match="violation"):
        svm = ALFPGMSVC(max_iter=1, pairs=5).fit(X, y)
    assert svm.fit_status_ == 1
    assert (svm.n_iter_ == 1).all()


def test_the_papers_method_by_one_name():
    X, y = load_iris(return_X_y=True)
    svm = ALFPGMSVC(C=100, method="paper", max_alpha_opt=10).fit(X, y)
    section = svm.model_.header.config["alfpgm"]
    given = {name: section[name] for name in ("pairs", "subproblem", "min_alpha_opt", "max_alpha_opt", "shrinking")}
    assert list(given.values()) == [50, "fpg", 5, 10, False]
    assert svm.model_.header.config["tol"] == 1e-2
    assert svm.fit_status_ == 0
    assert svm.score(X, y) >= 0.97


@every_case(
    ("options", "message"),
    [
        ({"kernel": "magic"}, "ALFPGMSVC: kernel: found 'magic'"),
        ({"subproblem": "newton"}, "expected 'pairs' or 'fpg'"),
        ({"pairs": 0}, "ALFPGMSVC: pairs: found 0"),
        ({"max_iter": 0}, "ALFPGMSVC: max_iter: found 0"),
        ({"decision_function_shape": "all"}, "expected 'ovr' or 'ovo'"),
    ],
)
def test_bad_parameters_are_one_line(options, message):
    with pytest.raises(ValueError, match=message):
        ALFPGMSVC(**options).fit(*load_iris(return_X_y=True))


def test_coef_needs_a_linear_kernel():
    svm = ALFPGMSVC().fit(*load_iris(return_X_y=True))
    assert not hasattr(svm, "coef_")


class TestCommandLine:
    @staticmethod
    def run(*args) -> int:
        return exit_status(lambda: app([*map(str, args)], standalone_mode=False))

    def test_regression_from_store_to_scores(self, tmp_path, capfd):
        X, y = load_diabetes(return_X_y=True)
        write(tmp_path / "s", Rows(X.astype(np.float32)), y, step=50)
        where = ("--store", tmp_path / "s", "--model", tmp_path / "m")
        how = ("--solver", "alfpgm", "--task", "regress", "--C", 100, "--no-search")
        how += ("--set", "scale_targets=false")
        assert self.run("fit", *where, *how) == 0
        assert self.run("evaluate", *where, "--json") == 0
        result = json.loads(capfd.readouterr().out.splitlines()[-1])
        svr = SVR(C=100).fit(X, y)
        assert result["r2"] == pytest.approx(svr.score(X, y), abs=1e-3)
        assert result["accuracy"] is None
        assert result["mean_absolute_error"] == pytest.approx(np.abs(svr.predict(X) - y).mean(), rel=1e-3)
        assert self.run("predict", *where, "--out", tmp_path / "p.csv") == 0
        assert (tmp_path / "p.csv").read_text().startswith("value\n")

    def test_the_model_votes_as_libsvm_does(self, tmp_path):
        X, y = load_digits(return_X_y=True)
        X = X.astype(np.float32)
        store = write(tmp_path / "s", Rows(X), y, step=500)
        where = ("--store", tmp_path / "s", "--model", tmp_path / "m")
        assert self.run("fit", *where, "--solver", "alfpgm", "--C", 0.001, "--no-search") == 0
        found = load_model(tmp_path / "m").predict(store.read(0, len(y)))
        np.testing.assert_array_equal(found, SVC(C=0.001).fit(X, y).predict(X))

    def test_text_is_nothing_to_regress_on(self, tmp_path):
        store = write(tmp_path / "s", Rows(np.ones((4, 2), np.float32)), np.array(list("abab")))
        with pytest.raises(DataError, match="holds text, expected numbers"):
            plan(store, config(task="regress"))


def config(**values):
    return build_config(("test", {"solver": "alfpgm", "C": 10.0} | values))


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"task": "rank"}, "which only solver cutting-plane supports"),
        ({"task": "ordinal", "solver": "admm-hss"}, "which only solver cutting-plane supports"),
        ({"task": "regress", "positive": "a"}, "has no classes"),
    ],
)
def test_tasks_and_solvers_that_do_not_agree(values, message):
    with pytest.raises(ConfigError, match=message):
        config(**values)


def test_too_little_memory_is_said_before_the_start(tmp_path):
    store = write(tmp_path / "s", Rows(np.ones((4, 2), np.float32)), np.arange(4) % 2)
    with pytest.raises(
        MemoryLimitError, match=r"solver alfpgm, which holds vectors of all rows: give at least \d+ MiB"
    ):
        plan(store, config(memory_limit="1MiB"))


@pytest.mark.parametrize("estimator", [ALFPGMSVC, ALFPGMSVR])
def test_support_vectors_far_from_the_origin_are_the_rows_given(estimator):
    """Such rows are shifted inside, which nobody asked for."""
    X = np.random.default_rng(0).normal(1e4, 1.0, (80, 3))
    fitted = estimator(gamma=0.3).fit(X, X[:, 0] > 1e4)
    assert fitted.model_.header.scaling.kind == "centre"
    np.testing.assert_allclose(fitted.support_vectors_, X[fitted.support_], rtol=1e-6)


def test_a_killed_regression_goes_on_and_ends_the_same(tmp_path):
    """Saved at every round; killed at several of them."""
    X, y = load_digits(n_class=3, return_X_y=True)
    store = write(tmp_path / "s", Rows(X.astype(np.float32)), y, step=100)
    options = config(task="regress", alfpgm={"pairs": 5}, kernel={"gamma": 1e-3}, threads=1, checkpoint_every="1 step")
    wanted = train(store, options, model_path=tmp_path / "wanted")
    for killed_at in (1, 4, 9):
        run_dir = tmp_path / f"run{killed_at}"
        rounds = []

        def events(record, rounds=rounds, killed_at=killed_at):
            rounds.append(isinstance(record.event, Round))
            if sum(rounds) > killed_at:
                raise KeyboardInterrupt

        with pytest.raises(KeyboardInterrupt):
            train(store, options, model_path=tmp_path / "m", run_dir=run_dir, events=Events(events))
        found = train(store, options, model_path=tmp_path / "m", run_dir=run_dir, resume=True)
        assert (found["rounds"], found["objective"]) == (wanted["rounds"], wanted["objective"])
        rows = Store.open(tmp_path / "s").read(0, len(y))
        decisions = [load_model(tmp_path / name).decision_function(rows) for name in ("wanted", "m")]
        np.testing.assert_array_equal(*decisions)


def test_rows_are_looked_at_for_pairs_too():
    X, y = load_iris(return_X_y=True)
    svm = ALFPGMSVC(decision_function_shape="ovo").fit(X, y)
    bad = Store.from_arrays(np.where(np.arange(len(X))[:, None] == 7, np.nan, X))
    with pytest.raises(ValueError, match=r"row 7, column 0"):
        svm.decision_function(bad)
