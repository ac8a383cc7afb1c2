"""Splits by time, and by groups: no value and no group on both sides, nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamsvm.data.ingest.files import ingest
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError


def write(folder: Path, text: str) -> Path:
    path = folder / "a.csv"
    path.write_text(text)
    return path


def split(folder: Path, source: Path, **options):
    options = IngestOptions(**{"split": 0.8, **options}, test_store=str(folder / "test"), force=True)
    summary = ingest([source], folder / "train", options)
    return summary, Store.open(folder / "train"), Store.open(folder / "test")


def column(store: Store, name: str) -> np.ndarray:
    return store.read(0, store.n).X[:, store.feature_names.index(name)]


def nearest(keys: np.ndarray, fraction: float) -> int:
    """How many rows come first, by trying every cut; of two as near the smaller one."""
    n = len(keys)
    counts = {np.count_nonzero(keys < key) for key in keys} - {0, n}
    return min(sorted(counts), key=lambda count: abs(count - round(n * fraction)))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("fraction", [0.05, 0.5, 0.8])
def test_the_last_values_are_tested_on(tmp_path, seed, fraction):
    when = np.random.default_rng(seed).integers(0, [3, 10, 1000][seed % 3], 60)
    source = write(tmp_path, "when,id,y\n" + "".join(f"{w},{i},{i % 2}\n" for i, w in enumerate(when)))
    summary, train, test = split(tmp_path, source, split_by="when", split=fraction)
    assert train.n == nearest(when, fraction)
    assert column(train, "when").max() < summary["split_at"] == column(test, "when").min()
    cut = train.attrs["split_at"]
    np.testing.assert_array_equal(column(train, "id"), np.flatnonzero(when < cut))  # in the file's order
    np.testing.assert_array_equal(column(test, "id"), np.flatnonzero(when >= cut))
    np.testing.assert_array_equal(test.y, column(test, "id") % 2)
    again, shuffled, _ = split(tmp_path, source, split_by="when", split=fraction, shuffle=True)
    assert again["split_at"] == summary["split_at"]
    assert sorted(column(shuffled, "id")) == np.flatnonzero(when < cut).tolist()


@pytest.mark.parametrize("format_", ["csv", "parquet"])
@pytest.mark.parametrize("ignore", [(), ("when",)])
def test_times_and_texts_beside_them(tmp_path, format_, ignore):
    when = np.datetime64("2024-02-28T23:59:58", "s") + np.arange(10)[::-1]
    table = pa.table({"when": when, "c": ["a", "b"] * 5, "y": np.arange(10)})
    source = tmp_path / f"a.{format_}"
    (pq.write_table if format_ == "parquet" else pa.csv.write_csv)(table, source)
    summary, train, test = split(tmp_path, source, split_by="when", ignore=ignore)
    assert summary["split_at"] == "2024-02-29T00:00:06"
    assert (train.y.tolist(), test.y.tolist()) == ([*range(2, 10)], [0, 1])
    assert train.feature_names == ("c=a", "c=b") if ignore else ("when", "c=a", "c=b")


def test_numbers_that_float32_cannot_tell_apart(tmp_path):
    source = write(tmp_path, "when,y\n" + "".join(f"{1_700_000_000 + i},{i}\n" for i in range(10)))
    assert split(tmp_path, source, split_by="when")[2].y.tolist() == [8, 9]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"split_by": "c"}, "column 'c' to split by holds text; expected times or numbers"),
        ({"split_by": "d"}, "has no column 'd' to split by; it has 'a', 'c', 'e', 'same', 'y'"),
        ({"split_by": "e"}, r"a.csv:3: column 'e' is missing; fill it in or remove the row"),
        (
            {"split_by": "same"},
            "a split at 0.8 of rows that all have 1.0 in column 'same' leaves one store empty",
        ),
    ],
)
def test_refusals_leave_nothing(tmp_path, options, message):
    source = write(tmp_path, "a,c,e,same,y\n1,p,1,1,0\n2,q,,1,1\n3,p,2,1,0\n")
    with pytest.raises(DataError, match=message):
        split(tmp_path, source, **options)
    assert os.listdir(tmp_path) == ["a.csv"]


def test_columns_are_of_tables(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(4))
    with pytest.raises(ConfigError, match="--split-by names columns of a table; npy has none"):
        split(tmp_path, tmp_path / "a.npy", split_by="a")
