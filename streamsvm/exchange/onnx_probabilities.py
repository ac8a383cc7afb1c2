"""Probabilities of calibrated models in ONNX graphs, as `models.calibration` makes them, in float64."""

from __future__ import annotations

import numpy as np

from streamsvm.exchange.onnx_graph import Graph
from streamsvm.models.calibration import LARGEST_EXPONENT, Calibration
from streamsvm.tasks.pairs import classes_of_pairs


def probabilities(
    graph: Graph, calibration: Calibration, decisions: str, parts: str | None, k: int, *, pairwise: bool
) -> str:
    """(N, k) from the decision values (N, problems) of rows of these partitions (N,)."""
    if calibration.method == "stream":
        return _of_stream(graph, calibration, decisions)
    p = of_problems(graph, calibration, decisions, parts)
    if calibration.class_weight is not None:
        p = graph.op("Div", p, graph.constant(calibration.class_weight))
    return _coupled(graph, p, k) if pairwise and k > 2 else _against_rest(graph, p, k)


def of_problems(graph: Graph, calibration: Calibration, decisions: str, parts: str | None) -> str:
    """(N, problems) of each by itself; as `probabilities`."""
    if calibration.by_part is not None and parts is not None:
        slope, offset = (
            graph.op("Gather", graph.constant(calibration.by_part[..., i]), parts) for i in range(2)
        )
        return _sigmoid(graph, graph.op("Add", graph.op("Mul", slope, decisions), offset))
    if calibration.method == "isotonic":
        return _isotonic(graph, calibration, decisions)
    slope, offset = (graph.constant(calibration.points[:, i]) for i in range(2))
    return _sigmoid(graph, graph.op("Add", graph.op("Mul", decisions, slope), offset))


def _sigmoid(graph: Graph, u: str) -> str:
    ends = (graph.constant(np.float64(end)) for end in (-LARGEST_EXPONENT, LARGEST_EXPONENT))
    return graph.op("Sigmoid", graph.op("Clip", u, *ends))


def _against_rest(graph: Graph, p: str, k: int) -> str:
    if k == 2:
        return graph.op("Concat", graph.op("Sub", graph.constant(np.float64(1)), p), p, axis=1)
    return _shares(graph, p)


def _shares(graph: Graph, p: str) -> str:
    """Of each row's sum."""
    return graph.op("Div", p, graph.op("ReduceSum", p, graph.constant([1])))


def _isotonic(graph: Graph, calibration: Calibration, decisions: str) -> str:
    """(N, problems): each map is linear between its points, and constant beyond them."""
    columns = []
    for problem, (start, stop) in enumerate(zip(calibration.bounds, calibration.bounds[1:], strict=False)):
        x, y = calibration.points[start:stop].T
        f = graph.op("Gather", decisions, graph.constant([problem]), axis=1)
        f = graph.op("Clip", f, graph.constant(x[0]), graph.constant(x[-1]))
        beyond = graph.cast(graph.op("Greater", f, graph.constant(x[1:-1][None])), np.int64)
        piece = graph.op("ReduceSum", beyond, graph.constant([1]), keepdims=1)
        rise = np.diff(y) / np.diff(x) if len(x) > 1 else np.zeros(1)
        low, value, slope = (graph.op("Gather", graph.constant(of), piece) for of in (x, y, rise))
        columns.append(graph.op("Add", value, graph.op("Mul", slope, graph.op("Sub", f, low))))
    return graph.op("Concat", *columns, axis=1)


def _coupled(graph: Graph, p: str, k: int) -> str:
    """As `calibration.coupled`. ONNX solves no systems: with 1 added to its matrix, which changes nothing where p adds
    up to 1, it is positive definite, and eliminated row by row."""
    first, second = classes_of_pairs(k)
    pairs = np.arange(len(first))
    of = np.full((k, k), 2 * len(first))  # r_ij, that of i among i and j, and 0 on the diagonal
    of[second, first], of[first, second] = pairs, pairs + len(first)
    one, axis = graph.constant(np.float64(1)), graph.constant([1])
    both = graph.op("Concat", p, graph.op("Sub", one, p), graph.zeros(p, 1, np.float64), axis=1)
    r, transposed = (graph.op("Gather", both, graph.constant(table), axis=1) for table in (of, of.T))
    diagonal = graph.op("Mul", graph.op("ReduceSumSquare", r, axis), graph.constant(np.eye(k)))
    system = graph.op("Sub", graph.op("Add", diagonal, one), graph.op("Mul", r, transposed))
    right = graph.op("Add", graph.zeros(p, k, np.float64), one)
    system = graph.op("Concat", system, graph.op("Unsqueeze", right, graph.constant([2])), axis=2)
    for i in range(k):
        row = graph.op("Gather", system, graph.constant([i]), axis=1)
        row = graph.op("Div", row, graph.op("Gather", row, graph.constant([i]), axis=2))
        factors = graph.op("Gather", system, graph.constant([i]), axis=2)
        rest = graph.op("Sub", system, graph.op("MatMul", factors, row))
        system = graph.op("Where", graph.constant(np.arange(k)[:, None] == i), row, rest)
    found = graph.op("Squeeze", graph.op("Gather", system, graph.constant([k]), axis=2), graph.constant([2]))
    found = graph.op("Max", found, graph.constant(np.float64(0)))
    return _shares(graph, found)


def _of_stream(graph: Graph, calibration: Calibration, f: str) -> str:
    """As the map of a learner of streams, the winner by decisions not below another class."""
    slopes, offsets, size = (
        calibration.points[:, :-2],
        calibration.points[:, -2],
        calibration.points[0, -1],
    )
    one, axis = graph.constant(np.float64(1)), graph.constant([1])
    u = graph.op("Div", f, graph.constant(size))
    if len(slopes) == 1:
        root = graph.op("Sqrt", graph.op("Add", graph.op("Mul", u, u), one))
        z = graph.op("Div", graph.op("Mul", u, graph.constant(slopes[0, 0])), root)
        p = _against_rest(graph, _sigmoid(graph, graph.op("Add", z, graph.constant(offsets))), 2)
        is_second = graph.cast(graph.op("Greater", f, graph.constant(np.float64(0))), np.int64)
        winners = graph.op("Squeeze", is_second, axis)
        k = 2
    else:
        k = len(slopes)
        if slopes.shape[1] == 1:
            z = graph.op("Mul", u, graph.constant(slopes[:, 0]))
        else:
            z = graph.op("MatMul", u, graph.constant(slopes.T))
        z = graph.op("Add", z, graph.constant(offsets))
        z = graph.op("Sub", z, graph.op("ReduceMax", z, axis))
        p = _shares(graph, graph.op("Exp", graph.op("Max", z, graph.constant(-LARGEST_EXPONENT))))
        winners = graph.op("ArgMax", f, axis=1, keepdims=0)
    return p if calibration.by_decisions else _with_decisions(graph, p, winners, k)


def _with_decisions(graph: Graph, p: str, winners: str, k: int) -> str:
    """As `calibration.with_decisions`: the winner shares evenly with those above it. Of its means with the first of
    these, the largest is that with all of them."""
    wins = graph.op(
        "Equal", graph.op("Unsqueeze", winners, graph.constant([1])), graph.constant(np.arange(k))
    )
    zero = graph.constant(np.float64(0))
    own = graph.op("ReduceSum", graph.op("Where", wins, p, zero), graph.constant([1]))
    others, _ = graph.ops("TopK", 2, graph.op("Where", wins, zero, p), graph.constant([k]), axis=1)
    sums = graph.op("Add", own, graph.op("CumSum", others, graph.constant(1)))
    means = graph.op("Div", sums, graph.constant(np.arange(2.0, k + 2)))
    shared = graph.op("Max", own, graph.op("ReduceMax", means, graph.constant([1])))
    return graph.op("Where", wins, shared, graph.op("Min", p, shared))
