"""Lazy frames, readers, datasets and relations: the models of the table that they give."""

from __future__ import annotations

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.dataset
import pytest

from streamsvm import DCSVC, BudgetedSVC, CuttingPlaneRanker, DCOneClassSVM, load_model
from streamsvm.errors import DataError


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    size, colour = rng.normal(size=120), rng.choice(["red", "blue"], 120)
    return pa.table({"size": size, "colour": colour})


def of_narwhals(frame):
    return pytest.importorskip("narwhals").from_native(frame)


def of_duckdb(table):
    return pytest.importorskip("duckdb").connect().from_arrow(table)


WAYS = {
    "polars LazyFrame": lambda table: pl.from_arrow(table).lazy(),
    "narwhals DataFrame": of_narwhals,
    "narwhals LazyFrame": lambda table: of_narwhals(pl.from_arrow(table).lazy()),
    "arrow RecordBatchReader": lambda table: table.to_reader(max_chunksize=50),
    "arrow Dataset": pyarrow.dataset.dataset,
    "arrow Scanner": lambda table: pyarrow.dataset.dataset(table).scanner(),
    "DuckDB relation": of_duckdb,
}


@pytest.mark.parametrize("name", WAYS)
def test_the_model_is_that_of_the_table(name, table, tmp_path):
    give, y = WAYS[name], np.asarray(table["size"]) > 0
    here, there = DCSVC().fit(table, y), DCSVC().fit(give(table), y)
    assert there.feature_names_in_.tolist() == ["size", "colour"]
    np.testing.assert_array_equal(there.decision_function(give(table)), here.decision_function(table))
    there.save(tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").predict(give(table)), here.predict(table))
    rows = BudgetedSVC(random_state=0).partial_fit(give(table), y, classes=[False, True])
    assert rows.model_.feature_names == here.model_.feature_names
    assert DCOneClassSVM().fit(give(table)).predict(give(table)).shape == (120,)


def test_queries_go_with_it(table):
    y, qid = np.arange(120) % 3, np.arange(120) // 10
    here = CuttingPlaneRanker().fit(table, y, qid)
    there = CuttingPlaneRanker().fit(table.to_reader(), y, qid)
    np.testing.assert_array_equal(there.predict(table), here.predict(table))
    with pytest.raises(DataError, match="X has 120 rows but qid has 119; expected as many"):
        CuttingPlaneRanker().fit(table.to_reader(), y, qid[1:])


def test_what_was_read_before_is_told(table):
    reader, y = table.to_reader(), np.arange(120) % 2
    svm = DCSVC().fit(reader, y)
    with pytest.raises(DataError, match="^X: a RecordBatchReader without rows; it can be read only once: .* a new one"):
        svm.predict(reader)


def test_what_cannot_be_read_is_one_line(table):
    lazy = pl.from_arrow(table).lazy().select("none")
    with pytest.raises(DataError, match="^X: a LazyFrame that cannot be read: .*none.*") as error:
        DCSVC().fit(lazy, [0, 1])
    assert "\n" not in str(error.value)
