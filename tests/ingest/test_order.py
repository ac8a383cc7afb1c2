"""Shuffling and splitting, memory bounds, killed and failing ingests, and the facts of real files."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import tempfile
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import DataError, NotFoundError, StorageError
from streamsvm.events import Event, Events, Progress, Record
from streamsvm.ingest.block import Block
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.split import Shuffler, Spool


def table(folder: Path, n: int) -> Path:
    path = folder / "a.csv"
    path.write_text("id,y\n" + "".join(f"{i},{i % 3}\n" for i in range(n)))
    return path


def ids(store: Store) -> np.ndarray:
    return store.read(0, store.n).X[:, 0].astype(int)


@pytest.mark.parametrize(("n", "fraction", "n_train"), [(1000, 0.8, 800), (7, 0.5, 4), (1001, 1 / 3, 334)])
def test_split_counts_are_exact_and_rows_kept(tmp_path, n, fraction, n_train):
    test_url = str(tmp_path / "test")
    options = IngestOptions(split=fraction, test_store=test_url)
    summary = ingest([table(tmp_path, n)], tmp_path / "train", options)
    train, test = Store.open(tmp_path / "train"), Store.open(test_url)
    assert (train.n, test.n) == (n_train, n - n_train) == (summary["rows"], summary["test_rows"])
    for store in (train, test):
        np.testing.assert_array_equal(store.y, ids(store) % 3)
    assert sorted([*ids(train), *ids(test)]) == list(range(n))


def test_split_that_leaves_nothing(tmp_path):
    with pytest.raises(DataError, match="leaves one store empty"):
        ingest([table(tmp_path, 3)], tmp_path / "s", IngestOptions(split=0.9, test_store=str(tmp_path / "t")))
    assert os.listdir(tmp_path) == ["a.csv"]


def test_shuffle_follows_the_seed(tmp_path):
    source = table(tmp_path, 500)
    orders = []
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        ingest([source], tmp_path / name, IngestOptions(shuffle=True, seed=seed))
        orders.append(ids(Store.open(tmp_path / name)).tolist())
    assert orders[0] == orders[1] != orders[2] != list(range(500))


def numbered(lo: int, hi: int, is_sparse: bool) -> Block:
    X = np.arange(lo, hi, dtype=np.float32)[:, None]
    return Block(Rows(sparse.csr_array(X) if is_sparse else X), X[:, 0].astype(str), np.arange(lo, hi))


@pytest.mark.parametrize("is_sparse", [False, True])
@pytest.mark.parametrize("limit", [200, 1 << 20])
def test_shuffler_keeps_rows_whole(is_sparse, limit):
    shuffler = Shuffler(None, limit, np.random.default_rng(0))
    for lo in range(0, 900, 90):
        shuffler.append(numbered(lo, lo + 90, is_sparse))
    blocks = list(shuffler)
    qid = np.concatenate([b.qid for b in blocks])
    assert sorted(qid) == list(range(900))
    assert shuffler.n == 900
    for block in blocks:
        np.testing.assert_array_equal(block.rows.dense()[:, 0], block.qid)
        np.testing.assert_array_equal(block.y.astype(float), block.qid)
    shuffler.close()


@pytest.mark.slow  # thousands of orders
@pytest.mark.parametrize("limit", [0, 1 << 20])
def test_every_order_is_equally_likely(limit):
    """All 24 orders of four rows in 1,200 shuffles: chi-square with 23 degrees of freedom below its 99.99 % point."""
    rng = np.random.default_rng(0)
    orders: Counter[tuple[int, ...]] = Counter()
    for _ in range(1200):
        shuffler = Shuffler(None, limit, rng)
        shuffler.append(numbered(0, 2, False))
        shuffler.append(numbered(2, 4, False))
        orders[tuple(np.concatenate([b.qid for b in shuffler]))] += 1
        shuffler.close()
    chi_square = sum((count - 50) ** 2 / 50 for count in orders.values()) + 50 * (24 - len(orders))
    assert chi_square < 58.6


def test_spool_gives_blocks_back_in_order():
    spool = Spool(None)
    spool.append(numbered(0, 3, True))
    spool.append(Block(Rows(np.ones((2, 2)))))
    first, second = spool
    np.testing.assert_array_equal(first.rows.dense()[:, 0], [0, 1, 2])
    assert second.y is None
    spool.close()


class FullDisk(io.BytesIO):
    def write(self, _: object) -> int:
        raise OSError(28, "No space left on device")


def test_spool_that_fills_the_disk(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "TemporaryFile", lambda dir: FullDisk())
    with pytest.raises(StorageError, match="No space left"):
        ingest([table(tmp_path, 10)], tmp_path / "s", IngestOptions(shuffle=True))
    assert os.listdir(tmp_path) == ["a.csv"]


def test_progress_ends_at_the_total(tmp_path):
    records: list[Record[Event]] = []
    ingest([table(tmp_path, 100)], tmp_path / "s", events=Events(records.append))
    last = records[-1].event
    assert isinstance(last, Progress)
    assert last.done == last.total == (tmp_path / "a.csv").stat().st_size


_SLOW_INGEST = """
import os, sys, time
from streamsvm.data import writer
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
def last_step(self):
    print("ready", flush=True)
    time.sleep(60)
writer.StoreWriter._finish = last_step
ingest([sys.argv[1]], sys.argv[2], IngestOptions(shuffle=True))
"""


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGTERM])
def test_killed_ingest_leaves_nothing_that_opens(tmp_path, sent):
    source, target = table(tmp_path, 1000), tmp_path / "out" / "s"
    command = [sys.executable, "-c", _SLOW_INGEST, str(source), str(target)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        os.kill(process.pid, sent)
    with pytest.raises(NotFoundError):
        Store.open(target)
    for partial in target.parent.iterdir():
        with pytest.raises((DataError, NotFoundError)):
            Store.open(partial)
    ingest([source], target)
    assert [p.name for p in target.parent.iterdir()] == ["s"]


@pytest.mark.slow
def test_memory_does_not_grow_with_the_file(tmp_path):
    """Of what is allocated: how much of it a process gives back depends on its allocator and on its threads."""
    few = np.random.default_rng(0).integers(0, 9, (20_000, 100)).astype(np.float32)
    np.save(tmp_path / "many.npy", np.tile(few, (20, 1)))
    limit = 32 << 20
    tracemalloc.start()
    try:
        ingest([tmp_path / "many.npy"], tmp_path / "s", IngestOptions(shuffle=True, memory_limit=limit))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert Store.open(tmp_path / "s").nbytes == 160_000_000
    assert peak < 1.5 * limit


REAL = {
    "phishing.bz2": (11_055, 68, {1: 6_157, 0: 4_898}, {}),
    "a9a.bz2": (32_561, 123, {1: 7_841, -1: 24_720}, {}),
    "mq2008.s1.bz2": (2_874, 46, {0: 2_319, 1: 378, 2: 177}, {}),
    "magic04.csv.gz": (19_020, 10, {"g": 12_332, "h": 6_688}, {"header": False}),
    "electricity.csv.gz": (45_312, 8, {"UP": 19_237, "DOWN": 26_075}, {}),
    "skin_nonskin.tsv.gz": (245_057, 3, {1: 50_859, 2: 194_198}, {"header": False}),
}


@pytest.mark.parametrize("name", REAL)
def test_facts_of_real_files(tmp_path, shared_data, name):
    n, d, counts, options = REAL[name]
    ingest([shared_data(name)], tmp_path / "s", IngestOptions(**options))
    store = Store.open(tmp_path / "s")
    assert (store.n, store.d) == (n, d)
    assert dict(zip(*np.unique(store.y, return_counts=True), strict=True)) == counts
    assert store.is_sparse == (name == "a9a.bz2")
    assert (store.qid is None) == (not name.startswith("mq2008"))


def test_real_svmlight_values_agree_with_scikit_learn(tmp_path, shared_data):
    from sklearn.datasets import load_svmlight_file

    path = shared_data("mq2008.s1.bz2")
    X, y, qid = load_svmlight_file(str(path), query_id=True, dtype=np.float32)
    ingest([path], tmp_path / "s")
    store = Store.open(tmp_path / "s")
    np.testing.assert_array_equal(store.read(0, store.n).dense(), X.toarray())
    np.testing.assert_array_equal(store.y, y)
    np.testing.assert_array_equal(store.qid, qid)


def test_real_idx(tmp_path, shared_data):
    labels = str(shared_data("t10k-labels-idx1-ubyte.gz"))
    ingest([shared_data("t10k-images-idx3-ubyte.gz")], tmp_path / "s", IngestOptions(labels=labels))
    store = Store.open(tmp_path / "s")
    assert (store.n, store.d, store.dtype) == (10_000, 784, np.uint8)
    assert np.bincount(store.y).tolist() == [980, 1135, 1032, 1010, 982, 892, 958, 1028, 974, 1009]


def test_real_mixed_table_and_one_like_it(tmp_path, shared_data):
    ingest([shared_data("census.t.parquet")], tmp_path / "s")
    store = Store.open(tmp_path / "s")
    assert store.n == 39_905
    assert len(store.attrs["columns"]) == 41
    assert set(np.unique(store.y)) == {"- 50000.", "50000+."}
    worker = next(c for c in store.attrs["columns"] if c["name"] == "class_worker")
    assert "Private" in worker["categories"]
    assert not any("'" in text[:1] for c in store.attrs["columns"] for text in c.get("categories", []))
    ingest([shared_data("census.t.parquet")], tmp_path / "again", IngestOptions(like=str(tmp_path / "s")))
    again = Store.open(tmp_path / "again")
    np.testing.assert_array_equal(again.read(0, 500).X, store.read(0, 500).X)
