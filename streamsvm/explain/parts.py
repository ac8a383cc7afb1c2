"""How good each part of a model is on the rows that it answers."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Events, heard
from streamsvm.models.base import Model
from streamsvm.parallel.engine import Engine
from streamsvm.predict import answers_of, assess, predict_blocks
from streamsvm.tasks import task_of

Answer = tuple[np.ndarray, np.ndarray | None]


def has_parts(model: Model) -> bool:
    """Whether the model has several partitions and predicts labels, which are right or wrong."""
    return getattr(model, "n_parts", 1) > 1 and task_of(model.task).has_classes


def evaluate_by_part(
    model: Model, store: Store, *, engine: Engine, with_curves: bool = False, events: Events = heard
) -> dict[str, Any]:
    """The result of `predict.evaluate`, and `parts`: {rows, right}, the number of rows in each partition, and of those
    with the right answer. The model must have partitions (`has_parts`). Raises as `evaluate`."""
    rows, right = np.zeros((2, model.n_parts), np.int64)

    def scored_blocks() -> Iterator[tuple[int, int, Answer]]:
        blocks = predict_blocks(model, store, engine=engine, decide=_answers_and_parts, phase="evaluate", events=events)
        for start, stop, (answer, parts) in blocks:
            is_right = model.labels(*answer) == store.labels(start, stop)
            rows[:] += np.bincount(parts, minlength=len(rows))
            right[:] += np.bincount(parts[is_right], minlength=len(rows))
            yield start, stop, answer

    result = assess(model, store, scored_blocks(), with_curves=with_curves)
    return result | {"parts": {"rows": rows.tolist(), "right": right.tolist()}}


def _answers_and_parts(model: Model, rows: Rows) -> tuple[Answer, np.ndarray]:
    return answers_of(model, rows), model.parts_of(rows)
