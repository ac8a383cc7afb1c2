"""A partition of the rows, solved as a task, the data that goes with the rows into their partitions, and the model of
early prediction, which is made of partitions: these come as they are solved, or are in files that tasks wrote.

A partition may have its own metric, weights of its columns from the gradients of its fit: the diagonal of the mean
outer product of gradients, as for all rows (Radhakrishnan et al. 2024), in the coordinates of scaled rows; xRFM (2025)
does so in the leaves of a tree. Held-out rows decide whether a partition keeps it. For reports, centres of the
partitions in a few numbers, and in the plane.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np

from streamsvm.data.metric import NEGLIGIBLE, Metric
from streamsvm.data.regroup import Arrays, PartitionReader
from streamsvm.data.rows import Rows, rows_from_state, rows_state
from streamsvm.data.samples import splitmix64
from streamsvm.data.statistics import moments_of
from streamsvm.data.vectors import Vector
from streamsvm.errors import CorruptDataError
from streamsvm.fits.drafts import INDPTR, ModelDraft, indptr_after, joined
from streamsvm.fits.prepare import TrainingData
from streamsvm.fits.targets import TargetSource
from streamsvm.judging.expected import is_surely_better
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.kmeans import Partition, partition_from_state
from streamsvm.models import Header, LocalModel
from streamsvm.parallel.engine import Engine, several
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.parallel.strips import evenly
from streamsvm.problems.subproblems import (
    DualData,
    coefficients_of,
    duals_in_memory,
    over_margins,
    task_gradients,
)
from streamsvm.progress import Convergence, advance, share_of
from streamsvm.runs.checkpoints import PartFiles, PartLog
from streamsvm.solvers.dcsvm import Division, PartSolution, support_of
from streamsvm.solvers.in_turn import InTurn, InTurnState, Thresholds
from streamsvm.solvers.loop import is_late, run
from streamsvm.storage.paths import Place
from streamsvm.tasks.base import Targets, Task

HASTY_ROWS, HASTY_TOL = 500, 0.1  # of a partition that is begun when time is up
ROUGH_TOL = 0.03  # of partitions that are solved to estimate a bias


@dataclass(frozen=True)
class ColumnForm(SizedInBytes):
    """The form of the data that goes with n rows into their partitions, in few bytes a row. targets: of none of the
    rows, for what all have in common. bounds: see `TargetsInMemory.bounds`."""

    n: int
    task: Task
    targets: Targets
    bounds: np.ndarray | None

    @classmethod
    def of(cls, source: TargetSource, task: Task, targets: Targets) -> ColumnForm:
        return cls(source.n, task, targets, source.bounds)

    def stored(self, ids: np.ndarray, data: DualData, alpha: np.ndarray | None = None) -> Arrays:
        of, known = data.targets, self.targets.classes if self.targets.sets is None else self.targets.sets
        narrow_ids, narrow_codes = np.min_scalar_type(self.n), np.min_scalar_type(len(known))
        arrays = {"ids": ids.astype(narrow_ids), "codes": of.codes.astype(narrow_codes)}
        arrays |= {"upper": data.upper} if self.bounds is None else {"counts": data.upper > 0}
        optional = {"linear": of.linear, "groups": of.groups, "alpha": alpha}
        return arrays | {name: array for name, array in optional.items() if array is not None}

    def restored(self, stored: Arrays) -> tuple[np.ndarray, DualData]:
        """Ids, targets and bounds of rows."""
        codes = stored["codes"].astype(self.targets.codes.dtype)
        upper = stored["upper"] if self.bounds is None else np.where(stored["counts"], self.bounds[codes], 0.0)
        targets = self.targets.of(stored | {"codes": codes})
        return stored["ids"].astype(np.int64), DualData(self.task, targets, upper)


@dataclass(frozen=True)
class PartitionColumns(SizedInBytes):
    """The data that goes with rows into their partitions: ids, targets and bounds, and the start of their solution,
    coefficients (n, columns); None at the lowest level."""

    source: TargetSource
    form: ColumnForm
    start: Vector | None = None

    def read(self, start: int, stop: int) -> Arrays:
        alpha = None if self.start is None else self.start.read(start, stop)
        return self.form.stored(np.arange(start, stop), self.source.read(start, stop), alpha)

    def take(self, ids: np.ndarray) -> Arrays:
        alpha = None if self.start is None else self.start.take(ids)
        return self.form.stored(ids, self.source.take(ids), alpha)


@dataclass(frozen=True)
class TaskPartitions(SizedInBytes):
    """Partitions as tasks read them, with what `PartitionColumns` sent along, in this form."""

    reader: PartitionReader
    form: ColumnForm

    def read(self, part: int) -> tuple[Rows, np.ndarray, DualData, np.ndarray]:
        """Rows of a partition, their ids, targets and bounds, and coefficients to begin with."""
        rows, stored = self.reader.rows(part), self.reader.columns(part)
        ids, data = self.form.restored(stored)
        return rows, ids, data, stored.get("alpha", np.zeros(data.shape))


@dataclass(frozen=True)
class ModelPartition(SizedInBytes):
    """What a model keeps of a partition: support rows (s, d), as the store's scaling leaves them, their coefficients
    alpha (s, columns), compact of pairs of classes, and codes (s,); present (k,): classes that it learned. weights
    (d,): of the columns, specific to the partition; None if there are none. bias (subproblems,)."""

    rows: Rows
    alpha: np.ndarray
    codes: np.ndarray
    present: np.ndarray
    weights: np.ndarray | None
    bias: np.ndarray

    @property
    def support(self) -> dict[str, np.ndarray]:
        """Its arrays, among those that a model has for all partitions together."""
        return rows_state("support", self.rows) | {"alpha": self.alpha, "codes": self.codes}

    def to_arrays(self) -> dict[str, np.ndarray]:
        weights = {} if self.weights is None else {"weights": self.weights}
        arrays = {"present": self.present, "bias": self.bias, "d": np.array(self.rows.d)}
        return self.support | weights | arrays

    @property
    def n_support(self) -> int:
        return len(self.codes)

    @property
    def n_entries(self) -> int:
        return int(self.rows.X.nnz) if self.rows.is_sparse else 0  # type: ignore[union-attr]

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> ModelPartition:
        rows = rows_from_state("support", arrays, int(arrays["d"]), 0, len(arrays["codes"]))
        alpha, codes, present = (arrays[name] for name in ("alpha", "codes", "present"))
        return cls(rows, alpha, codes, present, arrays.get("weights"), arrays["bias"])


@dataclass(frozen=True)
class PartitionOnDisk(SizedInBytes):
    """The description of a `ModelPartition` that its task has written to a file; n_entries: nonzeros of its support
    rows, if they are sparse."""

    n_support: int
    n_entries: int
    present: np.ndarray
    weights: np.ndarray | None
    bias: np.ndarray

    @classmethod
    def of(cls, part: ModelPartition) -> PartitionOnDisk:
        return cls(part.n_support, part.n_entries, part.present, part.weights, part.bias)


@dataclass(frozen=True)
class SolvedPartition(PartSolution):
    """A partition's solution; in_model: what a model has of it, its coefficients among them. seconds: to read its rows
    and solve. centre: see `sketch`."""

    in_model: ModelPartition | PartitionOnDisk | None = None
    seconds: float | None = None
    centre: np.ndarray | None = None


@dataclass(frozen=True)
class PartitionSolver:
    """What all partitions are solved with. single: subproblems of one class, too.

    refits: of the metric of each partition of an early model; None for other partitions. until: time.time() from which
    on problems end as they are. has_bias: each with the constraint y'a = 0. squared: of squared losses. thresholds:
    biases that are given, instead of that constraint.
    """

    kernel: Kernel
    tol: float
    threads: int
    cache_bytes: int
    single: bool
    refits: int | None = None
    until: float | None = None
    has_bias: bool = False
    squared: bool = False
    thresholds: Thresholds | None = None

    def at(self, thresholds: Thresholds) -> PartitionSolver:
        """For partitions that share these biases, solved roughly if nothing is known of them; rows of one class have a
        problem, too."""
        tol = self.tol if thresholds.are_known else max(self.tol, ROUGH_TOL)
        return replace(self, thresholds=thresholds, tol=tol, has_bias=False, single=True)

    def __call__(self, parts: TaskPartitions, part: int) -> SolvedPartition:
        """The solution of a partition, from what its rows begin with."""
        began = time.perf_counter()
        rows, ids, data, alpha = parts.read(part)
        solution = self._of_rows(rows, ids, data, alpha)
        return replace(solution, seconds=round(time.perf_counter() - began, 4), centre=sketch(rows))

    def _of_rows(self, rows: Rows, ids: np.ndarray, data: DualData, alpha: np.ndarray) -> SolvedPartition:
        present = None if self.refits is None else data.present
        if is_late(self.until):
            return self._hasty(rows, ids, data, present)
        weights = None
        if self.refits:
            metric = PartitionMetric(self.kernel, self.refits, self.threads, self._trial)
            weights, alpha = metric(rows, data, alpha)
        weighted_rows = rows if weights is None else rows.times(weights)
        state = self._solved(weighted_rows, data, alpha, self.tol)
        return self._solution(rows, ids, data, state, present, weights)

    def _hasty(self, rows: Rows, ids: np.ndarray, data: DualData, present: np.ndarray | None) -> SolvedPartition:
        """The solution of a partition once time is up: from few of its rows, so that they decide at all."""
        few = evenly(len(ids), HASTY_ROWS)
        solver = replace(self, until=None, tol=max(self.tol, HASTY_TOL))
        rows, ids, data = rows.take(few), ids[few], data.take(few)
        state = solver._solved(rows, data, np.zeros(data.shape), solver.tol)
        weights = np.ones(rows.d) if self.refits else None
        return replace(self._solution(rows, ids, data, state, present, weights), late=True)

    def _solution(
        self,
        rows: Rows,
        ids: np.ndarray,
        data: DualData,
        state: InTurnState,
        present: np.ndarray | None,
        weights: np.ndarray | None,
    ) -> SolvedPartition:
        alpha, bias, task = state.solved, state.bias, data.task
        if present is not None:
            alpha, bias = over_margins(data, alpha, bias, state.margin)
        if present is not None and not task.in_pairs:
            alpha = coefficients_of(task, data.targets, alpha)
            bias = data.targets.units.labels(bias)
        support = support_of(alpha)
        is_capped = present is not None and (data.targets.nu or 0.0) > data.most_nu
        numbers = len(support), state.objective, state.gap, state.late, is_capped, state.violation
        if present is None:
            return SolvedPartition(ids[support], alpha[support], *numbers)
        codes = data.targets.codes[support].astype(np.int32)
        in_model = ModelPartition(rows.take(support), alpha[support], codes, present, weights, bias)
        return SolvedPartition(np.empty(0, np.int64), np.empty((0, alpha.shape[1])), *numbers, in_model)

    def _trial(self, number: int, rows: Rows, asked: DualData, alpha: np.ndarray, tol: float) -> np.ndarray:
        share = 1.0 / ((self.refits or 0) + 2)
        return self._solved(rows, asked, alpha, max(tol, self.tol), (number * share, share)).solved

    def _solved(
        self, rows: Rows, data: DualData, alpha: np.ndarray, tol: float, shares: tuple[float, float] | None = None
    ) -> InTurnState:
        """shares: of the task that are done before, and that this is."""
        [rows] = self.kernel.distinguishing(rows)
        duals = duals_in_memory(
            self.kernel, rows, data, self.threads, self.cache_bytes, squared=self.squared, single=self.single
        )
        solver = InTurn(tol, self.until, self.has_bias)
        total, done = data.count, Convergence(tol)
        before, share = shares or (0.0, 1.0)

        def on_step(state: InTurnState) -> None:
            if state.running is not None:
                advance(before + share * done(state.running.violation, state.done) / total)

        begun = solver.init(duals, alpha, self.thresholds)
        return run(solver, duals, begun, stop=solver.is_solved, on_step=on_step)


def solve_in_turn(
    solver: PartitionSolver, files: PartFiles | None, parts: TaskPartitions, numbers: Sequence[int]
) -> list[SolvedPartition]:
    """Solves partitions one after the other, in one task; files: for what a model keeps of them."""
    solutions = []
    for done, number in enumerate(numbers):
        with share_of(done, len(numbers)):
            solution = solver(parts, number)
            if files is not None and isinstance(solution.in_model, ModelPartition):
                files.write(number, solution.in_model.to_arrays())
                solution = replace(solution, in_model=PartitionOnDisk.of(solution.in_model))
            solutions.append(solution)
    return solutions


def has_bias(prepared: TrainingData) -> bool:
    """Whether the duals of a fit have y'a = 0."""
    keeps_sums = prepared.task.nu(prepared.config) is not None
    options, zero_at_origin = prepared.config.dcsvm, prepared.kernel.is_zero_at_origin
    return options.has_bias(zero_at_origin=zero_at_origin) or prepared.task.has_bias or keeps_sums


WIDTH = 32  # numbers of a centre that leave its task
ENTRIES = 1 << 13  # whose signs are made at once: 2 MiB


def sketch(rows: Rows) -> np.ndarray:
    """(min(d, WIDTH),) float32 the mean of the rows; of more columns as sums of them with random signs, which keep
    distances about (Achlioptas 2003). Of sparse rows only entries are read, a few at a time."""
    X: Any = rows.X
    if rows.d <= WIDTH:
        return np.asarray(X.mean(axis=0, dtype=np.float64), np.float32).ravel()
    columns, values = (X.indices, X.data) if rows.is_sparse else (np.arange(rows.d), X.mean(axis=0, dtype=np.float64))
    total = np.zeros(WIDTH)
    for start in range(0, len(columns), ENTRIES):
        some = slice(start, start + ENTRIES)
        total += values[some].astype(np.float64) @ _signs(columns[some])
    return (total / (WIDTH**0.5 * (len(rows) if rows.is_sparse else 1))).astype(np.float32)


def _signs(columns: np.ndarray) -> np.ndarray:
    """(m, WIDTH) the signs of these columns, 1 or -1, the same in every partition."""
    bits = splitmix64(columns, WIDTH)[:, None] >> np.arange(WIDTH, dtype=np.uint64)
    return 1.0 - 2.0 * (bits & np.uint64(1))


def in_plane(centres: Sequence[np.ndarray]) -> list[list[float]]:
    """Points (partitions, 2): the centres on the two axes along which they differ most (PCA)."""
    points = np.array(centres, np.float64)
    points -= points.mean(axis=0)
    plane = np.zeros((len(points), 2))
    axes = np.linalg.eigh(points.T @ points)[1][:, :-3:-1]  # of the largest spread
    plane[:, : axes.shape[1]] = points @ axes
    return [[float(f"{x:.5g}") for x in point] for point in plane.tolist()]


LEAST_ROWS = 1000  # of a partition that learns a metric
HELD = 5  # a fifth of the rows is held out
TOL = 0.3  # of fits for gradients: on covtype as good as 0.03, in half the time
SAMPLE, GRADIENT_BYTES = 2000, 32 << 20  # rows that gradients are taken at; bytes of these gradients, at most


# The coefficients of the task over rows in memory, from alpha to a tolerance; number: of fits solved before.
Solve = Callable[[int, Rows, DualData, np.ndarray, float], np.ndarray]


@dataclass(frozen=True)
class Trial:
    """Weights of columns, the coefficients of the fit under them, and how well it predicts held-out rows. alpha (n,
    columns): 0 for held-out rows. right: y g(x), clipped at -1 and 1, of each subproblem and its held-out rows."""

    weights: np.ndarray
    alpha: np.ndarray
    right: np.ndarray


@dataclass(frozen=True)
class PartitionMetric:
    """Learns a partition's metric by this number of refits."""

    kernel: Kernel
    refits: int
    threads: int
    solve: Solve

    def __call__(self, rows: Rows, dual_data: DualData, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Weights (d,) of columns, above 0, all 1 unless others are surely better; and alpha to continue from."""
        codes = dual_data.targets.codes
        if len(rows) < LEAST_ROWS or np.all(codes == codes[0]):
            return np.ones(rows.d), alpha
        plain, *others = self._trials(rows, dual_data, alpha)
        best = max(others, key=lambda trial: float(trial.right.sum()))
        chosen = best if is_surely_better(best.right, plain.right) else plain
        return chosen.weights, chosen.alpha

    def _trials(self, rows: Rows, dual_data: DualData, alpha: np.ndarray) -> Iterator[Trial]:
        """The trial with all weights 1, then one after each refit."""
        rng = np.random.default_rng(0)
        shuffled = rng.permutation(len(rows))
        held_out, train = (np.sort(ids) for ids in np.split(shuffled, [len(rows) // HELD]))
        spread = moments_of(rows).m2
        weights, train_data, start = np.ones(rows.d), dual_data.take(train), alpha[train]
        for number in range(self.refits + 1):
            start = self.solve(number, rows.take(train).times(weights), train_data, start, TOL)
            learned, weighed = np.zeros(dual_data.shape), rows.times(weights)
            learned[train] = start
            yield Trial(weights, learned, self._right(weighed, dual_data, learned, held_out))
            if number < self.refits:
                gradient_ids = np.sort(rng.choice(train, min(len(train), _sample(rows.d, dual_data)), replace=False))
                gradients = task_gradients(self.kernel, weighed, dual_data, learned, gradient_ids, self.threads)
                weights = refitted(weights, gradients, spread)

    def _right(self, rows: Rows, dual_data: DualData, alpha: np.ndarray, held_out: np.ndarray) -> np.ndarray:
        """See `Trial.right`; each value is weighted as its row is."""
        values = []
        for part in dual_data.task.subproblems(dual_data.targets):
            coef = part.coefficients(alpha[part.places])
            support, held_out_rows = np.flatnonzero(coef), np.flatnonzero(np.isin(part.ids, held_out))
            learned = rows.take(part.ids[support]), coef[support]
            g = self.kernel.apply(rows.take(part.ids[held_out_rows]), *learned, self.threads)
            weight = dual_data.upper[part.ids[held_out_rows]] / dual_data.upper.max()
            values.append(weight * np.clip(part.y[held_out_rows] * g, -1.0, 1.0))
        return np.concatenate(values)


def refitted(weights: np.ndarray, gradients: np.ndarray, spread: np.ndarray) -> np.ndarray:
    """Weights (d,) from gradients (g, d) of a fit under the weights before. Weights of columns without influence stay
    above 0, so that rows can be distinguished from weighted ones. spread (d,): variances of columns up to a factor; its
    sum over weighted columns stays, and with it the meaning of gamma."""
    new_weights = weights * Metric.of_gradients(gradients).factor
    new_weights = np.maximum(new_weights, NEGLIGIBLE * new_weights.max())
    total = float(spread @ new_weights**2)
    return new_weights * np.sqrt(float(spread.sum()) / total) if total > 0 else weights


def _sample(d: int, dual_data: DualData) -> int:
    """The number of rows whose gradients, of all subproblems, take GRADIENT_BYTES at most."""
    return max(64, min(SAMPLE, GRADIENT_BYTES // (8 * d * dual_data.shape[1])))


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
        """For partitions in files: puts their arrays into the draft, and keeps what they decide for held-out rows."""
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
        """(h, columns) what the model decides of the held-out rows, and of those of a search; None without them."""
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
