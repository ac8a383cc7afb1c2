"""From a model and a store to predictions and scores, block by block, in bounded memory."""

from __future__ import annotations

import csv
import io
import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, closing
from dataclasses import dataclass
from itertools import chain
from typing import IO, TYPE_CHECKING, Any, Protocol

import numpy as np

from streamsvm.data.columns import ColumnWriter
from streamsvm.data.labels import label_texts
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, Warned, heard, ignore
from streamsvm.models.base import Model
from streamsvm.parallel.compiling import compile_notices
from streamsvm.storage.atomic import Target, whole_file
from streamsvm.storage.chunks import GrowingArray
from streamsvm.storage.paths import Place
from streamsvm.tables.target_encoding import with_values_of_model
from streamsvm.tasks import task_of
from streamsvm.tasks.scores import DecisionRule
from streamsvm.texts.documented import described

if TYPE_CHECKING:
    from streamsvm.parallel.engine import Engine

PREDICTIONS = "streamsvm_predictions"  # group attribute of what `predict` writes as zarr
BLOCK_BYTES = 32 << 20  # of dense rows of float32 that are decided together

Answer = tuple[np.ndarray, np.ndarray | None]  # decision values, and probabilities if the model has any
ENDS = ("lower", "upper")  # of intervals, as columns
Block = dict[str, np.ndarray]  # by what is wanted: label (or score, value) (m,), decision (m,) or (m, k), probability


def decisions_of(model: Model, rows: Rows) -> Any:
    return model.decision_function(rows)


def answers_of(model: Model, rows: Rows) -> Any:
    return model.answers(rows)


def predict_blocks(
    model: Model,
    store: Store,
    *,
    engine: Engine,
    decide: Callable[[Any, Rows], Any] = decisions_of,
    phase: str = "predict",
    events: Events = ignore,
) -> Iterator[tuple[int, int, Any]]:
    """(start, stop, decide(model, rows)) of each row block, in order. Raises ModelError, DataError."""
    store = with_values_of_model(store, model.layout)
    columns, unchecked = model.columns_in(store)
    if unchecked:
        events(Warned(unchecked))
    blocks = _blocks(store, engine)
    shared = decide, engine.share(model), engine.share(store), columns
    with compile_notices(events):
        answers = engine.map(_decide_block, blocks, shared=shared, phase=phase, events=events)
        for (start, stop), answer in zip(blocks, answers, strict=True):
            yield start, stop, answer


def _blocks(store: Store, engine: Engine) -> list[tuple[int, int]]:
    """Blocks of many rows, as partitions of a model and rows near each other are set up once for each block; but all
    tasks that run at a time have one."""
    rows = min(-(-store.n // engine.slots), most_rows(store.d))
    blocks = store.blocks()
    return store.blocks(rows) if rows > blocks[0][1] else blocks


def most_rows(d: int) -> int:
    """Of a block of so many columns."""
    return BLOCK_BYTES // (4 * d)


def _decide_block(
    decide: Callable[[Any, Rows], Any], model: Model, store: Store, columns: np.ndarray | None, block: tuple[int, int]
) -> Any:
    return decide(model, store.read_finite(*block, gaps=model.takes_gaps).arranged(columns, model.d))


def rows_at(model: Model, store: Store, ids: np.ndarray) -> Rows:
    """The raw rows of a store with these ids, in the model's columns. Raises ModelError, DataError."""
    store = with_values_of_model(store, model.layout)
    columns, _ = model.columns_in(store)
    rows = store.take(ids)
    store.require_finite(rows, ids, gaps=model.takes_gaps)
    rows, scaling = rows.arranged(columns, model.d), model.header.scaling
    return scaling.filled(rows) if scaling.marks is None else rows  # a mark is of a gap


@dataclass(frozen=True)
class PredictionOptions:
    """What to predict for rows, besides their labels. interval: a level, other than the fit's."""

    decision: bool = False
    proba: bool = False
    interval: float | None = None

    @property
    def flags(self) -> list[str]:
        """Their flags on the command line."""
        given = {"--decision": self.decision, "--proba": self.proba, "--interval": self.interval is not None}
        return [name for name, is_given in given.items() if is_given]


def answers_as_read(model: Model, pieces: Iterable[Rows], source: str) -> Iterator[Answer]:
    """The model's answers to pieces of rows in its own columns. Raises DataError for missing values that it cannot
    take."""
    done = 0
    for rows in pieces:
        bad = None if model.takes_gaps else rows.first_nonfinite(done)
        if bad is not None:
            names = model.feature_names
            column = bad[1] if names is None else repr(names[bad[1]])
            raise DataError(
                f"{source}: row {bad[0]}, column {column} is missing, and the model learned from rows without gaps; "
                "fill it in, or fit with --gaps mean (or median, most_frequent)"
            )
        yield model.answers(rows)
        done += len(rows)


class RowColumns(Protocol):
    """Columns that are written before the answers, row by row."""

    def take(self, rows: int) -> Mapping[str, np.ndarray]: ...


def write_predictions(
    model: Model,
    store: Store,
    out: Place | None,
    options: PredictionOptions = PredictionOptions(),
    *,
    engine: Engine,
    events: Events = heard,
    row_columns: RowColumns | None = None,
) -> int:
    """Writes the label of every row of a store, see `write_answers`."""
    blocks = predict_blocks(model, store, engine=engine, decide=answers_of, events=events)
    return write_answers(model, (answers for _, _, answers in blocks), out, options, n=store.n, row_columns=row_columns)


def write_answers(
    model: Model,
    answers: Iterable[Answer],
    out: Place | None,
    options: PredictionOptions = PredictionOptions(),
    *,
    n: int = 0,
    row_columns: RowColumns | None = None,
) -> int:
    """Writes the label of every row to `out`, whole or not at all, and returns how many; None: to stdout, as CSV.

    answers: what `Model.answers` gives of each piece of rows. n: the number of all rows, which .npy needs. row_columns:
    columns that come first, in CSV only.

    .csv: a header, then label and, with `decision`, the decision values, with `proba` a column `probability_LABEL` for
    each class. .zarr: arrays `label`, `decision`, `probability`. .npy: one array, the labels, or else the decision
    values or probabilities. Rows of several labels have bool (n, k), which of them each has. A ranking has a `score`
    instead of the label, a regression a `value`. A model with intervals also has `lower` and `upper`, of level
    `interval` or else of the fit's. In a .npy with `interval` these are the only array, (n, 2).
    Raises ConfigError, StorageError, and ModelError if there are no probabilities or intervals.
    """
    writers: dict[str, Callable[..., None]] = {".csv": _write_csv, ".npy": _write_npy, ".zarr": _write_zarr}
    suffix = ".csv" if out is None else out.suffix
    if suffix not in writers:
        raise ConfigError(f"--out {out}: expected a name ending in .csv, .npy or .zarr")
    if row_columns is not None and suffix != ".csv":
        raise ConfigError(f"--out {out}: only a .csv can hold the kept columns")
    if suffix == ".npy" and len(options.flags) > 1:
        flags = " and ".join(options.flags)
        raise ConfigError(f"--out {out}: holds one array; found {flags}, expected one of them")
    if options.proba:
        model.require_probabilities()
    task = task_of(model.task)
    has_ends = task.has_intervals and model.intervals is not None and suffix != ".npy"
    intervals = model.require_intervals() if has_ends or options.interval is not None else None
    if intervals is not None:
        intervals.half_width(options.interval)  # before any work, whether it can be computed

    labels_of = model.codes_of if task.in_sets and suffix == ".npy" else model.labels

    written = 0

    def block(values: np.ndarray, p: np.ndarray | None) -> Block:
        nonlocal written
        written += len(values)
        wanted = {"decision": values} if options.decision else {}
        if options.proba and p is not None:
            wanted["probability"] = p
        if intervals is not None:
            ends = intervals.around(values, options.interval)
            wanted |= {"interval": ends} if suffix == ".npy" else dict(zip(ENDS, ends.T, strict=True))
        before = {} if row_columns is None else row_columns.take(len(values))
        return {**before, task.answer: labels_of(values, p), **wanted}

    names = {"probability": model.classes} | ({"decision": model.classes} if task.in_sets else {})
    pieces = iter(answers)
    if (first := next(pieces, None)) is None:
        raise DataError("found no row to predict, expected at least one")
    writers[suffix](out, n, (block(*answer) for answer in chain([first], pieces)), names)
    return written


@described
def evaluate(
    model: Model, store: Store, *, engine: Engine, with_curves: bool = False, events: Events = heard
) -> dict[str, Any]:
    """Scores a model on a store with labels.

    Parameters
    ----------
    engine : Engine
        Threads or a cluster that compute, from `parallel.open.open_engine`.
    with_curves : bool
        Add ROC and precision-recall curves: those of `metrics.curves` for two classes, else `curves_by_class`.

    Returns
    -------
    dict
        The scores that `evaluate --json` prints.

    Raises
    ------
    ConfigError, DataError

    Notes
    -----
    accuracy, per_class and confusion. For two classes, also roc_auc and break_even (precision = recall); for ranks,
    mean_absolute_error. ndcg, map, swapped_pairs and kendall_tau (see `metrics.ranking`) if rows have one score and the
    store has queries, or the task is ordinal. Task rank has only these, task regress those of
    `metrics.RegressionScores`. A calibrated model adds brier, log_loss, ece and reliability, see
    `metrics.ProbabilityScores`. If errors have costs, there is the mean `cost` of its labels, and that of the likeliest
    ones, `cost_of_likeliest`. Rows whose label the model never saw count as wrong. `n_unknown_labels` is their number;
    scores that depend on order, probabilities and costs leave them out.
    """
    _warn_without_positive(model, store, events)
    blocks = predict_blocks(model, store, engine=engine, decide=answers_of, phase="evaluate", events=events)
    return assess(model, store, blocks, with_curves=with_curves)


def _warn_without_positive(model: Any, store: Store, events: Events) -> None:
    """Warns if a model that separates some labels from the rest is scored on rows that have none of them."""
    positive = getattr(getattr(model, "header", None), "positive", ())
    if positive and store.has_y and not model.encode_labels(store.classes.values).any():
        labels = ", ".join(label_texts(store.classes.values)[:30].tolist())
        events(
            Warned(
                f"no row has a label of the positive class, which is {', '.join(positive)}; the rows have {labels}, "
                "and all of them count as the rest"
            )
        )


def assess(
    model: DecisionRule,
    store: Store,
    blocks: Iterable[tuple[int, int, Answer]],
    *,
    with_curves: bool = False,
) -> dict[str, Any]:
    """The result of `evaluate`, from (start, stop, (decision values, probabilities or None)) of a store's row
    blocks."""
    scores = task_of(model.task).scores(model, store, with_curves=with_curves)
    for start, stop, (values, proba) in blocks:
        scores.add(start, stop, values, proba)
    return scores.result()


Headings = Mapping[str, np.ndarray]  # of columns by what they are of; else numbers


def _write_csv(out: Place | None, n: int, blocks: Iterator[Block], names: Headings) -> None:
    if out is None:
        _write_lines(sys.stdout, blocks, names)
        return
    with whole_file(out) as file, io.TextIOWrapper(file, encoding="utf-8", newline="") as text:
        _write_lines(text, blocks, names)


def _write_lines(text: IO[str], blocks: Iterator[Block], names: Headings) -> None:
    writer = csv.writer(text, lineterminator="\n")
    for i, block in enumerate(blocks):
        if i == 0:
            heads = (_heads(column, values, names) for column, values in block.items())
            writer.writerow(chain.from_iterable(heads))
        plain = (label_texts(values) if values.dtype.kind == "b" else values for values in block.values())
        columns = [column for values in plain for column in np.atleast_2d(values.T).tolist()]
        writer.writerows(zip(*columns, strict=True))


def _heads(column: str, values: np.ndarray, names: Headings) -> list[str]:
    if values.ndim == 1:
        return [column]
    return [f"{column}_{name}" for name in names.get(column, np.arange(values.shape[1])).tolist()]


def _write_npy(out: Place, n: int, blocks: Iterator[Block], names: Headings) -> None:
    with whole_file(out) as file:
        for i, block in enumerate(blocks):
            *_, values = block.values()
            if i == 0:
                header = {"descr": values.dtype.str, "fortran_order": False, "shape": (n, *values.shape[1:])}
                np.lib.format.write_array_header_1_0(file, header)
            file.write(values.tobytes())


def _write_zarr(out: Place, n: int, blocks: Iterator[Block], names: Headings) -> None:
    target = Target(str(out), overwrite=_is_predictions(out))
    with target.errors(), ExitStack() as cleanup:
        cleanup.callback(target.discard)
        group = target.begin()
        more = {name: GrowingArray(group, name) for name in ("decision", "probability", *ENDS)}
        answer: ColumnWriter | None = None
        for block in blocks:
            (name, values), *others = block.items()
            answer = answer or cleanup.enter_context(closing(ColumnWriter(name, target.folder)))
            answer.append(values)
            for other, values in others:
                more[other].append(values)
        if answer is not None:
            answer.write(group)
        for array in more.values():
            array.close()
        group.attrs.put({PREDICTIONS: 1})
        target.commit()


def _is_predictions(path: Place) -> bool:
    try:
        return PREDICTIONS in json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"]
    except (OSError, ValueError, KeyError, TypeError):
        return False
