"""ONNX graphs under construction: every operator's output is a name that the next one takes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import numpy as np
from onnx import helper, numpy_helper


class Graph:
    """Nodes and constants, in the order they were made."""

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._numbers = count() if numbers is None else numbers

    def body(self) -> Graph:
        """A graph for inside a node of this one: it sees the names made here."""
        return Graph(self._numbers)

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, n_outputs: int, *inputs: str, **attributes: Any) -> list[str]:
        """The names of an operator's outputs."""
        names = [self.name(kind) for _ in range(n_outputs)]
        self.nodes.append(helper.make_node(kind, inputs, names, **attributes))
        return names

    def name(self, kind: str) -> str:
        return f"{kind}_{next(self._numbers)}"

    def called(self, name: str, value: str) -> None:
        """An output of the graph."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def constant(self, value: Any) -> str:
        array = np.asarray(value)
        name = self.name("constant")
        array = np.ascontiguousarray(array) if array.ndim else array
        self.constants.append(
            numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, name)
        )
        return name

    def cast(self, name: str, dtype: type) -> str:
        return self.op("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def zeros(self, like: str, columns: int, dtype: type) -> str:
        """(N, columns), as many rows as `like` has."""
        shape = self.op("Concat", self.op("Shape", like, end=1), self.constant([columns]), axis=0)
        return self.op("ConstantOfShape", shape, value=numpy_helper.from_array(np.zeros(1, dtype)))

    def double(self, array: np.ndarray) -> str:
        """A float64 constant, kept as float32 where it is that."""
        name = self.constant(array)
        return name if array.dtype == np.float64 else self.cast(name, np.float64)

    def inner_products(self, x: str, rows: str) -> str:
        """x'row, (N, s), of float64 x (N, d) and rows (s, d)."""
        return self.op("Gemm", x, rows, transB=1)

    def sq_distances(self, x: str, rows: str) -> str:
        """|x - row|^2, (N, s)."""
        inner, axis = self.inner_products(x, rows), self.constant([1])
        norms = self.op(
            "Add",
            self.op("ReduceSumSquare", x, axis, keepdims=1),
            self.op("ReduceSumSquare", rows, axis, keepdims=0),
        )
        distances = self.op("Sub", norms, self.op("Mul", inner, self.constant(np.float64(2))))
        return self.op("Max", distances, self.constant(np.float64(0)))
