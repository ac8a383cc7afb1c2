"""Numbers and times that float32 does not hold are float64, which is told once, with what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from dask.dataframe import from_pandas
from pairwise import pairwise

from streamsvm.data.store import Store
from streamsvm.events import Events, Warned
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions

EXACT = 2**24  # the last one before gaps


def told(frame, tmp_path, suffix=".csv", **options):
    path = tmp_path / f"t{suffix}"
    frame.to_csv(path, index=False) if suffix == ".csv" else frame.to_parquet(path, index=False)
    heard = []
    ingest([path], tmp_path / "s", IngestOptions(force=True, **options), Events(heard.append))
    return [one.event.message for one in heard if isinstance(one.event, Warned)]


def in_frame(frame):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        Store.from_arrays(frame)
    return [str(one.message) for one in caught]


LOST = {
    "ids": (EXACT + 1 + np.arange(5), "16777217 becomes 16777216", "if it is an id"),
    "seconds": (
        1_700_000_001 + np.arange(5),
        "1700000001 becomes 1700000000",
        "a time in seconds since 1970",
    ),
    "milliseconds": (1_700_000_000_001 + np.arange(5.0), "becomes", "a time in milliseconds since 1970"),
    "below zero": (-EXACT - 1 - np.arange(5), "-16777217 becomes -16777216", "if it is an id"),
}
BEYOND = {
    "ids of 19 digits": (2 * 10**18 + np.arange(5) * 7, "2000000000000000000 becomes 1999999968613", "an id"),
    "some missing": ([np.nan, EXACT + 1.0, 3, 4, 5], "16777217 becomes 16777216", "an id"),
}
TWINS = {  # whole numbers that are one float64
    "near 2^60": 2**60 + np.arange(5),
    "of 17 digits": 10**16 + np.arange(5),
}
KEPT = {
    "small": EXACT - np.arange(5),
    "even": EXACT + 2 * np.arange(5),
    "measured": 1e6 + 1e4 * np.arange(5) / 7,
    "huge": 1e25 + np.arange(5) * 1e23,
}


@pytest.mark.parametrize("case", LOST)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_float32_would_lose_is_float64(case, suffix, tmp_path):
    values, lost, kind = LOST[case]
    frame = pd.DataFrame({"when": values, "y": list("ababa")})
    [message] = told(frame, tmp_path, suffix)
    for text in ("column 'when'", "the rows are float64", kind):
        assert text in message
    stored = Store.open(tmp_path / "s").read(0, 5).X[:, 0]
    np.testing.assert_array_equal(stored, frame["when"].to_numpy(float))
    for rows in (frame[["when"]], from_pandas(frame[["when"]], npartitions=1)):
        assert in_frame(rows) == [f"X: {message.partition(': ')[2]}"]
    [message] = told(frame, tmp_path, suffix, dtype="float32")
    for text in ("column 'when'", lost, "--dtype float64 keeps them", kind):
        assert text in message


@pytest.mark.parametrize("case", BEYOND)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_lost_all_the_same_is_told(case, suffix, tmp_path):
    values, lost, kind = BEYOND[case]
    frame = pd.DataFrame({"when": values, "y": list("ababa")})
    [message] = told(frame, tmp_path, suffix)
    for text in ("column 'when'", lost, "float64", kind):
        assert text in message
    assert ("neither does float64" in message) == ("19" in case)
    [message] = in_frame(frame[["when"]])
    assert lost in message


@pytest.mark.parametrize(("suffix", "dtype", "case"), pairwise([".csv", ".parquet"], [None, "float64"], TWINS))
def test_what_float64_loses_is_told(case, dtype, suffix, tmp_path):
    frame = pd.DataFrame({"when": TWINS[case], "y": list("ababa")})
    message = "".join(told(frame, tmp_path, suffix, dtype=dtype))
    assert "column 'when' has whole numbers above 2^53, about 1" in message
    assert "which float64 rounds; leave the column out if it is an id" in message


def test_floats_above_2_53_are_exact(tmp_path):
    frame = pd.DataFrame({"when": 2.0**60 + 2.0**40 * np.arange(5), "y": list("ababa")})
    assert told(frame, tmp_path, ".parquet", dtype="float64") == []


@pytest.mark.parametrize("last", ["2300-01-01", "9999-12-31"])
def test_times_of_all_years_are_days(last, tmp_path):
    when = np.array(["0001-01-01", last], "M8[us]")
    pq.write_table(pa.table({"when": when, "y": ["a", "b"]}), tmp_path / "t.parquet")
    ingest([tmp_path / "t.parquet"], tmp_path / "s", IngestOptions())
    days = Store.open(tmp_path / "s").read(0, 2).X[:, 0]
    np.testing.assert_array_equal(days, when.astype("M8[D]").astype(np.int64))


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_times_keep_their_seconds(suffix, tmp_path):
    when = pd.Timestamp("2026-01-31") + pd.to_timedelta([0, 50, 21.5, 108, 86_400], unit="s")
    frame = pd.DataFrame({"when": when, "y": list("ababa")})
    [message] = told(frame, tmp_path, suffix)
    assert "column 'when' has times of day, which float32 rounds to minutes: the rows are float64" in message
    seconds = 86_400 * Store.open(tmp_path / "s").read(0, 5).X[:, 0]
    np.testing.assert_allclose(seconds - seconds[0], [0, 50, 21.5, 108, 86_400], atol=1e-5)
    frame["when"] = frame["when"].dt.normalize()
    assert told(frame, tmp_path, suffix) == []
    assert Store.open(tmp_path / "s").dtype == np.float32


def test_what_later_rows_lose_changes_the_earlier_ones(tmp_path):
    values = np.r_[np.zeros(60_000), 1_700_000_000 + np.arange(60_000) % 97 / 8 + 0.01]
    pd.DataFrame({"x": values, "y": 0}).to_csv(tmp_path / "a.csv", index=False)
    ingest([tmp_path / "a.csv"], tmp_path / "s", IngestOptions(memory_limit="32MiB"))
    np.testing.assert_array_equal(Store.open(tmp_path / "s").read(0, 120_000).X[:, 0], values)


@pytest.mark.parametrize("suffix", ["npy", "svm"])
def test_arrays_and_svmlight_keep_offsets(suffix, tmp_path):
    X = 1e9 + np.arange(600.0).reshape(300, 2) / 7
    if suffix == "npy":
        np.save(tmp_path / "a.npy", X)
    else:
        (tmp_path / "a.svm").write_text("".join(f"1 1:{a!r} 2:{b!r}\n" for a, b in X.tolist()))
    ingest([tmp_path / f"a.{suffix}"], tmp_path / "s")
    np.testing.assert_allclose(Store.open(tmp_path / "s").read(0, 300).dense(), X, rtol=1e-15)
    assert in_frame(pd.DataFrame(X, columns=["a", "b"]))


@pytest.mark.parametrize("values", [[0.1] * 5, [0.1, 0.2, 0.7, 0.4, 1e6], [1e9, 2e9, 3e9 + 1, 4e9, 5e9], [np.nan] * 5])
def test_what_float32_rounds_by_little_stays_float32(values, tmp_path):
    store = Store.from_arrays(pd.DataFrame({"x": values})) if values[2] != 3e9 + 1 else None
    assert store is None or store.dtype == np.float32
    told(pd.DataFrame({"x": values, "y": list("ababa")}), tmp_path)
    assert Store.open(tmp_path / "s").dtype == np.float32


@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_not_lost_and_measured_numbers_are_not(case, suffix, tmp_path):
    frame = pd.DataFrame({"x": KEPT[case], "y": list("ababa")})
    assert told(frame, tmp_path, suffix) == []
    assert in_frame(frame[["x"]]) == []
    assert in_frame(from_pandas(frame[["x"]], npartitions=2)) == []


def test_rows_like_others_are_read_as_these_were(tmp_path):
    frame = pd.DataFrame({"id": EXACT + 1 + np.arange(5), "y": list("ababa")})
    assert len(told(frame, tmp_path, dtype="float32")) == 1
    assert told(frame, tmp_path, like=str(tmp_path / "s"), label="y") == []
