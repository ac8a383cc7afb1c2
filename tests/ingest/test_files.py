"""Ingest of each file format: what is in the file is in the store, and what is wrong is named by file and line."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import struct
import subprocess
import sys
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st

from streamsvm.config import validated
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, NotFoundError, StorageError
from streamsvm.events import Events, Warned
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions

PACKERS = {"": bytes, ".gz": gzip.compress, ".bz2": bz2.compress, ".xz": lzma.compress}


def put(path: Path, text: str | bytes) -> Path:
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return path


def load(source: Path | list[Path], **options: object) -> Store:
    sources = source if isinstance(source, list) else [source]
    target = sources[0].parent / f"store{len(list(sources[0].parent.iterdir()))}"
    ingest(sources, target, IngestOptions(**options))  # type: ignore[arg-type]
    return Store.open(target)


def whole(store: Store) -> np.ndarray:
    return store.read(0, store.n).dense()


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.slow  # a process that packs each file
def test_packed_svmlight(tmp_path, suffix):
    text = b"+1 1:0.5 3:-2e-1\n# a comment\n\n-1 2:1 # doc:7\n-1.0\t1:.25\r\n+1"
    store = load(put(tmp_path / f"a.svm{suffix}", PACKERS[suffix](text)))
    np.testing.assert_array_equal(whole(store), np.float32([[0.5, 0, -0.2], [0, 1, 0], [0.25, 0, 0], [0, 0, 0]]))
    np.testing.assert_array_equal(store.y, [1, -1, -1, 1])
    assert store.y.dtype == np.int64


def test_zero_based_anywhere_means_zero_based(tmp_path):
    one = put(tmp_path / "one.svm", "\ufeff1 1:5 2:6\n")  # a byte order mark
    zero = put(tmp_path / "zero.svm", "2 0:7\n")
    assert load(one).d == 2
    store = load([one, zero])
    np.testing.assert_array_equal(whole(store), [[0, 5, 6], [7, 0, 0]])
    assert store.attrs["first_index"] == 0
    like = load(put(tmp_path / "test.svm", "1 1:3\n"), like=store.url)
    np.testing.assert_array_equal(whole(like), [[0, 3, 0]])


def test_svmlight_query_ids_and_float_labels(tmp_path):
    store = load(put(tmp_path / "a", "0.5 qid:12 1:1 # docid = GX:1\n2 qid:9876543210 1:2\n"))
    np.testing.assert_array_equal(store.qid, [12, 9876543210])
    np.testing.assert_array_equal(store.y, [0.5, 2.0])


@settings(max_examples=30)
@given(
    values=st.lists(st.floats(-1e300, 1e300, allow_subnormal=False).filter(bool), min_size=1, max_size=20),
    form=st.sampled_from(["{!r}", "{:.3e}", "{:+.17g}", "{:E}"]),
)
def test_svmlight_numbers(tmp_path_factory, values, form):
    texts = [form.format(v) for v in values]
    folder = tmp_path_factory.mktemp("n")
    store = load(put(folder / "a.svm", "".join(f"1 1:{t}\n" for t in texts)), dtype="float64")
    np.testing.assert_allclose(whole(store)[:, 0], np.array(texts, dtype=float), rtol=1e-15)


def test_layout_follows_density(tmp_path):
    thin = put(tmp_path / "thin.svm", "1 1:1 10:1\n")
    full = put(tmp_path / "full.svm", "1 1:1 2:1 3:1\n")
    assert load(thin).is_sparse
    assert not load(full).is_sparse
    assert not load(thin, dense=True).is_sparse
    assert load(full, dense=False).is_sparse
    np.testing.assert_array_equal(whole(load(thin, dense=True)), whole(load(thin)))


@every_case(
    ("line", "message"),
    [
        ("1 2:1 1:1", "must rise.*'1:1'"),
        ("1 2:1 2:1", "must rise.*'2:1'"),
        ("1 1:x", "finite number as the value; found '1:x'"),
        ("1 1:nan", "finite number as the value"),
        ("1 1:1e999", "finite number as the value"),
        ("1 1:", "finite number"),
        ("1 1:1.2.3", "finite number"),
        ("1 a:1", "index:value; found 'a:1'"),
        ("1 -1:1", "index:value"),
        ("1 1", "index:value"),
        ("1 99999999999:1", "too large"),
        ("1 qid:x 1:1", "qid: and a whole number"),
        ("1 quid:1 1:1", "qid: and a whole number"),
        ("1:1 2:1", "number as the label; found '1:1'"),
        ("inf 1:1", "number as the label"),
        ("x 1:1", "number as the label"),
    ],
)
def test_bad_svmlight_lines(tmp_path, line, message):
    path = put(tmp_path / "a.svm", f"1 1:1\n\n# so far so good\n{line}\n1 1:1\n")
    with pytest.raises(DataError, match=f"a.svm:4: .*{message}"):
        load(path)
    assert [p.name for p in tmp_path.iterdir()] == ["a.svm"]


@pytest.mark.parametrize("line", ["1 qid: 7 1: .5 3:\t2", "1 qid:7 1:  .5 3: 2 \r", " 1 qid:7  1:.5  3:2 # 4: 5"])
def test_spaces_before_values(tmp_path, line):
    store = load(put(tmp_path / "a.svm", f"{line}\n"))
    np.testing.assert_array_equal(whole(store), [[0.5, 0, 2]])
    assert store.qid.tolist() == [7]


def test_line_numbers_go_on_over_blocks(tmp_path):
    path = put(tmp_path / "a.svm", "1 1:1 2:0.123456789\n" * 100_000 + "1 oops\n")
    with pytest.raises(DataError, match="a.svm:100001: expected index:value; found 'oops'"):
        load(path, memory_limit=32 << 20)


def test_svmlight_files_that_do_not_fit(tmp_path):
    base = load(put(tmp_path / "a.svm", "1 1:1 2:1\n"))
    with pytest.raises(DataError, match=r"wide.svm:4: found the index 3, expected 1 to 2, .* has 2 features"):
        load(put(tmp_path / "wide.svm", "1 1:1\n\n# more\n1 2:1 3:1\n"), like=base.url)
    with pytest.raises(DataError, match="zero.svm:1: found the index 0, expected 1 to 2"):
        load(put(tmp_path / "zero.svm", "1 0:1\n"), like=base.url)
    with pytest.raises(DataError, match="on some lines"):
        load(put(tmp_path / "q.svm", "1 qid:1 1:1\n1 1:1\n"))
    with pytest.raises(DataError, match="no index:value"):
        load(put(tmp_path / "bare.svm", "1\n2\n"))
    with pytest.raises(DataError, match="no samples"):
        load(put(tmp_path / "empty.svm", "# nothing\n"))
    with pytest.raises(DataError, match="300.0 does not fit uint8"):
        load(put(tmp_path / "big.svm", "1 1:300\n"), dtype="uint8")


@pytest.mark.parametrize("suffix", PACKERS)
@pytest.mark.parametrize(("name", "tab"), [("a.csv", ","), ("a.tsv", "\t")])
def test_tables_of_numbers(tmp_path, suffix, name, tab):
    text = "a,b,class\n1,2.5,UP\n-3,4e2,DOWN\n".replace(",", tab)
    store = load(put(tmp_path / f"{name}{suffix}", PACKERS[suffix](text.encode())))
    np.testing.assert_array_equal(whole(store), np.float32([[1, 2.5], [-3, 400]]))
    np.testing.assert_array_equal(store.y, ["UP", "DOWN"])
    assert store.dtype == np.float32


@every_case(
    ("label", "y"),
    [("first", [1, 4]), ("last", [3, 6]), ("b", [2, 5]), ("0", [1, 4]), ("-2", [2, 5]), ("none", None)],
)
def test_label_column(tmp_path, label, y):
    store = load(put(tmp_path / "a.csv", "a,b,c\n1,2,3\n4,5,6\n"), label=label)
    assert store.d == (3 if y is None else 2)
    assert store.has_y == (y is not None)
    if y:
        np.testing.assert_array_equal(store.y, y)


def test_table_without_header_and_with_row_numbers(tmp_path):
    store = load(put(tmp_path / "a.csv", "1,2,g\n3,4,h\n"), header=False)
    np.testing.assert_array_equal(whole(store), [[1, 2], [3, 4]])
    numbered = load(put(tmp_path / "b.csv", ",x,q,y\n0,5,1,1\n1,6,1,0\n"), qid="q")
    np.testing.assert_array_equal(whole(numbered), [[5], [6]])
    np.testing.assert_array_equal(numbered.qid, [1, 1])
    trailing = load(put(tmp_path / "c.csv", "x,y,\n5,1,\n6,0,\n"))
    np.testing.assert_array_equal((whole(trailing)[:, 0], trailing.y), [[5, 6], [1, 0]])


@every_case(
    ("header", "is_told"),
    [
        ("1.5,2,0", True),
        ("28.8,16,g", True),
        ("5,1,0", True),
        ("0,1,y", False),
        ("1990,2000,y", False),
        ("a,2.5,c", False),
    ],
)
def test_names_that_are_numbers_are_told(tmp_path, header, is_told):
    messages: list = []
    ingest([put(tmp_path / "a.csv", f"{header}\n1,2,0\n3,4,1\n")], tmp_path / "s", events=Events(messages.append))
    warned = [record.event.message for record in messages if isinstance(record.event, Warned)]
    assert any(message.endswith("if it is a row, add --no-header") for message in warned) == is_told


def test_text_columns_are_one_hot_encoded_and_kept(tmp_path):
    train = load(put(tmp_path / "a.csv", "colour,size,y\nred,1,0\n\"' blue'\",2,1\n,3,1\n"))
    np.testing.assert_array_equal(whole(train), [[1, 0, 1], [0, 1, 2], [0, 0, 3]])
    assert train.attrs["columns"] == [{"name": "colour", "categories": ["red", "blue"]}, {"name": "size"}]
    test = load(put(tmp_path / "b.csv", "y,size,colour\n1,7,green\n0,8,blue\n"), like=train.url)
    np.testing.assert_array_equal(whole(test), [[0, 0, 7], [0, 1, 8]])
    np.testing.assert_array_equal(test.y, [1, 0])
    bare = load(put(tmp_path / "c.csv", "size,colour\n7,red\n"), like=train.url)
    assert not bare.has_y
    np.testing.assert_array_equal(whole(bare), [[1, 0, 7]])


def test_many_categories_make_a_sparse_store(tmp_path):
    text = "".join(f"c{i % 60},{i},{i % 2}\n" for i in range(600))
    store = load(put(tmp_path / "a.csv", "cat,num,y\n" + text))
    assert (store.d, store.is_sparse) == (61, True)
    dense = whole(store)
    np.testing.assert_array_equal(dense[:, 60], np.arange(600))
    np.testing.assert_array_equal(dense[:, :60].argmax(axis=1), np.arange(600) % 60)


@every_case(
    ("text", "message"),
    [
        ("a,b,y\n1,2,0\n1,2\n", "a.csv:3: .*Expected 3 columns, got 2"),
        ("a,b,y\n1,2,0\n1,-inf,0\n", "a.csv:3: column 'b' is -inf"),
        (
            "a,b,y\n1,2,0\n1,1e300,0\n",
            "a.csv:3: column 'b' is 1e\\+300; float32 holds up to 3.4e\\+38; take --dtype float64",
        ),
        ("a,b,y\n1,2,0\n1,2,\n", "a.csv:3: column 'y' has no value; fill it in"),
        (
            "a,b,y,\n1,2,0,4\n",
            "a.csv:1: column 4 has no name; give it one, or add --no-header if this line is a row",
        ),
        ("a,b,y\n1,2,u\n1,2,\n", "a.csv:3: the label .column 'y'. is missing"),
        ("a,a,y\n1,2,0\n", "two columns named 'a'"),
        ("a,b,y\n", "no samples"),
        ("", "is empty; expected names"),
        ("y\n1\n", "no feature columns"),
    ],
)
def test_bad_tables(tmp_path, text, message):
    with pytest.raises(DataError, match=message):
        load(put(tmp_path / "a.csv", text))
    assert [p.name for p in tmp_path.iterdir()] == ["a.csv"]


def test_the_wrong_one_of_label_and_labels_names_the_other(tmp_path):
    np.save(tmp_path / "a.npy", np.eye(2))
    (tmp_path / "a.csv").write_text("x,y\n1,0\n2,1\n")
    with pytest.raises(ConfigError, match="--label names columns of a table; npy has none: give .* by --labels"):
        ingest([tmp_path / "a.npy"], tmp_path / "s.zarr", IngestOptions(label="y"))
    with pytest.raises(ConfigError, match="--labels is a file .*; name their column of csv by --label"):
        ingest([tmp_path / "a.csv"], tmp_path / "s.zarr", IngestOptions(labels="y"))


def test_rows_longer_than_a_block(tmp_path):
    row = ",".join(["123.25"] * 10_000)
    store = load(put(tmp_path / "a.csv", f"{row}\n" * 3), header=False, memory_limit=32 << 20)
    assert (store.n, store.d) == (3, 9_999)
    line = "1 " + " ".join(f"{i}:0.5" for i in range(1, 40_000))
    assert load(put(tmp_path / "a.svm", f"{line}\n{line}"), memory_limit=32 << 20).d == 39_999


_IMPORTS = """
import sys
from streamsvm.ingest.files import ingest
for source in sys.argv[1:]:
    ingest([source], source + ".store")
print(*({"sklearn", "dask", "pandas", "distributed", "dask_ml"} & set(sys.modules)))
"""


def test_no_heavy_imports(tmp_path):
    pa.parquet.write_table(pa.table({"t": ["a", "b"], "y": [0, 1]}), tmp_path / "a.parquet")
    sources = [
        put(tmp_path / "a.csv", "a,y\n1,u\n"),
        put(tmp_path / "a.svm", "1 1:1\n"),
        tmp_path / "a.parquet",
    ]
    done = subprocess.run([sys.executable, "-c", _IMPORTS, *sources], check=True, capture_output=True, text=True)
    assert done.stdout == "\n"


def test_tables_that_do_not_fit_together(tmp_path):
    a = put(tmp_path / "a.csv", "a,b,y\n1,2,0\n")
    more = put(tmp_path / "more.csv", "a,b,y\n3,4,0\n")
    np.testing.assert_array_equal(whole(load([a, more])), [[1, 2], [3, 4]])
    with pytest.raises(DataError, match="b.csv lacks column 'b'"):
        load([a, put(tmp_path / "b.csv", "a,c,y\n1,2,0\n")])
    with pytest.raises(DataError, match="unexpected column 'c'"):
        load([a, put(tmp_path / "c.csv", "a,b,c,y\n1,2,3,0\n")])
    with pytest.raises(DataError, match="no label column 'y'"):
        load([a, put(tmp_path / "d.csv", "a,b\n1,2\n")])
    with pytest.raises(DataError, match="no column 'z' for the label.*'a', 'b', 'y'"):
        load(a, label="z")
    with pytest.raises(DataError, match="no column 'z' for the query id"):
        load(a, qid="z")
    with pytest.raises(DataError, match="not made from a table"):
        load(a, like=load(put(tmp_path / "l.svm", "1 1:1\n")).url)
    with pytest.raises(DataError, match="uint8 holds whole numbers"):
        load(put(tmp_path / "u.csv", "a,y\n7,0\n256,0\n"), dtype="uint8")
    with pytest.raises(DataError, match="t.csv: .*column 2 is 256.0; uint8 holds whole numbers"):
        load(put(tmp_path / "t.csv", "c,a,y\nx,7,0\nz,256,0\n"), dtype="uint8")


def test_parquet(tmp_path):
    table = pa.table(
        {
            "n": pa.array([1, 2, 3], pa.int16()),
            "flag": [True, False, True],
            "t": pa.array(["' a'", "b", None]).dictionary_encode(),
            "y": [0.5, 1.0, 2.0],
        }
    )
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    store = load(tmp_path / "a.parquet")
    np.testing.assert_array_equal(whole(store), [[1, 1, 1, 0], [2, 0, 0, 1], [3, 1, 0, 0]])
    np.testing.assert_array_equal(store.y, [0.5, 1, 2])
    pa.parquet.write_table(pa.table({"d": [[0]], "y": [1]}), tmp_path / "d.parquet")
    with pytest.raises(DataError, match="column 'd' holds list"):
        load(tmp_path / "d.parquet")
    put(tmp_path / "cut.parquet", (tmp_path / "a.parquet").read_bytes()[:-20])
    with pytest.raises(DataError, match="cut.parquet is not a whole parquet file"):
        load(tmp_path / "cut.parquet")


def idx(values: np.ndarray) -> bytes:
    return struct.pack(f">BBBB{values.ndim}I", 0, 0, 8, values.ndim, *values.shape) + values.astype("u1").tobytes()


@pytest.mark.parametrize("suffix", PACKERS)
def test_idx_with_labels(tmp_path, suffix):
    images = np.arange(5 * 3 * 2).reshape(5, 3, 2)
    x = put(tmp_path / f"x-idx3-ubyte{suffix}", PACKERS[suffix](idx(images)))
    y = put(tmp_path / f"y-idx1-ubyte{suffix}", PACKERS[suffix](idx(np.arange(5))))
    store = load(x, labels=str(y))
    assert store.dtype == np.uint8
    np.testing.assert_array_equal(whole(store), images.reshape(5, 6))
    np.testing.assert_array_equal(store.y, np.arange(5))
    with pytest.raises(DataError, match="there are more rows"):
        load([x, put(tmp_path / f"more{suffix}", x.read_bytes())], labels=str(y))


def test_npy_and_npz(tmp_path):
    X, y = np.random.default_rng(0).normal(size=(7, 3)), np.array(list("abababa"))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "y.npy", y)
    np.savez_compressed(tmp_path / "z.npz", X=X, y=y)
    for source, options in (("x.npy", {"labels": str(tmp_path / "y.npy")}), ("z.npz", {})):
        store = load(tmp_path / source, **options)
        np.testing.assert_array_equal(whole(store), X.astype(np.float32))
        np.testing.assert_array_equal(store.y, y)
    labels = put(tmp_path / "labels.txt", "1\n2\n1\n1\n2\n2\n3\n")
    np.testing.assert_array_equal(load(tmp_path / "x.npy", labels=str(labels)).y, [1, 2, 1, 1, 2, 2, 3])
    np.testing.assert_array_equal(whole(load(tmp_path / "x.npy", dtype="float64")), X)


def test_bad_arrays(tmp_path):
    X = np.ones((4, 3))
    np.save(tmp_path / "f.npy", np.asfortranarray(X))
    np.save(tmp_path / "x.npy", X)
    np.save(tmp_path / "one.npy", X[0])
    np.save(tmp_path / "text.npy", np.array([["a"]]))
    np.save(tmp_path / "nan.npy", np.array([[1, 2], [3, np.nan]]))
    np.savez(tmp_path / "m.npz", p=X, q=X)
    np.savez(tmp_path / "n.npz", X=X, y=np.ones(3))
    put(tmp_path / "cut.npy", (tmp_path / "x.npy").read_bytes()[:-10])
    put(tmp_path / "bad.npy", b"nonsense")
    put(tmp_path / "x.idx", b"\1\2\3\4")
    put(tmp_path / "short.idx", idx(np.ones((4, 2)))[:-1])
    put(tmp_path / "two.txt", "1\n2\n")
    put(tmp_path / "gap.txt", "1\n\n2\n3\n")
    for name, options, message in (
        ("f.npy", {}, "Fortran order"),
        ("one.npy", {}, "expected .rows, features"),
        ("text.npy", {}, "expected numbers"),
        ("nan.npy", {}, "nan.npy: row 2, column 2 is nan"),
        ("m.npz", {}, "holds p, q; expected an array named X"),
        ("n.npz", {}, "4 rows and 3 labels"),
        ("cut.npy", {}, "expected 4 rows, found [23]"),
        ("bad.npy", {}, "not a npy array"),
        ("x.idx", {}, "not an idx file: it starts with 01020304"),
        ("short.idx", {}, "expected 4 rows, found 3"),
        ("x.npy", {"labels": str(tmp_path / "two.txt")}, "2 labels, but there are more rows"),
        ("x.npy", {"labels": str(tmp_path / "gap.txt")}, "gap.txt:2: the label is missing"),
    ):
        with pytest.raises(DataError, match=message):
            load(tmp_path / name, **options)


@every_case("suffix", [".gz", ".bz2", ".xz"])
@every_case("name", ["a.svm", "a.csv"])
def test_damaged_packing(tmp_path, suffix, name):
    rng = np.random.default_rng(0)
    line = "1 1:{} 2:{}" if name == "a.svm" else "{},{},1"
    text = "\n".join(line.format(*rng.random(2)) for _ in range(20_000)).encode()
    packed = PACKERS[suffix](text)
    with pytest.raises(DataError, match=f"{name}{suffix} is damaged or cut off"):
        load(put(tmp_path / f"{name}{suffix}", packed[: len(packed) // 2]))
    flipped = bytearray(packed)
    flipped[len(packed) // 2] ^= 0xFF
    with pytest.raises(DataError):
        load(put(tmp_path / f"{name}{suffix}", bytes(flipped)))
    assert [p.name for p in tmp_path.iterdir()] == [f"{name}{suffix}"]


def test_formats_are_told_by_content(tmp_path):
    assert load(put(tmp_path / "data.t", "+1 1:1 2:1\n")).attrs["format"] == "svmlight"
    assert load(put(tmp_path / "data", idx(np.ones((3, 2))))).attrs["format"] == "idx"
    assert load(put(tmp_path / "table.txt", "a,y\n1,0\n"), format="csv").d == 1
    with pytest.raises(DataError, match="give --format"):
        load(put(tmp_path / "table.txt", "a,y\n1,0\n"))
    with pytest.raises(ConfigError, match="different formats"):
        load([tmp_path / "data.t", tmp_path / "data"])


def test_sources_and_targets(tmp_path):
    with pytest.raises(NotFoundError, match="does not exist"):
        load(tmp_path / "none.csv")
    with pytest.raises(NotFoundError, match="no file of a format that ingest reads is in this folder"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="no source"):
        ingest([], tmp_path / "s")
    a = put(tmp_path / "a.csv", "a,y\n1,0\n")
    put(tmp_path / "taken", "x")
    with pytest.raises(StorageError, match="found a file, expected nothing or a store"):
        ingest([a], tmp_path / "taken")
    assert (tmp_path / "taken").read_text() == "x"
    both = IngestOptions(split=0.5, test_store=f"{tmp_path}/./s")
    with pytest.raises(ConfigError, match="found the place of --store, expected another one"):
        ingest([a], tmp_path / "s", both)
    assert not (tmp_path / "s").exists()


@every_case(
    "options",
    [
        {"format": "arff"},
        {"dtype": "int8"},
        {"split": 0.5},
        {"test_store": "t"},
        {"split": 1.5, "test_store": "t"},
        {"rows_per_chunk": 0},
        {"memory_limit": 1},
    ],
)
def test_options_out_of_range(options):
    with pytest.raises(ConfigError):
        validated(IngestOptions, ("options", options))


def test_summary_is_json_and_names_what_was_made(tmp_path):
    summary = ingest([put(tmp_path / "a.csv", "a,y\n1,0\n2,1\n")], tmp_path / "s")
    assert json.loads(json.dumps(summary))["rows"] == 2
    assert (summary["features"], summary["layout"], summary["dtype"]) == (1, "dense", "float32")
