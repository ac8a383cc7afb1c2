"""Labels as codes: classes first, so that text and `--positive` cost no more than the codes."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from making import samples, write

from streamsvm.config import build_config
from streamsvm.data import labels
from streamsvm.data.labels import coded
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.train import planned

N = 300_000
NAMES = np.array(["spruce", "a longer name", "pine", "\u00fcber", "2"])


@pytest.fixture(scope="module")
def kinds(tmp_path_factory):
    """Stores of one column whose labels are text and whole numbers."""
    folder, codes = tmp_path_factory.mktemp("labels"), np.random.default_rng(0).integers(0, 5, N)
    X = samples(N, 1, "uint8")
    return {
        name: write(folder / name, X, y, step=N // 3).url
        for name, y in {"text": NAMES[codes], "int": codes}.items()
    }


@pytest.mark.parametrize("kind", ["text", "int"])
@pytest.mark.parametrize("positive", [(), ("2",)])
def test_labels_of_a_fit_take_few_bytes_a_row(kinds, kind, positive):
    """Before, --positive took 84 bytes a row of whole numbers, and text was read whole."""
    store = Store.open(kinds[kind])
    config = build_config(("test", {"solver": "bsgd", "kernel": {"gamma": 0.5}, "positive": positive}))
    with planned(store, config):  # compiles
        pass
    tracemalloc.start()
    try:
        with planned(Store.open(kinds[kind]), config):
            assert (
                tracemalloc.get_traced_memory()[1] < 60 * N
            )  # codes, twice, weights, and pieces of a few MB
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
    store.attrs.clear()  # of files, which arrays in memory have none of
    assert store.fingerprint() == Store.from_arrays(samples(N, 1, "uint8").X, store.y).fingerprint()


def test_numbers_without_end_are_no_classes(monkeypatch):
    monkeypatch.setattr(labels, "MOST_SEEN", 10)
    y = np.random.default_rng(0).random(50)
    assert coded([y[:25], y[25:]], 50) is None
    values, codes = Store.from_arrays(samples(50, 1).X, y).coded
    np.testing.assert_array_equal(values[codes], y)


def test_a_missing_label_is_named_by_its_row(monkeypatch, tmp_path):
    monkeypatch.setattr("streamsvm.data.beside.PIECE_ROWS", 7)
    y = np.arange(30.0)
    y[23] = np.nan
    store = write(tmp_path / "s.zarr", samples(30, 1), y, chunk_rows=5)
    with pytest.raises(DataError, match="label of row 23 is nan"):
        _ = store.coded
