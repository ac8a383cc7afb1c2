"""What labels of data frames become, by their type: those of numpy, or one line."""

from __future__ import annotations

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from every_case import every_case

from streamsvm import CuttingPlaneSVC
from streamsvm.errors import DataError

X = np.arange(8, dtype=np.float32)[:, None] / 8
TABLES = {"array": X, "frame": pd.DataFrame(X, columns=["a"])}
TRUE, NUMBERS, TEXTS = [True, False] * 4, [1, 2] * 4, ["x", "y"] * 4
LABELS = {
    "Int64": (pd.Series(NUMBERS, dtype="Int64"), NUMBERS),
    "boolean": (pd.Series(TRUE, dtype="boolean"), TRUE),
    "string": (pd.Series(TEXTS, dtype="string"), TEXTS),
    "str": (pd.Series(TEXTS, dtype="str"), TEXTS),
    "category": (pd.Series(TEXTS, dtype="category"), TEXTS),
    "category of numbers": (pd.Series(NUMBERS, dtype="category"), NUMBERS),
    "polars String": (pl.Series(TEXTS), TEXTS),
    "polars Enum": (pl.Series(TEXTS, dtype=pl.Enum(["y", "x"])), TEXTS),
    "polars Boolean": (pl.Series(TRUE), TRUE),
    "arrow": (pa.array(TEXTS), TEXTS),
    "arrow, in pieces": (pa.chunked_array([NUMBERS[:3], NUMBERS[3:]]), NUMBERS),
    "arrow dictionary": (pa.array(TEXTS).dictionary_encode(), TEXTS),
}


@pytest.mark.parametrize("table", TABLES)
@pytest.mark.parametrize("name", LABELS)
def test_they_are_those_of_numpy(name, table):
    y, plain = LABELS[name]
    found = CuttingPlaneSVC().fit(TABLES[table], y)
    expected = CuttingPlaneSVC().fit(TABLES[table], np.array(plain))
    assert found.classes_.tolist() == expected.classes_.tolist()
    assert [*map(type, found.classes_.tolist())] == [type(plain[0])] * 2
    assert found.predict(TABLES[table]).tolist() == expected.predict(TABLES[table]).tolist()


@every_case("table", TABLES)
@every_case(
    "y",
    [
        pd.Series(["x", None, *TEXTS[2:]], dtype="string"),
        pd.Series(["x", None, *TEXTS[2:]], dtype="category"),
        pd.Series([1, None, *NUMBERS[2:]], dtype="Int64"),
        pd.Series([1, None, *NUMBERS[2:]], dtype=float),
        pl.Series(["x", None, *TEXTS[2:]]),
        pa.array(["x", None, *TEXTS[2:]]),
        np.array(["x", None, *TEXTS[2:]], dtype=object),
        ["x", None, *TEXTS[2:]],
    ],
    ids=lambda y: f"{type(y).__module__} {getattr(y, 'dtype', '')}",
)
def test_a_missing_one_is_one_line(y, table):
    with pytest.raises(DataError, match="^the label of row 1 is missing; every row needs one$"):
        CuttingPlaneSVC().fit(TABLES[table], y)


@pytest.mark.parametrize(
    "y",
    [
        ["x", "x\0", *TEXTS[2:]],
        np.array(["x", "x\0", *TEXTS[2:]], dtype=object),
        pl.Series(["x", "x\0", *TEXTS[2:]]),
        ["x", "\ud800", *TEXTS[2:]],
    ],
    ids=["list", "objects", "polars", "surrogate"],
)
def test_a_text_that_no_model_holds_is_one_line(y):
    with pytest.raises(DataError, match="^the label of row 1 is .*, which a model cannot hold; expected text"):
        CuttingPlaneSVC().fit(X, y)
