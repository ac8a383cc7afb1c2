"""What DC-SVM divides: the rows of a store, by kernel k-means, into partitions that are solved as tasks.

`MemoryPlan` is what a memory limit allows: rows held or streamed, kernel rows kept, rows of a partition, threads.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from streamsvm.data.cache import SingleEntryCache
from streamsvm.data.regroup import PartitionsInMemory, PartitionsOnDisk, RowPartitions, file_bytes
from streamsvm.data.rows import Rows
from streamsvm.data.samples import (
    Block,
    SampleBlocks,
    SamplesInMemory,
    SamplesInStore,
    block_columns,
    gather,
    group_blocks,
    memory_blocks,
)
from streamsvm.data.vectors import Vector, VectorFactory, VectorInMemory, VectorOnDisk
from streamsvm.errors import CorruptDataError
from streamsvm.fits.base import Fit
from streamsvm.fits.parts import (
    ColumnForm,
    EarlyPartitions,
    PartitionColumns,
    PartitionSolver,
    SolvedPartition,
    TaskPartitions,
    has_bias,
    solve_in_turn,
)
from streamsvm.fits.prepare import TrainingData
from streamsvm.fits.targets import TargetsInMemory, TargetSource
from streamsvm.kernels.division import PartitionOptions, partition, random_rows
from streamsvm.kernels.inner import Linear
from streamsvm.kernels.kmeans import Partition, partition_state
from streamsvm.kernels.row_cache import WIDE
from streamsvm.parallel.engine import several
from streamsvm.parallel.machine import WORKER_BYTES, MiB, allowed_bytes, process_bytes, too_small
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.problems.dual import DualQP, dual_of
from streamsvm.problems.streamed import StreamedDual
from streamsvm.problems.subproblems import DualData, MakeDual, TaskDuals, duals_in_memory, pair_values, with_loss
from streamsvm.solvers import blockws
from streamsvm.solvers.dcsvm import DCSVMState, Division, PartSolution, Stage, support_of
from streamsvm.solvers.in_turn import InTurnState, Thresholds
from streamsvm.storage.paths import Place, remove_tree
from streamsvm.tasks.base import Subproblem

BOUND_ROWS = 1000  # sampled to estimate how much of the kernel is between partitions
BOUND_TASKS = 16  # that read their partitions


class DividedProblem:
    """All rows of a fit's store; partitions are solved ahead of the solver's requests. early: the level that a model is
    made of; keep takes its partitions, in order. The data of each row is held in memory if the rows are, else in files
    that tasks write and read."""

    def __init__(
        self,
        fit: Fit,
        memory: MemoryPlan,
        part_rows: Callable[[int], int],
        early: int | None = None,
        keep: EarlyPartitions | None = None,
    ) -> None:
        self._fit, self._memory, self._part_rows = fit, memory, part_rows
        self._early, self._keep = early, keep
        self._engine, self._events, self._kernel = fit.engine, fit.events, fit.kernel
        self.shape = fit.store.n, fit.task.coefficients(len(fit.classes))
        self.count = fit.task.n_subproblems(len(fit.classes))
        self._parts: tuple[int, Vector] | None = None  # of the level that was divided last
        self._told_capped = False
        self._groups: tuple[int, RowPartitions] | None = None
        self._duals: TaskDuals | None = None  # of the refinement or the whole
        self._among: SingleEntryCache[TaskDuals] = SingleEntryCache()
        self._whole: TaskDuals | None = None
        self._coming: Iterator[list[SolvedPartition]] = iter(())
        self._due: tuple[int, int] | None = None  # level and number of the next of it
        self.clustering_s, self.solving_since = 0.0, 0.0

    def close(self) -> None:
        """Stops what is being solved ahead."""
        self._coming, self._due = iter(()), None

    @cached_property
    def samples(self) -> SamplesInMemory | SamplesInStore:
        samples = self._fit.prepared.samples
        if not self._memory.in_memory:
            return samples
        with self._fit.phase("read"):
            return samples.load()

    @cached_property
    def _answers(self) -> TargetSource:
        prepared = self._fit.prepared
        return TargetsInMemory(prepared.dual_data) if self._memory.in_memory else prepared.target_source

    @cached_property
    def _form(self) -> ColumnForm:
        return ColumnForm.of(self._answers, self._fit.task, self._fit.prepared.no_targets)

    def _vectors(self, level: int) -> VectorFactory:
        if self._memory.in_memory:
            return VectorFactory(self.samples.blocks(), None)
        self._engine.require_folder(self._fit.context.folder)
        return VectorFactory(self.samples.blocks(), self._folder(level))

    def _folder(self, level: int) -> Place:
        return self._fit.context.folder / f"level-{level}"

    def divide(self, level: int, start: np.ndarray | None) -> Division:
        began, self._groups = time.perf_counter(), None
        with self._fit.phase("cluster"):
            division = self._division(SampleBlocks(self.samples, self._engine), level, start)
        self._groups_of(division, start)
        self.clustering_s = time.perf_counter() - began
        return division

    def _division(self, table: SampleBlocks, level: int, start: np.ndarray | None) -> Division:
        options, prepared = self._fit.config.dcsvm, self._fit.prepared
        adaptive = options.adaptive and start is not None and start.any()  # section 4, adaptive clustering
        candidates = support_of(start) if adaptive and start is not None else None
        tree, parts, sizes = partition(
            table,
            self._engine,
            cuts_of(prepared, level, self._part_rows(level)),
            rng_of(prepared, level),
            self._vectors(level),
            candidates,
            self._events,
        )
        self._parts = level, parts
        division = division_of(level, tree, sizes, self._bound(table, parts))
        if advice := widened_advice(prepared, division):
            self._events.advise(advice)
        return division

    def _bound(self, table: SampleBlocks, parts: Vector) -> float:
        """D(pi) / sum |K|, estimated on a sample: the share of the kernel's mass between partitions."""
        rng = np.random.default_rng([self._fit.config.seed, 1 << 16])
        ids = random_rows(table, BOUND_ROWS, rng)
        pieces = np.array_split(ids, min(BOUND_TASKS, len(ids)))
        parts_of_rows = np.concatenate(list(self._engine.map(_taken, pieces, shared=(self._engine.share(parts),))))
        rows = table.take(ids)
        K = np.abs(self._kernel.block(rows, rows))
        np.fill_diagonal(K, 0)
        apart = parts_of_rows[:, None] != parts_of_rows
        return float(K[apart].sum()) / max(float(K.sum()), 1e-300)  # rows may be too far apart for float32

    def _groups_of(self, division: Division, start: np.ndarray | None) -> RowPartitions:
        """The rows by partition, with what partitions are solved from."""
        if self._groups is None or self._groups[0] != division.level:
            self._groups = None  # let the old ones go before making new ones
            with self._fit.phase("cluster"):
                assert self._parts is not None  # divided before
                self._groups = division.level, self._regrouped(self._parts[1], division, start)
        return self._groups[1]

    def _regrouped(self, parts: Vector, division: Division, start: np.ndarray | None) -> RowPartitions:
        samples, vectors = self.samples, self._vectors(division.level)
        start_values = None if start is None else vectors.copy("start", start)
        columns = PartitionColumns(self._answers, self._form, start_values)
        if isinstance(samples, SamplesInMemory):
            return PartitionsInMemory(samples, parts.all(), division.n_parts, columns)
        folder = self._fit.scratch / "parts"
        remove_tree(folder)
        return PartitionsOnDisk(samples, parts, division.n_parts, folder, self._engine, columns, self._events)

    def parts(
        self, first: int, division: Division, start: np.ndarray | None, thresholds: Thresholds | None
    ) -> list[PartSolution]:
        """The solutions of a task's partitions; later ones are being solved already."""
        if self._due != (division.level, first):
            self._coming = self._solutions(first, division, start, thresholds)
            self.solving_since = time.perf_counter()
        solved = next(self._coming)
        self._due = division.level, first + len(solved)
        if first + len(solved) == division.n_parts:
            self.close()
        for part in solved:
            if part.in_model is not None and self._keep is not None:
                self._keep.add(division, part.in_model)
        if not self._told_capped and any(part.is_capped for part in solved):
            self._told_capped = True
            self._events.warn(
                f"nu {self._fit.config.nu:g} is more than the classes of some partitions allow: less there"
            )
        return [replace(part, in_model=None) for part in solved]

    def excess(self, alpha: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        sums = np.zeros((2, self.count))
        for part in self._fit.task.subproblems(self._fit.prepared.dual_data.targets, single=True):
            alpha_of_part = alpha[part.places]
            sums[:, part.number] = part.y @ alpha_of_part, np.count_nonzero(alpha_of_part)
        return sums[0], sums[1]

    def _solutions(
        self, first: int, division: Division, start: np.ndarray | None, thresholds: Thresholds | None
    ) -> Iterator[list[SolvedPartition]]:
        fit, engine, groups = self._fit, self._engine, self._groups_of(division, start)
        threads, window = engine.wide(groups.n_parts)
        cache_bytes = self._memory.cache_bytes * threads // engine.worker_memory()[1]
        is_last = division.level == self._early
        solver = part_solver(fit.prepared, threads, cache_bytes, is_last=is_last, until=fit.until)
        if thresholds is not None:
            solver = solver.at(thresholds)
        files = self._keep.files if self._keep and division.level == self._early else None
        todo, together = range(first, groups.n_parts), engine.together(groups.n_parts)
        yield from engine.map(
            partial(solve_in_turn, solver, files),
            several(todo, together),
            shared=(engine.share(TaskPartitions(groups.reader, self._form)),),
            phase=f"level {division.level}",
            events=self._events,
            window=window,  # partitions come largest first: few cores wait at a window's end
        )

    def to_arrays(self) -> dict[str, Any]:
        """What a checkpoint keeps with the solver's state: known levels, and their partitions if held in memory."""
        divided = {} if self._parts is None else dict([self._parts])
        in_memory = divided if self._memory.in_memory else {}
        arrays = {f"parts{level}": parts.all() for level, parts in in_memory.items()}
        return {"known_levels": np.array(list(divided), np.int64)} | arrays

    def resumed(self, state: DCSVMState, arrays: Mapping[str, Any]) -> DCSVMState:
        """The state to resume from, of an earlier run that saved these arrays: as much of it as exists."""
        stage = state.stage if self._early is None else Stage.PARTS  # at its end, too, if files are deleted
        try:
            levels = {level: self._known(level, arrays) for level in arrays["known_levels"].tolist()}
        except CorruptDataError as error:
            self._events.warn(f"{error}; rows are divided again")
            return replace(state, stage=stage, division=None, solutions=())
        for level, parts in levels.items():
            self._parts = level, parts
        if self._keep is None or state.divided is None or state.level != self._early:
            return state
        with self._fit.phase("solve"):
            count = self._keep.known(state.divided, len(state.solutions), self._engine)
        if count == len(state.solutions):
            return state
        return replace(state, stage=stage, solutions=state.solutions[:count])

    def _known(self, level: int, arrays: Mapping[str, Any]) -> Vector:
        """The partitions of a level of an earlier run. Raises CorruptDataError if they are gone or damaged."""
        if f"parts{level}" in arrays:
            return VectorInMemory(arrays[f"parts{level}"])
        parts = VectorOnDisk(self._folder(level) / "parts")
        parts.require_whole()
        return parts

    def rounds(self, turns: InTurnState) -> Iterator[tuple[int, dict[str, float]]]:
        """The numbers of subproblems of which the last step was a round, and what an event reports of each."""
        for number, violation, objective, gap in turns.latest.tolist() if turns.latest is not None else ():
            yield int(number), {"round": 1, "violation": violation, "objective": objective, "gap": gap}
        if turns.running is not None:
            assert self._duals is not None
            yield turns.done, blockws.facts(self._duals.dual(turns.done), turns.running)

    def among(self, ids: np.ndarray) -> TaskDuals | None:
        """The subproblems over these rows in memory; None if they do not fit."""
        memory = self._memory
        row = memory.rows_bytes / self._fit.store.n
        if len(ids) * row * 3 > 0.5 * (memory.limit_bytes - memory.process_bytes):
            return None
        self._duals = self._among.of(ids, self._gathered)
        return self._duals

    def _gathered(self, ids: np.ndarray) -> TaskDuals:
        rows = gather(self.samples, ids, self._engine)
        return self._in_memory(rows, self._fit.prepared.dual_data.among(ids))

    def _in_memory(self, rows: Rows, data: DualData) -> TaskDuals:
        threads, cache_bytes = self._engine.threads, self._memory.cache_bytes
        return duals_in_memory(self._kernel, rows, data, threads, cache_bytes, squared=self._is_squared)

    @property
    def _is_squared(self) -> bool:
        return self._fit.config.dcsvm.is_squared

    def whole(self, division: Division | None) -> TaskDuals:
        """All subproblems, in memory or streamed."""
        self._among = SingleEntryCache()  # rows that are wanted no more
        if self._whole is None:
            data = self._fit.prepared.dual_data
            if isinstance(self.samples, SamplesInMemory):
                self._whole = self._in_memory(self.samples.rows, data)
            else:
                make, take = self._streamed(division), partial(gather, self.samples, engine=self._engine)
                pairs = pair_values(self._kernel, take, data, self._engine.threads, squared=self._is_squared)
                self._whole = TaskDuals(data, with_loss(make, squared=self._is_squared), pairs=pairs)
        self._duals = self._whole
        return self._whole

    def _streamed(self, division: Division | None) -> MakeDual:
        kernel, engine = self._kernel, self._engine
        groups = self._by_position() if division is None else self._groups_of(division, None)

        def dual(part: Subproblem, upper: np.ndarray) -> DualQP:
            return dual_of(part, lambda y: StreamedDual(kernel, groups, part.ids, y, upper, engine))

        return dual

    def _by_position(self) -> RowPartitions:
        """Neighbours in the store, where nothing divided the rows."""
        n = self._fit.store.n
        share = max(1024, n // (4 * self._engine.slots))
        parts = np.arange(n, dtype=np.int32) // min(share, self._memory.max_part_rows)
        return self._regrouped(VectorInMemory(parts), Division(0, np.bincount(parts)), None)


def _taken(parts: Vector, ids: np.ndarray) -> np.ndarray:
    return parts.take(ids)


def cuts_of(prepared: TrainingData, level: int, max_rows: int) -> PartitionOptions:
    """The required partitions of a level."""
    options = prepared.config.dcsvm
    kernel = prepared.kernel if options.clustering == "kernel" else Linear()
    return PartitionOptions(options.children**level, max_rows, options.sample, kernel)


def rng_of(prepared: TrainingData, level: int) -> np.random.Generator:
    """What draws the samples of a level."""
    return np.random.default_rng([prepared.config.seed, level])


def division_of(level: int, tree: Partition, sizes: np.ndarray, bound: float = 0.0) -> Division:
    """The partitions of a level, with what assigns new rows to them."""
    arrays, attrs = partition_state(tree)
    return Division(level, sizes, bound, arrays | {"nodes": json.dumps(attrs)})


def clustering_gammas(prepared: TrainingData, division: Division) -> list[float]:
    """The gamma of each node of a division in feature space, rising: those that were widened for their rows are below
    the kernel's own (`kmeans.fit_centres`). None of a division in input space."""
    nodes = json.loads(str(division.routes["nodes"])) if prepared.config.dcsvm.clustering == "kernel" else []
    return sorted(node["kernel"]["gamma"] for node in nodes if "gamma" in node["kernel"])


def widened_advice(prepared: TrainingData, division: Division) -> str | None:
    """What to say of nodes that were divided by a wider kernel than the one that was asked for, if there are some."""
    gammas, own = clustering_gammas(prepared, division), getattr(prepared.kernel, "gamma", 0.0)
    wider = [gamma for gamma in gammas if gamma < own]
    if not wider:
        return None
    used = " to ".join(dict.fromkeys(f"{gamma:g}" for gamma in (wider[0], wider[-1])))
    return (
        f"dcsvm.clustering=kernel: gamma {own:g} is too large to divide the rows evenly: level {division.level} was "
        f"divided with gamma {used} in {len(wider)} of {len(gammas)} nodes; the problem keeps gamma {own:g}"
    )


def part_solver(
    prepared: TrainingData, threads: int, cache_bytes: int, *, is_last: bool, until: float | None = None
) -> PartitionSolver:
    """Solves the partitions of a level; is_last: the level that a model is made of."""
    config, options = prepared.config, prepared.config.dcsvm
    is_split = prepared.task.in_pairs and len(prepared.classes) > 2
    single = not is_last or (options.combine != "nearest" and not is_split)
    if prepared.task.has_classes:  # with y'a = 0, rows of one class need no solving
        single = single and not has_bias(prepared)
    else:
        single = True
    refits = options.part_metric if is_last else None
    return PartitionSolver(
        prepared.kernel,
        config.tol,
        threads,
        cache_bytes,
        single=single,
        refits=refits,
        until=until,
        has_bias=has_bias(prepared),
        squared=options.is_squared,
    )


@dataclass(frozen=True)
class TaskSpans(SizedInBytes):
    """blocks: of rows whose products are made together; those of one task each, which `whole` has as one. files: spans
    of one task each, which regroups them. slots: the maximum number of tasks that solve partitions. in_memory: whether
    the fit holds its rows, whose blocks are others then."""

    blocks: list[list[Block]]
    whole: list[Block]
    files: list[list[Block]]
    slots: int
    in_memory: bool


def spans_of(samples: SamplesInStore, cuts: PartitionOptions, *, in_memory: bool) -> TaskSpans:
    """The spans of a fit."""
    chunks = samples.blocks()
    held = memory_blocks(samples.n, block_columns(samples))
    blocks = list(group_blocks(held if in_memory else chunks, chunks[0][1]))
    slots = 2 * max(cuts.n_parts, -(-samples.n // cuts.max_rows))
    rows = int(file_bytes(samples, slots) * samples.n / samples.nbytes)
    whole = [(span[0][0], span[-1][1]) for span in blocks]
    return TaskSpans(blocks, whole, list(group_blocks(whole, rows)), slots, in_memory)


TASK_BYTES = 48 * MiB  # a working set's Gram matrix, its tiles and vectors, whatever the partition's size
COPIES = 3  # that a partition takes of its rows
ROW_BYTES = 160  # solver vectors of one row of a partition
LEAST_ROWS = 1024  # rows of a partition below which dividing is pointless
STREAMED_SHARE = 32  # rows of partitions beyond 1 / 32 of the limit are read again, not held


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes: the limit, what the process (or that of a worker) holds already, vectors of all rows, rows held in memory,
    kernel rows kept."""

    limit_bytes: int
    process_bytes: int
    vector_bytes: int
    rows_bytes: int
    cache_bytes: int
    in_memory: bool
    threads: int
    max_part_rows: int

    def part_rows(self, copies: int = COPIES) -> int:
        """Maximum rows of a partition that takes so many copies of them."""
        return self.max_part_rows * COPIES // copies


def plan_memory(
    samples: SamplesInStore,
    columns: int,
    limit_bytes: int | None,
    threads: int,
    *,
    cache_bytes: int,
    on_worker: bool = False,
    parts_alone: bool = False,
) -> MemoryPlan:
    """How a fit stays under the limit (None: 80 % of what is free now). Raises MemoryLimitError.

    columns: coefficients of a row.
    cache_bytes: for kernel rows, less if memory is short.
    on_worker: the limit and threads are those of a cluster's worker, which sees partitions only. Then what this process
    holds does not count.
    parts_alone: the fit solves partitions only, for which the data of each row may be in files.
    """
    n, raw, row, rows = samples.n, samples.as_stored, samples.nbytes / samples.n, int(samples.nbytes)
    limit = allowed_bytes(limit_bytes)
    process = WORKER_BYTES if on_worker else process_bytes()
    in_memory = not on_worker and stay_in_memory(n, row, columns, limit, threads, parts_alone)
    vectors = 0 if on_worker or (parts_alone and not in_memory) else vector_bytes(n, columns)
    free = limit - process - vectors - (int(1.2 * rows) if in_memory else 0)
    per_row = COPIES * row * (1 if not raw else 4) + ROW_BYTES
    least_part = int((TASK_BYTES + LEAST_ROWS * per_row) / 0.8)
    cache = min(cache_bytes, max(free - least_part, 0) // 4) if row >= 4 * WIDE else 0
    free -= cache
    while not on_worker and threads > 1 and 0.8 * free / threads < TASK_BYTES + 4 * LEAST_ROWS * per_row:
        threads -= 1
    max_part_rows = int((0.8 * free / threads - TASK_BYTES) / per_row)
    if max_part_rows < LEAST_ROWS:
        raise too_small(limit_bytes, f"{n} rows of {samples.store.d} columns", process + vectors + least_part)
    return MemoryPlan(limit, process, vectors, rows, cache, in_memory, threads, max_part_rows)


def stay_in_memory(
    n: int, row_bytes: float, columns: int, limit_bytes: int, threads: int, parts_alone: bool = False
) -> bool:
    """Whether n rows of these bytes are held, next to what the process holds already and vectors of all rows."""
    if parts_alone and n * row_bytes > limit_bytes / STREAMED_SHARE:
        return False
    tasks = threads * (TASK_BYTES + LEAST_ROWS * 3 * row_bytes)
    return process_bytes() + vector_bytes(n, columns) + 1.5 * n * row_bytes + tasks < 0.7 * limit_bytes


def vector_bytes(n: int, columns: int) -> int:
    """Of labels, partitions, coefficients and gradients of all rows."""
    return n * (32 + 24 * columns)
