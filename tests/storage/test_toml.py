"""TOML that is written reads back as what it was."""

from __future__ import annotations

import tomllib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.storage.text import toml_document

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
PLAIN = st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | TEXTS
VALUES = PLAIN | st.lists(PLAIN, max_size=3) | st.lists(st.lists(st.floats(-9, 9), max_size=3), max_size=3)
TABLES = st.recursive(
    st.dictionaries(TEXTS, VALUES | st.none(), max_size=4),
    lambda tables: st.dictionaries(TEXTS, VALUES | st.none() | tables, max_size=4),
    max_leaves=6,
)


def without_none(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name: without_none(value) if isinstance(value, dict) else value
        for name, value in values.items()
        if value is not None
    }


@given(TABLES)
def test_what_is_written_is_read(values):
    assert tomllib.loads(toml_document(values)) == without_none(values)


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ({"C": 1.0, "name": None}, "C = 1.0\n"),
        ({"a": {}, "b": {"c": None}}, "\n[a]\n\n[b]\n"),
        ({"a": {"b": {"c": [1, True]}}, "d": "x"}, 'd = "x"\n\n[a.b]\nc = [1, true]\n'),
        ({"two words": {"\x7f": 1e-30}}, '\n["two words"]\n"\\u007f" = 1e-30\n'),
    ],
)
def test_what_it_looks_like(values, text):
    assert toml_document(values) == text
