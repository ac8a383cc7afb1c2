"""No rows have no answers, and no error; and columns and labels that cannot be read are one line."""

from __future__ import annotations

import dask.array as da
import dask.dataframe as dd
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from every_case import every_case
from scipy import sparse

from streamsvm import DCSVC, DCSVR, DCOneClassSVM
from streamsvm.errors import DataError

X = np.random.default_rng(0).normal(size=(40, 3))
Y = (X[:, 0] > 0).astype(int)
FRAME = pd.DataFrame({"a": X[:, 0], "b": X[:, 1], "kind": np.where(X[:, 2] > 0, "u", "v")})


@pytest.fixture(scope="module")
def of_arrays():
    return DCSVC(probability=True).fit(X, np.digitize(X[:, 0], [-0.5, 0.5]))


@pytest.mark.parametrize("empty", [X[:0], sparse.csr_array(X)[:0], da.from_array(X)[:0]], ids=["numpy", "csr", "dask"])
def test_no_rows_of_an_array(of_arrays, empty):
    assert np.asarray(of_arrays.predict(empty)).shape == (0,)
    assert np.asarray(of_arrays.decision_function(empty)).shape == (0, 3)
    assert np.asarray(of_arrays.predict_proba(empty)).shape == (0, 3)
    with pytest.raises(ValueError, match="2 features"):
        of_arrays.predict(X[:0, :2])


@pytest.mark.parametrize(
    "empty",
    [
        FRAME[:0],
        pl.from_pandas(FRAME)[:0],
        pl.from_pandas(FRAME).lazy().filter(pl.col("a") > 99),
        pa.table(FRAME)[:0],
    ],
)
def test_no_rows_of_a_frame(empty):
    model = DCSVC().fit(FRAME, Y)
    assert model.predict(empty).shape == model.decision_function(empty).shape == (0,)
    assert model.predict(empty).dtype == Y.dtype


def test_no_rows_of_a_partition():
    model = DCSVC().fit(FRAME, Y)
    frame = FRAME.sort_values("a", ignore_index=True)
    parts = dd.from_pandas(frame, npartitions=4)
    np.testing.assert_array_equal(model.predict(parts[parts["a"] > 0]).compute(), model.predict(frame[frame["a"] > 0]))
    blocks = da.concatenate([da.from_array(X[:5, :1]), da.from_array(X[:0, :1]), da.from_array(X[5:9, :1])])
    plain = DCSVC().fit(X[:, :1], Y)
    np.testing.assert_array_equal(plain.predict(blocks).compute(), plain.predict(X[:9, :1]))


def test_no_rows_of_other_tasks():
    assert DCSVR(interval=0.5).fit(X, X[:, 0]).predict_interval(X[:0]).shape == (0, 2)
    assert DCOneClassSVM().fit(X).predict(X[:0]).shape == (0,)


@every_case(
    ("fit", "message"),
    [
        (
            lambda: DCSVC().fit(pd.DataFrame(X, columns=list("aba")), Y),
            "X has two columns 'a'; expected different",
        ),
        (
            lambda: DCSVC().fit(X, np.array(["a", *Y[1:]], dtype=object)),
            "the label of row 0 is text, 'a', and that of row 1 a number, [01]; expected one",
        ),
        (
            lambda: DCSVC().fit(X, [*Y[:-1].tolist(), "a"]),
            "the label of row 39 is text, 'a', and that of row 0 a number",
        ),
        (
            lambda: DCSVC().fit(X, Y).predict(FRAME),
            "X: column 'kind' holds text, and the model was fitted on an array of numbers",
        ),
        (
            lambda: DCSVC().fit(X, Y).predict(FRAME.assign(kind=pd.Timestamp("2026-01-01"))),
            "X: column 'kind' holds time, and the model",
        ),
    ],
)
def test_one_line(fit, message):
    with pytest.raises(DataError, match=message) as error:
        fit()
    assert "\n" not in str(error.value)


@pytest.mark.parametrize("labels", [Y.tolist(), (Y > 0).tolist(), [str(y) for y in Y]])
def test_labels_that_are_objects(labels):
    model = DCSVC().fit(X, pd.Series(labels, dtype=object))
    assert {*model.classes_.tolist()} == {*labels}
    assert {*model.predict(X).tolist()} == {*labels}
