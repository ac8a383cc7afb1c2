"""Data frames with text, times and gaps, in all estimators; the same model as from files."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.dataframe import from_pandas
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from streamsvm import ALFPGMSVC, DCSVC, DCSVR, HSSSVC, BudgetedSVC, CuttingPlaneSVC, DCOneClassSVM, Store, load_model
from streamsvm.cli.app import app, exit_status
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.serving.fixed import InputColumns

FRAMES = {"pandas": lambda frame: frame, "polars": pl.from_pandas, "arrow": pa.Table.from_pandas}


@pytest.fixture
def frame():
    rng = np.random.default_rng(0)
    n = 240
    size = rng.normal(5, 2, n).astype(np.float32)
    size[::17] = np.nan
    colour = rng.choice(["red", "blue", None], n)
    day = pd.Timestamp("2024-01-01") + pd.to_timedelta(rng.integers(0, 300, n), unit="D")
    made = pd.DataFrame(
        {"size": size, "colour": colour, "day": day, "new": rng.random(n) < 0.5, "y": np.nan_to_num(size) > 5}
    )
    made["y"] = np.where(made.y ^ (made.colour == "red"), "yes", "no")
    return made


def parts(frame):
    return frame.drop(columns="y"), frame["y"]


def filled(estimator, *args):
    with pytest.warns(UserWarning, match="a column has missing values, 'size' in 6.2% of the rows"):
        return estimator.fit(*args)


@pytest.mark.parametrize(
    "estimator",
    [
        DCSVC(scale="standard"),
        ALFPGMSVC(scale="standard"),
        HSSSVC(scale="standard"),
        BudgetedSVC(scale="standard", random_state=0),
        CuttingPlaneSVC(scale="standard"),
    ],
    ids=lambda e: type(e).__name__,
)
def test_text_times_and_gaps(estimator, frame):
    X, y = parts(frame)
    svm = filled(clone(estimator), X, y)
    assert svm.feature_names_in_.tolist() == ["size", "colour", "day", "new"]
    assert svm.n_features_in_ == 4
    names = svm.model_.feature_names
    assert (names[0], {*names[1:3]}, names[3:]) == ("size", {"colour=red", "colour=blue"}, ("day", "new"))
    assert svm.score(X, y) > 0.6
    strange = X.head(3).assign(colour="green")  # none of the texts that were seen
    assert svm.predict(strange).shape == (3,)
    with pytest.raises(ValueError, match="feature names"):
        svm.predict(X[["colour", "size", "day", "new"]])
    with pytest.raises(ValueError, match="give it a data frame"):
        svm.predict(np.zeros((3, 4)))


def test_values_and_outliers(frame):
    X, _ = parts(frame)
    y = X["size"].fillna(5).to_numpy()
    assert filled(DCSVR(scale="standard"), X, y).score(X, y) > 0.5
    assert {*filled(DCOneClassSVM(scale="standard", nu=0.1), X).predict(X)} == {-1, 1}


def test_all_frames_files_and_stores_make_the_same_model(frame, tmp_path):
    X, y = parts(frame)
    kept = filled(DCSVC(scale="standard"), X, y)
    expected = kept.decision_function(X)
    for make in FRAMES.values():
        rows = make(X)
        assert np.array_equal(filled(DCSVC(scale="standard"), rows, y).decision_function(rows), expected)
    frame.to_csv(tmp_path / "a.csv", index=False)
    pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), tmp_path / "a.parquet")
    for name in ("a.csv", "a.parquet"):
        ingest([tmp_path / name], tmp_path / "s", IngestOptions(label="y", force=True))
        store = Store.open(tmp_path / "s")
        with pytest.warns(UserWarning, match="missing values"):
            svm = DCSVC(scale="standard").fit(store)
        np.testing.assert_array_equal(svm.decision_function(store), expected)
        np.testing.assert_array_equal(svm.model_.as_expansion().coef, kept.model_.as_expansion().coef)
        for field in ("offset", "scale", "fill"):
            own, other = (getattr(m.model_.header.scaling, field) for m in (svm, kept))
            np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize("how", [{}, {"hash": {"colour": 3}}, {"min_frequency": 81}], ids=str)
def test_a_model_of_a_store_encodes_frames_as_the_store_was(frame, tmp_path, how):
    frame.fillna({"size": 0.0}).to_csv(tmp_path / "a.csv", index=False)
    ingest([tmp_path / "a.csv"], tmp_path / "s", IngestOptions(label="y", **how))
    store = Store.open(tmp_path / "s")
    svm = DCSVC(scale="standard").fit(store)
    X, _ = parts(frame.fillna({"size": 0.0}))
    for make in FRAMES.values():
        np.testing.assert_array_equal(svm.decision_function(make(X)), svm.decision_function(store))


def test_a_saved_model_takes_frames_and_files(frame, tmp_path, capsys):
    X, y = parts(frame)
    svm = filled(DCSVC(scale="standard"), X, y)
    svm.save(tmp_path / "m")
    loaded = load_model(tmp_path / "m")
    turned = X[["day", "new", "size", "colour"]]
    for rows in (X, turned, pl.from_pandas(turned)):
        np.testing.assert_array_equal(loaded.predict(rows), svm.predict(X))
    turned.to_csv(tmp_path / "new.csv", index=False)
    command = ["predict", "--model", str(tmp_path / "m"), str(tmp_path / "new.csv")]
    assert exit_status(lambda: app(command, standalone_mode=False)) == 0
    assert capsys.readouterr().out.split()[1:] == svm.predict(X).tolist()
    with pytest.raises(ValueError, match="X lacks column 'day', which the model was trained on"):
        loaded.predict(X.drop(columns="day"))


def test_it_scores_as_a_pipeline_of_scikit_learn_does(frame):
    X, y = parts(frame.drop(columns="day"))
    numbers = make_pipeline(SimpleImputer(), StandardScaler())
    text = make_pipeline(OneHotEncoder(handle_unknown="ignore"), StandardScaler(with_mean=False))
    steps = make_column_transformer((numbers, ["size"]), (text, ["colour"]), ("passthrough", ["new"]))
    twin = make_pipeline(steps, DCSVC(gamma=0.3, C=3))
    with pytest.warns(UserWarning, match="missing values"):
        own = cross_val_score(DCSVC(gamma=0.3, C=3, scale="standard"), X, y).mean()
    assert abs(own - cross_val_score(twin, X, y).mean()) < 0.05


def test_many_categories_are_sparse():
    X = pd.DataFrame({"a": [f"text {i % 400}" for i in range(800)], "b": np.arange(800) % 7.0})
    svm = DCSVC(gamma=1.0).fit(X, np.arange(800) % 2)
    assert svm.support_vectors_.shape[1] == 401
    assert Store.from_arrays(X).is_sparse
    assert svm.predict(X.head(3)).shape == (3,)


def test_pieces_learn_with_the_columns_of_the_first(frame):
    X, y = parts(frame.fillna({"size": 0.0}).drop(columns="day"))
    svm = BudgetedSVC(random_state=0)
    svm.partial_fit(X[:200], y[:200], classes=["no", "yes"])
    svm.partial_fit(X[200:], y[200:])
    assert svm.predict(X).shape == (240,)


def test_numbers_stored_as_text_are_learned_and_answered_as_numbers(tmp_path, capsys):
    rng = np.random.default_rng(0)
    numbers = pd.DataFrame({"a": rng.normal(size=60).round(4), "b": rng.integers(0, 9, 60) * 1.0})
    numbers.loc[::9, "b"] = np.nan
    texts = numbers.assign(a=numbers.a.map(str), b=numbers.b.map(lambda b: "n/a" if np.isnan(b) else f" {b:g}"))
    y = np.where(numbers.a > 0, "yes", "no")
    told = "X: columns 'a', 'b' have numbers stored as text, which are read as numbers; category='COL' takes them"
    gaps = pytest.warns(UserWarning, match="missing values")
    with gaps, pytest.warns(UserWarning, match=told):
        svm = DCSVC(scale="standard").fit(texts, y)
    with pytest.warns(UserWarning, match="missing values"):
        plain = DCSVC(scale="standard").fit(numbers, y)
    expected = plain.decision_function(numbers)
    svm.save(tmp_path / "m")
    numbers.to_csv(tmp_path / "numbers.csv", index=False)
    pq.write_table(pa.Table.from_pandas(texts), tmp_path / "texts.parquet")
    for model in (svm, load_model(tmp_path / "m")):
        for rows in (texts, numbers, pl.from_pandas(texts), pa.Table.from_pandas(texts.assign(b=numbers.b))):
            np.testing.assert_allclose(model.decision_function(rows), expected, rtol=1e-6)
    for name in ("numbers.csv", "texts.parquet"):
        command = ["predict", "--model", str(tmp_path / "m"), str(tmp_path / name)]
        assert exit_status(lambda words=command: app(words, standalone_mode=False)) == 0
        assert capsys.readouterr().out.split()[1:] == plain.predict(numbers).tolist()
    columns = InputColumns(svm.model_)
    for frame in (texts, numbers.astype(object).where(numbers.notna(), None)):
        rows = columns.rows(frame.to_dict("records"))
        np.testing.assert_allclose(svm.model_.decision_function(rows), expected, rtol=1e-6)
    with pytest.raises(ValueError, match="event 0: feature 'a': found 'x', expected a number"):
        columns.rows([{"a": "x"}])
    with pytest.raises(ValueError, match="X:1: column 'a': expected a number, found 'x'"):
        svm.predict(pd.DataFrame({"a": ["1", "x"], "b": ["1", "2"]}))
    with pytest.raises(ValueError, match="event 0: feature 'a': found '1', expected a number"):
        InputColumns(plain.model_).rows([{"a": "1"}])


@pytest.mark.parametrize("make", [*FRAMES.values(), lambda X: from_pandas(X, npartitions=3)])
def test_number_codes_are_categories(make):
    codes = np.array([7, 30, 5] * 20)
    X, y = pd.DataFrame({"code": codes, "b": np.arange(60) % 4}), codes == 7
    svm = DCSVC(kernel="linear", category=["code"]).fit(make(X), y)
    assert svm.model_.feature_names == ("code=7", "code=30", "code=5", "b")
    for other in (X, X.astype({"code": float}), X.assign(code=[f"{code:03}" for code in codes])):
        assert svm.predict(other).tolist() == y.tolist()
    events = [{"code": code, "b": 1} for code in (7, 7.0, "007", 30, 8)]
    expected = svm.decision_function(pd.DataFrame({"code": [7, 7, 7, 30, 8], "b": 1}))
    np.testing.assert_array_equal(svm.model_.decision_function(InputColumns(svm.model_).rows(events)), expected)
    assert np.array_equal(svm.predict(X), clone(svm).set_params(category="code").fit(make(X), y).predict(X))


def test_categories_of_what_has_none_are_named():
    X, y = pd.DataFrame({"code": [1, 2], "b": [3, 4]}), [0, 1]
    with pytest.raises(ValueError, match="X has no column 'c' to take as categories; it has 'code', 'b'"):
        DCSVC(category="c").fit(X, y)
    with pytest.raises(ValueError, match="category names columns of a data frame, found an array; leave it out"):
        DCSVC(category="code").fit(X.to_numpy(), y)
    with pytest.raises(ValueError, match="X is a Store, .*: give category to ingest"):
        DCOneClassSVM(category="code").fit(Store.from_arrays(X))
    assert DCOneClassSVM(category="code").fit(X).model_.d == 3
    svm = BudgetedSVC(random_state=0, category="code").partial_fit(X, y, classes=[0, 1])
    assert svm.partial_fit(X[:1], y[:1]).model_.d == 3


@pytest.mark.parametrize(
    ("column", "message"),
    [
        ([[1], [2]], "column 'a' holds list<.*>; expected numbers, times or text"),
        (
            [1, "x"],
            "X: Could not convert 'x' .*; Conversion failed for column a with type object; expected columns",
        ),
        ([1.0, np.inf], "column 'a' is inf; expected a finite number"),
    ],
)
def test_columns_of_other_things_are_named(column, message):
    X = pd.DataFrame({"a": pd.Series(column, dtype=None if isinstance(column[1], float) else object), "b": [1, 2]})
    with pytest.raises(ValueError, match=message):
        DCSVC().fit(X, [0, 1])
