"""Stores: what is written is read back, from every source and by every way of reading."""

from __future__ import annotations

import io
import os
import pickle

import dask.array as da
import numpy as np
import pytest
import zarr
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from making import DTYPES, LABELS, samples, write
from scipy import sparse

from streamsvm.data import sources
from streamsvm.data import store as stores
from streamsvm.data.rows import Rows, concat
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import ConfigError, DataError, NotFoundError, StorageError
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.locks import token

pytestmark = pytest.mark.lowest


@settings(max_examples=40)
@given(
    n=st.integers(1, 40),
    d=st.integers(1, 6),
    dtype=st.sampled_from(DTYPES),
    is_sparse=st.booleans(),
    chunk_rows=st.none() | st.integers(1, 50),
    step=st.integers(1, 50),
    labels=st.sampled_from(sorted(LABELS)),
    data=st.data(),
)
def test_round_trip(tmp_path_factory, n, d, dtype, is_sparse, chunk_rows, step, labels, data):
    rows, y = samples(n, d, dtype, is_sparse, seed=n), LABELS[labels](n)
    store = write(tmp_path_factory.mktemp("s") / "s", rows, y, step, chunk_rows=chunk_rows)
    assert (store.n, store.d, store.dtype, store.is_sparse) == (n, d, np.dtype(dtype), is_sparse)
    assert store.y.dtype.kind == y.dtype.kind
    np.testing.assert_array_equal(store.y, y)
    lo = data.draw(st.integers(0, n))
    hi = data.draw(st.integers(lo, n))
    part = store.read(lo, hi)
    assert part.X.dtype == dtype
    np.testing.assert_array_equal(part.dense(), rows.dense()[lo:hi])
    max_rows = data.draw(st.none() | st.integers(1, 60))
    blocks = store.blocks(max_rows)
    assert [b for b, _ in blocks] == [0, *(e for _, e in blocks[:-1])]
    assert blocks[-1][1] == n
    assert all(lo < hi and hi - lo <= (max_rows or n) for lo, hi in blocks)
    np.testing.assert_array_equal(concat([store.read(*b) for b in blocks]).dense(), rows.dense())
    ids = np.array(data.draw(st.lists(st.integers(0, n - 1), max_size=20)), dtype=np.int64)
    np.testing.assert_array_equal(store.take(ids).dense(), rows.dense()[ids])


@settings(max_examples=30)
@given(is_sparse=st.booleans(), chosen=st.sets(st.integers(0, 39), min_size=1), data=st.data())
def test_subset_is_the_rows_it_names(tmp_path_factory, is_sparse, chosen, data):
    rows, ids = samples(40, 3, is_sparse=is_sparse), np.array(sorted(chosen))
    store = write(tmp_path_factory.mktemp("s") / "s", rows, np.arange(40), chunk_rows=7)
    subset = pickle.loads(pickle.dumps(store.subset(ids)))
    np.testing.assert_array_equal(subset.y, ids)
    blocks = subset.blocks(data.draw(st.none() | st.integers(1, 40)))
    np.testing.assert_array_equal(concat([subset.read(*b) for b in blocks]).dense(), rows.dense()[ids])
    half = np.arange(0, len(ids), 2)  # a subset of a subset
    np.testing.assert_array_equal(subset.subset(half).take(half[:0]).dense(), rows.dense()[:0])
    np.testing.assert_array_equal(subset.subset(half).read(0, len(half)).dense(), rows.dense()[ids[half]])
    assert subset.subset(half).origin(len(half) - 1)[1] == ids[half][-1]


@every_case("ids", [[], [3, 2], [1, 1], [-1, 2], [39, 40]])
def test_subset_refuses_ids_that_do_not_rise(ids):
    with pytest.raises(IndexError, match="rising row ids from 0 to 39"):
        Store.from_arrays(samples(40, 3).X).subset(np.array(ids, np.int64))


def test_nonfinite_row_of_a_subset_is_named_as_in_its_store(tmp_path):
    X = samples(40, 3).X.astype(np.float32)
    X[31, 1] = np.nan
    store = write(tmp_path / "s", Rows(X), np.arange(40), chunk_rows=7)
    subset = store.subset(np.arange(1, 40, 2))
    with pytest.raises(DataError, match=r"s: row 31, column 1 \(chunk 4\) is nan"):
        subset.require_finite(subset.read(0, 20), 0)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_memory_url(is_sparse):
    rows = samples(20, 3, is_sparse=is_sparse)
    url = f"memory://test-store/{is_sparse}.zarr"
    store = write(url, rows, np.arange(20), chunk_rows=6)
    np.testing.assert_array_equal(store.read(3, 17).dense(), rows.dense()[3:17])
    with pytest.raises(StorageError, match="already exists"):
        write(url, rows)
    assert write(url, samples(4, 3, is_sparse=is_sparse), overwrite=True).n == 4
    with pytest.raises(NotFoundError, match="no zarr group"):
        Store.open("memory://test-store/nothing.zarr")


def test_extra_columns_and_attributes(tmp_path):
    rows, n = samples(10, 2), 10
    with StoreWriter(tmp_path / "s", d=2, dtype="float32", attrs={"made": "here"}) as writer:
        writer.append(rows, np.zeros(n), qid=np.arange(n) // 4, group=-np.arange(n), sample_weight=np.linspace(0, 1, n))
    store = Store.open(tmp_path / "s")
    assert store.attrs["streamsvm_store"] == 1
    assert store.attrs["made"] == "here"
    assert store.y.dtype == np.float64
    np.testing.assert_array_equal(store.qid, np.arange(n) // 4)
    np.testing.assert_array_equal(store.group, -np.arange(n))
    np.testing.assert_array_equal(store.subset(np.array([1, 4])).group, [-1, -4])
    np.testing.assert_array_equal(store.sample_weight, np.linspace(0, 1, n))


def test_integral_labels_become_integers(tmp_path):
    y = np.array([1.0, -1.0, 2.0])
    assert write(tmp_path / "a", samples(3, 2), y, integral_labels=True).y.dtype == np.int64
    assert write(tmp_path / "b", samples(3, 2), y + 0.5, integral_labels=True).y.dtype == np.float64


def test_pickle_and_fingerprint(tmp_path):
    rows, y = samples(30, 3), np.arange(30) % 2
    store = write(tmp_path / "s", rows, y)
    again = pickle.loads(pickle.dumps(store))
    np.testing.assert_array_equal(again.read(4, 9).X, rows.X[4:9])
    assert again.fingerprint() == store.fingerprint()
    assert write(tmp_path / "same", rows, y).fingerprint() == store.fingerprint()
    later = Rows(rows.X.copy())
    later.X[-1, -1] += 1
    assert write(tmp_path / "x", later, y).fingerprint() != store.fingerprint()
    assert write(tmp_path / "y", rows, 1 - y).fingerprint() != store.fingerprint()
    memory = pickle.loads(pickle.dumps(Store.from_arrays(rows.X, y)))
    np.testing.assert_array_equal(memory.y, y)


@pytest.mark.parametrize("index", [np.int32, np.int64])
@pytest.mark.parametrize("kind", [sparse.csr_array, sparse.csr_matrix])
def test_from_scipy(kind, index):
    X = kind(samples(9, 4).X)
    X.indices, X.indptr = X.indices.astype(index), X.indptr.astype(index)
    store = Store.from_arrays(X, list("abababaab"))
    assert store.is_sparse
    assert store.y[2] == "a"
    assert isinstance(store.read(0, 3).X, sparse.csr_array)
    np.testing.assert_array_equal(store.take(np.array([8, 0])).dense(), X.toarray()[[8, 0]])


@pytest.mark.parametrize(
    ("dtype", "read_as"), [("int16", "float32"), ("bool", "uint8"), ("int64", "float64"), (">f4", "float32")]
)
def test_other_dtypes_are_read_exactly(dtype, read_as):
    X = samples(5, 3).X.astype(dtype)
    rows = Store.from_arrays(X).read(0, 5)
    assert rows.X.dtype == np.dtype(read_as)
    np.testing.assert_array_equal(rows.X, X)


def test_from_dask_computes_only_slices():
    seen: list[int] = []

    def block(x: np.ndarray) -> np.ndarray:
        seen.append(len(x))
        return x

    X = samples(100, 4).X
    lazy = da.from_array(X, chunks=(10, 2)).map_blocks(block, dtype=X.dtype, meta=X[:0])
    store = Store.from_arrays(lazy, da.from_array(np.arange(100), chunks=7))
    assert store.chunk_rows == 10
    seen.clear()
    np.testing.assert_array_equal(store.read(15, 35).X, X[15:35])
    assert len(seen) == 2 * 3
    np.testing.assert_array_equal(store.take(np.array([99, 3, 3])).X, X[[99, 3, 3]])
    np.testing.assert_array_equal(store.y, np.arange(100))


def test_from_sparse_dask():
    X = sparse.csr_matrix(samples(20, 5).X)
    lazy = da.from_array(X.toarray(), chunks=(6, 5)).map_blocks(sparse.csr_matrix, dtype=X.dtype)
    store = Store.from_arrays(lazy)
    assert store.is_sparse
    np.testing.assert_array_equal(store.read(4, 19).dense(), X.toarray()[4:19])


def test_dask_of_unknown_size():
    lazy = da.from_array(np.arange(8.0).reshape(4, 2), chunks=2)
    with pytest.raises(DataError, match="compute_chunk_sizes"):
        Store.from_arrays(lazy[lazy[:, 0] > 1])


@every_case(
    ("X", "y", "message"),
    [
        (np.zeros((3, 2)), [1, 2], "X has 3 rows but y has 2"),
        (np.zeros((0, 2)), None, "empty"),
        (np.zeros((2, 0)), None, "empty"),
        (np.zeros(3), None, "reshape"),
        (np.array([["a"]]), None, "expected numbers"),
        (np.zeros((2, 2)), np.zeros((2, 2)), "one value per row"),
    ],
)
def test_wrong_arrays(X, y, message):
    with pytest.raises(DataError, match=message):
        Store.from_arrays(X, y)


@pytest.mark.parametrize(
    ("y", "message"),
    [([1, np.nan], "row 1"), (np.array(["a", None], dtype=object), "row 1"), ([1j, 2], "complex")],
)
def test_wrong_labels(y, message):
    with pytest.raises(DataError, match=message):
        _ = Store.from_arrays(np.zeros((2, 1)), y).y


@pytest.mark.parametrize(
    ("made", "y"),
    [
        (
            {"codes": np.array([1, 0, 1], np.int8), "categories": np.array(["less", "more"], "T")},
            "more less more",
        ),
        (
            {"values": np.array([7, 0, 7]), "mask": np.zeros(3, bool)},
            [7, 0, 7],
        ),  # of the mask no chunk is written
        ({"values": np.array(["b", "a", "b"], "T"), "mask": np.zeros(3, bool)}, "b a b"),
    ],
)
def test_columns_in_anndatas_encodings(tmp_path, made, y):
    write(tmp_path / "s", samples(3, 2))
    column = zarr.open_group(tmp_path / "s").create_group("obs/income")
    for name, values in made.items():
        column.create_array(name, data=values)
    labels = Store.open(tmp_path / "s", y="obs/income").y
    assert labels.tolist() == (y.split() if isinstance(y, str) else y)
    which = "codes" if "codes" in made else "mask"
    column[which][1] = -1 if which == "codes" else True
    with pytest.raises(DataError, match=r"'obs/income' is missing in row 1"):
        _ = Store.open(tmp_path / "s", y="obs/income").y
    del column[which]
    with pytest.raises(DataError, match="expected an array of labels"):
        Store.open(tmp_path / "s", y="obs/income")


def test_missing_columns(tmp_path):
    store = write(tmp_path / "s", samples(3, 2))
    assert not store.has_y
    assert store.qid is None
    assert store.sample_weight is None
    with pytest.raises(DataError, match="no labels"):
        _ = store.y
    with pytest.raises(DataError, match="no array 'Z'.*X"):
        Store.open(tmp_path / "s", x="Z")
    with pytest.raises(DataError, match="sample_weight of row 1"):
        _ = Store.from_arrays(np.zeros((2, 1)), sample_weight=[1, -1]).sample_weight
    with pytest.raises(DataError, match=r"sample_weight of row 1 is 1e\+300; expected .* at most 1e\+30"):
        _ = Store.from_arrays(np.zeros((2, 1)), sample_weight=[1, 1e300]).sample_weight


def test_nothing_to_open(tmp_path):
    with pytest.raises(NotFoundError, match="does not exist"):
        Store.open(tmp_path / "none")
    with pytest.raises(NotFoundError, match="not a zarr group"):
        Store.open(tmp_path)
    (tmp_path / "plain").write_text("1,2\n")
    with pytest.raises(DataError, match="streamsvm ingest"):
        Store.open(tmp_path / "plain")
    (tmp_path / "bad").mkdir()
    (tmp_path / "bad" / "zarr.json").write_text("{")
    with pytest.raises(DataError, match="cannot be opened"):
        Store.open(tmp_path / "bad")
    with pytest.raises(DataError, match="cannot be opened"):
        Store.open("nosuchprotocol://x/y")


def test_rows_out_of_range(tmp_path):
    store = write(tmp_path / "s", samples(3, 2))
    with pytest.raises(IndexError):
        store.read(2, 4)
    with pytest.raises(IndexError):
        store.take(np.array([3]))


@every_case(
    ("append", "message"),
    [
        (lambda w: w.append(samples(3, 5), np.zeros(3)), "5 columns"),
        (lambda w: w.append(samples(3, 2, is_sparse=True), np.zeros(3)), "CSR rows"),
        (lambda w: w.append(samples(3, 2), np.zeros(2)), "3 rows have y"),
        (lambda w: w.append(samples(3, 2)), "the rows before"),
        (lambda w: w.append(samples(3, 2), np.array(["a"] * 3)), "one type"),
    ],
)
def test_appends_that_do_not_fit(tmp_path, append, message):
    def fill() -> None:
        with StoreWriter(tmp_path / "s", d=2, dtype="float32") as writer:
            writer.append(samples(4, 2), np.zeros(4))
            append(writer)

    with pytest.raises(DataError, match=message):
        fill()
    assert os.listdir(tmp_path) == []


def test_writer_leaves_all_or_nothing(tmp_path):
    with pytest.raises(DataError, match="no rows"), StoreWriter(tmp_path / "s", d=2, dtype="float32"):
        pass

    def interrupted() -> None:
        with StoreWriter(tmp_path / "s", d=2, dtype="float32") as writer:
            writer.append(samples(3, 2))
            with pytest.raises(DataError, match="unfinished"):
                Store.open(next(tmp_path.iterdir()))
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert os.listdir(tmp_path) == []
    write(tmp_path / "s", samples(3, 2))
    with pytest.raises(StorageError, match="already exists"):
        write(tmp_path / "s", samples(3, 2))
    assert write(tmp_path / "s", samples(5, 2), overwrite=True).n == 5
    assert os.listdir(tmp_path) == ["s"]


def test_leftovers_of_a_killed_writer_are_removed(tmp_path):
    parts = token().split("-")  # host, process, random
    alive = tmp_path / f".s.partial-{'-'.join(parts)}"
    dead = tmp_path / f".s.partial-{'-'.join([*parts[:-2], '999999999', parts[-1]])}"
    elsewhere = [tmp_path / f".s.partial-{name}999999999-0123abcd" for name in ("other-host.example-", "")]
    old, other = tmp_path / ".s.partial-other-999999999-0123abcd", tmp_path / ".s.partial-of-mine"
    for folder in (alive, dead, *elsewhere, old, other):
        (folder / "X").mkdir(parents=True)
    for folder in (old / "X", old, other):
        os.utime(folder, (0, 0))
    write(tmp_path / "s", samples(3, 2))
    assert not dead.exists()
    assert not old.exists()
    assert all(folder.exists() for folder in (alive, *elsewhere, other))


@pytest.mark.parametrize("is_text", [False, True])
def test_a_file_is_on_disk_before_it_has_its_name(tmp_path, monkeypatch, is_text):
    synced, path = list[tuple[str, bool]](), tmp_path / "f"

    def fsync(handle: int) -> None:
        synced.append((os.path.basename(os.readlink(f"/proc/self/fd/{handle}")), path.exists()))

    monkeypatch.setattr(os, "fsync", fsync)
    with whole_file(path) as file:
        if is_text:
            with io.TextIOWrapper(file, encoding="utf-8") as text:
                text.write("a")
        else:
            file.write(b"a")
    assert path.read_bytes() == b"a"
    [(part, there), folder] = synced
    assert part.endswith(".part")
    assert not there
    assert folder == (tmp_path.name, True)


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_fingerprint_knows_all_that_a_fit_reads(is_sparse):
    rows, n = samples(200, 5, is_sparse=is_sparse), 200
    given = {
        "y": np.arange(n) % 2,
        "sample_weight": np.ones(n),
        "qid": np.arange(n) // 9,
        "group": np.arange(n) // 4,
    }
    store = Store.from_arrays(rows.X, **given)
    fingerprints = {store.fingerprint()}
    for name, values in given.items():
        rest = {other: column for other, column in given.items() if other != name}
        fingerprints.add(Store.from_arrays(rows.X, **rest).fingerprint())
        changed = values.copy()
        changed[150] += 1
        fingerprints.add(Store.from_arrays(rows.X, **rest, **{name: changed}).fingerprint())
    other = rows.X.copy()
    (other.data if is_sparse else other[-1])[-1] += 1
    fingerprints.add(Store.from_arrays(other, **given).fingerprint())
    assert len(fingerprints) == 2 * len(given) + 2
    assert store.subset(np.arange(100)).fingerprint() == store.subset(np.arange(100)).fingerprint()
    fingerprints |= {store.subset(np.arange(lo, 150)).fingerprint() for lo in (0, 1)}
    assert len(fingerprints) == 2 * len(given) + 4


@pytest.mark.parametrize("is_sparse", [False, True])
def test_a_fingerprint_does_not_depend_on_blocks(is_sparse, monkeypatch):
    rows, y = samples(200, 5, is_sparse=is_sparse), np.arange(200) % 2
    whole = Store.from_arrays(rows.X, y).fingerprint()
    blocks = Store.blocks
    monkeypatch.setattr(Store, "blocks", lambda self: blocks(self, 7))
    assert Store.from_arrays(rows.X, y).fingerprint() == whole


def test_fingerprints_of_version_0_2_are_compared_as_far_as_they_go(tmp_path):
    rows, y = samples(200, 5), np.arange(200) % 2
    for store in (Store.from_arrays(rows.X, y), write(tmp_path / "s", rows, y)):
        assert store.matches(store.fingerprint()) is True
        assert store.matches(store._digest().hexdigest()) is None
        assert store.matches(Store.from_arrays(rows.X + 1, y)._digest().hexdigest()) is False
        assert store.matches(Store.from_arrays(rows.X, y, sample_weight=y).fingerprint()) is False


@pytest.mark.parametrize("writes", [0, 1, 4, 9])
@pytest.mark.parametrize("is_sparse", [False, True])
def test_full_disk(tmp_path, monkeypatch, writes, is_sparse):
    real, left = zarr.storage.LocalStore.set, [writes]

    async def full(*given: object) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(28, "No space left on device")
        await real(*given)

    monkeypatch.setattr(zarr.storage.LocalStore, "set", full)
    with pytest.raises(StorageError, match="No space left"):
        write(tmp_path / "s", samples(30, 2, is_sparse=is_sparse), np.arange(30), chunk_rows=5)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("options", [{"dtype": "int32"}, {"dtype": "float32", "chunk_rows": 0}])
def test_writer_options(tmp_path, options):
    with pytest.raises(ConfigError):
        StoreWriter(tmp_path / "s", d=2, **options)


def test_squared_norms_of_sparse_rows_are_those_of_dense_ones():
    X = np.random.default_rng(0).normal(size=(40, 70_000)).astype(np.float32)
    X[np.abs(X) < 3] = 0
    X[7] = 0
    sq_norms = Rows(sparse.csr_array(X)).sq_norms
    np.testing.assert_allclose(sq_norms, (X.astype(np.float64) ** 2).sum(axis=1), rtol=1e-14)
    assert sq_norms.dtype == np.float64


def test_blocks_of_many_chunks_are_larger_up_to_a_size(monkeypatch):
    X = np.zeros((10_000, 2), np.float32)
    monkeypatch.setattr(sources, "CHUNK_BYTES", 64)
    whole = Store.from_arrays(X)
    assert whole.chunk_rows == 8
    assert whole.blocks()[:2] == [(0, 32), (32, 64)]  # whole chunks of at most a 256th
    monkeypatch.setattr(stores, "LARGE_BYTES", 128)
    assert whole.blocks()[:2] == [(0, 16), (16, 32)]
