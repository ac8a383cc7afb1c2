"""Whole numbers that float32 does not hold are told, once, with what to do."""

from __future__ import annotations

import warnings

import numpy as np
import pandas as pd
import pytest
from dask.dataframe import from_pandas

from streamsvm.data.ingest.files import ingest
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.store import Store
from streamsvm.events import Events, Warned

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
    "ids of 19 digits": (2 * 10**18 + np.arange(5) * 7, "2000000000000000000 becomes 1999999968613", "an id"),
    "seconds": (
        1_700_000_001 + np.arange(5),
        "1700000001 becomes 1700000000",
        "a time in seconds since 1970",
    ),
    "milliseconds": (1_700_000_000_001 + np.arange(5.0), "becomes", "a time in milliseconds since 1970"),
    "below zero": (-EXACT - 1 - np.arange(5), "-16777217 becomes -16777216", "if it is an id"),
    "some missing": ([np.nan, EXACT + 1.0, 3, 4, 5], "16777217 becomes 16777216", "an id"),
}
KEPT = {
    "small": EXACT - np.arange(5),
    "even": EXACT + 2 * np.arange(5),
    "measured": 1e9 + np.arange(5) / 8,
    "huge": 1e25 + np.arange(5) * 1e20,
}


@pytest.mark.parametrize("case", LOST)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_lost_is_told_once(case, suffix, tmp_path):
    values, lost, kind = LOST[case]
    frame = pd.DataFrame({"when": values, "y": list("ababa")})
    [message] = told(frame, tmp_path, suffix)
    for text in ("column 'when'", lost, "--dtype float64 keeps them", kind):
        assert text in message
    if "19" not in case:
        assert told(frame, tmp_path, suffix, dtype="float64") == []
        kept = Store.open(tmp_path / "s").read(0, 5).X[:, 0]
        np.testing.assert_array_equal(kept, frame["when"].to_numpy(float))
    [message] = in_frame(frame[["when"]])
    assert "subtract the smallest" in message
    assert in_frame(from_pandas(frame[["when"]], npartitions=2)) == [message]


@pytest.mark.parametrize("case", KEPT)
@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_what_is_not_lost_and_measured_numbers_are_not(case, suffix, tmp_path):
    frame = pd.DataFrame({"x": KEPT[case], "y": list("ababa")})
    assert told(frame, tmp_path, suffix) == []
    assert in_frame(frame[["x"]]) == []
    assert in_frame(from_pandas(frame[["x"]], npartitions=2)) == []


def test_rows_like_others_are_read_as_these_were(tmp_path):
    frame = pd.DataFrame({"id": EXACT + 1 + np.arange(5), "y": list("ababa")})
    assert len(told(frame, tmp_path)) == 1
    assert told(frame, tmp_path, like=str(tmp_path / "s"), label="y") == []
