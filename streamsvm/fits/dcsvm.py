"""Divide and conquer: memory plan -> samples -> levels of parts -> (early model | refine, top, model)."""

from __future__ import annotations

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.checkpoints import Checkpoints
from streamsvm.config import FitConfig
from streamsvm.data.rows import rows_state
from streamsvm.data.samples import MemorySamples, StoreSamples
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, Rounds
from streamsvm.fits.base import Fit
from streamsvm.fits.divided import Divided
from streamsvm.fits.duals import model_of_duals
from streamsvm.gather import Table, gather
from streamsvm.graph import Engine
from streamsvm.groups import Groups, MemoryGroups, SpooledGroups
from streamsvm.kernels.inner import Linear
from streamsvm.kmeans import Partition, partition, partition_from_state, partition_state
from streamsvm.memory import MemoryPlan, plan_memory
from streamsvm.models import LocalModel
from streamsvm.persist import ModelWriter, save_model
from streamsvm.problems import DualQP, StreamedDual, dual_of
from streamsvm.solvers import blockws
from streamsvm.solvers.dcsvm import (
    Bounded,
    Dual,
    Level,
    Levels,
    PartSolution,
    SolvedState,
    default_levels,
    in_memory,
    packed,
    several,
    solve_all,
    unpacked,
)
from streamsvm.tasks.base import Subproblem

REFINE, TOP = 0, -1  # stages after those of the levels, which have their numbers


class DCSVMFit(Fit):
    """DC-SVM, exact or with early prediction."""

    growth = Divided(spread=("cluster", "levels", "solve", "top"))

    @classmethod
    def shares_folds(cls, n: int, config: FitConfig) -> bool:
        """An exact fit of rows that are one part."""
        options = config.dcsvm
        whole = options.levels is None and default_levels(n, options.children, early=False) == 0
        return whole and not options.early

    def __init__(
        self, store: Store, config: FitConfig, engine: Engine, events: Events, checkpoints: Checkpoints
    ) -> None:
        super().__init__(store, config, engine, events, checkpoints)
        if config.dcsvm.early and not self.task.in_pairs:
            raise ConfigError(
                f"dcsvm.early is of pairs of classes, found task {self.task.name!r}; leave it out"
            )
        self.bounded = Bounded(self.task, self.targets, self.upper, np.zeros(store.n, np.int32))
        self.memory = self._plan_memory()
        if self.engine.is_local:
            self.engine.threads = self.memory.threads
        options = config.dcsvm
        self.levels = options.levels or default_levels(store.n, options.children, early=options.early)
        self._groups: Any = None
        self._facts: dict[str, Any] = {}
        self._found: dict[int, np.ndarray] = {}  # support vectors of each level, as bits
        self._saved: dict[str, np.ndarray] | None = None
        if options.early and self.levels == 0:
            self.events("warning", message=f"{store.n} rows are one part: solved exactly, early or not")

    def _plan_memory(self) -> MemoryPlan:
        """Of this process, or of each worker of a cluster."""
        raw = self.scaling.kind == "none" and self.store.dtype == np.uint8
        limit, threads = self.config.memory_limit, self.engine.threads
        if not self.engine.is_local:
            limit, threads = self.engine.worker_memory()
        return plan_memory(
            self.store,
            self.bounded.columns,
            limit,
            threads,
            raw=raw,
            cache_bytes=self.config.cache_size,
            on_worker=not self.engine.is_local,
        )

    def to_file(self, path: Path) -> dict[str, Any]:
        """Trains and writes the model; an early model's parts are written as they are solved."""
        with self.engine.serial_blas():
            if self._is_early:
                with ModelWriter(path, LocalModel.kind) as writer:
                    local = self._early(writer)
                    arrays, writer.attrs = local.small_state()
                    for name, array in arrays.items():
                        writer.append(name, array)
                return self._report(local)
            model = self._exact()
            with self.phase("save"):
                save_model(model, path)
            return self._report(model)

    def model(self) -> tuple[Any, dict[str, Any]]:
        with self.engine.serial_blas():
            model = self._early(_Collector()) if self._is_early else self._exact()
        return model, self._report(model)

    def plan(self) -> dict[str, Any]:
        """Levels, parts and memory."""
        store = self.store
        rows = self.part_rows(self.levels) if self.levels else store.n
        return self.memory.as_dict() | {
            "n": store.n,
            "d": store.d,
            "classes": self.classes.tolist(),
            "levels": self.levels,
            "early": self.config.dcsvm.early,
            "max_part_rows": min(rows, store.n),
        }

    def part_rows(self, level: int) -> int:
        """The bound on a part's rows at a level: from memory, and twice an even share at the bottom."""
        if self.config.dcsvm.part_rows is not None:
            return min(self.config.dcsvm.part_rows, self.memory.max_part_rows)
        share = 2 * self.store.n // self.config.dcsvm.children**level
        return min(max(share, 1024), self.memory.max_part_rows)

    @property
    def _is_early(self) -> bool:
        return self.config.dcsvm.early and self.levels > 0

    def _early(self, sink: Any) -> LocalModel:
        """Levels from the bottom to the early one, whose parts make the model."""
        options = self.config.dcsvm
        last = options.early_level or self.levels
        alpha = self._climbed(range(self.levels, last, -1))
        level, groups = self._level(last, alpha)
        single = options.combine != "nearest" and len(self.classes) == 2
        sizes, entries = [0], 0
        with self.phase("solve"):
            for part in self._solutions(level, groups, single=single, keep_rows=True):
                sizes.append(len(part.ids))
                assert part.rows is not None  # wanted above
                support = rows_state("support", part.rows)
                if "support_indptr" in support:  # one indptr for all parts, starting with a single 0
                    support["support_indptr"] = support["support_indptr"][len(sizes) > 2 :] + entries
                    entries += len(support["support_data"])
                state = {"alpha": part.alpha, "codes": self.codes[part.ids].astype(np.int32)}
                for name, array in (support | state).items():
                    sink.append(name, array)
        counts = [
            np.bincount(self.codes[groups.ids(p)], minlength=len(self.classes)) for p in range(groups.n_parts)
        ]
        return LocalModel(
            self._header(sum(level.objectives), sum(level.gaps)),
            level.partition,
            np.cumsum(sizes, dtype=np.int64),
            np.array(counts) > 0,
            getattr(sink, "arrays", {}),
            options.combine,
            options.neighbours,
        )

    def _exact(self) -> Any:
        """All levels, then the support vectors of level 1 together, then the whole problem."""
        alpha = self._climbed(range(self.levels, 0, -1))
        if self.config.dcsvm.refine and self.levels > 0 and self._reached >= REFINE:
            with self.phase("refine"):
                alpha = self._refine(alpha)
            self._keep(TOP, alpha, last=True)
        with self.phase("top"):
            state = self._solve_all(TOP, self._whole(), self.bounded, alpha)
        self._compare(np.flatnonzero(state.solved.any(axis=1)))
        take = partial(gather, self.samples, engine=self.engine)
        model = model_of_duals(self, state.solved, np.zeros(self.bounded.count), take)
        return replace(model, header=self._header(state.objective, state.gap))

    def _compare(self, support: np.ndarray) -> None:
        """Records how well each level knew the support vectors (figure 2 of the paper)."""
        for number, bits in self._found.items():
            found = np.unpackbits(bits, count=self.store.n)
            hits = int(np.count_nonzero(found[support]))
            precision, recall = hits / max(int(found.sum()), 1), hits / max(len(support), 1)
            self.events("support", level=number, precision=round(precision, 5), recall=round(recall, 5))

    def _climbed(self, numbers: range) -> np.ndarray:
        """Coefficients (n, columns) after these levels, some of them from a checkpoint."""
        alpha = self._resumed()
        with self.phase("levels"):
            for number in numbers:
                if number <= self._reached:
                    level, groups = self._level(number, alpha)
                    for _ in self._solutions(level, groups):
                        pass
                    alpha = level.solved
        return alpha

    def _resumed(self) -> np.ndarray:
        """What the stage under way started from: zeros, or a checkpoint's."""
        saved = self._saved = self.checkpoints.load()
        if saved is None:
            return np.zeros((self.store.n, self.bounded.columns))
        self.bounded.parts[:] = saved["bottom_parts"]
        self._found = {int(name[7:]): bits for name, bits in saved.items() if name.startswith("support")}
        return unpacked("start", saved, (self.store.n, self.bounded.columns))

    @property
    def _reached(self) -> int:
        """The stage under way in a checkpoint: a level's number, REFINE or TOP."""
        return self.levels if self._saved is None else int(self._saved["stage"])

    def _state_of(self, stage: int, name: str) -> dict[str, np.ndarray] | None:
        """The checkpoint where it is of this stage and has an array of that name."""
        saved = self._saved
        return saved if saved is not None and self._reached == stage and name in saved else None

    def _keep(
        self, stage: int, start: np.ndarray, own: Callable[[], dict[str, Any]] = dict, *, last: bool = False
    ) -> None:
        """Offers the state of a stage, which began with these coefficients; own: what it has come to, if anything."""

        def state() -> dict[str, Any]:
            found = {f"support{number}": bits for number, bits in self._found.items()}
            return (
                {"stage": stage, "bottom_parts": self.bounded.parts} | found | packed("start", start) | own()
            )

        self.checkpoints.offer(state, last=last)

    def _solutions(
        self, level: Level, groups: Groups, *, single: bool = True, keep_rows: bool = False
    ) -> Iterator[PartSolution]:
        """All parts of a level, its state kept as they come."""
        cache_bytes = self.memory.cache_bytes
        levels = Levels(self.kernel, self.bounded, self.config.tol, cache_bytes, self.engine, self.events)
        for part in levels.solve(level, groups, single=single, keep_rows=keep_rows):
            yield part
            if len(level.objectives) < groups.n_parts or keep_rows:
                self._keep(level.number, level.start, partial(_level_arrays, level))
        if not keep_rows:
            self._found[level.number] = np.packbits(level.solved.any(axis=1))
            self._keep(level.number - 1, level.solved, last=True)

    def _level(self, number: int, alpha: np.ndarray) -> tuple[Level, Groups]:
        """A level's division, from a checkpoint where it is there."""
        began = time.perf_counter()
        with self.phase("cluster"):
            level = self._divided(number, alpha)
            if not self.bounded.parts.any():
                self.bounded.parts[:] = level.parts
            self._facts |= {"n_parts": level.n_parts, "max_part_rows": int(np.bincount(level.parts).max())}
            self._groups = self._group(level.parts, level.n_parts)
        level.clustering_s = time.perf_counter() - began
        return level, self._groups

    def _divided(self, number: int, alpha: np.ndarray) -> Level:
        table, saved = Table(self.samples, self.engine), self._state_of(number, "parts")
        if saved is not None:
            level = _level_from(saved, number, alpha, self.store.d)
        else:
            level = Level(number, alpha, *self._divide(table, number, alpha), np.zeros_like(alpha))
        self._facts["partition_bound"] = self._bound(table, level.parts)
        return level

    def _divide(self, table: Table, number: int, alpha: np.ndarray) -> tuple[Partition, np.ndarray]:
        options = self.config.dcsvm
        adaptive = options.adaptive and alpha.any()  # section 4, adaptive clustering
        return partition(
            table,
            self.engine,
            n_parts=options.children**number,
            max_rows=self.part_rows(number),
            sample=options.sample,
            kernel=self.kernel if options.clustering == "kernel" else Linear(),
            rng=np.random.default_rng([self.config.seed, number]),
            candidates=np.flatnonzero(alpha.any(axis=1)) if adaptive else None,
            events=self.events,
        )

    def _bound(self, table: Table, parts: np.ndarray) -> float:
        """D(pi) / sum |K|, estimated on a sample: the share of the kernel's mass between parts."""
        rng = np.random.default_rng([self.config.seed, 1 << 16])
        ids = np.sort(rng.choice(self.store.n, min(1000, self.store.n), replace=False))
        rows = table.take(ids)
        K = np.abs(self.kernel.block(rows, rows))
        np.fill_diagonal(K, 0)
        apart = parts[ids][:, None] != parts[ids]
        return float(K[apart].sum()) / max(float(K.sum()), 1e-300)  # rows may be too far apart for float32

    def _group(self, parts: np.ndarray, n_parts: int) -> Any:
        if isinstance(self.samples, MemorySamples):
            return MemoryGroups(self.samples, parts, n_parts)
        for old in self.scratch.iterdir():
            shutil.rmtree(old)
        self.engine.require_folder(self.scratch)
        folder = self.scratch / "parts"
        return SpooledGroups(self.samples, parts, n_parts, folder, self.engine, self.events)

    def _refine(self, alpha: np.ndarray) -> np.ndarray:
        support = np.flatnonzero(alpha.any(axis=1))
        row = self.memory.rows_bytes / self.store.n
        if len(support) * row * 3 > 0.5 * (self.memory.limit_bytes - self.memory.process_bytes):
            return alpha
        bounded, rows = self.bounded.take(support), gather(self.samples, support, self.engine)
        dual = in_memory(self.kernel, rows, bounded, self.engine.threads, self.memory.cache_bytes)
        refined = alpha.copy()
        refined[support] = self._solve_all(REFINE, dual, bounded, alpha[support], of=alpha).solved
        return refined

    def _solve_all(
        self, stage: int, dual: Dual, bounded: Bounded, alpha: np.ndarray, of: np.ndarray | None = None
    ) -> SolvedState:
        """All subproblems of a stage, their state kept; alpha: of these rows, `of`: of all rows."""
        phase, total = {REFINE: "refine", TOP: "top"}[stage], self.bounded.count
        rounds = Rounds(self.events, phase, total, self.config.tol)
        of = alpha if of is None else of

        def on_step(state: SolvedState, problem: DualQP) -> None:
            assert state.running is not None  # it has made a step
            rounds(state.done, blockws.facts(problem, state.running))
            self._keep(stage, of, state.to_arrays)

        saved = self._state_of(stage, "done")
        start = None if saved is None else SolvedState.from_arrays(saved, alpha.shape)
        state = solve_all(dual, bounded, alpha, self.config.tol, state=start, on_step=on_step)
        rounds.end()
        return state

    def _whole(self) -> Dual:
        """Duals of the whole problem, in memory or streamed."""
        if isinstance(self.samples, MemorySamples):
            rows = self.samples.rows
            return in_memory(self.kernel, rows, self.bounded, self.engine.threads, self.memory.cache_bytes)
        if self._groups is None:
            share = max(1024, self.store.n // (4 * self.engine.slots))
            parts = np.arange(self.store.n) // min(share, self.memory.max_part_rows)
            self._groups = self._group(parts, int(parts[-1]) + 1)

        def dual(part: Subproblem) -> DualQP:
            groups, upper, parts = self._groups, self.upper[part.ids], several(self.bounded.parts[part.ids])
            return dual_of(
                part, lambda y: StreamedDual(self.kernel, groups, part.ids, y, upper, self.engine, parts)
            )

        return dual

    @property
    def samples(self) -> MemorySamples | StoreSamples:
        if not hasattr(self, "_samples"):
            self._samples: MemorySamples | StoreSamples = StoreSamples(self.store, self.scaling)
            if self.memory.in_memory:
                with self.phase("read"):
                    self._samples = self._samples.load()
        return self._samples

    def _header(self, objective: float, gap: float) -> Any:
        certificate = self.certificate(objective, gap, exact=not self._is_early, converged=True)
        return self.header(certificate)

    def _report(self, model: Any) -> dict[str, Any]:
        certificate = model.header.certificate or {}
        return self.report(certificate, model.n_support, levels=self.levels, **self._facts)


class _Collector:
    """Takes what a ModelWriter takes, into memory."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}

    def append(self, name: str, block: np.ndarray) -> None:
        self._blocks.setdefault(name, []).append(block)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.concatenate(blocks) for name, blocks in self._blocks.items()}


def _level_arrays(level: Level) -> dict[str, Any]:
    nodes, attrs = partition_state(level.partition)
    done = {"objectives": np.array(level.objectives), "gaps": np.array(level.gaps)}
    return nodes | {"parts": level.parts, "nodes": json.dumps(attrs)} | done | packed("solved", level.solved)


def _level_from(arrays: Mapping[str, Any], number: int, alpha: np.ndarray, d: int) -> Level:
    return Level(
        number,
        alpha,
        partition_from_state(arrays, json.loads(str(arrays["nodes"])), d),
        arrays["parts"],
        unpacked("solved", arrays, alpha.shape),
        objectives=arrays["objectives"].tolist(),
        gaps=arrays["gaps"].tolist(),
    )
