"""From a model and a store to predictions and scores, block by block, in bounded memory."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, closing
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from streamsvm.compiling import compiling_told
from streamsvm.data.check import require_finite
from streamsvm.data.columns import Column
from streamsvm.data.growing import GrowingArray
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.data.target import Target, whole_file
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, ignore
from streamsvm.metrics import (
    ProbabilityScores,
    break_even,
    confusion,
    curves,
    mean_absolute_error,
    per_class,
    ranking,
    regression,
    roc_auc,
)

if TYPE_CHECKING:
    from streamsvm.graph import Engine

ANSWERS = {"rank": "score", "regress": "value"}  # what a task predicts in place of a label
PREDICTIONS = "streamsvm_predictions"  # group attribute of what `predict` writes as zarr


class Judge(Protocol):
    """What follows from decision values."""

    @property
    def task(self) -> str: ...

    @property
    def classes(self) -> np.ndarray: ...

    def labels(self, decision: np.ndarray, proba: np.ndarray | None = None) -> np.ndarray: ...

    def encode_labels(self, y: np.ndarray) -> np.ndarray: ...


class Predictor(Judge, Protocol):
    """What prediction asks of a model."""

    d: int

    def columns_in(self, store: Store) -> tuple[np.ndarray | None, str | None]: ...

    def decision_function(self, rows: Rows) -> np.ndarray: ...

    def answers(self, rows: Rows) -> tuple[np.ndarray, np.ndarray | None]: ...

    def require_probabilities(self) -> None: ...


Block = dict[
    str, np.ndarray
]  # by what is wanted: label (or score, value) (m,), decision (m,) or (m, k), probability


def decisions_of(model: Predictor, rows: Rows) -> Any:
    return model.decision_function(rows)


def answers_of(model: Predictor, rows: Rows) -> Any:
    return model.answers(rows)


def predict_blocks(
    model: Predictor,
    store: Store,
    *,
    engine: Engine,
    ask: Callable[[Any, Rows], Any] = decisions_of,
    phase: str = "predict",
    events: Events = ignore,
) -> Iterator[tuple[int, int, Any]]:
    """(start, stop, ask(model, rows)) of each row block, in order. Raises ModelError, DataError."""
    columns, unchecked = model.columns_in(store)
    if unchecked:
        events("warning", message=unchecked)
    blocks = store.blocks()
    shared = ask, engine.share(model), engine.share(store), columns
    with compiling_told(events):
        answers = engine.map(_asked, blocks, shared=shared, phase=phase, events=events)
        for (start, stop), answer in zip(blocks, answers, strict=True):
            yield start, stop, answer


def _asked(
    ask: Callable[[Any, Rows], Any],
    model: Predictor,
    store: Store,
    columns: np.ndarray | None,
    block: tuple[int, int],
) -> Any:
    rows = store.read(*block)
    require_finite(store, rows, block[0])
    return ask(model, rows.arranged(columns, model.d))


def write_predictions(
    model: Predictor,
    store: Store,
    out: Path,
    *,
    decision: bool = False,
    proba: bool = False,
    engine: Engine,
    events: Events = ignore,
) -> None:
    """Writes the label of every row to `out`, whole or not at all.

    .csv: a header, then label and, with `decision`, the decision values, with `proba` a column `probability_LABEL` for
    each class; .zarr: arrays `label`, `decision`, `probability`; .npy: one array, the labels, or else the decision
    values or probabilities. A ranking has a `score` in place of the label, a regression a `value`.
    Raises ConfigError, ModelError where there are no probabilities, StorageError.
    """
    writers = {".csv": _write_csv, ".npy": _write_npy, ".zarr": _write_zarr}
    if out.suffix not in writers:
        raise ConfigError(f"--out {out}: expected a name ending in .csv, .npy or .zarr")
    if out.suffix == ".npy" and decision and proba:
        raise ConfigError(f"--out {out}: holds one array; found --decision and --proba, expected one of them")
    if proba:
        model.require_probabilities()

    def block(values: np.ndarray, p: np.ndarray | None) -> Block:
        wanted = {"decision": values} if decision else {}
        if proba and p is not None:
            wanted["probability"] = p
        return {ANSWERS.get(model.task, "label"): model.labels(values, p), **wanted}

    blocks = predict_blocks(model, store, engine=engine, ask=answers_of, events=events)
    writers[out.suffix](out, store.n, (block(*answers) for _, _, answers in blocks), model.classes)


def codes_of_labels(model: Any, store: Store) -> np.ndarray:
    """(n,) a model's class codes of a store's labels; -1 for one it does not know."""
    labels, codes = store.coded
    return model.encode_labels(labels)[codes]


def evaluate(
    model: Predictor, store: Store, *, engine: Engine, with_curves: bool = False, events: Events = ignore
) -> dict[str, Any]:
    """How good a model is on a store with labels.

    accuracy, per_class and confusion; for two classes roc_auc and break_even (precision = recall); for ranks
    mean_absolute_error; ndcg, map, swapped_pairs and kendall_tau (see `metrics.ranking`) where rows have one score
    and the store has queries, or the task is ordinal. Of task rank, these alone; of task regress `metrics.regression`.
    Of a calibrated model brier, log_loss, ece and reliability, see `metrics.ProbabilityScores`.
    Rows whose label the model never saw count as wrong; `n_unknown_labels` says how many there are. They are not in
    what scores order and probabilities. with_curves: those of `metrics.curves` too, for two classes.
    """
    blocks = predict_blocks(model, store, engine=engine, ask=answers_of, phase="evaluate", events=events)
    return assess(model, store, blocks, with_curves=with_curves)


def assess(
    model: Judge,
    store: Store,
    blocks: Iterable[tuple[int, int, tuple[np.ndarray, np.ndarray | None]]],
    *,
    with_curves: bool = False,
) -> dict[str, Any]:
    """What `evaluate` says, of (start, stop, (decision values, probabilities or None)) of a store's row blocks."""
    k, classless = len(model.classes), model.task in ANSWERS
    truth = np.zeros(store.n, np.int32) if classless else codes_of_labels(model, store)
    counts = np.zeros((k, k), np.int64)
    scored = classless or k == 2 or model.task == "ordinal"
    scores = np.empty(store.n if scored else 0)
    probabilities = ProbabilityScores(k)
    for start, stop, (values, proba) in blocks:
        if scored:
            scores[start:stop] = values
        if not classless:
            known = truth[start:stop] >= 0
            predicted = _positions(model.classes, model.labels(values, proba))
            counts += confusion(truth[start:stop][known], predicted[known], k)
            if proba is not None:
                probabilities.add(truth[start:stop][known], proba[known])
    summary = {"accuracy": None, "n": store.n} if classless else _summary(model, truth, counts, scores)
    summary |= probabilities.result() if probabilities.n else {}
    if model.task == "regress":
        return summary | regression(store.y, scores)
    if classless or model.task == "ordinal" or (scored and store.qid is not None):
        summary |= _ranking(store, scores)
    if with_curves and k == 2 and not classless:
        known = truth >= 0
        summary |= curves(truth[known] == 1, scores[known])
    return summary


def _ranking(store: Store, scores: np.ndarray) -> dict[str, Any]:
    groups = (
        np.zeros(store.n, np.int64) if store.qid is None else np.unique(store.qid, return_inverse=True)[1]
    )
    return ranking(store.y, scores, groups)


def _positions(classes: np.ndarray, labels: np.ndarray) -> np.ndarray:
    """Where each label stands in `classes`, which holds them all, in any order."""
    order = np.argsort(classes)
    return order[np.searchsorted(classes[order], labels)]


def _summary(model: Judge, truth: np.ndarray, counts: np.ndarray, scores: np.ndarray) -> dict[str, Any]:
    n, n_known, labels = len(truth), int(counts.sum()), model.classes.tolist()
    if n_known == 0:
        raise DataError(f"no row has a label that the model knows; it knows {', '.join(map(str, labels))}")
    summary = {
        "accuracy": float(np.trace(counts) / n),
        "n": n,
        "n_unknown_labels": n - n_known,
        "classes": labels,
        "per_class": per_class(counts, labels),
        "confusion": counts.tolist(),
    }
    known = truth >= 0
    if len(labels) == 2:
        positive = truth[known] == 1
        summary["roc_auc"] = roc_auc(positive, scores[known])
        summary["break_even"] = break_even(positive, scores[known])
    if model.task == "ordinal":
        summary["mean_absolute_error"] = mean_absolute_error(counts)
    return summary


def _write_csv(out: Path, n: int, blocks: Iterator[Block], classes: np.ndarray) -> None:
    with whole_file(out) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        writer = csv.writer(text, lineterminator="\n")
        for i, block in enumerate(blocks):
            if i == 0:
                names = (_names(column, values, classes) for column, values in block.items())
                writer.writerow(chain.from_iterable(names))
            columns = [column for values in block.values() for column in np.atleast_2d(values.T).tolist()]
            writer.writerows(zip(*columns, strict=True))


def _names(column: str, values: np.ndarray, classes: np.ndarray) -> list[str]:
    if column == "probability":
        return [f"{column}_{label}" for label in classes.tolist()]
    return [f"{column}_{j}" for j in range(values.shape[1])] if values.ndim == 2 else [column]


def _write_npy(out: Path, n: int, blocks: Iterator[Block], classes: np.ndarray) -> None:
    with whole_file(out) as file:
        for i, block in enumerate(blocks):
            *_, values = block.values()
            if i == 0:
                header = {"descr": values.dtype.str, "fortran_order": False, "shape": (n, *values.shape[1:])}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(values.tobytes())


def _write_zarr(out: Path, n: int, blocks: Iterator[Block], classes: np.ndarray) -> None:
    target = Target(str(out), overwrite=_is_predictions(out))
    with target.errors(), ExitStack() as cleanup:
        cleanup.callback(target.discard)
        group = target.begin()
        more = {name: GrowingArray(group, name) for name in ("decision", "probability")}
        answer: Column | None = None
        for block in blocks:
            (name, values), *others = block.items()
            answer = answer or cleanup.enter_context(closing(Column(name, target.folder)))
            answer.append(values)
            for other, values in others:
                more[other].append(values)
        if answer is not None:
            answer.write(group)
        for array in more.values():
            array.close()
        group.attrs.put({PREDICTIONS: 1})
        target.commit()


def _is_predictions(path: Path) -> bool:
    try:
        return PREDICTIONS in json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
