"""Pools of experts in ONNX graphs: what `solvers.additive` and `solvers.pooling` compute, in float64."""

from __future__ import annotations

import numpy as np

from streamsvm.exchange.onnx_graph import Graph
from streamsvm.models.pooled import Pooled
from streamsvm.solvers import additive
from streamsvm.solvers.additive import AdditiveLearner
from streamsvm.solvers.pooling import SUREST, TINY

Tensor = str  # the name of one in the graph


def pooled_odds(graph: Graph, x: Tensor, of_kernels: Tensor, pooled: Pooled) -> Tensor:
    """(N, columns) logarithms of the pool's odds of scaled rows x (N, d), and of what the kernel expansions say
    (N, expansions * columns)."""
    shape = graph.constant([0, -1, pooled.columns])  # (N, experts, columns)
    shared = graph.op("Reshape", _additive(graph, x, pooled.additive), shape)
    own = graph.op("Reshape", of_kernels, shape)
    logs = graph.op("Max", _logs(graph, shared, own, pooled.columns), graph.constant(np.log(SUREST)))
    u = graph.op("MatMul", graph.constant(pooled.pool.v[None]), logs)
    p = graph.op("Softmax", graph.op("Squeeze", u, graph.constant([1])), axis=1)
    if pooled.columns == 1:
        p = graph.op("Gather", p, graph.constant([1]), axis=1)
    p = graph.op("Clip", p, graph.constant(np.float64(TINY)), graph.constant(np.float64(1 - TINY)))
    return graph.op("Log", graph.op("Div", p, graph.op("Sub", graph.constant(np.float64(1)), p)))


def _additive(graph: Graph, x: Tensor, learner: AdditiveLearner) -> Tensor:
    """(N, tracks * columns) f of all tracks."""
    largest = (graph.constant(np.float64(sign * additive.LARGEST)) for sign in (-1, 1))
    W = np.moveaxis(learner.W, 0, 1).reshape(learner.W.shape[1], -1).astype(np.float64)
    lines = graph.op("Gemm", graph.op("Clip", x, *largest), graph.constant(W[1:]), graph.constant(W[0]))
    return graph.op("Add", lines, _curves(graph, x, learner.curves()))


def _curves(graph: Graph, x: Tensor, H: np.ndarray) -> Tensor:
    """(N, tracks * columns) sums over columns of functions that are linear between their values H, see `curves`."""
    _, d, knots, _ = H.shape
    table = H.transpose(1, 2, 0, 3).reshape(d * knots, -1)
    rises = np.diff(table, axis=0, append=table[-1:])
    z = graph.op("Gather", x, graph.constant(np.arange(d)), axis=1)
    ends = (graph.constant(np.float64(sign * additive.END)) for sign in (-1, 1))
    unit = graph.op("Add", graph.op("Clip", z, *ends), graph.constant(np.float64(additive.END)))
    place = graph.op("Mul", unit, graph.constant((knots - 1) / (2 * additive.END)))
    low = graph.op("Min", graph.op("Floor", place), graph.constant(np.float64(knots - 2)))
    at = graph.op("Add", graph.cast(low, np.int64), graph.constant(np.arange(d) * knots))
    share = graph.op("Unsqueeze", graph.op("Sub", place, low), graph.constant([2]))
    value, rise = (graph.op("Gather", graph.constant(of), at) for of in (table, rises))
    h = graph.op("Add", value, graph.op("Mul", share, rise))
    is_absent = graph.op("Equal", z, graph.constant(np.float64(0)))
    nothing = graph.constant(np.float64(0))
    h = graph.op("Where", graph.op("Unsqueeze", is_absent, graph.constant([2])), nothing, h)
    return graph.op("ReduceSum", h, graph.constant([1]), keepdims=0)


def _logs(graph: Graph, shared: Tensor, own: Tensor, columns: int) -> Tensor:
    """(N, experts, classes) logarithms of the probabilities that their decisions stand for."""
    if columns > 1:
        parts = (shared, _log_sigmoid(graph, own))
        return graph.op("Concat", *(graph.op("LogSoftmax", f, axis=2) for f in parts), axis=1)
    f = graph.op("Concat", shared, own, axis=1)
    return graph.op("Concat", _log_sigmoid(graph, graph.op("Neg", f)), _log_sigmoid(graph, f), axis=2)


def _log_sigmoid(graph: Graph, f: Tensor) -> Tensor:
    """-log(1 + exp(-f))."""
    small = graph.op("Exp", graph.op("Neg", graph.op("Abs", f)))
    rest = graph.op("Log", graph.op("Add", small, graph.constant(np.float64(1))))
    return graph.op("Sub", graph.op("Min", f, graph.constant(np.float64(0))), rest)
