"""Text columns of many values: hashed as by scikit-learn's FeatureHasher, with rare values as by its OneHotEncoder."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.feature_extraction import FeatureHasher
from sklearn.preprocessing import OneHotEncoder

from streamsvm.data.layout import names_in_attrs
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.events import Events
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.tables.schema import Feature, Schema, hash_codes

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
    return [[c, s, "yes" if s > 0 else "no"] for c, s in zip(colours, sizes, strict=True)]


def encoded(schema, texts):
    """Rows of texts; a schema that is not frozen learns these first."""
    raw = schema.codes(schema.features[0], texts, np.arange(len(texts)), "")
    schema.settle("")
    return Rows(schema.encode(raw[:, None])).dense()


@given(TEXTS, st.integers(2, 70))
def test_hashes_are_those_of_scikit_learn(texts, width):
    twin = FeatureHasher(width, input_type="string").transform([[text] if text else [] for text in texts])
    np.testing.assert_array_equal(encoded(Schema([Feature("a", "text", hash=width)]), texts), twin.toarray())


def test_hashes_stay_what_they_are():
    assert hash_codes(["red", "blue", "größe", ""], 16).tolist() == [-4, -14, -2, 0]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_a_hashed_column(tmp_path, suffix):
    rows = table()
    store = load(tmp_path, rows, suffix=suffix, hash="colour=5")
    assert store.attrs["columns"] == [{"name": "colour", "hash": 5}, {"name": "size"}]
    assert store.feature_names == (*(f"colour#{slot}" for slot in range(5)), "size")
    twin = FeatureHasher(5, input_type="string").transform([[c] if c else [] for c, *_ in rows])
    np.testing.assert_array_equal(whole(store), np.c_[twin.toarray(), [s for _, s, _ in rows]])
    new = [["c1", 0.5, "no"], ["never seen", 1, "no"]]
    encoded_rows = whole(load(tmp_path, new, like=store.url, suffix=suffix))
    twin = FeatureHasher(5, input_type="string").transform([[c] for c, *_ in new])
    np.testing.assert_array_equal(encoded_rows[:, :5], twin.toarray())


SOME = st.lists(st.sampled_from(["red", "blue", "grey", "(rare)x", "green"]), min_size=1, max_size=30)


@given(SOME, SOME, st.integers(1, 6))
def test_rare_texts_are_those_of_scikit_learn(texts, new, least):
    schema = Schema([Feature("a", "text", min_rows=least)])
    encoded_rows = encoded(schema, texts)
    twin = OneHotEncoder(min_frequency=least, handle_unknown="infrequent_if_exist", sparse_output=False)
    expected = twin.fit_transform(np.array(texts, object)[:, None])
    names = [name.replace("infrequent_sklearn", "(rare)") for name in twin.get_feature_names_out(["a"])]
    columns = [
        names.index(name.replace("=", "_", 1)) for name in names_in_attrs(schema.to_attrs(), encoded_rows.shape[1])
    ]
    np.testing.assert_array_equal(encoded_rows, expected[:, columns])
    again = Schema.from_attrs(schema.to_attrs())
    twins = twin.transform(np.array([*new, "never seen"], object)[:, None])
    np.testing.assert_array_equal(encoded(again, [*new, "never seen"]), twins[:, columns])


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
@pytest.mark.parametrize("more", [{}, {"shuffle": True}], ids=["in order", "shuffled"])
def test_a_column_with_rare_texts(tmp_path, suffix, more):
    rows = table()
    store = load(tmp_path, rows, suffix=suffix, min_frequency=20, **more)
    counts = Counter(c for c, *_ in rows if c)
    often = [c for c in counts if counts[c] >= 20]
    rare = counts.total() - sum(counts[c] for c in often)
    assert store.attrs["columns"][0] == {"name": "colour", "categories": [*often, "(rare)"], "rare": True}
    assert store.feature_names[-2:] == ("colour=(rare)", "size")
    assert whole(store)[:, :-1].sum(axis=0).tolist() == [*(counts[c] for c in often), rare]
    new = [["c1", 0, "no"], ["never seen", 0, "no"], [None, 0, "no"]]
    encoded_rows = whole(load(tmp_path, new, like=store.url, suffix=suffix))
    assert encoded_rows[:, [often.index("c1"), -2]].tolist() == [[1, 0], [0, 1], [0, 0]]
    assert encoded_rows.sum() == 2


def test_missing_numbers_stay_missing_beside_a_wide_hash(tmp_path):
    store = load(tmp_path, [["red", None, "no"], [None, 2, "yes"]], hash="colour=1000")
    assert store.is_sparse
    rows = whole(store)
    np.testing.assert_array_equal(rows[:, -1], [np.nan, 2])
    assert np.abs(rows[:, :-1]).sum(axis=1).tolist() == [1, 0]


def test_a_text_that_is_called_rare_is(tmp_path):
    rows = [["(rare)", 0, "no"]] * 5 + [["red", 1, "yes"]] * 5
    store = load(tmp_path, rows, min_frequency=2)
    assert store.feature_names == ("colour=red", "colour=(rare)", "size")
    np.testing.assert_array_equal(whole(store), [[0, 1, 0]] * 5 + [[1, 0, 1]] * 5)


def test_empty_columns_and_all_that_are_rare(tmp_path):
    rows = [[f"c{i}", i, "no"] for i in range(5)]
    assert load(tmp_path, rows, min_frequency=2).feature_names == ("colour=(rare)", "size")
    assert encoded(Schema([Feature("b", "text", min_rows=3)]), ["", ""]).shape == (2, 0)


@pytest.mark.parametrize(("least", "often"), [(None, ""), (2, " in 2 rows or more")])
def test_more_than_ten_thousand_columns_say_what_to_type(tmp_path, least, often):
    rows = [[f"c{i % 10_001}", i, "no"] for i in range(20_002)]
    message = (
        rf"a.csv: column 'colour' has more than 10,000 different texts{often}, a column of 0 and 1 for each; "
        r"--hash colour=1024 makes 1024 columns of them, --target-encode colour one, with the label's mean for each, "
        r"--min-frequency \d+ one column of those in fewer than \d+ rows, --ignore colour none"
    )
    with pytest.raises(DataError, match=message):
        load(tmp_path, rows, min_frequency=least)
    assert [path.name for path in tmp_path.iterdir()] == ["a.csv"]
    assert load(tmp_path, rows, hash="colour=1024").d == 1025
    assert load(tmp_path, rows, min_frequency=3).d == 2


def test_many_columns_of_some_categories_each_are_too_many_together(tmp_path, monkeypatch):
    monkeypatch.setattr("streamsvm.tables.schema.MAX_COLUMNS", 100)
    path = tmp_path / "a.csv"
    path.write_text("a,b,y\n" + "".join(f"a{i},b{i % 51},0\n" for i in range(60)))
    message = "a.csv: texts would make 111 columns of 0 and 1, column 'a' most of them; --hash a=1024 makes"
    with pytest.raises(DataError, match=message):
        ingest([path], tmp_path / "s")
    with pytest.raises(DataError, match="X: texts would make 111 columns"):
        Store.from_arrays(pd.read_csv(path).drop(columns="y"))


def test_a_thousand_values_are_told(tmp_path):
    messages = []
    events = Events(lambda record: messages.append(getattr(record.event, "message", "")))
    frame = pd.DataFrame({"a b": [f"c{i % 1001}" for i in range(3000)], "y": 0})
    frame.to_csv(tmp_path / "a.csv", index=False)
    ingest([tmp_path / "a.csv"], tmp_path / "s", events=events)
    assert "column 'a b' has 1,001 different texts in 3,000 rows: each became a column of 0 and 1" in messages[-1]
    assert "--hash 'a b=1024' makes 1024 columns of them, --target-encode 'a b' one" in messages[-1]
