"""The columns of a table as inputs of an ONNX graph, each (N, 1), which encodes them as the table of the fit was.

A text is a string: empty if it is missing. Numbers are float32, or float64 if the rows of the fit were: NaN if missing,
1 and 0 for true and false, days since 1970 for times.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
from onnx import TensorProto

from streamsvm.data.layout import Layout, columns_in_attrs
from streamsvm.errors import ModelError
from streamsvm.exchange.graph import Graph, Tensor, typed
from streamsvm.tables.frames import schema_like
from streamsvm.tables.schema import Feature

ML, ORT = "ai.onnx.ml", "com.microsoft"  # domains of operators
NEW = "\0"  # no text of a table
WRITTEN = [  # forms of a text that readers of tables take as the same one, the plain one first
    f"{before}{quote}{inner}{{}}{after}{quote}"
    for before, quote, inner, after in product(("", " "), ("", '"', "'"), ("", " "), ("", " "))
]
HASHED = "column {!r} is hashed by an operator of onnxruntime alone, texts as they are: without spaces around them"
TIMES = "column {!r} is in days since 1970"
RENAMED = "column {!r} is the input {!r}, as an output has its name"


@dataclass(frozen=True)
class TableInputs:
    """Inputs of a graph. rows: the tensor (N, d) that they are encoded as. domains: of operators other than ONNX's."""

    rows: Tensor
    inputs: list[Any]
    domains: frozenset[str]
    notes: list[str]


def has_text(layout: Layout | None) -> bool:
    """Whether a model's rows come from a table with text, whose columns are not those of its rows."""
    schema = schema_like(layout)
    return schema is not None and any(feature.kind == "text" for feature in schema.features)


def table_inputs(graph: Graph, layout: Layout | None, outputs: Sequence[str]) -> TableInputs:
    """Adds the columns of a model's table to its graph. outputs: the names of the graph's. Raises ModelError."""
    schema = schema_like(layout)
    if layout is None or schema is None:
        problem = "the model's rows come from no table with columns"
        raise ModelError(f"{problem}; export --inputs rows has the one input X")
    dtype = np.float64 if layout.dtype == np.float64 else np.float32
    entries = TensorProto.DOUBLE if dtype is np.float64 else TensorProto.FLOAT
    markers = layout.attrs.get("missing", ())
    inputs, pieces, notes, domains = [], [], [], set()
    for name, feature in zip(columns_in_attrs(layout.attrs), schema.features, strict=True):
        is_text, column = feature.kind == "text", name
        while column in outputs:
            column += "_"
        inputs.append(typed(column, TensorProto.STRING if is_text else entries, ["N", 1]))
        pieces.append(graph.cast(_encoded(graph, column, feature, markers), dtype) if is_text else column)
        domains |= {ML} if is_text else set()
        if column != name:
            notes.append(RENAMED.format(name, column))
        if feature.kind == "time":
            notes.append(TIMES.format(name))
        if feature.hash:
            domains.add(ORT)
            notes.append(HASHED.format(name))
    return TableInputs(graph.op("Concat", *pieces, axis=1), inputs, frozenset(domains), notes)


def _encoded(graph: Graph, column: Tensor, feature: Feature, markers: Sequence[str]) -> Tensor:
    """(N, width) of the texts (N, 1) of a feature, as `Schema.encode`. markers: texts of missing values."""
    if feature.hash:
        return _hashed(graph, column, feature.hash, markers)
    if feature.values is None:
        return _one_hot(graph, _codes(graph, column, feature, markers), feature.width)
    values = graph.op("Gather", feature.values, graph.op("Sub", _codes(graph, column, feature, markers), np.int64(1)))
    return graph.op("Reshape", values, [-1, feature.width])


def _codes(graph: Graph, column: Tensor, feature: Feature, markers: Sequence[str]) -> Tensor:
    """(N, 1) int64, as `Feature.codes`, however a text is written."""
    known = ["", *feature.categories, NEW]
    codes = dict(zip(known, feature.codes(known).astype(int).tolist(), strict=True))
    other = codes.pop(NEW)
    codes |= dict.fromkeys(markers, codes[""])
    if feature.is_code:
        codes |= {f"{text}.0": code for text, code in feature.categories.items() if text.isdigit()}
    return _looked_up(graph, column, codes, other)


def _hashed(graph: Graph, column: Tensor, width: int, markers: Sequence[str]) -> Tensor:
    """(N, width) as `hash_codes`."""
    hashes = graph.cast(graph.op("MurmurHash3", column, domain=ORT, positive=0), np.int64)
    slots = graph.op("Add", graph.op("Mod", graph.op("Abs", hashes), np.int64(width)), np.int64(1))
    negative = graph.cast(graph.op("Less", hashes, np.int64(0)), np.float64)
    signs = graph.op("Sub", 1.0, graph.op("Mul", negative, 2.0))
    is_present = _looked_up(graph, column, dict.fromkeys(("", *markers), 0), 1)
    return graph.op("Mul", _one_hot(graph, graph.op("Mul", slots, is_present), width), signs)


def _looked_up(graph: Graph, column: Tensor, codes: Mapping[str, int], other: int) -> Tensor:
    """(N, 1) int64 the code of each text, however it is written, or another."""
    forms = {form.format(text): code for form in reversed(WRITTEN) for text, code in codes.items()}
    named = {"keys_strings": [*forms], "values_int64s": [*forms.values()], "default_int64": other}
    return graph.op("LabelEncoder", column, domain=ML, **named)


def _one_hot(graph: Graph, codes: Tensor, width: int) -> Tensor:
    """(N, width) float64: 1 in the column of each code from 1 to the width (N, 1), nothing of others."""
    return graph.cast(graph.op("Equal", codes, np.arange(1, width + 1)), np.float64)
