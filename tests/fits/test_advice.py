"""What a fit says of itself: whether it converged, and whether its features or its gamma make it learn little."""

from __future__ import annotations

import re
import warnings

import numpy as np
import pytest
from cases import config, labelled
from sklearn.base import is_regressor
from sklearn.datasets import load_breast_cancer, load_digits, load_iris, load_wine
from sklearn.exceptions import ConvergenceWarning
from sklearn.preprocessing import StandardScaler

from streamsvm import ALFPGMSVC, ALFPGMSVR, DCSVC, DCSVR, HSSSVC, BudgetedSVC, CuttingPlaneSVC, DCOneClassSVM
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Event, Events, Record, Warned
from streamsvm.fits.prepare import uneven_columns, vanishing_values
from streamsvm.kernels.distance import RBF
from streamsvm.search.options import TuneConfig, points
from streamsvm.search.search import tune
from streamsvm.train import train_in_memory


def told(X, y, name="dcsvm", **options) -> tuple[dict, list[str]]:
    """The report, and the warnings."""
    records: list[Record[Event]] = []
    store = Store.from_arrays(X, y)
    _, report = train_in_memory(store, config(name, **options), Events(records.append))
    return report, [event.message for _, event in records if isinstance(event, Warned)]


class TestConvergence:
    @pytest.mark.parametrize(
        ("name", "options"),
        [
            ("admm-hss", {"C": 1e4, "hss": {"polish": 0, "iterations": 2}}),
            ("admm-hss", {"C": 1e4, "hss": {"polish": 1, "iterations": 2}}),
            ("alfpgm", {"alfpgm": {"max_iter": 1}}),
            ("cutting-plane", {"cutting_plane": {"passes": 2}}),
        ],
        ids=["admm", "polish", "alfpgm", "cutting-plane"],
    )
    def test_a_fit_that_ends_too_soon_says_so_once(self, name, options):
        report, messages = told(*labelled(), name, **options)
        assert report["converged"] is False
        assert [message[:13] for message in messages] == ["not converged"]

    @pytest.mark.parametrize("name", ["dcsvm", "dcsvm early", "alfpgm", "admm-hss", "cutting-plane", "landmarks"])
    def test_a_fit_that_ends_in_time_says_nothing(self, name):
        report, messages = told(*labelled(), name)
        assert report["converged"] is True
        assert not messages

    def test_passes_neither_converge_nor_fail_to(self):
        assert told(*labelled(), "bsgd")[0]["converged"] is None

    @pytest.mark.parametrize(
        "svm",
        [HSSSVC(C=1e4, iterations=1), ALFPGMSVC(C=100, max_iter=1), CuttingPlaneSVC(max_passes=2)],
        ids=lambda svm: type(svm).__name__,
    )
    def test_python_hears_a_convergence_warning(self, svm):
        with pytest.warns(ConvergenceWarning, match="not converged: "):
            svm.fit(*labelled())


NEVER = {"tol": 1e-30}  # that no float32 kernel values reach
UNREACHED = [
    DCSVC(**NEVER),
    DCSVC(**NEVER, nu=0.3),
    DCSVC(**NEVER, loss="squared_hinge"),
    DCSVC(**NEVER, early=True, levels=1),
    DCSVC(**NEVER, levels=1),
    DCSVC(**NEVER, probability=True),
    DCSVR(**NEVER),
    DCSVR(**NEVER, nu=0.3),
    DCSVR(**NEVER, early=True, levels=1),
    DCOneClassSVM(**NEVER),
    ALFPGMSVC(**NEVER),
    ALFPGMSVC(**NEVER, subproblem="fpg"),
    ALFPGMSVR(**NEVER),
    HSSSVC(**NEVER, polish=1000),
]


@pytest.mark.parametrize("svm", UNREACHED, ids=str)
def test_a_tolerance_out_of_reach_is_one_warning_and_the_best_model(svm):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(150, 3))
    y = X[:, 0] if is_regressor(svm) else np.digitize(X[:, 0], [-0.5, 0.5])
    y = (y > 0).astype(int) if getattr(svm, "nu", None) and not is_regressor(svm) else y
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        svm.fit(X, y)
    certificate = svm.model_.header.certificate
    if isinstance(svm, DCOneClassSVM) and certificate["violation"] == 0:  # all levels are equal, to the last bit
        assert not found
        assert certificate["converged"] is True
        return
    [warning] = found
    assert warning.category is ConvergenceWarning
    assert re.search("rounding ended the fit at a violation of .* larger tol", str(warning.message))
    assert certificate["converged"] is False
    assert 1e-30 < certificate["violation"] < 1e-3
    if not isinstance(svm, DCOneClassSVM):
        assert svm.score(X, y) > 0.85


class TestScale:
    @pytest.mark.parametrize("load", [load_digits, load_iris], ids=["digits", "iris"])
    @pytest.mark.parametrize("scaled", [False, True])
    def test_alike_columns_pass(self, load, scaled):
        X = load().data
        assert uneven_columns(Rows(StandardScaler().fit_transform(X) if scaled else X)) is None

    @pytest.mark.parametrize("load", [load_breast_cancer, load_wine], ids=["cancer", "wine"])
    def test_columns_of_other_scales_are_told_unless_the_fit_scales(self, load):
        X, y = load(return_X_y=True)
        y = y == 1
        [message] = told(X, y)[1]
        widest = np.argmax(np.ptp(X, axis=0))
        assert message.startswith(f"column {widest} has a range of ")
        assert "--scale standard" in message
        for scale in ("standard", "minmax", "maxabs"):
            assert not told(X, y, scale=scale)[1]

    def test_of_two_columns_one_may_be_too_wide(self):
        X = np.column_stack([np.linspace(0, 70, 30), np.linspace(0, 1e5, 30)])
        assert "column 1 has a range of 1e+05" in str(uneven_columns(Rows(X)))

    def test_constant_columns_and_one_alone_are_no_others(self):
        X = np.ones((30, 3))
        assert uneven_columns(Rows(X)) is None
        X[:, 1] = np.linspace(0, 1e6, 30)
        assert uneven_columns(Rows(X)) is None

    def test_a_kernel_that_is_too_narrow_is_told_whatever_the_scaling(self):
        X, y = labelled()
        for scale in ("none", "standard"):
            [message] = told(X, y, scale=scale, kernel={"gamma": 1e6})[1]
            assert "values of the rbf kernel vanish at gamma 1e+06" in message

    @pytest.mark.parametrize("name", ["laplacian", "matern"])
    def test_so_are_other_kernels_of_distances(self, name):
        [message] = told(*labelled(), kernel={"name": name, "gamma": 1e6})[1]
        assert f"values of the {name} kernel vanish at gamma 1e+06" in message

    def test_pairs_of_alike_rows_are_enough(self):
        X = np.repeat(np.random.default_rng(0).normal(size=(50, 4)), 2, axis=0).astype(np.float32)
        assert vanishing_values(RBF(1e6), Rows(X)) is None
        assert vanishing_values(RBF(1e6), Rows(X[::2])) is not None

    @pytest.mark.parametrize("svm", [DCSVC(), BudgetedSVC(), HSSSVC(C=0.1)], ids=lambda svm: type(svm).__name__)
    def test_python_hears_a_warning_and_can_scale(self, svm):
        X, y = load_wine(return_X_y=True)
        with pytest.warns(UserWarning, match=r"column 12 has a range of .* StandardScaler"):
            svm.fit(X, y)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert svm.set_params(scale="standard").fit(X, y).score(X, y) > 0.9

    def test_a_first_batch_is_looked_at_too(self):
        X, y = load_wine(return_X_y=True)
        with pytest.warns(UserWarning, match="column 12 has a range of"):
            BudgetedSVC().partial_fit(X, y, classes=[0, 1, 2])
        with pytest.raises(ValueError, match="scale needs all rows"):
            BudgetedSVC(scale="standard").partial_fit(X, y, classes=[0, 1, 2])


def test_a_search_says_it_once_and_nothing_of_the_gammas_it_tries(tmp_path):
    X, y = load_wine(return_X_y=True)
    records: list[Record[Event]] = []
    options = TuneConfig(grid={"kernel.gamma": [1e-3, 1e6]}, folds=2)
    tune(
        Store.from_arrays(X, y),
        options,
        points(options),
        model_path=tmp_path / "m",
        events=Events(records.append),
    )
    [message] = [event.message for _, event in records if isinstance(event, Warned)]
    assert message.startswith("column 12 has a range of ")
