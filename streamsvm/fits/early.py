"""The model of early prediction, made of partitions: these come as they are solved, or are in files that tasks
wrote."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import chain
from typing import Any

import numpy as np

from streamsvm.data.rows import Rows
from streamsvm.errors import CorruptDataError
from streamsvm.fits.drafts import INDPTR, ModelDraft, indptr_after, joined
from streamsvm.fits.parts import ModelPartition, PartitionOnDisk, has_bias
from streamsvm.fits.prepare import TrainingData
from streamsvm.kernels.kmeans import Partition, partition_from_state
from streamsvm.models import Header, LocalModel
from streamsvm.parallel.engine import Engine, several
from streamsvm.runs.checkpoints import PartFiles, PartLog
from streamsvm.solvers.dcsvm import Division
from streamsvm.storage.paths import Place

MOST_COLUMNS, MOST_PARTS = 12, 40  # that a report shows
TOGETHER = 16  # partitions in files that one task decides with


class EarlyPartitions:
    """Takes one partition after another, saves it in the run directory, and lets each decide for the held-out rows that
    fall into it. Memory keeps only what assigns rows to partitions. files: in which tasks have written the partitions,
    which come as `PartitionOnDisk`; folder: for their joined arrays."""

    def __init__(self, draft: ModelDraft, prepared: TrainingData, log: PartLog, files: PartFiles | None = None) -> None:
        self._draft, self._prepared, self._log, self.files = draft, prepared, log, files
        self._options = prepared.config.dcsvm
        self._like = LocalModel(  # of a partition, which nobody loads
            Header(prepared.kernel, prepared.scaling, prepared.classes),
            Partition((), ()),
            np.zeros(1, np.int64),
            np.zeros((1, len(prepared.classes)), bool),
            {},
            self._options.combine,
            task=prepared.task.name,
            multiclass=prepared.config.multiclass,
        )
        self._partition: Partition | None = None  # of the one division whose partitions come
        self._parts: list[PartitionOnDisk] = []
        rows = prepared.scored_rows
        self._kept = None if rows is None else prepared.scaling.apply(rows)
        self._asked: np.ndarray | None = None  # (h, partitions that decide for a held-out row)
        columns = prepared.task.n_subproblems(len(prepared.classes))
        self._decided = np.zeros((0 if rows is None else len(rows), columns))

    def add(self, division: Division, part: ModelPartition | PartitionOnDisk) -> None:
        """The next partition."""
        if isinstance(part, ModelPartition):
            self._log.add(len(self._parts), part.to_arrays())
        self._take(division, part)

    def known(self, division: Division, count: int, engine: Engine) -> int:
        """Takes the first partitions that an earlier run has saved; returns how many of `count` there were."""
        files = self.files or self._log.files
        if files is None:
            return 0
        loaded = engine.map(_known, range(count), shared=(files, self.files is not None))
        for number, part in enumerate(loaded):
            if not isinstance(part, ModelPartition | PartitionOnDisk):
                if part is not None:
                    self._log.warn(part)
                return number
            self._take(division, part)
        return count

    def _take(self, division: Division, part: ModelPartition | PartitionOnDisk) -> None:
        number = len(self._parts)
        if isinstance(part, PartitionOnDisk):
            self._parts.append(part)
            return
        if self._kept is not None:
            ids = self._asking(division, number)
            self._decided[ids] += _says(self._like, part, self._kept.take(ids))
        for name, array in part.support.items():
            if name == INDPTR:
                array = indptr_after(array, number, sum(earlier.n_entries for earlier in self._parts))
            self._draft.append(name, array)
        self._parts.append(PartitionOnDisk.of(part))

    def _asking(self, division: Division, number: int) -> np.ndarray:
        assert self._kept is not None
        if self._asked is None and self._options.combine == "nearest":
            self._asked = self._partition_of(division).nearest(self._kept, self._options.neighbours)
        if self._asked is None:
            return np.arange(len(self._kept))
        return np.flatnonzero((self._asked == number).any(axis=1))

    def _partition_of(self, division: Division) -> Partition:
        if self._partition is None:
            nodes, width = json.loads(str(division.routes["nodes"])), self._prepared.scaling.width
            self._partition = partition_from_state(division.routes, nodes, width)
        return self._partition

    def join(self, division: Division, folder: Place, engine: Engine) -> None:
        """For partitions in files: puts their arrays into the draft, and keeps what they decide for the held-out
        rows."""
        if self.files is None:
            return
        counts = np.array([(part.n_support, part.n_entries) for part in self._parts])
        self._draft.join(joined(self.files, *counts.T), folder, engine)
        if self._kept is None:
            return
        rows_of_parts = [(number, self._asking(division, number)) for number in range(len(self._parts))]
        asked_parts = [own for own in rows_of_parts if len(own[1])]
        shared = engine.share((self.files, self._like, self._kept))
        answers = engine.map(_files_say, several(asked_parts, TOGETHER), shared=(shared,))
        for number, values in chain.from_iterable(answers):
            self._decided[rows_of_parts[number][1]] += values

    def model(self, header: Header, division: Division) -> LocalModel:
        """The model of all partitions of a division; in a file, its arrays exist already."""
        weights = [part.weights for part in self._parts if part.weights is not None]
        return LocalModel(
            header,
            self._partition_of(division),
            np.cumsum([0, *(part.n_support for part in self._parts)], dtype=np.int64),
            np.stack([part.present for part in self._parts]),
            self._draft.arrays,
            self._options.combine,
            self._options.neighbours,
            np.stack(weights) if weights else None,
            np.stack([part.bias for part in self._parts]) if has_bias(self._prepared) else None,
            self._prepared.task.name,
            self._prepared.config.multiclass,
        )

    def decided(self, model: LocalModel) -> tuple[np.ndarray | None, np.ndarray | None]:
        """(h, columns) what the model decides of the held-out rows, and of those of a search; None if there are
        none."""
        held_out = self._prepared.held_out
        if self._kept is None:
            return None, None
        decisions = self._decided
        if self._asked is not None:
            decisions = decisions / self._asked.shape[1] + model.intercept[self._asked].mean(axis=1)
        if held_out is None:
            return None, decisions
        return decisions[: len(held_out.y)], (
            None if self._prepared.expectation is None else decisions[len(held_out.y) :]
        )


def _says(like: LocalModel, part: ModelPartition, rows: Rows) -> np.ndarray:
    """(m, subproblems) what a partition of such a model decides for scaled rows."""
    weights = None if part.weights is None else part.weights[None]
    bounds = np.array([0, part.n_support])
    return replace(like, bounds=bounds, arrays=part.support, weights=weights).part_sums(0, rows)


def _files_say(
    own: tuple[PartFiles, LocalModel, Rows], rows_of_parts: Sequence[tuple[int, np.ndarray]]
) -> list[tuple[int, np.ndarray]]:
    files, like, rows = own
    answers = []
    for number, ids in rows_of_parts:
        arrays = files.read(number)
        if arrays is None:
            raise CorruptDataError(f"{files.folder}: part {number} is missing; --resume solves it again")
        answers.append((number, _says(like, ModelPartition.from_arrays(arrays), rows.take(ids))))
    return answers


def _known(files: PartFiles, is_filed: bool, number: int) -> ModelPartition | PartitionOnDisk | CorruptDataError | None:
    """A partition that an earlier run has saved, or why it is damaged, or None if it is missing."""
    try:
        arrays = files.read(number)
    except CorruptDataError as error:
        return error
    if arrays is None:
        return None
    part = ModelPartition.from_arrays(arrays)
    return PartitionOnDisk.of(part) if is_filed else part


def part_facts(model: LocalModel, rows: np.ndarray) -> dict[str, Any]:
    """What the partitions of a model with metrics per partition look at, for its report; rows (partitions,): how many.
    columns: those that count most, over all rows. shares: of them in each of the largest partitions, of 1 in all
    columns: the diagonal of its metric, the global one's included. own: partitions that kept a separate metric."""
    if model.weights is None:
        return {}
    scaling, names = model.header.scaling, model.header.feature_names
    shares = np.array([scaling.times(weights).importances for weights in model.weights])
    columns = np.argsort(-(rows @ shares), kind="stable")[:MOST_COLUMNS]
    largest = np.argsort(-rows, kind="stable")[:MOST_PARTS]
    parts = {
        "columns": [names[f] if names else str(f) for f in columns],
        "shares": shares[np.ix_(largest, columns)].round(5).tolist(),
        "rows": rows[largest].tolist(),
        "own": int(np.count_nonzero((model.weights != 1.0).any(axis=1))),
    }
    return {"parts": parts}
