"""Text columns of many values: hashed, as scikit-learn's FeatureHasher does."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher

from streamsvm.data.ingest.files import ingest
from streamsvm.data.ingest.options import IngestOptions
from streamsvm.data.rows import Rows
from streamsvm.data.schema import Feature, Schema, hashed
from streamsvm.data.store import Store

TEXTS = st.lists(st.text(st.characters(exclude_categories=["Cs"]), max_size=9), min_size=1, max_size=30)


def load(folder, rows, like=None, suffix="csv", **options):
    """The store of a table with columns colour, size and y."""
    frame = pd.DataFrame(rows, columns=["colour", "size", "y"])
    path, store = folder / f"a.{suffix}", folder / f"s{len([*folder.iterdir()])}"
    if suffix == "csv":
        frame.to_csv(path, index=False)
    else:
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), path)
    ingest([path], store, IngestOptions(like=like, **options))
    return Store.open(store)


def whole(store):
    return store.read(0, store.n).dense()


def table(n=300, texts=60, seed=0):
    rng = np.random.default_rng(seed)
    colours = [f"c{min(i, texts)}" if i else None for i in rng.geometric(0.08, n) - 1]
    sizes = rng.normal(size=n).astype(np.float32)
    return [
        [c, s, "yes" if (s > 0) ^ (c in ("c1", "c2")) else "no"] for c, s in zip(colours, sizes, strict=True)
    ]


def encoded(feature, texts):
    schema = Schema([feature], frozen=True)
    return Rows(schema.encode(schema.codes(feature, texts, "")[:, None])).dense()


@given(TEXTS, st.integers(2, 70))
def test_hashes_are_those_of_scikit_learn(texts, width):
    twin = FeatureHasher(width, input_type="string").transform([[text] if text else [] for text in texts])
    np.testing.assert_array_equal(encoded(Feature("a", "text", hash=width), texts), twin.toarray())


def test_hashes_stay_what_they_are():
    assert hashed(["red", "blue", "größe", ""], 16).tolist() == [-4, -14, -2, 0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_hashed_column(tmp_path, suffix):
    rows = table()
    store = load(tmp_path, rows, suffix=suffix, hash="colour=5")
    assert store.attrs["columns"] == [{"name": "colour", "hash": 5}, {"name": "size"}]
    assert store.feature_names == (*(f"colour#{slot}" for slot in range(5)), "size")
    twin = FeatureHasher(5, input_type="string").transform([[c] if c else [] for c, *_ in rows])
    np.testing.assert_array_equal(whole(store), np.c_[twin.toarray(), [s for _, s, _ in rows]])
    new = [["c1", 0.5, "no"], ["never seen", 1, "no"]]
    own = whole(load(tmp_path, new, like=store.url, suffix=suffix))
    np.testing.assert_array_equal(
        own[:, :5], FeatureHasher(5, input_type="string").transform([[c] for c, *_ in new]).toarray()
    )
