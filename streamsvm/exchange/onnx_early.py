"""Early prediction as an ONNX graph: a tree of centres routes each row to its partition, and a loop over the partitions
that rows fell into sums over their support rows alone, as `LocalModel` does.

A row whose nearest centres are equally far, to float32, may go to another of them.
"""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, TensorProto, helper
from scipy.linalg import block_diag

from streamsvm.exchange.onnx_graph import Graph
from streamsvm.kernels.base import Kernel, joined
from streamsvm.kernels.kmeans import Partition
from streamsvm.models.shapes import Routes


def routed(graph: Graph, x: str, model: Routes) -> tuple[str, str]:
    """(N, pairs) decision values of scaled rows x, and (N,) the partition that each falls into."""
    parts = _route(graph, x, model.partition, model.neighbours)
    support, coef, bounds = _support(model)
    outer = [
        graph.double(support),
        graph.double(coef),
        graph.constant(bounds),
        graph.constant(model.intercept),
        *([] if model.weights is None else [graph.constant(model.weights)]),
    ]
    distinct = graph.op("Unique", graph.op("Reshape", parts, graph.constant([-1])))
    start = graph.zeros(x, coef.shape[1], np.float64)
    body = _body(graph, x, parts, distinct, outer, model.kernel)
    total = graph.op("Loop", graph.op("Size", distinct), graph.constant(np.array(True)), start, body=body)
    m = graph.cast(graph.op("Shape", parts, start=1), np.float64)
    own = graph.op("Gather", parts, graph.constant(0), axis=1)
    return graph.op("Div", total, m), own


def _support(model: Routes) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Support rows, coefficients and bounds of all partitions; an empty one has a row that counts for nothing."""
    sizes = np.diff(model.bounds)
    empty = model.bounds[:-1][sizes == 0]
    parts = [model.expansion(p) for p in range(len(sizes))]
    rows = np.concatenate([part.support.dense() for part in parts])
    coef = np.concatenate([part.coef for part in parts])
    bounds = np.cumsum([0, *np.maximum(sizes, 1)])
    return np.insert(rows, empty, 0, axis=0), np.insert(coef, empty, 0, axis=0), bounds


def _body(
    outer: Graph, x: str, parts: str, distinct: str, constants: list[str], kernel: Kernel
) -> GraphProto:
    """One partition: its rows, their kernel values with its support rows, and what they add to the decisions."""
    support, coef, bounds, intercept, *weights = constants
    graph = outer.body()
    step, going, so_far = (graph.name(kind) for kind in ("step", "going", "so_far"))
    part = graph.op("Gather", distinct, graph.op("Unsqueeze", step, graph.constant([0])))
    here = graph.op("Gather", graph.op("NonZero", graph.op("Equal", parts, part)), graph.constant(0))
    ends = (
        graph.op("Gather", bounds, part),
        graph.op("Gather", bounds, graph.op("Add", part, graph.constant([1]))),
    )
    rows, alphas = (graph.op("Slice", name, *ends, graph.constant([0])) for name in (support, coef))
    x = graph.op("Gather", x, here)
    for own in weights:
        x = graph.op("Mul", x, graph.op("Gather", own, part))
    values = graph.op("MatMul", kernel.onnx(graph, x, rows), alphas)
    values = graph.op("Add", values, graph.op("Gather", intercept, part))
    places = graph.op("Unsqueeze", here, graph.constant([1]))
    after = graph.op("ScatterND", so_far, places, values, reduction="add")
    graph.called("go_on", going)
    return helper.make_graph(
        graph.nodes,
        "part",
        [
            helper.make_tensor_value_info(step, TensorProto.INT64, []),
            helper.make_tensor_value_info(going, TensorProto.BOOL, []),
            helper.make_tensor_value_info(so_far, TensorProto.DOUBLE, None),
        ],
        [
            helper.make_tensor_value_info("go_on", TensorProto.BOOL, []),
            helper.make_tensor_value_info(after, TensorProto.DOUBLE, None),
        ],
        graph.constants,
    )


def _route(graph: Graph, x: str, partition: Partition, neighbours: int) -> str:
    """(N, m) int64 partitions of scaled rows x: their own one, then those with the nearest centres."""
    if not partition.nodes:
        return graph.zeros(x, 1, np.int64)
    nodes, width = len(partition.nodes), max(node.k for node in partition.nodes)
    distances = _distances(graph, x, partition, width)  # (N, nodes * width)
    shape = graph.constant([-1, nodes, width])
    nearest = graph.op("ArgMin", graph.op("Reshape", distances, shape), axis=2, keepdims=0)  # (N, nodes)
    own = _descend(graph, nearest, partition, width)
    leaves = [
        (number * width + c, part)
        for number, (node, children) in enumerate(zip(partition.nodes, partition.children, strict=True))
        for c, part in enumerate(children)
        if part >= 0 and np.isfinite(node.offsets[c])
    ]
    m = min(neighbours, len(leaves))
    if m <= 1:
        return own
    columns, parts = (np.array(values, np.int64) for values in zip(*leaves, strict=True))
    numbers = graph.constant(parts)
    distances = graph.op("Gather", distances, graph.constant(columns), axis=1)
    first = graph.op("Where", graph.op("Equal", numbers, own), graph.constant(np.float64(-np.inf)), distances)
    _, order = graph.ops("TopK", 2, first, graph.constant([m]), axis=1, largest=0)
    return graph.op("Gather", numbers, order)


def _distances(graph: Graph, x: str, partition: Partition, width: int) -> str:
    """(N, nodes * width) squared distances to the centres of all nodes, less K(x, x); infinite where none is."""
    nodes = partition.nodes
    kernel = nodes[0].kernel
    offsets = np.full((len(nodes), width), np.inf)
    for i, node in enumerate(nodes):
        offsets[i, : node.k] = node.offsets
    if kernel.is_linear:  # a centre is a row
        rows = np.zeros((len(nodes), width, nodes[0].rows.d), np.float32)
        for i, node in enumerate(nodes):
            rows[i, : node.k] = node.rows.dense()
        products = kernel.onnx(graph, x, graph.double(rows.reshape(len(nodes) * width, -1)))
    else:
        rows = np.concatenate([node.rows.dense() for node in nodes])
        weights = block_diag(*(np.pad(node.weights, ((0, 0), (0, width - node.k))) for node in nodes))
        together = joined([node.kernel for node in nodes], [len(node.rows) for node in nodes])
        values = together.onnx(graph, x, graph.double(rows))
        products = graph.op("MatMul", values, graph.double(weights))
    twice = graph.op("Mul", products, graph.constant(np.float64(2)))
    return graph.op("Sub", graph.constant(offsets.ravel()), twice)


def _descend(graph: Graph, nearest: str, partition: Partition, width: int) -> str:
    """(N, 1) the partition at the end of each row's way, from its nearest child in every node.

    The place of a row is a node or, beyond the nodes, their number plus a partition.
    """
    n = len(partition.nodes)
    table = np.zeros((n, width), np.int64)
    depth = np.ones(n, np.int64)
    for i, children in reversed(list(enumerate(partition.children))):  # a node comes before those below it
        table[i, : len(children)] = [n + c if c >= 0 else ~c for c in children]
        depth[i] += max((depth[~c] for c in children if c < 0), default=0)
    below, last, node_width = graph.constant(table.ravel()), graph.constant(n - 1), graph.constant(width)
    at = graph.zeros(nearest, 1, np.int64)
    for _ in range(depth[0]):
        node = graph.op("Min", at, last)
        child = graph.op(
            "Add", graph.op("Mul", node, node_width), graph.op("GatherElements", nearest, node, axis=1)
        )
        at = graph.op("Where", graph.op("Greater", at, last), at, graph.op("Gather", below, child))
    return graph.op("Sub", at, graph.constant(n))
