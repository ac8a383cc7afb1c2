"""`gaps`: missing values filled as by the command, and as by scikit-learn's imputer in a pipeline."""

from __future__ import annotations

import warnings
from inspect import isclass, signature

import dask.array as da
import numpy as np
import pandas as pd
import pytest
from cases import ESTIMATORS
from every_case import every_case
from scipy import sparse
from sklearn.base import clone
from sklearn.impute import SimpleImputer
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import check_estimators_nan_inf

import streamsvm
from streamsvm import ALFPGMSVC, DCSVC, DCSVR, AutoSVC, BudgetedSVC, CuttingPlaneSVC, DCOneClassSVM, load_model
from streamsvm.cli.app import app, exit_status

WITH_GAPS = [
    kind
    for kind in (getattr(streamsvm, name) for name in streamsvm.__all__)
    if isclass(kind) and "gaps" in signature(kind).parameters
]
HOW = ("mean", "median", "most_frequent")
NO_NAN = "Input X contains NaN|expected finite numbers"


@pytest.fixture(scope="module")
def rows():
    """Whole numbers, of which a tenth are missing, none in the last column."""
    rng = np.random.default_rng(0)
    X = rng.integers(0, 6, (300, 4)).astype(np.float64)
    y = (X[:, 0] + X[:, 1] > X[:, 2] + 2).astype(int)
    X[:, :3][rng.random((300, 3)) < 0.1] = np.nan
    return X, y


def frame_of(X):
    return pd.DataFrame(X, columns=[*"abcd"])


@pytest.mark.parametrize("how", HOW)
def test_it_is_the_fit_of_the_command(how, rows, tmp_path, capsys):
    X, y = rows
    frame_of(X).assign(y=y).to_csv(tmp_path / "a.csv", index=False)
    words = ["fit", str(tmp_path / "a.csv"), "--label", "y", "--no-search", "--gaps", how, "--gamma", "0.2"]
    words += ["--model", str(tmp_path / "m"), "--scale", "standard"]
    assert exit_status(lambda: app(words, standalone_mode=False)) == 0
    of_command = load_model(tmp_path / "m")
    for table in (frame_of(X), frame_of(X).astype("Float64"), X.astype(np.float32)):
        svm = DCSVC(gaps=how, gamma=0.2, scale="standard").fit(table, y)
        np.testing.assert_array_equal(svm.decision_function(table), of_command.decision_function(frame_of(X)))
        np.testing.assert_array_equal(svm.model_.header.scaling.fill, of_command.header.scaling.fill)


@pytest.mark.parametrize("kind", WITH_GAPS)
def test_marks_are_in_all_estimators(kind, rows):
    X, y = rows
    options = {"random_state": 0, "search_params": {"trials": 1}, "polish": 1000}
    svm = kind(mark_gaps=True)
    svm.set_params(**{name: options[name] for name in options if name in svm.get_params()})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that 80 rows are few
        svm.fit(X[:80], y[:80])
    np.testing.assert_array_equal(svm.model_.header.scaling.marks, [0, 1, 2])
    assert np.isfinite(svm.predict(X)).all()


def test_marks_are_those_of_the_command(rows, tmp_path, capsys):
    X, y = rows
    frame_of(X).assign(y=y).to_csv(tmp_path / "a.csv", index=False)
    words = ["fit", str(tmp_path / "a.csv"), "--label", "y", "--no-search", "--mark-gaps", "--gamma", "0.2"]
    words += ["--model", str(tmp_path / "m"), "--scale", "standard"]
    assert exit_status(lambda: app(words, standalone_mode=False)) == 0
    expected = load_model(tmp_path / "m").decision_function(frame_of(X))
    for table in (frame_of(X), X):
        with pytest.warns(UserWarning, match="the mean of the column replaces them"):
            svm = DCSVC(mark_gaps=True, gamma=0.2, scale="standard").fit(table, y)
        np.testing.assert_array_equal(svm.decision_function(table), expected)
        assert svm.feature_importances_.shape == (4,)


@pytest.mark.parametrize("how", HOW)
@pytest.mark.parametrize("name", ["exact", "linear, planes"])
def test_it_is_the_imputer_of_scikit_learn(name, how, rows):
    X, y = rows
    twin = make_pipeline(SimpleImputer(strategy=how), clone(ESTIMATORS[name])).fit(X, y)
    svm = clone(ESTIMATORS[name]).set_params(gaps=how).fit(X, y)
    np.testing.assert_allclose(svm.model_.header.scaling.fill, twin[0].statistics_, rtol=1e-12)
    np.testing.assert_allclose(svm.decision_function(X), twin.decision_function(X), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("how", HOW)
def test_arrays_of_every_kind(how, rows):
    X, y = rows
    expected = DCSVC(gaps=how, gamma=0.2).fit(X, y).decision_function(X)
    there = da.from_array(X, chunks=(100, 4))
    svm = DCSVC(gaps=how, gamma=0.2).fit(there, da.from_array(y, chunks=100))
    np.testing.assert_array_equal(svm.decision_function(there).compute(), expected)
    few = sparse.csr_array(X)
    np.testing.assert_allclose(DCSVC(gaps=how, gamma=0.2).fit(few, y).decision_function(few), expected, atol=2e-3)


def test_values_outliers_and_searches(rows):
    X, y = rows
    assert DCSVR(gaps="median", scale="standard").fit(X, y).predict(X).shape == (300,)
    assert {*DCOneClassSVM(gaps="median", nu=0.1).fit(X).predict(X)} == {-1, 1}
    svm = AutoSVC(gaps="median", search_params={"trials": 2}, random_state=0).fit(X, y)
    assert svm.score(X, y) > 0.7
    np.testing.assert_array_equal(svm.model_.header.scaling.fill, np.nanmedian(X, axis=0))


@pytest.mark.parametrize("kind", WITH_GAPS)
def test_without_it_every_estimator_fills_arrays_with_the_mean_and_says_so(kind, rows):
    X, y = rows
    options = {"random_state": 0, "search_params": {"trials": 1}, "polish": 1000}
    few = {name: options[name] for name in options if name in kind().get_params()}
    found = []
    for gaps in (None, "mean"):
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")  # that 80 rows are few, too
            svm = kind(gaps=gaps, **few).fit(X[:80], y[:80])
        told = [str(warning.message) for warning in said]
        assert any("X: 3 columns have missing values" in text for text in told) == (gaps is None)
        assert not any("HistGradientBoosting" in text for text in told)
        found.append(svm.decision_function(X) if hasattr(svm, "decision_function") else svm.predict(X))
    np.testing.assert_array_equal(*found)


def test_sparse_rows_are_filled_as_well_and_kernel_values_are_not(rows):
    X, y = rows
    with pytest.warns(UserWarning, match="the mean of the column replaces them"):
        svm = DCSVC(gamma=0.2).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(
        svm.decision_function(sparse.csr_array(X)),
        DCSVC(gamma=0.2, gaps="mean").fit(X, y).decision_function(X),
        atol=2e-3,
    )
    given = ALFPGMSVC(kernel="precomputed")
    assert not given.__sklearn_tags__().input_tags.allow_nan
    with pytest.raises(ValueError, match="Input X contains NaN, first in row"):
        given.fit(X @ X.T, y)


def test_a_model_of_rows_without_gaps_refuses_them_in_its_own_words(rows):
    X, y = rows
    svm = DCSVC().fit(np.nan_to_num(X), y)
    row, column = np.argwhere(np.isnan(X))[0]
    message = f"first in row {row}, column {column}, and the model learned from rows without missing values"
    with pytest.raises(ValueError, match=message) as error:
        svm.predict(X)
    assert "HistGradientBoosting" not in str(error.value)


def test_without_it_dask_arrays_are_refused_and_frames_filled_by_their_mean(rows):
    X, y = rows
    with pytest.raises(ValueError, match="expected finite numbers: fill it in, or fit with gaps=.mean."):
        DCSVC().fit(da.from_array(X, chunks=(100, 4)), y)
    with pytest.warns(UserWarning, match="replaces them: gaps chooses median, most_frequent or refuse"):
        plain = DCSVC().fit(frame_of(X), y)
    mean = DCSVC(gaps="mean").fit(frame_of(X), y)
    frame = frame_of(X)
    np.testing.assert_array_equal(plain.decision_function(frame), mean.decision_function(frame))


def test_refused_ones_are_in_none(rows):
    X, y = rows
    for table in (X, frame_of(X), frame_of(X).astype("Float64"), da.from_array(X, chunks=(100, 4))):
        with pytest.raises(ValueError, match=NO_NAN):
            DCSVC(gaps="refuse").fit(table, y)
    whole = np.nan_to_num(X)
    svm = DCSVC(gaps="refuse").fit(whole, y)
    np.testing.assert_array_equal(svm.predict(whole), DCSVC().fit(whole, y).predict(whole))
    with pytest.raises(ValueError, match=NO_NAN):
        svm.predict(X)


@every_case("how", [None, "refuse", *HOW])
def test_the_tag_says_whether_arrays_may_have_some(how):
    svm = CuttingPlaneSVC(gaps=how, C=0.01)
    assert svm.__sklearn_tags__().input_tags.allow_nan == (how != "refuse")
    if how == "refuse":
        check_estimators_nan_inf("CuttingPlaneSVC", svm)


def test_infinity_is_no_gap(rows):
    X, y = rows
    X = X.copy()
    X[7, 1] = np.inf
    for table in (X, frame_of(X)):
        with pytest.raises(ValueError, match="infinity|is inf"):
            DCSVC(gaps="mean").fit(table, y)


@pytest.mark.parametrize(
    ("svm", "message"),
    [
        (
            DCSVC(gaps="zero"),
            "DCSVC: gaps: found 'zero', expected 'mean', 'median', 'most_frequent' or 'refuse'",
        ),
        (
            DCSVC(gaps="refuse", mark_gaps=True),
            "DCSVC: mark_gaps needs missing values to be filled, found gaps 'refuse'",
        ),
        (DCSVC(gaps="search"), "gaps is 'search', but solver dcsvm has only these chosen"),
        (AutoSVC(gaps="zero"), "AutoSVC: gaps: found 'zero'"),
    ],
)
def test_other_ways_are_refused(svm, message, rows):
    with pytest.raises(ValueError, match=message) as error:
        svm.fit(*rows)
    assert "\n" not in str(error.value)


class TestBatches:
    def test_have_no_fill_of_all_rows(self, rows):
        svm = BudgetedSVC(gaps="mean")
        with pytest.raises(ValueError, match="gaps needs all rows: use fit first, and partial_fit"):
            svm.partial_fit(*rows, classes=[0, 1])
        with pytest.raises(ValueError, match="mark_gaps needs all rows"):
            BudgetedSVC(mark_gaps=True).partial_fit(*rows, classes=[0, 1])

    def test_after_a_fit_have_the_one_that_it_learned(self, rows):
        X, y = rows
        fill = BudgetedSVC(gaps="mean", random_state=0).fit(X, y)
        twin = BudgetedSVC(gaps="mean", random_state=0).fit(X, y)
        fill.partial_fit(X[:50], y[:50])
        twin.partial_fit(np.where(np.isnan(X[:50]), np.nanmean(X, axis=0), X[:50]), y[:50])
        np.testing.assert_allclose(fill.decision_function(X), twin.decision_function(X), atol=1e-5)

    def test_with_gaps_where_the_first_had_none_are_refused(self, rows):
        X, y = rows
        whole = frame_of(np.nan_to_num(X))
        svm = BudgetedSVC(random_state=0).partial_fit(whole, y, classes=[0, 1])
        before = svm.decision_function(whole)
        with pytest.raises(ValueError, match="is nan; expected finite numbers"):
            svm.partial_fit(frame_of(X), y)
        np.testing.assert_array_equal(svm.decision_function(whole), before)
