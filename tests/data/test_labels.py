"""Labels are count_labels and read block by block: no fit holds all of them that does not need them all."""

from __future__ import annotations

import hashlib
import json
import shutil
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from making import refuse_whole_columns, samples, write

from streamsvm.config import build_config
from streamsvm.data import labels
from streamsvm.data.labels import count_labels
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import CorruptDataError, DataError
from streamsvm.parallel.engine import Engine
from streamsvm.tables.checks import check
from streamsvm.train import planned_fit

N = 100_000
NAMES = np.array(["spruce", "a longer name", "pine", "\u00fcber", "2"])


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Stores of one column whose labels are text and whole numbers."""
    folder, codes = tmp_path_factory.mktemp("labels"), np.random.default_rng(0).integers(0, 5, N)
    X = samples(N, 1, "uint8")
    return {
        name: write(folder / name, X, y, step=N // 3).url for name, y in {"text": NAMES[codes], "int": codes}.items()
    }


@pytest.mark.parametrize("kind", ["text", "int"])
@pytest.mark.parametrize("positive", [(), ("2",)])
def test_a_fit_on_a_budget_holds_no_labels(kinds, kind, positive):
    """Before, codes and weights took 12 bytes a row, 16 with --positive; what is imported meanwhile takes some, too."""
    store = Store.open(kinds[kind])
    options = {"solver": "bsgd", "bsgd": {"budget": 10}, "kernel": {"gamma": 0.5}, "positive": positive}
    config = build_config(("test", options))
    with planned_fit(store, config):  # compiles
        pass
    tracemalloc.start()
    try:
        with planned_fit(Store.open(kinds[kind]), config):
            held, peak = tracemalloc.get_traced_memory()
            assert held < 6 * N  # bytes
            assert peak < 20 << 20  # of pieces of 65,536
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("kind", ["text", "int"])
def test_codes_are_those_of_all_labels(kinds, kind):
    store = Store.open(kinds[kind])
    values, codes = store.coded
    expected, inverse = np.unique(store.y, return_inverse=True)
    np.testing.assert_array_equal(values, expected)
    np.testing.assert_array_equal(codes, inverse)
    assert values.dtype == store.y.dtype
    np.testing.assert_array_equal(store.classes.counts, np.bincount(codes))


def digest_of(store):
    """As `fingerprint` makes it with all labels in memory."""
    values, codes = np.unique(store.y, return_inverse=True)
    facts = [store.n, store.d, str(store.dtype), store.is_sparse, store.attrs["content"], None]
    state = hashlib.blake2b(json.dumps(facts, sort_keys=True).encode(), digest_size=16)
    state.update(store.read(0, min(store.n, 64)).X.tobytes())
    state.update(values[codes].tobytes())
    return f"2-{state.hexdigest()}"


@pytest.mark.parametrize(
    ("kind", "most"),
    [("text", 10), ("text", 1000), ("int", 10), ("int", 1000), ("float", 1000), ("zeros", 5)],
)
def test_a_fingerprint_is_that_of_all_labels_in_memory(monkeypatch, tmp_path, kind, most):
    monkeypatch.setattr(labels, "MOST_SEEN", most)
    monkeypatch.setattr("streamsvm.data.columns.PIECE_ROWS", 7)
    n = np.arange(50)
    y = {"text": n.astype("U9"), "int": 3 - n, "float": n / 7, "zeros": np.where(n % 3, n % 20 / 2, -0.0)}[kind]
    made = write(tmp_path / "s.zarr", samples(50, 1), y)
    assert made.fingerprint() == made.fingerprint() == digest_of(made)
    held = Store.from_arrays(made.read(0, 50).X, made.y)
    held.attrs = made.attrs
    assert held._digest().hexdigest() == made._digest().hexdigest()


def test_numbers_without_end_are_no_classes(monkeypatch):
    monkeypatch.setattr(labels, "MOST_SEEN", 10)
    y = np.random.default_rng(0).random(50)
    assert count_labels([y[:25], y[25:]]) is None
    values, codes = Store.from_arrays(samples(50, 1).X, y).coded
    np.testing.assert_array_equal(values[codes], y)


def test_a_missing_label_is_named_by_its_row(monkeypatch, tmp_path):
    monkeypatch.setattr("streamsvm.data.columns.PIECE_ROWS", 7)
    y = np.arange(30.0)
    y[23] = np.nan
    store = write(tmp_path / "s.zarr", samples(30, 1), y, chunk_rows=5)
    with pytest.raises(DataError, match="label of row 23 is nan"):
        _ = store.coded


@pytest.mark.parametrize("kind", ["int", "text", "memory"])
def test_labels_and_weights_of_some_rows(monkeypatch, tmp_path, kind):
    """Those of a file are read without the others."""
    y, weight = np.arange(50) % 4, np.arange(50) / 7
    y = NAMES[y] if kind == "text" else y
    with StoreWriter(tmp_path / "s.zarr", d=1, dtype="float32") as writer:
        writer.append(samples(50, 1), y, sample_weight=weight)
    store = Store.open(tmp_path / "s.zarr")
    if kind == "memory":
        store = Store.from_arrays(store.read(0, 50).X, y, sample_weight=weight)
    refuse_whole_columns(monkeypatch)
    ids = np.array([49, 3, 3, 17, 0])
    np.testing.assert_array_equal(store.labels(10, 33), y[10:33])
    np.testing.assert_array_equal(store.labels_at(ids), y[ids])
    np.testing.assert_array_equal(store.weights(10, 33), weight[10:33])
    np.testing.assert_array_equal(store.weights_at(ids), weight[ids])
    assert len(store.labels_at(ids[:0])) == 0
    few = store.subset(np.array([4, 44]))
    assert few.y.tolist() == y[[4, 44]].tolist()
    assert few.sample_weight is not None
    assert few.sample_weight.tolist() == weight[[4, 44]].tolist()


@settings(max_examples=12)
@given(
    labels=st.one_of(
        hnp.arrays(np.int64, st.integers(1, 40), elements=st.integers(-3, 3)),
        hnp.arrays(np.float64, st.integers(1, 40), elements=st.sampled_from([0.0, -0.0, 0.5, 2.0])),
        hnp.arrays("U3", st.integers(1, 40), elements=st.sampled_from(["a", "nan", "é", ""])),
    )
)
def test_kept_counts_are_those_of_a_pass(labels):
    """And stores that keep none, as earlier ones, have the same classes, codes and fingerprint."""
    with TemporaryDirectory() as folder:
        counted = write(Path(folder) / "kept", samples(len(labels), 2), labels)
        shutil.copytree(counted.url, Path(folder) / "earlier")
        shutil.rmtree(Path(folder) / "earlier" / "statistics")
        earlier = Store.open(Path(folder) / "earlier")
        assert earlier.stored_classes is None
        for one, other in zip(
            vars(counted.stored_classes).values(), vars(earlier.count_labels()).values(), strict=True
        ):
            assert one.dtype == other.dtype
            assert one.tobytes() == other.tobytes()  # zeros have their sign
        np.testing.assert_array_equal(counted.coded[1], earlier.coded[1])
        assert counted.fingerprint() == earlier.fingerprint()


def test_labels_that_are_not_as_counted_are_found(tmp_path):
    store = write(tmp_path / "s", samples(6, 2), np.array([0, 1, 0, 1, 0, 1]))
    array = zarr.open_group(store.url)["y"]
    array[0] = 1
    with pytest.raises(CorruptDataError, match=r"statistics/counts' says 3 rows of label 0, 'y' has 2"):
        check(Store.open(store.url), Engine())
    array[0] = 7
    with pytest.raises(CorruptDataError, match="lists other labels than 'y' has"):
        check(Store.open(store.url), Engine())
    with pytest.raises(CorruptDataError, match="found label 7, which is not among the 2"):
        _ = Store.open(store.url).coded
