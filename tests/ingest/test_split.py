"""Splits by time, and by groups: no value and no group on both sides, nothing lost."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_case import every_case

from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions


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


@every_case("seed", range(3))  # one for each of the ranges of values
@every_case("fraction", [0.05, 0.5, 0.8, 0.999])
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
        ({"split_by": "e"}, r"a.csv:3: column 'e' has no value; fill it in or remove the row"),
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


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("limit", ["32MiB", "512MiB"])
def test_groups_are_on_one_side(tmp_path, seed, limit):
    rng = np.random.default_rng(seed)
    who = np.array([f"u{i}" for i in rng.integers(0, 50, 2000) ** 2])
    source = write(tmp_path, "who,id,y\n" + "".join(f"{w},{i},{i % 2}\n" for i, w in enumerate(who)))
    summary, train, test = split(tmp_path, source, group="who", seed=seed, memory_limit=limit)
    assert train.feature_names == ("id",)
    ids = [column(store, "id").astype(int) for store in (train, test)]
    assert sorted([*ids[0], *ids[1]]) == list(range(2000))
    assert not {*who[ids[0]]} & {*who[ids[1]]}
    assert not {*train.group} & {*test.group}
    names, first, codes = np.unique(who, return_index=True, return_inverse=True)
    by_appearance = np.argsort(np.argsort(first))
    for store, own in zip((train, test), ids, strict=True):
        assert store.group.dtype == np.int64
        np.testing.assert_array_equal(store.group, by_appearance[codes[own]])
        np.testing.assert_array_equal(store.y, own % 2)
    assert summary["groups"] + summary["test_groups"] == len(names)
    assert abs(train.n - 1600) <= np.bincount(codes).max() / 2
    assert np.any(np.diff(ids[0]) < 0)  # in random order


def test_groups_of_long_numbers_in_several_files(tmp_path):
    """2**53 and the number after it are one float64."""
    paths = [tmp_path / name for name in ("a.csv", "b.csv")]
    paths[0].write_text(f"who,x,y\n{2**53},1,0\n{2**53 + 1},2,1\n")
    paths[1].write_text(f"who,x,y\nsomeone,3,0\n{2**53 + 1},4,1\n")
    ingest(paths, tmp_path / "s", IngestOptions(group="who"))
    assert Store.open(tmp_path / "s").group.tolist() == [0, 1, 2, 1]
    paths[1].write_text("x,y\n5,1\n")  # new rows need no groups
    ingest(paths[1:], tmp_path / "t", IngestOptions(like=str(tmp_path / "s")))
    assert Store.open(tmp_path / "t").group is None
    ingest(paths[:1], tmp_path / "u", IngestOptions(like=str(tmp_path / "s"), group="who"))
    assert Store.open(tmp_path / "u").group.tolist() == [0, 1]


def test_queries_can_be_the_groups(tmp_path):
    source = write(tmp_path, "q,x,y\n" + "".join(f"{i // 3},{i},{i % 2}\n" for i in range(30)))
    _, train, test = split(tmp_path, source, group="q", qid="q")
    assert not {*train.qid} & {*test.qid}
    assert train.n == 24


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "g,x,y\n1,1,0\n1,2,1\n",
            {"group": "g"},
            "a split at 0.8 of rows of one group leaves one store empty",
        ),
        ("g,x,y\n1,1,0\n,2,1\n", {"group": "g"}, r"a.csv:3: the group \(column 'g'\) is missing"),
        ("g,x,y\n1,1,0\n2,2,1\n", {"group": "h"}, "a.csv has no column 'h' of groups; it has 'g', 'x', 'y'"),
    ],
)
def test_groups_that_cannot_be_split(tmp_path, text, options, message):
    source = write(tmp_path, text)
    with pytest.raises(DataError, match=message):
        split(tmp_path, source, **options)
    assert os.listdir(tmp_path) == ["a.csv"]


def test_a_table_of_many_texts_is_split(tmp_path):
    """Its rows are sparse, and a block of them may leave none to a store."""
    source = tmp_path / "t.csv"
    source.write_text("name,y\n" + "".join(f"name {i},{i % 2}\n" for i in range(200)))
    _, train, test = split(tmp_path, source, label="y")
    assert (train.n, test.n, train.is_sparse) == (160, 40, True)
