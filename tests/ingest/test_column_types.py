"""What a column of a table becomes, by its type: numbers, days, a column for each text, or one line."""

from __future__ import annotations

import datetime as dt
import sqlite3
from contextlib import closing
from decimal import Decimal

import dask
import duckdb
import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from dask.dataframe import from_pandas
from every_case import every_case
from pyarrow import feather, parquet

from streamsvm import Store
from streamsvm.errors import DataError
from streamsvm.events import Events
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions

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


@every_case("name", NUMBERS)
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


@every_case("name", TEXT)
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
    "pandas, beyond 64 bits": (pandas([10**30], object), "^X: .*too large"),
    "pandas bytes": (pandas([b"x"], object), holds("binary")),
    "pandas mixed": (pandas([1, "x"], object), "^X: .*column a with type object"),
    "pandas mixed, a code": (pandas([1, "007"], object), "^X: .*column a with type object"),
    "pandas mixed, true": (pandas([True, "1"], object), "^X: .*column a with type object"),
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


@every_case("name", OTHERS)
def test_other_types_are_one_line(name):
    frame, message = OTHERS[name]
    with pytest.raises(DataError, match=message) as error:
        Store.from_arrays(frame)
    assert "\n" not in str(error.value)


AS_TEXT = [
    "1.5",
    "NA",
    " 2 ",
    None,
    "-1e3",
    "",
    "+7",
    "nan",
    ".5",
]  # numbers as text, and what stands for a gap
THEIR_NUMBERS = [1.5, NO, 2, NO, -1000, NO, 7, NO, 0.5]
OF_TEXT = {
    "pandas object": pandas(AS_TEXT, object),
    "pandas string": pandas(AS_TEXT, "string"),
    "pandas arrow string": pandas(AS_TEXT, pd.ArrowDtype(pa.string())),
    "pandas mixed": pandas([1.5, *AS_TEXT[1:4], -1000, np.nan, *AS_TEXT[6:]], object),
    "polars String": polars(AS_TEXT),
    "arrow": arrow(AS_TEXT),
    "arrow large": arrow(AS_TEXT, pa.large_string()),
    "arrow view": arrow(AS_TEXT, pa.string_view()),
    "arrow, in pieces": pa.concat_tables([arrow([*AS_TEXT[5:6]]), arrow(AS_TEXT)]).slice(1),
}
TOLD = "column 'a' has numbers stored as text, which are read as numbers; "


def test_missing_markers_among_numbers_of_pandas_are_gaps():
    with pytest.warns(UserWarning, match=TOLD):
        store = Store.from_arrays(pandas([1.5, "NA", 2], object))
    np.testing.assert_array_equal(store.read(0, 3).dense(), [[1.5], [NO], [2]])


@every_case("name", OF_TEXT)
def test_numbers_stored_as_text_are_numbers(name):
    with pytest.warns(UserWarning, match=f"^X: {TOLD}category='a' takes them as categories$") as caught:
        store = Store.from_arrays(OF_TEXT[name])
    assert len(caught) == 1
    np.testing.assert_array_equal(store.read(0, 9).dense()[:, 0], np.float32(THEIR_NUMBERS))
    assert store.feature_names == ("a",)
    assert store.has_gaps


NO_NUMBERS = {
    "codes": ["007", "12"],
    "codes below zero": ["-01", "2"],
    "hexadecimal": ["0x1A", "0x2B"],
    "ids": ["1234567890123456", "12"],
    "telephone numbers": ["+4930123456", "+4930123457"],
    "one text": ["1", "2", "x"],
    "commas": ["1,5", "2,5"],
    "not finite": ["1", "inf"],
    "gaps": ["NA", "", "nan"],
    "underscores": ["1_000", "2_000"],
}


@pytest.mark.filterwarnings("ignore:X. column 'a' has")
@every_case("name", NO_NUMBERS)
def test_codes_and_ids_stay_text(name):
    texts = NO_NUMBERS[name]
    for frame in (pandas(texts, object), polars(texts)):
        assert Store.from_arrays(frame).feature_names == tuple(f"a={text}" for text in texts if text)


def test_categories_of_numbers_stored_as_text_stay_categories():
    for frame in (pandas(pd.Categorical(["1", "2"])), polars(["1", "2"], pl.Categorical), coded(["1", "2"])):
        assert Store.from_arrays(frame).feature_names == ("a=1", "a=2")


def write_parquet(table, path):
    parquet.write_table(table, path, row_group_size=100)


def write_stream(table, path):
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, table.schema) as writer:
        writer.write_table(table, max_chunksize=100)


def write_database(table, path):
    path.unlink(missing_ok=True)
    connect = sqlite3.connect if path.suffix == ".sqlite" else duckdb.connect
    with closing(connect(str(path))) as base:
        base.execute(f"CREATE TABLE t ({', '.join(f'{name} VARCHAR' for name in table.column_names)})")
        rows = [tuple(row.values()) for row in table.to_pylist()]
        base.executemany(f"INSERT INTO t VALUES ({', '.join('?' * table.num_columns)})", rows)
        base.commit()


WRITERS = {
    "t.parquet": write_parquet,
    "t.feather": lambda table, path: feather.write_feather(table, str(path), chunksize=100),
    "t.arrows": write_stream,
    "t.sqlite": write_database,
    "t.duckdb": write_database,
}


def read(paths, **options):
    """The store of files, and the warnings."""
    messages = []
    store = paths[0].parent / "s"
    options = IngestOptions(force=True, **{"label": "y"} | options)
    ingest(paths, store, options, Events(lambda one: messages.append(getattr(one.event, "message", ""))))
    return Store.open(store), [one for one in messages if "text" in one or "found" in one]


@every_case("name", WRITERS)
def test_numbers_stored_as_text_in_files(tmp_path, name):
    table = pa.table({"a": AS_TEXT * 30, "b": ["1", "02"] * 135, "y": ["001", "1", "2"] * 90})
    WRITERS[name](table, tmp_path / name)
    store, messages = read([tmp_path / name])
    np.testing.assert_array_equal(store.read(0, 270).dense()[:, 0], np.float32(THEIR_NUMBERS * 30))
    assert store.feature_names == ("a", "b=1", "b=02")
    assert store.labels(0, 3).tolist() == ["001", "1", "2"]
    assert [line for line in messages if TOLD in line] == [
        f"{tmp_path / name}: {TOLD}--text a takes them as categories"
    ]
    store, messages = read([tmp_path / name], text=("a",))
    assert store.feature_names[:2] == ("a=1.5", "a=NA")
    assert not any(TOLD in line for line in messages)
    store, messages = read([tmp_path / name], ignore=("y",), label="none", category=("b",))
    assert store.feature_names == ("a", "b=1", "b=2")


@every_case("name", WRITERS)
def test_a_text_after_numbers_makes_all_of_them_text(tmp_path, name):
    first, last = tmp_path / f"1{name}", tmp_path / f"2{name}"
    WRITERS[name](pa.table({"a": ["1", "2"] * 150 + ["x"], "y": ["u", "v"] * 150 + ["u"]}), first)
    assert read([first])[0].feature_names == ("a=1", "a=2", "a=x")
    WRITERS[name](pa.table({"a": ["1", "2"], "y": ["u", "v"]}), first)
    WRITERS[name](pa.table({"a": ["3", "x"], "y": ["u", "v"]}), last)
    store, messages = read([first, last])
    assert store.feature_names == ("a=1", "a=2", "a=3", "a=x")
    assert messages[0].endswith("column 'a': expected a number, found 'x'; all rows are read again to find its type")
    store, messages = read([last, first])
    assert store.feature_names == ("a=3", "a=x", "a=1", "a=2")


def test_text_in_the_numbers_of_a_model_is_one_line(tmp_path):
    first, last = tmp_path / "1.parquet", tmp_path / "2.parquet"
    write_parquet(pa.table({"a": ["1", "2"], "y": ["u", "v"]}), first)
    write_parquet(pa.table({"a": ["3", "x"], "y": ["u", "v"]}), last)
    like = read([first])[0].layout
    with pytest.raises(DataError, match=r"2.parquet:2: column 'a': expected a number, found 'x'$"):
        ingest([last], tmp_path / "t", IngestOptions(), like=like)


@pytest.mark.filterwarnings("ignore:X. column 'a' has numbers stored")
def test_numbers_stored_as_text_in_partitions():
    texts = ["1", "NA", "", "", "2.5", "3"]
    frames = [pandas(texts, object), pandas([*texts[:-1], "x"], object)]
    for frame in frames:
        whole = Store.from_arrays(frame)
        with dask.config.set({"dataframe.convert-string": False}):
            parts = Store.from_arrays(from_pandas(frame, npartitions=3))
        assert parts.attrs == whole.attrs
        np.testing.assert_array_equal(parts.read(0, 6).dense(), whole.read(0, 6).dense())
    assert whole.feature_names == ("a=1", "a=NA", "a=2.5", "a=x")
