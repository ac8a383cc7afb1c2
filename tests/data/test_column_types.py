"""What a column of a data frame becomes, by its type: numbers, days, a column for each text, or one line."""

from __future__ import annotations

import datetime as dt
from decimal import Decimal

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from streamsvm import Store
from streamsvm.errors import DataError

NO, DAY = np.nan, 19723.0  # 2024-01-01
NEW_YEAR = dt.date(2024, 1, 1)


def pandas(values, dtype=None):
    return pd.DataFrame({"a": pd.Series(values, dtype=dtype)})


def polars(values, dtype=None):
    return pl.DataFrame({"a": pl.Series(values, dtype=dtype)})


def arrow(values, kind=None):
    return pa.table({"a": pa.array(values, type=kind)})


def coded(values, kind=None):
    return pa.table({"a": pa.array(values, type=kind).dictionary_encode()})


NUMBERS = {
    "pandas Int64": (pandas([1, None], "Int64"), [1, NO]),
    "pandas Float64": (pandas([1.5, None], "Float64"), [1.5, NO]),
    "pandas boolean": (pandas([True, None], "boolean"), [1, NO]),
    "pandas float16": (pandas([0.5, 2], "float16"), [0.5, 2]),
    "pandas objects, nothing": (pandas([None, None], object), [NO, NO]),
    "pandas objects, booleans": (pandas([True, None], object), [1, NO]),
    "pandas objects, decimals": (pandas([Decimal("1.5"), None], object), [1.5, NO]),
    "pandas objects, dates": (pandas([NEW_YEAR, None], object), [DAY, NO]),
    "pandas time zone": (pandas(pd.to_datetime(["2024-01-01 01:00+01:00", None])), [DAY, NO]),
    "pandas arrow decimal": (pandas([Decimal("1.5"), None], pd.ArrowDtype(pa.decimal128(5, 2))), [1.5, NO]),
    "polars Boolean": (polars([True, None]), [1, NO]),
    "polars Decimal": (polars([Decimal("1.5"), None], pl.Decimal(10, 2)), [1.5, NO]),
    "polars Date": (polars([NEW_YEAR, None]), [DAY, NO]),
    "polars Datetime": (polars([dt.datetime(2024, 1, 1, 12), None]), [DAY + 0.5, NO]),
    "polars Null": (polars([None, None], pl.Null), [NO, NO]),
    "polars UInt64": (polars([2**63, 1], pl.UInt64), [2.0**63, 1]),
    "arrow decimal256": (arrow([Decimal("1.5"), None], pa.decimal256(40, 2)), [1.5, NO]),
    "arrow date32": (arrow([NEW_YEAR, None]), [DAY, NO]),
    "arrow date64": (arrow([NEW_YEAR, None], pa.date64()), [DAY, NO]),
    "arrow timestamp": (arrow([dt.datetime(2024, 1, 1), None], pa.timestamp("ns")), [DAY, NO]),
    "arrow halffloat": (arrow(np.array([0.5, 2], np.float16)), [0.5, 2]),
    "arrow null": (arrow([None, None]), [NO, NO]),
    "arrow batch": (pa.record_batch({"a": [1.0, 2.0]}), [1, 2]),
}


@pytest.mark.parametrize("name", NUMBERS)
def test_numbers_and_days(name):
    frame, expected = NUMBERS[name]
    store = Store.from_arrays(frame)
    np.testing.assert_array_equal(store.read(0, 2).dense()[:, 0], np.float32(expected))
    assert store.feature_names == ("a",)
    assert store.has_gaps == bool(np.isnan(expected).any())


TEXTS = ["y", None, "x", "y"]
TEXT = {
    "pandas string": pandas(TEXTS, "string"),
    "pandas str": pandas(TEXTS, "str"),
    "pandas object": pandas(TEXTS, object),
    "pandas category": pandas(pd.Categorical(TEXTS, categories=["x", "y", "never"])),
    "pandas arrow string": pandas(TEXTS, pd.ArrowDtype(pa.string())),
    "polars String": polars(TEXTS),
    "polars Categorical": polars(TEXTS, pl.Categorical),
    "polars Enum": polars(TEXTS, pl.Enum(["x", "y", "never"])),
    "arrow large": arrow(TEXTS, pa.large_string()),
    "arrow view": arrow(TEXTS, pa.string_view()),
    "arrow dictionary": coded(TEXTS),
    "arrow dictionary, large": coded(TEXTS, pa.large_string()),
    "arrow dictionary, in pieces": pa.concat_tables([coded(TEXTS[:2]), coded(TEXTS[2:])]),
}


@pytest.mark.parametrize("name", TEXT)
def test_text_in_the_order_of_its_rows(name):
    store = Store.from_arrays(TEXT[name])
    assert store.feature_names == ("a=y", "a=x")
    assert store.read(0, 4).dense().tolist() == [[1, 0], [0, 0], [0, 1], [1, 0]]
    assert not store.has_gaps


@pytest.mark.parametrize(
    ("frame", "names"),
    [
        (pandas(pd.Categorical([7, None, 3])), ("a=7", "a=3")),
        (pandas(pd.Categorical([True, None, False])), ("a=true", "a=false")),
        (coded([7, None, 3]), ("a=7", "a=3")),
    ],
)
def test_numbers_of_categories_are_names(frame, names):
    store = Store.from_arrays(frame)
    assert store.feature_names == names
    assert store.read(0, 3).dense().tolist() == [[1, 0], [0, 0], [0, 1]]


def holds(kind):
    return rf"^column 'a' holds {kind}.*; expected numbers, times or text: convert it, or leave it out$"


OTHERS = {
    "pandas timedelta": (pandas(pd.to_timedelta([1], unit="D")), holds("duration")),
    "pandas period": (pandas(pd.period_range("2024", periods=1)), holds("extension")),
    "pandas intervals": (pandas(pd.cut([1.0, 2.0], 2)), holds("dictionary<.*interval")),
    "pandas categories, times": (
        pandas(pd.Categorical(pd.to_datetime(["2024"]))),
        holds("dictionary<.*time"),
    ),
    "pandas complex": (pandas([1j]), "^X: .*column a with type complex128"),
    "pandas sparse": (pandas([0.0], pd.SparseDtype(float)), "^X: Sparse pandas data"),
    "pandas bytes": (pandas([b"x"], object), holds("binary")),
    "pandas mixed": (pandas([1, "x"], object), "^X: .*column a with type object"),
    "pandas, one name twice": (pd.DataFrame([[1, 2]], columns=["a", "a"]), "^X: Duplicate column names"),
    "polars Duration": (polars([dt.timedelta(1)]), holds("duration")),
    "polars Time": (polars([dt.time(1)]), holds("time64")),
    "polars Struct": (polars([{"x": 1}]), holds("struct")),
    "polars Binary": (polars([b"x"]), holds("binary")),
    "arrow list": (arrow([[1]]), holds("list")),
    "arrow duration": (arrow([dt.timedelta(1)]), holds("duration")),
    "arrow, one name twice": (
        pa.Table.from_arrays([pa.array([1])] * 2, names=["a", "a"]),
        "^X has two columns 'a'; expected different names$",
    ),
}


@pytest.mark.parametrize("name", OTHERS)
def test_other_types_are_one_line(name):
    frame, message = OTHERS[name]
    with pytest.raises(DataError, match=message) as error:
        Store.from_arrays(frame)
    assert "\n" not in str(error.value)
