"""Models as ONNX graphs of plain operators.

Input "X", float32 (N, d), rows as they are; or an input for each column of the table of the fit (`table_inputs`).
Outputs "label" (N,), and "scores", which `decision_function` returns, float32 (N,) or (N, k). Calibrated models add
"probabilities", float32 (N, k). A ranking or a regression has "scores" alone. For rows of several labels "label" is
int64 (N, k), 1 if a row has it. Metadata: JSON lists "feature_names", if there are any, and the "labels" of these
columns.

A graph follows the model: rows are scaled, and decided by a sum over support vectors, by the partition that a tree of
centres routes them to (early models; a row whose nearest centres are equally far, to float32, may go to another of
them), by a pool of experts (`solvers.additive`, `solvers.pooling`), or by the members of an ensemble. Then come
probabilities, as `models.calibration` makes them, and labels. All of it is float64: exact where the float32 kernel
values of `decision_function` are not, by 2^-24 gamma |x|^2 of each coefficient. ai.onnx.ml's SVMClassifier is not used:
onnxruntime sums it in float32, it takes longer, and it supports neither routes nor classes against the rest.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Literal

import numpy as np
from onnx import ModelProto, TensorProto, helper
from scipy.linalg import block_diag

from streamsvm._version import __version__
from streamsvm.data.rows import concat
from streamsvm.data.running import LARGEST
from streamsvm.data.scaling import Quantiles, Scaling
from streamsvm.errors import ModelError
from streamsvm.exchange import expansion, require_two_classes
from streamsvm.exchange.graph import Graph, Tensor, typed
from streamsvm.exchange.table_inputs import ML, ORT, has_text, table_inputs
from streamsvm.kernels.base import Kernel, joined
from streamsvm.kernels.kmeans import Partition
from streamsvm.models import EnsembleModel
from streamsvm.models.base import Model
from streamsvm.models.calibration import LARGEST_EXPONENT, Calibration
from streamsvm.models.ensemble import LEAST
from streamsvm.models.pooled import ExpertPool
from streamsvm.models.shapes import Expansion, PartitionRouting
from streamsvm.solvers import additive
from streamsvm.solvers.additive import AdditiveLearner
from streamsvm.solvers.pooling import SUREST, TINY
from streamsvm.storage.atomic import whole_file
from streamsvm.tasks import task_of
from streamsvm.tasks.multilabel import EVEN
from streamsvm.tasks.pairs import classes_of_pairs, n_pairs

Inputs = Literal["auto", "columns", "rows"]
OUTPUTS = "label", "scores", "probabilities"
OPSET, IR_VERSION = 18, 8
DOMAINS = {ML: 3, ORT: 1}  # versions of their operators
MOST_BYTES = (1 << 31) - (1 << 20)  # of a file: protobuf's bound, less what names and nodes take
TYPES = {"U": TensorProto.STRING, "i": TensorProto.INT64, "f": TensorProto.DOUBLE, "b": TensorProto.BOOL}


def write_onnx(model: Model, out: str | Path, *, inputs: Inputs = "auto") -> dict[str, Any]:
    """Writes a model to `out`, completely or not at all; inputs as in `onnx_model`. Returns n_support, files and notes.

    Raises ModelError, StorageError.
    """
    notes: list[str] = []
    proto = onnx_model(model, inputs=inputs, notes=notes)
    with whole_file(Path(out)) as file:
        file.write(proto.SerializeToString())
    return {"n_support": getattr(model, "n_support", None), "files": [], "notes": notes}


def onnx_model(model: Model, *, inputs: Inputs = "auto", notes: list[str] | None = None) -> ModelProto:
    """The graph of a model. inputs: the rows X, or the columns of the table of the fit; "auto": these if any is text.
    Appends to notes what is to be known of the inputs. Raises ModelError."""
    graph = Graph()
    notes = [] if notes is None else notes
    opsets = [helper.make_opsetid("", OPSET)]
    is_wide = model.layout is not None and model.layout.dtype == np.float64
    if inputs == "columns" or (inputs == "auto" and has_text(model.layout)):
        table = table_inputs(graph, model.layout, OUTPUTS)
        graph.rows, tensors = table.rows, table.inputs
        opsets += [helper.make_opsetid(domain, DOMAINS[domain]) for domain in sorted(table.domains)]
        notes += table.notes
    else:
        tensors = [typed("X", TensorProto.DOUBLE if is_wide else TensorProto.FLOAT, ["N", _width(model)])]
        notes += ["X is float64, as the rows of the fit: float32 would lose what a column says"] * is_wide
    decisions, part = _decisions(graph, model)
    outputs = _outputs(graph, decisions, part, model)
    built = helper.make_graph(graph.nodes, "streamsvm", tensors, outputs, graph.constants)
    producer = {"producer_name": "streamsvm", "producer_version": __version__}
    proto = helper.make_model(built, opset_imports=opsets, ir_version=IR_VERSION, **producer)
    lists = {"feature_names": model.shown_names}
    if task_of(model.task).in_sets:
        lists["labels"] = model.classes.tolist()
    helper.set_model_props(proto, {name: json.dumps(values) for name, values in lists.items() if values is not None})
    return proto


def _decisions(graph: Graph, model: Model) -> tuple[str, str | None]:
    """(N, problems) of raw rows; and (N,) the partition that each falls into, if the model has any."""
    if isinstance(model, EnsembleModel):
        return _combined(graph, model), None
    routes, pooled = model.as_routes(), model.as_pooled()
    if pooled is not None:
        return _pooled(graph, model, pooled), None
    if routes is None:
        return _sums(graph, model), None
    _require_room(int(routes.bounds[-1]), model.d, routes.intercept.shape[1])
    return routed(graph, _scaled(graph, _raw(graph, model), routes.scaling), routes)


def _combined(graph: Graph, model: EnsembleModel) -> str:
    """(N, 1) or (N, k) log-odds of an ensemble, see `models.ensemble.combined`."""
    _require_room(model.n_support, model.d)
    u, k = graph.constant(model.offsets), len(model.classes)
    for member, weight in zip(model.members, model.weights, strict=True):
        calibration = member.header.calibration
        assert calibration is not None  # as those of members are
        p = probabilities(graph, calibration, *_decisions(graph, member), k, pairwise=member.is_pairwise)
        u = graph.op("Add", u, graph.op("Mul", graph.op("Log", graph.op("Max", p, LEAST)), weight))
    p = graph.op("Softmax", u, axis=1)
    if k == 2:
        p = graph.op("Gather", p, [1], axis=1)
    return _log_odds(graph, p)


def _log_odds(graph: Graph, p: str) -> str:
    p = graph.op("Clip", p, TINY, 1 - TINY)
    return graph.op("Log", graph.op("Div", p, graph.op("Sub", 1.0, p)))


def _sums(graph: Graph, model: Model) -> str:
    """(N, columns) of raw rows."""
    expanded = expansion(model)
    if expanded.kernel.is_linear:
        expanded = expanded.folded()
    support, columns = expanded.support, len(expanded.intercept)
    x = _scaled(graph, _raw(graph, model), expanded.scaling)
    if expanded.kernel.is_linear:
        _require_room(support.d, 2 * columns)
        weights = np.asarray(support.X.astype(np.float64).T @ expanded.coef)
        return graph.op("Gemm", x, weights, expanded.intercept)
    return _expanded(graph, x, expanded)


def _pooled(graph: Graph, model: Model, pooled: ExpertPool) -> str:
    """(N, columns) of raw rows. The expansions' distances are one product."""
    require_two_classes(model)
    x = graph.op("Clip", _scaled(graph, _raw(graph, model), model.header.scaling), -LARGEST, LARGEST)
    supports = [learner.supports() for learner in pooled.kernels]
    coef, intercept = zip(*(learner.coefficients() for learner in pooled.kernels), strict=True)
    kernel = joined([learner.kernel for learner in pooled.kernels], list(map(len, supports)))
    side_by_side = block_diag(*coef), np.concatenate(intercept)
    sums = _expanded(graph, x, Expansion(kernel, model.header.scaling, concat(supports), *side_by_side))
    return pooled_odds(graph, x, sums, pooled)


def _expanded(graph: Graph, x: str, expanded: Expansion) -> str:
    """(N, columns) of scaled rows x."""
    support, columns = expanded.support, len(expanded.intercept)
    _require_room(len(support), support.d, columns * expanded.coef.itemsize // 4)
    rows, coef = support.dense(), expanded.coef
    if not len(rows):
        rows, coef = np.zeros((1, support.d), np.float32), np.zeros((1, columns))
    values = expanded.kernel.onnx(graph, x, graph.double(rows))
    return graph.op("Gemm", values, graph.double(coef), expanded.intercept)


def _require_room(n: int, *columns: int) -> None:
    size = 4 * n * sum(columns)
    if size > MOST_BYTES:
        raise ModelError(
            f"the model's {n:,} support rows and coefficients take {size / 2**30:.1f} GiB as dense arrays, an ONNX "
            "file holds 2 GiB; fit with fewer support vectors (--solver bsgd --budget N), or export --format libsvm"
        )


def _width(model: Model) -> int:
    """The columns of X: of a stream those that have a name, not those for features to come."""
    return len(model.feature_names or ()) if model.by_name else int(model.d)


def _raw(graph: Graph, model: Model) -> str:
    """(N, d) float64 of X."""
    more = model.d - _width(model)
    x = graph.op("Pad", graph.rows, [0, 0, 0, more]) if more else graph.rows
    return graph.cast(x, np.float64)


def _scaled(graph: Graph, x: str, scaling: Scaling) -> str:
    """(N, width) float64 scaled rows, rounded to float32 as those of the model are."""
    if scaling.is_none:
        return x
    raw = x
    if scaling.fill is not None:
        x = graph.op("Where", graph.op("IsNaN", x), scaling.fill, x)
    if scaling.marks is not None:
        gaps = graph.op("IsNaN", graph.op("Gather", raw, scaling.marks, axis=1))
        x = graph.op("Concat", x, graph.cast(gaps, np.float64), axis=1)
    if scaling.quantiles is not None:
        x = _normal(graph, x, scaling.quantiles)
    if scaling.offset.any():
        x = graph.op("Sub", x, scaling.offset)
    x = graph.op("Mul", x, scaling.scale)
    if scaling.metric is not None:
        x = graph.op("MatMul", x, scaling.metric.matrix)
    return graph.cast(graph.cast(x, np.float32), np.float64)


def _normal(graph: Graph, x: str, quantiles: Quantiles) -> str:
    """`Quantiles.normal` of float64 rows: the same search, whose steps are one for all entries."""
    d, left = quantiles.knots.shape
    knots, heights = graph.constant(quantiles.knots.ravel()), graph.constant(quantiles.heights.ravel())
    first, last = np.arange(d) * left, np.arange(1, d + 1) * left - 1
    ends = quantiles.knots.T[[0, -1]]
    x = graph.op("Min", graph.op("Max", x, ends[0]), ends[1])
    at = graph.constant(first)
    while left > 1:
        further = graph.op("Add", at, np.int64(left // 2))
        is_below = graph.op("LessOrEqual", graph.op("Gather", knots, further), x)
        at = graph.op("Where", is_below, further, at)
        left -= left // 2
    after = graph.op("Min", graph.op("Add", at, np.int64(1)), last)
    (low, high), (bottom, top) = (
        [graph.op("Gather", values, place) for place in (at, after)] for values in (knots, heights)
    )
    width = graph.op("Max", graph.op("Sub", high, low), np.finfo(np.float64).tiny)
    share = graph.op("Div", graph.op("Sub", x, low), width)  # 0 at the highest knot, which none is after
    return graph.op("Add", bottom, graph.op("Mul", share, graph.op("Sub", top, bottom)))


def _outputs(graph: Graph, decisions: str, part: str | None, model: Model) -> list[Any]:
    """The last nodes, and what comes out of them. part: the partition that each row falls into, if a model has any."""
    k, task = len(model.classes), task_of(model.task)
    by_votes = model.is_pairwise and k > 2
    one_column = not by_votes and task.columns(k) == 1
    values = _votes(graph, decisions, k) if by_votes else decisions
    scores = graph.op("Squeeze", values, [1]) if one_column else values
    graph.output("scores", graph.cast(scores, np.float32))
    shape: list[str | int] = ["N"] if one_column else ["N", k]
    outputs = [typed("scores", TensorProto.FLOAT, shape)]
    if not task.has_labels:
        return outputs
    p = None
    if (calibration := model.header.calibration) is not None:
        if task.in_sets:
            p = of_problems(graph, calibration, decisions, part)
        else:
            p = probabilities(graph, calibration, decisions, part, k, pairwise=model.is_pairwise)
        graph.output("probabilities", graph.cast(p, np.float32))
        outputs.append(typed("probabilities", TensorProto.FLOAT, ["N", k]))
    if task.in_sets:
        graph.output("label", graph.cast(_has(graph, decisions, p, model), np.int64))
        return [typed("label", TensorProto.INT64, ["N", k]), *outputs]
    follows = calibration is not None and (calibration.by_decisions or calibration.method == "stream")
    if p is None or (follows and model.costs is None) or model.header.threshold is not None:
        codes = _codes(graph, values, model, one_column)
    else:
        codes = _by_probabilities(graph, p, model.costs)
    classes = model.classes if model.classes.dtype.kind in "Ufb" else model.classes.astype(np.int64)
    graph.output("label", graph.op("Gather", classes, codes))
    label = TYPES[model.classes.dtype.kind]
    return [typed("label", label, ["N"]), *outputs]


def _has(graph: Graph, decisions: str, p: str | None, model: Model) -> str:
    """(N, k) bool which labels a row has, as `codes_of`."""
    threshold, costs, calibration = model.header.threshold, model.costs, model.header.calibration
    follows = costs is None and calibration is not None and calibration.by_decisions
    if p is None or follows or threshold is not None:
        return graph.op("Greater", decisions, 0.0 if threshold is None else threshold)
    if costs is None:
        return graph.op("Greater", p, EVEN)
    rest = graph.op("Sub", 1.0, p)
    return graph.op("Greater", graph.op("Mul", p, costs[1]), graph.op("Mul", rest, costs[0]))


def _votes(graph: Graph, decisions: str, k: int) -> str:
    """(N, k) votes and confidence, as `tasks.pairs.vote`."""
    pairs, (first, second) = np.arange(n_pairs(k)), classes_of_pairs(k)
    of_first, of_second = np.zeros((len(pairs), k)), np.zeros((len(pairs), k))
    of_first[pairs, first] = of_second[pairs, second] = 1
    against = graph.cast(graph.op("Less", decisions, 0.0), np.float64)
    in_favour = graph.cast(graph.op("Greater", decisions, 0.0), np.float64)
    votes = graph.op("Add", graph.op("MatMul", against, of_first), graph.op("MatMul", in_favour, of_second))
    confidence = graph.op("MatMul", decisions, of_second - of_first)
    bound = graph.op("Mul", graph.op("Add", graph.op("Abs", confidence), 1.0), 3.0)
    return graph.op("Add", votes, graph.op("Div", confidence, bound))


def _by_probabilities(graph: Graph, p: str, costs: np.ndarray | None) -> str:
    """(N,) positions in the classes of the largest probability, or of the least expected cost."""
    if costs is None:
        return graph.op("ArgMax", p, axis=1, keepdims=0)
    return graph.op("ArgMin", graph.op("MatMul", p, costs), axis=1, keepdims=0)


def _codes(graph: Graph, values: str, model: Model, one_column: bool) -> str:
    """(N,) positions in the classes, as `codes_of`."""
    if one_column:  # how many thresholds are below: one alone for two classes
        above = graph.cast(graph.op("Greater", values, model.cuts), np.int64)
        return graph.op("ReduceSum", above, [1], keepdims=0)
    ties_broken = getattr(model, "break_ties", True)
    return graph.op("ArgMax", values if ties_broken else graph.op("Round", values), axis=1, keepdims=0)


def routed(graph: Graph, x: str, model: PartitionRouting) -> tuple[str, str]:
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
    distinct = graph.op("Unique", graph.op("Reshape", parts, [-1]))
    start = graph.zeros(x, coef.shape[1], np.float64)

    def with_part(body: Graph, step: str, so_far: str) -> str:
        return _with_part(body, step, so_far, x, parts, distinct, outer, model.kernel)

    total = graph.loop(graph.op("Size", distinct), start, with_part)
    m = graph.cast(graph.op("Shape", parts, start=1), np.float64)
    nearest = graph.op("Gather", parts, 0, axis=1)
    return graph.op("Div", total, m), nearest


def _support(model: PartitionRouting) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Support rows, coefficients and bounds of all partitions; an empty one has a row that counts for nothing."""
    sizes = np.diff(model.bounds)
    empty = model.bounds[:-1][sizes == 0]
    parts = [model.expansion(p) for p in range(len(sizes))]
    rows = np.concatenate([part.support.dense() for part in parts])
    coef = np.concatenate([part.coef for part in parts])
    bounds = np.cumsum([0, *np.maximum(sizes, 1)])
    return np.insert(rows, empty, 0, axis=0), np.insert(coef, empty, 0, axis=0), bounds


def _with_part(
    graph: Graph, step: str, so_far: str, x: str, parts: str, distinct: str, constants: list[str], kernel: Kernel
) -> str:
    """The decisions so far and those of one partition: its rows' kernel values with its support rows, times these
    rows' coefficients."""
    support, coef, bounds, intercept, *weights = constants
    part = graph.op("Gather", distinct, graph.op("Unsqueeze", step, [0]))
    members = graph.op("Gather", graph.op("NonZero", graph.op("Equal", parts, part)), 0)
    ends = graph.op("Gather", bounds, part), graph.op("Gather", bounds, graph.op("Add", part, [1]))
    rows, alphas = (graph.op("Slice", name, *ends, [0]) for name in (support, coef))
    x = graph.op("Gather", x, members)
    for weight in weights:
        x = graph.op("Mul", x, graph.op("Gather", weight, part))
    values = graph.op("MatMul", kernel.onnx(graph, x, rows), alphas)
    values = graph.op("Add", values, graph.op("Gather", intercept, part))
    places = graph.op("Unsqueeze", members, [1])
    return graph.op("ScatterND", so_far, places, values, reduction="add")


def _route(graph: Graph, x: str, partition: Partition, neighbours: int) -> str:
    """(N, m) int64 partitions of scaled rows x: their own one, then those with the nearest centres."""
    if not partition.nodes:
        return graph.zeros(x, 1, np.int64)
    nodes, width = len(partition.nodes), max(node.k for node in partition.nodes)
    distances = _distances(graph, x, partition, width)  # (N, nodes * width)
    by_node = graph.op("Reshape", distances, [-1, nodes, width])
    nearest = _descend(graph, graph.op("ArgMin", by_node, axis=2, keepdims=0), partition, width)
    leaves = [
        (number * width + c, part)
        for number, (node, children) in enumerate(zip(partition.nodes, partition.children, strict=True))
        for c, part in enumerate(children)
        if part >= 0 and np.isfinite(node.offsets[c])
    ]
    m = min(neighbours, len(leaves))
    if m <= 1:
        return nearest
    columns, parts = (np.array(values, np.int64) for values in zip(*leaves, strict=True))
    distances = graph.op("Gather", distances, columns, axis=1)
    first = graph.op("Where", graph.op("Equal", parts, nearest), -np.inf, distances)
    _, order = graph.ops("TopK", 2, first, [m], axis=1, largest=0)
    return graph.op("Gather", parts, order)


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
    twice = graph.op("Mul", products, 2.0)
    return graph.op("Sub", offsets.ravel(), twice)


def _descend(graph: Graph, nearest: str, partition: Partition, width: int) -> str:
    """(N, 1) the partition that each row ends in, from its nearest child in every node.

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
        child = graph.op("Add", graph.op("Mul", node, node_width), graph.op("GatherElements", nearest, node, axis=1))
        at = graph.op("Where", graph.op("Greater", at, last), at, graph.op("Gather", below, child))
    return graph.op("Sub", at, n)


def pooled_odds(graph: Graph, x: Tensor, of_kernels: Tensor, pooled: ExpertPool) -> Tensor:
    """(N, columns) log odds of the pool from scaled rows x (N, d) and kernel expansions (N, expansions * columns)."""
    shared = graph.op("Reshape", _additive(graph, x, pooled.additive), [0, -1, pooled.columns])
    by_expert = graph.op("Reshape", of_kernels, [0, -1, pooled.columns])
    logs = graph.op("Max", _logs(graph, shared, by_expert, pooled.columns), np.log(SUREST))
    u = graph.op("MatMul", pooled.pool.v[None], logs)
    p = graph.op("Softmax", graph.op("Squeeze", u, [1]), axis=1)
    if pooled.columns == 1:
        p = graph.op("Gather", p, [1], axis=1)
    return _log_odds(graph, p)


def _additive(graph: Graph, x: Tensor, learner: AdditiveLearner) -> Tensor:
    """(N, tracks * columns) f of all tracks."""
    W = np.moveaxis(learner.W, 0, 1).reshape(learner.W.shape[1], -1).astype(np.float64)
    lines = graph.op("Gemm", graph.op("Clip", x, -additive.LARGEST, additive.LARGEST), W[1:], W[0])
    return graph.op("Add", lines, _curves(graph, x, learner.curves()))


def _curves(graph: Graph, x: Tensor, H: np.ndarray) -> Tensor:
    """(N, tracks * columns) sums over columns of functions that are linear between their values H, see `curves`."""
    _, d, knots, _ = H.shape
    table = H.transpose(1, 2, 0, 3).reshape(d * knots, -1)
    rises = np.diff(table, axis=0, append=table[-1:])
    z = graph.op("Gather", x, np.arange(d), axis=1)
    unit = graph.op("Add", graph.op("Clip", z, -additive.END, additive.END), additive.END)
    place = graph.op("Mul", unit, (knots - 1) / (2 * additive.END))
    low = graph.op("Min", graph.op("Floor", place), float(knots - 2))
    at = graph.op("Add", graph.cast(low, np.int64), np.arange(d) * knots)
    share = graph.op("Unsqueeze", graph.op("Sub", place, low), [2])
    value, rise = (graph.op("Gather", of, at) for of in (table, rises))
    h = graph.op("Add", value, graph.op("Mul", share, rise))
    is_absent = graph.op("Equal", z, 0.0)
    h = graph.op("Where", graph.op("Unsqueeze", is_absent, [2]), 0.0, h)
    return graph.op("ReduceSum", h, [1], keepdims=0)


def _logs(graph: Graph, shared: Tensor, by_expert: Tensor, columns: int) -> Tensor:
    """(N, experts, classes) logarithms of the probabilities that their decisions stand for."""
    if columns > 1:
        parts = (shared, _log_sigmoid(graph, by_expert))
        return graph.op("Concat", *(graph.op("LogSoftmax", f, axis=2) for f in parts), axis=1)
    f = graph.op("Concat", shared, by_expert, axis=1)
    return graph.op("Concat", _log_sigmoid(graph, graph.op("Neg", f)), _log_sigmoid(graph, f), axis=2)


def _log_sigmoid(graph: Graph, f: Tensor) -> Tensor:
    """-log(1 + exp(-f))."""
    small = graph.op("Exp", graph.op("Neg", graph.op("Abs", f)))
    rest = graph.op("Log", graph.op("Add", small, 1.0))
    return graph.op("Sub", graph.op("Min", f, 0.0), rest)


def probabilities(
    graph: Graph, calibration: Calibration, decisions: str, parts: str | None, k: int, *, pairwise: bool
) -> str:
    """(N, k) from the decision values (N, problems) of rows of these partitions (N,)."""
    if calibration.method == "stream":
        return _of_stream(graph, calibration, decisions)
    p = of_problems(graph, calibration, decisions, parts)
    if calibration.class_weight is not None:
        p = graph.op("Div", p, calibration.class_weight)
    return _coupled(graph, p, k) if pairwise and k > 2 else _against_rest(graph, p, k)


def of_problems(graph: Graph, calibration: Calibration, decisions: str, parts: str | None) -> str:
    """(N, problems) of each by itself; as `probabilities`."""
    if calibration.by_part is not None and parts is not None:
        slope, offset = (graph.op("Gather", calibration.by_part[..., i], parts) for i in range(2))
        return _sigmoid(graph, graph.op("Add", graph.op("Mul", slope, decisions), offset))
    if calibration.method == "isotonic":
        return _isotonic(graph, calibration, decisions)
    slopes, offsets = calibration.points[:, 0], calibration.points[:, 1]
    return _sigmoid(graph, graph.op("Add", graph.op("Mul", decisions, slopes), offsets))


def _sigmoid(graph: Graph, u: str) -> str:
    return graph.op("Sigmoid", graph.op("Clip", u, -LARGEST_EXPONENT, LARGEST_EXPONENT))


def _against_rest(graph: Graph, p: str, k: int) -> str:
    if k == 2:
        return graph.op("Concat", graph.op("Sub", 1.0, p), p, axis=1)
    return _shares(graph, p)


def _shares(graph: Graph, p: str) -> str:
    """Of each row's sum."""
    return graph.op("Div", p, graph.op("ReduceSum", p, [1]))


def _isotonic(graph: Graph, calibration: Calibration, decisions: str) -> str:
    """(N, problems): each map is linear between its points, and constant beyond them."""
    columns = []
    for problem, (start, stop) in enumerate(zip(calibration.bounds, calibration.bounds[1:], strict=False)):
        x, y = calibration.points[start:stop].T
        f = graph.op("Gather", decisions, [problem], axis=1)
        f = graph.op("Clip", f, x[0], x[-1])
        beyond = graph.cast(graph.op("Greater", f, x[1:-1][None]), np.int64)
        piece = graph.op("ReduceSum", beyond, [1], keepdims=1)
        rise = np.diff(y) / np.diff(x) if len(x) > 1 else np.zeros(1)
        low, value, slope = (graph.op("Gather", of, piece) for of in (x, y, rise))
        columns.append(graph.op("Add", value, graph.op("Mul", slope, graph.op("Sub", f, low))))
    return graph.op("Concat", *columns, axis=1)


def _coupled(graph: Graph, p: str, k: int) -> str:
    """As `calibration.coupled`. ONNX solves no systems: with 1 added to its matrix, which changes nothing where p adds
    up to 1, it is positive definite, and eliminated row by row."""
    first, second = classes_of_pairs(k)
    pairs = np.arange(len(first))
    of = np.full((k, k), 2 * len(first))  # r_ij, that of i among i and j, and 0 on the diagonal
    of[second, first], of[first, second] = pairs, pairs + len(first)
    both = graph.op("Concat", p, graph.op("Sub", 1.0, p), graph.zeros(p, 1, np.float64), axis=1)
    r, transposed = (graph.op("Gather", both, table, axis=1) for table in (of, of.T))
    diagonal = graph.op("Mul", graph.op("ReduceSumSquare", r, [1]), np.eye(k))
    system = graph.op("Sub", graph.op("Add", diagonal, 1.0), graph.op("Mul", r, transposed))
    right = graph.op("Add", graph.zeros(p, k, np.float64), 1.0)
    system = graph.op("Concat", system, graph.op("Unsqueeze", right, [2]), axis=2)
    for i in range(k):
        row = graph.op("Gather", system, [i], axis=1)
        row = graph.op("Div", row, graph.op("Gather", row, [i], axis=2))
        factors = graph.op("Gather", system, [i], axis=2)
        rest = graph.op("Sub", system, graph.op("MatMul", factors, row))
        system = graph.op("Where", np.arange(k)[:, None] == i, row, rest)
    solved = graph.op("Squeeze", graph.op("Gather", system, [k], axis=2), [2])
    solved = graph.op("Max", solved, 0.0)
    return _shares(graph, solved)


def _of_stream(graph: Graph, calibration: Calibration, f: str) -> str:
    """As the map of a learner of streams, the winner by decisions not below another class."""
    slopes, offsets, size = calibration.points[:, :-2], calibration.points[:, -2], calibration.points[0, -1]
    u = graph.op("Div", f, size)
    if len(slopes) == 1:
        root = graph.op("Sqrt", graph.op("Add", graph.op("Mul", u, u), 1.0))
        z = graph.op("Div", graph.op("Mul", u, slopes[0, 0]), root)
        p = _against_rest(graph, _sigmoid(graph, graph.op("Add", z, offsets)), 2)
        is_second = graph.cast(graph.op("Greater", f, 0.0), np.int64)
        winners = graph.op("Squeeze", is_second, [1])
        k = 2
    else:
        k = len(slopes)
        if slopes.shape[1] == 1:
            z = graph.op("Mul", u, slopes[:, 0])
        else:
            z = graph.op("MatMul", u, slopes.T)
        z = graph.op("Add", z, offsets)
        z = graph.op("Sub", z, graph.op("ReduceMax", z, [1]))
        p = _shares(graph, graph.op("Exp", graph.op("Max", z, -LARGEST_EXPONENT)))
        winners = graph.op("ArgMax", f, axis=1, keepdims=0)
    return p if calibration.by_decisions else _with_decisions(graph, p, winners, k)


def _with_decisions(graph: Graph, p: str, winners: str, k: int) -> str:
    """As `calibration.with_decisions`: the winner shares evenly with those above it. Of its means with the first of
    these, the largest is that with all of them."""
    wins = graph.op("Equal", graph.op("Unsqueeze", winners, [1]), np.arange(k))
    of_winner = graph.op("ReduceSum", graph.op("Where", wins, p, 0.0), [1])
    others, _ = graph.ops("TopK", 2, graph.op("Where", wins, 0.0, p), [k], axis=1)
    sums = graph.op("Add", of_winner, graph.op("CumSum", others, 1))
    means = graph.op("Div", sums, np.arange(2.0, k + 2))
    shared = graph.op("Max", of_winner, graph.op("ReduceMax", means, [1]))
    return graph.op("Where", wins, shared, graph.op("Min", p, shared))
