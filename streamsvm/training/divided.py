"""What DC-SVM divides: the rows of a store, by kernel k-means, into parts that are solved as tasks."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from streamsvm.data.gather import Table, gather
from streamsvm.data.latest import Latest
from streamsvm.data.regroup import Groups, MemoryGroups, SpooledGroups
from streamsvm.data.rows import Rows
from streamsvm.data.samples import MemorySamples, StoreSamples
from streamsvm.kernels.division import Cuts, partition
from streamsvm.kernels.inner import Linear
from streamsvm.kernels.kmeans import Partition, partition_state
from streamsvm.problems.dual import DualQP, StreamedDual, dual_of
from streamsvm.solvers import blockws
from streamsvm.solvers.dcsvm import DCSVMState, Division, PartSolution, support_of
from streamsvm.solvers.in_turn import InTurnState
from streamsvm.tasks.base import Subproblem
from streamsvm.training.base import Fit
from streamsvm.training.memory_plan import MemoryPlan
from streamsvm.training.parts import KeptPart, PartSolver
from streamsvm.training.subproblems import MakeDual, TaskDuals, in_memory

BOUND_ROWS = 1000  # that tell how much of the kernel is between parts


class DividedProblem:
    """All rows of a fit's store; parts are solved ahead of those that the solver asks for.

    early: the level that a model is made of; keep is shown its parts, by division and number, and their support rows in
    order.
    """

    def __init__(
        self,
        fit: Fit,
        memory: MemoryPlan,
        part_rows: Callable[[int], int],
        early: int | None = None,
        keep: Callable[[Division, int, PartSolution, Rows], None] | None = None,
    ) -> None:
        self._fit, self._memory, self._part_rows = fit, memory, part_rows
        self._early, self._keep = early, keep
        self._engine, self._events, self._kernel = fit.engine, fit.events, fit.kernel
        self.asked = fit.prepared.all_asked
        self.shape = self.asked.shape
        self._duals: TaskDuals | None = None  # of the refinement or the whole
        self._groups: Latest[Groups] = Latest()
        self._among: Latest[TaskDuals] = Latest()
        self._whole: Latest[TaskDuals] = Latest()
        self._coming: Iterator[KeptPart] = iter(())
        self._due: tuple[Division, np.ndarray, int] | None = None  # the next of it
        self.clustering_s, self.solving_since = 0.0, 0.0

    def close(self) -> None:
        """Ends what is solved ahead."""
        self._coming, self._due = iter(()), None

    @cached_property
    def samples(self) -> MemorySamples | StoreSamples:
        samples = StoreSamples(self._fit.store, self._fit.scaling)
        if not self._memory.in_memory:
            return samples
        with self._fit.phase("read"):
            return samples.load()

    def divide(self, level: int, alpha: np.ndarray) -> Division:
        began = time.perf_counter()
        with self._fit.phase("cluster"):
            division = self._division(Table(self.samples, self._engine), level, alpha)
        self._groups_of(division)
        self.clustering_s = time.perf_counter() - began
        return division

    def _division(self, table: Table, level: int, alpha: np.ndarray) -> Division:
        tree, parts = self._partition(table, level, alpha)
        arrays, attrs = partition_state(tree)
        return Division(level, parts, self._bound(table, parts), arrays | {"nodes": json.dumps(attrs)})

    def _partition(self, table: Table, level: int, alpha: np.ndarray) -> tuple[Partition, np.ndarray]:
        options, seed = self._fit.config.dcsvm, self._fit.config.seed
        adaptive = options.adaptive and alpha.any()  # section 4, adaptive clustering
        kernel = self._kernel if options.clustering == "kernel" else Linear()
        wanted = Cuts(options.children**level, self._part_rows(level), options.sample, kernel)
        candidates = support_of(alpha) if adaptive else None
        rng = np.random.default_rng([seed, level])
        return partition(table, self._engine, wanted, rng, candidates, self._events)

    def _bound(self, table: Table, parts: np.ndarray) -> float:
        """D(pi) / sum |K|, estimated on a sample: the share of the kernel's mass between parts."""
        rng = np.random.default_rng([self._fit.config.seed, 1 << 16])
        ids = np.sort(rng.choice(table.n, min(BOUND_ROWS, table.n), replace=False))
        rows = table.take(ids)
        K = np.abs(self._kernel.block(rows, rows))
        np.fill_diagonal(K, 0)
        apart = parts[ids][:, None] != parts[ids]
        return float(K[apart].sum()) / max(float(K.sum()), 1e-300)  # rows may be too far apart for float32

    def _groups_of(self, division: Division) -> Groups:
        with self._fit.phase("cluster"):
            return self._groups.of(division.parts, self._regrouped)

    def _regrouped(self, parts: np.ndarray) -> Groups:
        samples, n_parts = self.samples, int(parts.max()) + 1
        if isinstance(samples, MemorySamples):
            return MemoryGroups(samples, parts, n_parts)
        scratch = self._fit.scratch
        for old in scratch.iterdir():
            shutil.rmtree(old)
        self._engine.require_folder(scratch)
        return SpooledGroups(samples, parts, n_parts, scratch / "parts", self._engine, self._events)

    def part(self, number: int, division: Division, start: np.ndarray, bottom: np.ndarray) -> PartSolution:
        """The solution of a part, from these coefficients; those after it are being solved already."""
        due = self._due
        if due is None or due[0] is not division or due[1] is not start or due[2] != number:
            self._coming = self._solutions(number, division, start, bottom)
            self.solving_since = time.perf_counter()
        found = next(self._coming)
        self._due = division, start, number + 1
        if number + 1 == division.n_parts:
            self.close()
        if found.rows is not None and self._keep is not None:
            self._keep(division, number, found, found.rows)
        return PartSolution(found.ids, found.alpha, found.objective, found.gap, found.weights, found.late)

    def _solutions(
        self, first: int, division: Division, start: np.ndarray, bottom: np.ndarray
    ) -> Iterator[KeptPart]:
        engine, groups = self._engine, self._groups_of(division)
        threads, window = engine.wide(groups.n_parts)
        cache_bytes = self._memory.cache_bytes * threads // engine.worker_memory()[1]
        is_last, options = division.level == self._early, self._fit.config.dcsvm
        single = not is_last or (options.combine != "nearest" and len(self._fit.classes) == 2)
        refits = options.part_metric if is_last else None
        own = self._kernel, self._fit.config.tol, threads, cache_bytes, single, refits
        solver = PartSolver(*own, self._fit.until)
        todo = range(first, groups.n_parts)
        ids, asked = [groups.ids(part) for part in todo], replace(self.asked, close=bottom)
        return engine.map(
            solver,
            todo,
            ids,
            (asked.take(here) for here in ids),
            (start[here] for here in ids),
            shared=(engine.share(groups.reader),),
            phase=f"level {division.level}",
            events=self._events,
            window=window,  # parts come largest first: few cores wait at a window's end
        )

    def keep_known(self, state: DCSVMState) -> None:
        """Shows `keep` the parts that were solved before this run went on."""
        if self._keep is None or not state.solutions or state.level != self._early or state.division is None:
            return
        with self._fit.phase("solve"):
            groups = self._groups_of(state.division)
            for number, part in enumerate(state.solutions):
                rows, places = groups.reader.rows(number), np.searchsorted(groups.ids(number), part.ids)
                self._keep(state.division, number, part, rows.take(places))

    def facts(self, turns: InTurnState) -> dict[str, float]:
        """What an event tells of a round."""
        assert self._duals is not None
        assert turns.running is not None
        return blockws.facts(self._duals.dual(turns.done), turns.running)

    def among(self, ids: np.ndarray, bottom: np.ndarray) -> TaskDuals | None:
        """The subproblems over these rows in memory; None where they do not fit."""
        memory = self._memory
        row = memory.rows_bytes / self._fit.store.n
        if len(ids) * row * 3 > 0.5 * (memory.limit_bytes - memory.process_bytes):
            return None
        self._duals = self._among.of(ids, partial(self._gathered, bottom))
        return self._duals

    def _gathered(self, bottom: np.ndarray, ids: np.ndarray) -> TaskDuals:
        asked = replace(self.asked, close=bottom).take(ids)
        rows = gather(self.samples, ids, self._engine)
        return TaskDuals(asked, in_memory(self._kernel, rows, self._engine.threads, self._memory.cache_bytes))

    def whole(self, division: Division | None, bottom: np.ndarray) -> TaskDuals:
        """All subproblems, in memory or streamed."""
        self._among = Latest()  # rows that are wanted no more
        self._duals = self._whole.of(bottom, partial(self._of_all, division))
        return self._duals

    def _of_all(self, division: Division | None, bottom: np.ndarray) -> TaskDuals:
        return TaskDuals(replace(self.asked, close=bottom), self._held() or self._streamed(division))

    def _held(self) -> MakeDual | None:
        if not isinstance(self.samples, MemorySamples):
            return None
        return in_memory(self._kernel, self.samples.rows, self._engine.threads, self._memory.cache_bytes)

    def _streamed(self, division: Division | None) -> MakeDual:
        if division is None:
            division = Division(0, self._by_position())
        kernel, engine, groups = self._kernel, self._engine, self._groups_of(division)

        def dual(part: Subproblem, upper: np.ndarray, parts: np.ndarray | None) -> DualQP:
            return dual_of(part, lambda y: StreamedDual(kernel, groups, part.ids, y, upper, engine, parts))

        return dual

    def _by_position(self) -> np.ndarray:
        n = self._fit.store.n
        share = max(1024, n // (4 * self._engine.slots))
        return np.arange(n) // min(share, self._memory.max_part_rows)
