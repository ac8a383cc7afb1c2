"""The nodes and constants of an ONNX graph: every operator's output is a name that the next one takes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

typed = helper.make_tensor_value_info  # of an input or output: name, type, shape
Tensor = str  # the name of one in the graph
Input = Tensor | float | np.integer | list[int] | np.ndarray


class Graph:
    """Nodes and constants, in the order they were made. rows: the tensor (N, d) of a model's rows."""

    rows: Tensor = "X"

    def __init__(self, numbers: Iterator[int] | None = None) -> None:
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._numbers = count() if numbers is None else numbers

    def loop(self, times: str, start: str, after: Callable[[Graph, str, str], str]) -> str:
        """A float64 tensor that begins as `start`, and becomes after(body, step, tensor) in each of so many steps. The
        body is a graph inside of this one: it sees the names made here."""
        body = Graph(self._numbers)
        step, going, tensor = (self.name(kind) for kind in ("step", "going", "tensor"))
        result, goes_on = after(body, step, tensor), body.op("Identity", going)
        inputs = [typed(step, TensorProto.INT64, []), typed(going, TensorProto.BOOL, [])]
        inputs.append(typed(tensor, TensorProto.DOUBLE, None))
        outputs = [typed(goes_on, TensorProto.BOOL, []), typed(result, TensorProto.DOUBLE, None)]
        inside = helper.make_graph(body.nodes, "body", inputs, outputs, body.constants)
        return self.op("Loop", times, np.array(True), start, body=inside)

    def op(self, kind: str, *inputs: Input, **attributes: Any) -> str:
        """The name of an operator's output. inputs: names, or values, which become constants."""
        return self.ops(kind, 1, *inputs, **attributes)[0]

    def ops(self, kind: str, n_outputs: int, *inputs: Input, **attributes: Any) -> list[str]:
        """The names of an operator's outputs."""
        names = [self.name(kind) for _ in range(n_outputs)]
        tensors = [value if isinstance(value, str) else self.constant(value) for value in inputs]
        self.nodes.append(helper.make_node(kind, tensors, names, **attributes))
        return names

    def name(self, kind: str) -> str:
        """A new one, unlike those of columns."""
        return f"/{kind}_{next(self._numbers)}"

    def output(self, name: str, value: str) -> None:
        """An output of the graph."""
        self.nodes.append(helper.make_node("Identity", [value], [name]))

    def constant(self, value: object) -> str:
        array = np.asarray(value)
        name = self.name("constant")
        array = np.ascontiguousarray(array) if array.ndim else array
        self.constants.append(numpy_helper.from_array(array.astype(object) if array.dtype.kind == "U" else array, name))
        return name

    def cast(self, name: str, dtype: type) -> str:
        return self.op("Cast", name, to=helper.np_dtype_to_tensor_dtype(np.dtype(dtype)))

    def zeros(self, like: str, columns: int | str, dtype: type) -> str:
        """(N, columns), as many rows as `like` has. columns: their number, or the name of one (1,)."""
        width = [columns] if isinstance(columns, int) else columns
        shape = self.op("Concat", self.op("Shape", like, end=1), width, axis=0)
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
        of_x, of_rows = (self.op("ReduceSumSquare", values, [1], keepdims=keep) for values, keep in ((x, 1), (rows, 0)))
        inner = self.op("Mul", self.inner_products(x, rows), 2.0)
        return self.op("Max", self.op("Sub", self.op("Add", of_x, of_rows), inner), 0.0)

    def l1_distances(self, x: str, rows: str) -> str:
        """|x - row|_1, (N, s), a column at a time, as (N, s, d) differences may be too large for the memory."""
        start = self.zeros(x, self.op("Shape", rows, end=1), np.float64)
        of_rows = self.op("Transpose", rows, perm=[1, 0])

        def with_column(body: Graph, step: str, sums: str) -> str:
            column = body.op("Unsqueeze", step, [0])
            a, b = body.op("Gather", x, column, axis=1), body.op("Gather", of_rows, column, axis=0)
            return body.op("Add", sums, body.op("Abs", body.op("Sub", a, b)))

        return self.loop(self.op("Squeeze", self.op("Shape", rows, start=1)), start, with_column)
