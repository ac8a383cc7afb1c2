"""Damaged, deleted and badly chunked stores, and stores of other writers."""

from __future__ import annotations

from pathlib import Path

import dask.array as da
import numcodecs
import numpy as np
import pytest
import zarr
from every_case import every_case
from making import samples, write
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError, DataError
from streamsvm.parallel.engine import Engine
from streamsvm.tables.checks import check as check_store
from streamsvm.tables.info import describe

N = 40
Y = np.arange(N) % 2


def check(store: Store) -> dict[str, object]:
    return check_store(store, Engine(2))


def chunk(store: Path, key: str) -> Path:
    path = store / key
    assert path.is_file()
    return path


def flip(path: Path) -> None:
    raw = bytearray(path.read_bytes())
    raw[len(raw) // 2] ^= 0xFF
    path.write_bytes(bytes(raw))


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-3])


@pytest.mark.parametrize("harm", [flip, cut, Path.unlink])
def test_damaged_dense_chunk_is_named(tmp_path, harm):
    store = write(tmp_path / "s", samples(N, 3), Y, chunk_rows=10)
    harm(chunk(tmp_path / "s", "X/c/2/0"))
    assert len(store.read(0, 20)) == 20
    assert len(store.read(30, N)) == 10
    for read in (lambda: store.read(15, 25), lambda: store.take(np.array([1, 29])), lambda: check(store)):
        with pytest.raises(CorruptDataError, match=r"'X': chunk 2 \(entries 20 to 29\)"):
            read()


@every_case("harm", [flip, Path.unlink])
@every_case("name", ["data", "indices", "indptr"])
def test_damaged_csr_array_is_named(tmp_path, harm, name):
    store = write(tmp_path / "s", samples(N, 3, is_sparse=True), Y, chunk_rows=10)
    harm(chunk(tmp_path / "s", f"X/{name}/c/0"))
    with pytest.raises(CorruptDataError, match=f"'X/{name}': chunk 0"):
        store.read(0, 5)


@pytest.mark.parametrize("harm", [flip, Path.unlink])
def test_damaged_labels(tmp_path, harm):
    write(tmp_path / "s", samples(N, 3), Y)
    harm(chunk(tmp_path / "s", "y/c/0"))
    with pytest.raises(CorruptDataError, match="'y': chunk 0"):
        check(Store.open(tmp_path / "s"))


def test_zeros_are_written_and_their_loss_is_seen(tmp_path):
    zeros = Rows(np.zeros((N, 3), np.float32))
    store = write(tmp_path / "s", zeros, np.zeros(N, np.int64), chunk_rows=10)
    assert not store.read(0, N).X.any()
    chunk(tmp_path / "s", "X/c/3/0").unlink()
    with pytest.raises(CorruptDataError, match="chunk 3.*is missing"):
        store.read(0, N)


def test_missing_chunk_in_memory_store():
    store = write("memory://damage/s", samples(N, 3), chunk_rows=10)
    zarr.open_group("memory://damage/s", mode="a").store._is_read_only = False
    import fsspec

    fsspec.filesystem("memory").rm("/damage/s/X/c/1/0")
    with pytest.raises(CorruptDataError, match="chunk 1.*is missing.*write_empty_chunks=True"):
        store.read(0, N)


@pytest.mark.parametrize("where", ["start", "end"])
def test_sharded_foreign_array(tmp_path, where):
    rows = samples(N, 3)
    group = zarr.open_group(tmp_path / "s", mode="w")
    codec = zarr.codecs.ShardingCodec(chunk_shape=(5, 3), index_location=where)
    array = zarr.create_array(
        group.store_path,
        name="X",
        shape=(N, 3),
        chunks=(20, 3),
        dtype="f4",
        serializer=codec,
        compressors=None,
        filters=None,
    )
    array[:35] = rows.X[:35]
    group.create_array("y", data=Y + 1)
    store = Store.open(tmp_path / "s")
    np.testing.assert_array_equal(store.read(3, 35).X, rows.X[3:35])
    with pytest.raises(CorruptDataError, match=r"chunk 7 \(entries 35 to 39\) is missing"):
        store.read(30, N)
    chunk(tmp_path / "s", "X/c/0/0").unlink()
    with pytest.raises(CorruptDataError, match=r"chunk 0 \(entries 0 to 19\) is missing"):
        store.read(0, 5)


@pytest.mark.parametrize(
    "codec", [None, numcodecs.GZip(), numcodecs.Zstd(), numcodecs.Blosc(), numcodecs.LZ4()], ids=str
)
def test_format_2(tmp_path, codec):
    rows = samples(N, 3, "float64")
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    group.create_array("features", data=rows.X, chunks=(7, 3), compressors=codec)
    group.create_array("target", data=Y + 1, chunks=(9,), compressors=codec)
    store = Store.open(tmp_path / "s", x="features", y="target")
    np.testing.assert_array_equal(store.read(5, 33).X, rows.X[5:33])
    np.testing.assert_array_equal(store.y, Y + 1)
    assert check(store)["warnings"] == []
    chunk(tmp_path / "s", "features/2.0").unlink()
    with pytest.raises(CorruptDataError, match=r"'features': chunk 2 \(entries 14 to 20\) is missing"):
        store.read(0, N)


@pytest.mark.parametrize("codec", [zarr.codecs.GzipCodec(), zarr.codecs.BloscCodec(), zarr.codecs.ZstdCodec()])
def test_format_3(tmp_path, codec):
    rows = samples(N, 3)
    group = zarr.open_group(tmp_path / "s", mode="w")
    group.create_array("X", data=rows.X, chunks=(7, 3), compressors=codec)
    group.create_array("y", data=np.array(["a", "b"])[Y].astype(np.dtypes.StringDType()))
    store = Store.open(tmp_path / "s")
    np.testing.assert_array_equal(store.read(0, N).X, rows.X)
    assert store.y[1] == "b"


@pytest.mark.parametrize("zarr_format", [2, 3])
def test_written_by_dask(tmp_path, zarr_format):
    rows = samples(N, 3)
    for name, values, chunks in (("X", rows.X, (8, 3)), ("y", Y, 8)):
        da.from_array(values, chunks=chunks).to_zarr(str(tmp_path / "s"), component=name, zarr_format=zarr_format)
    if not list((tmp_path / "s").glob("zarr.json")) + list((tmp_path / "s").glob(".zgroup")):
        zarr.open_group(tmp_path / "s", mode="a", zarr_format=zarr_format)
    store = Store.open(tmp_path / "s")
    np.testing.assert_array_equal(store.take(np.array([39, 2])).X, rows.X[[39, 2]])
    np.testing.assert_array_equal(store.y, Y)


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
def test_layout_of_xarray(tmp_path, zarr_format):
    """xarray names dimensions in attributes or metadata, adds coordinates and consolidates the metadata."""
    rows = samples(N, 3)
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=zarr_format)
    arrays = {
        "obs": (rows.X, ["row", "band"]),
        "class": (Y + 1, ["row"]),
        "band": (np.arange(1, 4), ["band"]),
    }
    for name, (values, dims) in arrays.items():
        extra = {"dimension_names": dims} if zarr_format == 3 else {"attributes": {"_ARRAY_DIMENSIONS": dims}}
        group.create_array(name, data=values, fill_value=None if zarr_format == 2 else 0, **extra)
    zarr.consolidate_metadata(group.store)
    store = Store.open(tmp_path / "s", x="obs", y="class")
    np.testing.assert_array_equal(store.read(0, N).X, rows.X)
    np.testing.assert_array_equal(store.y, Y + 1)


def test_written_by_anndata(tmp_path):
    X = sparse.csr_matrix(samples(N, 6).X)
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=2)
    features = group.create_group("layers/counts")
    features.attrs.put({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": list(X.shape)})
    for name in ("data", "indices", "indptr"):
        features.create_array(name, data=getattr(X, name))
    label = group.create_group("obs/cell_type")
    label.attrs.put({"encoding-type": "categorical", "encoding-version": "0.2.0", "ordered": False})
    label.create_array("codes", data=(Y + 1).astype("i1") - 1, config={"write_empty_chunks": True})
    label.create_array("categories", data=np.array(["B", "T"], dtype="<U1"))
    store = Store.open(tmp_path / "s", x="layers/counts", y="obs/cell_type")
    assert store.is_sparse
    np.testing.assert_array_equal(store.read(0, N).dense(), X.toarray())
    np.testing.assert_array_equal(store.y, np.array(["B", "T"])[Y])
    label["codes"][3] = -1
    with pytest.raises(DataError, match="missing in row 3"):
        _ = Store.open(tmp_path / "s", x="layers/counts", y="obs/cell_type").y


@pytest.mark.filterwarnings("ignore:Consolidated metadata is currently not part")
@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize("change", ["append", "resize", "replace"])
def test_consolidated_metadata_may_be_stale(tmp_path, zarr_format, change):
    """Of the root, and of the group of rows."""
    X, y = np.ones((N, 3), np.float32), (Y + 1).astype(np.int64)
    group = zarr.open_group(tmp_path / "s", mode="w", zarr_format=zarr_format)
    for name, values in (("X", X), ("y", y), ("csr/indptr", np.arange(N + 1)), ("csr/data", X[:, 0])):
        group.create_array(name, data=values, chunks=(10, 3)[: values.ndim])
    group.create_array("csr/indices", data=np.ones(N, np.int64), chunks=(10,))
    group["csr"].attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [N, 3]})
    for path in ("csr", None):
        zarr.consolidate_metadata(str(tmp_path / "s"), path=path)
    changed = zarr.open_group(tmp_path / "s", mode="r+", use_consolidated=False)
    n = N + 5
    for name in ("X", "y", "csr/data", "csr/indices"):
        old = changed[name][:]
        new = np.concatenate([old, old[:5]])
        if change == "append":
            changed[name].append(old[:5])
        elif change == "resize":
            changed[name].resize(new.shape)
            changed[name][:] = new
        else:
            del changed[name]
            changed.create_array(name, data=new, chunks=(15, 3)[: new.ndim])
    changed["csr/indptr"].append(np.arange(N + 1, n + 1))
    attributes = zarr.open_group(tmp_path / "s" / "csr", mode="r+", use_consolidated=False)
    attributes.attrs["shape"] = [n, 3]
    for x in ("X", "csr"):
        store = Store.open(tmp_path / "s", x=x)
        assert store.n == len(store.labels(0, n)) == n
        assert store.read(0, n).dense()[:, 1].tolist() == [1] * n


def foreign(path: Path, X: np.ndarray, y: np.ndarray = Y + 1, **options: object) -> Path:
    group = zarr.open_group(path, mode="w")
    group.create_array("X", data=X, **options)  # type: ignore[arg-type]
    group.create_array("y", data=y)
    return path


@every_case(
    ("X", "y", "options", "message"),
    [
        (np.ones((N, 4)), Y + 1, {"chunks": (10, 2)}, "chunked by columns.*rechunk"),
        (np.ones((N, 4)), Y[:-1] + 1, {}, "X has 40 rows but y has 39"),
        (np.ones((0, 4)), Y[:0], {}, "empty"),
        (np.ones(N), Y + 1, {}, "reshape"),
        (np.ones((N, 2, 2)), Y + 1, {}, "reshape"),
        (np.ones((N, 2), complex), Y + 1, {}, "complex128; expected numbers"),
    ],
)
def test_unfit_foreign_stores(tmp_path, X, y, options, message):
    with pytest.raises(DataError, match=message):
        Store.open(foreign(tmp_path / "s", X, y, **options))


def test_packed_array_is_refused(tmp_path):
    path = foreign(tmp_path / "s", np.ones((N, 2)), attributes={"scale_factor": 0.1})
    with pytest.raises(DataError, match="packed"):
        Store.open(path)


def csr_group(path: Path, encoding: str = "csr_matrix", **changes: object) -> Path:
    """A store of the rows [0 1 2], [0 0 3], with some arrays replaced."""
    parts = {"data": [1.0, 2.0, 3.0], "indices": [1, 2, 2], "indptr": [0, 2, 3], "shape": [2, 3]} | changes
    group = zarr.open_group(path, mode="w").create_group("X")
    group.attrs.put({"encoding-type": encoding, "encoding-version": "0.1.0", "shape": parts.pop("shape")})
    for name, values in parts.items():
        if values is not None:
            group.create_array(name, data=np.asarray(values), config={"write_empty_chunks": True})
    return path


@every_case(
    ("changes", "message"),
    [
        ({"encoding": "csc_matrix"}, r"stored by columns .* `adata.X = adata.X.tocsr\(\)`"),
        ({"encoding": "coo_matrix"}, "encoding-type 'coo_matrix'; expected 'csr_matrix' or an array"),
        ({"indptr": [0, 3]}, "2 indptr"),
        ({"indptr": [0, 2, 2]}, "does not run from 0"),
        ({"indptr": [0, 4, 3]}, "not rising"),
        ({"indices": [1, 2, 9]}, "do not fit 3 columns"),
        ({"indices": [1, -2, 1]}, "do not fit 3 columns"),
        ({"indices": None}, "no 'indices'"),
        ({"shape": [2]}, "reshape"),
    ],
)
def test_broken_csr_structure(tmp_path, changes, message):
    path = csr_group(tmp_path / "s", **changes)
    with pytest.raises(DataError, match=message):
        Store.open(path).read(0, 2)


def test_unsorted_csr_is_sorted_on_reading(tmp_path):
    store = Store.open(csr_group(tmp_path / "s", indices=[2, 1, 2]))
    rows = store.read(0, 2)
    np.testing.assert_array_equal(rows.X.indices, [1, 2, 2])
    np.testing.assert_array_equal(rows.dense(), [[0, 2, 1], [0, 0, 3]])
    assert "unsorted" in check(store)["warnings"][1]


@every_case("is_sparse", [False, True])
@every_case("value", [np.nan, np.inf, -np.inf])
def test_check_names_what_is_not_finite(tmp_path, is_sparse, value):
    X = samples(N, 3).X
    X[33, 1] = value
    rows = Rows(sparse.csr_array(X)) if is_sparse else Rows(X)
    assert rows.first_nonfinite(100)[:2] == (133, 1)
    store = write(tmp_path / "s", rows, Y, chunk_rows=None if is_sparse else 10)
    with pytest.raises(DataError, match=f"row 33, column 1 .chunk {0 if is_sparse else 3}. is {value}"):
        check(store)


def test_finite_rows_whose_sum_overflows():
    assert Rows(np.full((4, 2), 3e38, np.float32)).first_nonfinite(0) is None
    assert Rows(np.ones((4, 2), np.uint8)).first_nonfinite(0) is None


def test_check_and_describe(tmp_path):
    one_class = check(write(tmp_path / "one", samples(N, 3), np.ones(N, int)))
    assert one_class["warnings"] == ["one class only: every label is 1"]
    store = write(tmp_path / "s", samples(N, 3, is_sparse=True), np.array(["b", "a"])[Y])
    facts = describe(store)
    assert facts["labels"] == {"dtype": "text", "classes": ["a", "b"], "counts": [20, 20]}
    assert (facts["rows"], facts["features"], facts["layout"]) == (N, 3, "csr")
    assert facts["density"] == pytest.approx(store.read(0, N).X.nnz / (3 * N))
    assert facts["stored_bytes"] > 0
    many = describe(Store.from_arrays(np.ones((2000, 1)), np.arange(2000) / 3))
    assert many["labels"]["distinct"] == 2000
    assert many["stored_bytes"] is None
    assert check(Store.from_arrays(np.arange(3.0)[:, None]))["warnings"] == ["no labels: good for prediction only"]


def test_check_warns_of_chunks_too_large(monkeypatch):
    monkeypatch.setattr("streamsvm.tables.checks.MOST_CHUNK_BYTES", 1 << 20)
    assert "rechunk" in check(Store.from_arrays(np.ones((1 << 16, 4)), np.arange(1 << 16) % 2))["warnings"][0]


def test_bad_weights_and_query_ids():
    X = np.ones((2, 1))
    with pytest.raises(DataError, match="every sample_weight is 0"):
        check(Store.from_arrays(X, [0, 1], sample_weight=[0, 0]))
    with pytest.raises(DataError, match="qid of row 1"):
        check(Store.from_arrays(X, [0, 1], qid=[0, np.nan]))
