"""Models as ONNX graphs of plain operators. Sums and distances are float64: exact where the float32 kernel values of
`decision_function` are not, by 2^-24 gamma |x|^2 of each coefficient.

Input "X", float32 (N, d), rows as they are. Outputs "label" (N,), and "scores", which `decision_function` returns,
float32 (N,) or (N, k). Calibrated models add "probabilities", float32 (N, k). A ranking or a regression has "scores"
alone. For rows of several labels "label" is int64 (N, k), 1 if a row has it. Metadata: JSON lists "feature_names", if
there are any, and the "labels" of these columns.

It does not use ai.onnx.ml's SVMClassifier: onnxruntime sums it in float32, it takes longer, and it supports neither
routes nor classes against the rest.
"""

from __future__ import annotations

import json
from itertools import combinations
from pathlib import Path
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper
from scipy.linalg import block_diag

from streamsvm._version import __version__
from streamsvm.data.quantiles import Quantiles
from streamsvm.data.rows import concat
from streamsvm.data.running import LARGEST
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.exchange.expansion import expansion, require_two_classes
from streamsvm.exchange.onnx_early import routed
from streamsvm.exchange.onnx_graph import Graph
from streamsvm.exchange.onnx_pool import pooled_odds
from streamsvm.exchange.onnx_probabilities import of_problems, probabilities
from streamsvm.kernels.base import joined
from streamsvm.models.pooled import Pooled
from streamsvm.models.shapes import Expansion
from streamsvm.storage.atomic import whole_file
from streamsvm.tasks import task_of
from streamsvm.tasks.multilabel import EVEN
from streamsvm.tasks.pairs import n_pairs

OPSET, IR_VERSION = 18, 8
MOST_BYTES = (1 << 31) - (1 << 20)  # of a file: protobuf's bound, less what names and nodes take
TYPES = {
    "U": TensorProto.STRING,
    "i": TensorProto.INT64,
    "f": TensorProto.DOUBLE,
    "b": TensorProto.BOOL,
}


def write_onnx(model: Any, out: Path) -> dict[str, Any]:
    """Writes a model to `out`, completely or not at all. Returns n_support, files and notes.

    Raises ModelError, StorageError.
    """
    proto = onnx_model(model)
    with whole_file(out) as file:
        file.write(proto.SerializeToString())
    is_wide = proto.graph.input[0].type.tensor_type.elem_type == TensorProto.DOUBLE
    notes = ["X is float64, as the rows of the fit: float32 would lose what a column says"] * is_wide
    return {"n_support": getattr(model, "n_support", None), "files": [], "notes": notes}


def onnx_model(model: Any) -> ModelProto:
    """The graph of a model. Raises ModelError."""
    graph = Graph()
    routes, pooled, part = model.as_routes(), model.as_pooled(), None
    if pooled is not None:
        decisions = _pooled(graph, model, pooled)
    elif routes is not None:
        _require_room(int(routes.bounds[-1]), model.d, routes.intercept.shape[1])
        decisions, part = routed(graph, _scaled(graph, _raw(graph, model), routes.scaling), routes)
    else:
        decisions = _sums(graph, model)
    outputs = _outputs(graph, decisions, part, model)
    is_wide = model.layout is not None and model.layout.dtype == np.float64
    entries = TensorProto.DOUBLE if is_wide else TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("X", entries, ["N", _width(model)])]
    built = helper.make_graph(graph.nodes, "streamsvm", inputs, outputs, graph.constants)
    opsets = [helper.make_opsetid("", OPSET)]
    producer = {"producer_name": "streamsvm", "producer_version": __version__}
    proto = helper.make_model(built, opset_imports=opsets, ir_version=IR_VERSION, **producer)
    lists = {"feature_names": model.shown_names}
    if task_of(model.task).in_sets:
        lists["labels"] = model.classes.tolist()
    helper.set_model_props(proto, {name: json.dumps(own) for name, own in lists.items() if own is not None})
    return proto


def _sums(graph: Graph, model: Any) -> str:
    """(N, columns) of raw rows."""
    expanded = expansion(model)
    if expanded.kernel.is_linear:
        expanded = expanded.folded()
    support, columns = expanded.support, len(expanded.intercept)
    x = _scaled(graph, _raw(graph, model), expanded.scaling)
    if expanded.kernel.is_linear:
        _require_room(support.d, 2 * columns)
        weights = np.asarray(support.X.astype(np.float64).T @ expanded.coef)
        return graph.op("Gemm", x, graph.constant(weights), graph.constant(expanded.intercept))
    return _expanded(graph, x, expanded)


def _pooled(graph: Graph, model: Any, pooled: Pooled) -> str:
    """(N, columns) of raw rows. The expansions' distances are one product."""
    require_two_classes(model)
    ends = (graph.constant(np.float64(sign * LARGEST)) for sign in (-1, 1))
    x = graph.op("Clip", _scaled(graph, _raw(graph, model), model.header.scaling), *ends)
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
    return graph.op("Gemm", values, graph.double(coef), graph.constant(expanded.intercept))


def _require_room(n: int, *columns: int) -> None:
    size = 4 * n * sum(columns)
    if size > MOST_BYTES:
        raise ModelError(
            f"the model's {n:,} support rows and coefficients take {size / 2**30:.1f} GiB as dense arrays, an ONNX "
            "file holds 2 GiB; fit with fewer support vectors (--solver bsgd --budget N), or export --format libsvm"
        )


def _width(model: Any) -> int:
    """The columns of X: of a stream those that have a name, not those for features to come."""
    return len(model.feature_names) if model.by_name else int(model.d)


def _raw(graph: Graph, model: Any) -> str:
    """(N, d) float64 of X."""
    more = model.d - _width(model)
    x = graph.op("Pad", "X", graph.constant([0, 0, 0, more])) if more else "X"
    return graph.cast(x, np.float64)


def _scaled(graph: Graph, x: str, scaling: Scaling) -> str:
    """(N, width) float64 scaled rows, rounded to float32 as those of the model are."""
    if scaling.is_none:
        return x
    raw = x
    if scaling.fill is not None:
        x = graph.op("Where", graph.op("IsNaN", x), graph.constant(scaling.fill), x)
    if scaling.marks is not None:
        gaps = graph.op("IsNaN", graph.op("Gather", raw, graph.constant(scaling.marks), axis=1))
        x = graph.op("Concat", x, graph.cast(gaps, np.float64), axis=1)
    if scaling.quantiles is not None:
        x = _normal(graph, x, scaling.quantiles)
    if scaling.offset.any():
        x = graph.op("Sub", x, graph.constant(scaling.offset))
    x = graph.op("Mul", x, graph.constant(scaling.scale))
    if scaling.metric is not None:
        x = graph.op("MatMul", x, graph.constant(scaling.metric.matrix))
    return graph.cast(graph.cast(x, np.float32), np.float64)


def _normal(graph: Graph, x: str, quantiles: Quantiles) -> str:
    """`Quantiles.normal` of float64 rows: the same search, whose steps are one for all entries."""
    d, left = quantiles.knots.shape
    knots, heights = graph.constant(quantiles.knots.ravel()), graph.constant(quantiles.heights.ravel())
    first, last = np.arange(d) * left, np.arange(1, d + 1) * left - 1
    ends = quantiles.knots.T[[0, -1]]
    x = graph.op("Min", graph.op("Max", x, graph.constant(ends[0])), graph.constant(ends[1]))
    at = graph.constant(first)
    while left > 1:
        further = graph.op("Add", at, graph.constant(np.int64(left // 2)))
        is_below = graph.op("LessOrEqual", graph.op("Gather", knots, further), x)
        at = graph.op("Where", is_below, further, at)
        left -= left // 2
    after = graph.op("Min", graph.op("Add", at, graph.constant(np.int64(1))), graph.constant(last))
    (low, high), (bottom, top) = (
        [graph.op("Gather", values, place) for place in (at, after)] for values in (knots, heights)
    )
    width = graph.op("Max", graph.op("Sub", high, low), graph.constant(np.finfo(np.float64).tiny))
    share = graph.op("Div", graph.op("Sub", x, low), width)  # 0 at the highest knot, which none is after
    return graph.op("Add", bottom, graph.op("Mul", share, graph.op("Sub", top, bottom)))


def _outputs(graph: Graph, decisions: str, part: str | None, model: Any) -> list[Any]:
    """The last nodes, and what comes out of them. part: the partition that each row falls into, if a model has any."""
    k, task = len(model.classes), task_of(model.task)
    by_votes = model.is_pairwise and k > 2
    one_column = not by_votes and task.columns(k) == 1
    values = _votes(graph, decisions, k) if by_votes else decisions
    scores = graph.op("Squeeze", values, graph.constant([1])) if one_column else values
    graph.called("scores", graph.cast(scores, np.float32))
    shape: list[str | int] = ["N"] if one_column else ["N", k]
    outputs = [helper.make_tensor_value_info("scores", TensorProto.FLOAT, shape)]
    if not task.has_labels:
        return outputs
    p = None
    if (calibration := model.header.calibration) is not None:
        if task.in_sets:
            p = of_problems(graph, calibration, decisions, part)
        else:
            p = probabilities(graph, calibration, decisions, part, k, pairwise=model.is_pairwise)
        graph.called("probabilities", graph.cast(p, np.float32))
        outputs.append(helper.make_tensor_value_info("probabilities", TensorProto.FLOAT, ["N", k]))
    if task.in_sets:
        graph.called("label", graph.cast(_has(graph, decisions, p, model), np.int64))
        return [helper.make_tensor_value_info("label", TensorProto.INT64, ["N", k]), *outputs]
    follows = calibration is not None and (calibration.by_decisions or calibration.method == "stream")
    if p is None or (follows and model.costs is None) or model.header.threshold is not None:
        codes = _codes(graph, values, model, one_column)
    else:
        codes = _by_probabilities(graph, p, model.costs)
    classes = model.classes if model.classes.dtype.kind in "Ufb" else model.classes.astype(np.int64)
    graph.called("label", graph.op("Gather", graph.constant(classes), codes))
    label = TYPES[model.classes.dtype.kind]
    return [helper.make_tensor_value_info("label", label, ["N"]), *outputs]


def _has(graph: Graph, decisions: str, p: str | None, model: Any) -> str:
    """(N, k) bool which labels a row has, as `codes_of`."""
    threshold, costs, calibration = model.header.threshold, model.costs, model.header.calibration
    follows = costs is None and calibration is not None and calibration.by_decisions
    if p is None or follows or threshold is not None:
        return graph.op(
            "Greater", decisions, graph.constant(np.asarray(0.0 if threshold is None else threshold))
        )
    if costs is None:
        return graph.op("Greater", p, graph.constant(np.float64(EVEN)))
    rest = graph.op("Sub", graph.constant(np.float64(1)), p)
    missed, false = (
        graph.op("Mul", own, graph.constant(cost)) for own, cost in ((p, costs[1]), (rest, costs[0]))
    )
    return graph.op("Greater", missed, false)


def _votes(graph: Graph, decisions: str, k: int) -> str:
    """(N, k) votes and confidence, as `tasks.pairs.vote`."""
    first, second = (np.zeros((n_pairs(k), k)) for _ in range(2))
    for p, (i, j) in enumerate(combinations(range(k), 2)):
        first[p, i] = second[p, j] = 1
    zero, one, three = (graph.constant(np.float64(value)) for value in (0, 1, 3))
    against = graph.cast(graph.op("Less", decisions, zero), np.float64)
    in_favour = graph.cast(graph.op("Greater", decisions, zero), np.float64)
    votes = graph.op(
        "Add",
        graph.op("MatMul", against, graph.constant(first)),
        graph.op("MatMul", in_favour, graph.constant(second)),
    )
    confidence = graph.op("MatMul", decisions, graph.constant(second - first))
    bound = graph.op("Mul", three, graph.op("Add", graph.op("Abs", confidence), one))
    return graph.op("Add", votes, graph.op("Div", confidence, bound))


def _by_probabilities(graph: Graph, p: str, costs: np.ndarray | None) -> str:
    """(N,) positions in the classes of the largest probability, or of the least expected cost."""
    if costs is None:
        return graph.op("ArgMax", p, axis=1, keepdims=0)
    return graph.op("ArgMin", graph.op("MatMul", p, graph.constant(costs)), axis=1, keepdims=0)


def _codes(graph: Graph, values: str, model: Any, one_column: bool) -> str:
    """(N,) positions in the classes, as `codes_of`."""
    if one_column:  # how many thresholds are below: one alone for two classes
        thresholds = graph.constant(model.cuts)
        above = graph.cast(graph.op("Greater", values, thresholds), np.int64)
        return graph.op("ReduceSum", above, graph.constant([1]), keepdims=0)
    ties_broken = getattr(model, "break_ties", True)
    return graph.op("ArgMax", values if ties_broken else graph.op("Round", values), axis=1, keepdims=0)
