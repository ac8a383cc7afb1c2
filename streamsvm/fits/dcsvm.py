"""Divide and conquer: memory plan -> samples -> levels of parts -> (early model | refine, top, kernel model)."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.checkpoints import Checkpoints
from streamsvm.config import FitConfig
from streamsvm.data.samples import MemoryGroups, MemorySamples, SpooledGroups, StoreSamples
from streamsvm.data.store import Store
from streamsvm.events import Events
from streamsvm.fits.base import Fit
from streamsvm.kernels import Kernel
from streamsvm.kmeans import partition
from streamsvm.memory import plan_memory
from streamsvm.models import KernelModel, LocalModel, rows_state
from streamsvm.persist import ModelWriter, save_model
from streamsvm.problems import StreamedDual
from streamsvm.solvers.dcsvm import Climb, Dual, Level, default_levels, in_memory, several, solve_pairs
from streamsvm.solvers.pairs import Pair, Targets, n_pairs


class DCSVMFit(Fit):
    """DC-SVM, exact or with early prediction."""

    def __init__(self, store: Store, config: FitConfig, events: Events, checkpoints: Checkpoints) -> None:
        super().__init__(store, config, events, checkpoints)
        self.targets = Targets(self.codes, self.upper, len(self.classes), np.zeros(store.n, np.int32))
        raw = self.scaling.kind == "none" and store.dtype == np.uint8
        self.memory = plan_memory(
            store,
            len(self.classes),
            config.memory_limit,
            self.engine.threads,
            raw=raw,
            cache_bytes=config.cache_size,
        )
        self.engine.threads = self.memory.threads
        options = config.dcsvm
        self.levels = options.levels or default_levels(store.n, options.children, early=options.early)
        self._groups: Any = None
        self._facts: dict[str, Any] = {}
        self._found: dict[int, np.ndarray] = {}  # support vectors of each level, as bits
        if options.early and self.levels == 0:
            self.events("warning", message=f"{store.n} rows are one part: solved exactly, early or not")
        if checkpoints.resume and self._is_early and (options.early_level or self.levels) == self.levels:
            self.events("warning", message="an early fit of the bottom level keeps no state: it starts anew")

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

    def model(self) -> tuple[KernelModel | LocalModel, dict[str, Any]]:
        with self.engine.serial_blas():
            model = self._early(_Collector()) if self._is_early else self._exact()
        return model, self._report(model)

    def plan(self) -> dict[str, Any]:
        """Levels, parts, memory, and a rough time."""
        store = self.store
        rows = self.part_rows(self.levels) if self.levels else store.n
        # one block round costs about rows x 2048 kernel values at 5e8 a second and core; 12 rounds at the bottom
        seconds = store.n * 2048 * 12 / 5e8 / self.memory.threads * max(1.0, store.d / 100)
        return self.memory.as_dict() | {
            "n": store.n,
            "d": store.d,
            "classes": self.classes.tolist(),
            "levels": self.levels,
            "early": self.config.dcsvm.early,
            "max_part_rows": min(rows, store.n),
            "seconds_estimated_bottom_level": round(seconds, 1),
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
        climb = self._climb()
        last = options.early_level or self.levels
        alpha = self._climbed(climb, range(self.levels, last, -1))
        start = time.perf_counter()
        level = self._divide(last, climb.candidates(alpha))
        single = options.combine != "nearest" and len(self.classes) == 2
        sizes, entries, gap, objective = [0], 0, 0.0, 0.0
        codes = self.targets.codes
        with self.phase("solve"):
            for part in climb.reported(level, start, climb.parts(level, alpha, single=single)):
                sizes.append(len(part.ids))
                objective, gap = objective + part.objective, gap + part.gap
                support = rows_state("support", part.rows)
                if "support_indptr" in support:  # one indptr for all parts, starting with a single 0
                    support["support_indptr"] = support["support_indptr"][len(sizes) > 2 :] + entries
                    entries += len(support["support_data"])
                state = {"alpha": part.alpha, "codes": codes[part.ids].astype(np.int32)}
                for name, array in (support | state).items():
                    sink.append(name, array)
        groups = level.groups
        counts = [
            np.bincount(codes[groups.ids(p)], minlength=len(self.classes)) for p in range(groups.n_parts)
        ]
        header = self._header(objective, gap)
        bounds = np.cumsum(sizes, dtype=np.int64)
        return LocalModel(
            header,
            level.partition,
            bounds,
            np.array(counts) > 0,
            getattr(sink, "arrays", {}),
            options.combine,
            options.neighbours,
        )

    def _exact(self) -> KernelModel:
        """All levels, then the support vectors of level 1 together, then the whole problem."""
        climb = self._climb()
        alpha = self._climbed(climb, range(self.levels, 0, -1))
        if self.config.dcsvm.refine and self.levels > 0:
            with self.phase("refine"):
                alpha = self._refine(alpha)
        with self.phase("top"):
            alpha, objective, gap = solve_pairs(
                self._whole(), self.targets, alpha, self.config.tol, on_step=self._on_round("top")
            )
        support = np.flatnonzero(alpha.any(axis=1))
        self._compare(support)
        rows = self.samples.take(support)
        header = self._header(objective, gap)
        codes, intercept = self.targets.codes[support], np.zeros(n_pairs(len(self.classes)))
        return KernelModel(header, rows, alpha[support], codes, support, intercept)

    def _compare(self, support: np.ndarray) -> None:
        """Records how well each level knew the support vectors (figure 2 of the paper)."""
        for number, bits in self._found.items():
            found = np.unpackbits(bits, count=self.store.n)
            hits = int(np.count_nonzero(found[support]))
            precision, recall = hits / max(int(found.sum()), 1), hits / max(len(support), 1)
            self.events("support", level=number, precision=round(precision, 5), recall=round(recall, 5))

    def _on_round(self, phase: str) -> Callable[[float, int], None]:
        return lambda violation, rounds: self.events("round", phase=phase, violation=violation, round=rounds)

    def _climbed(self, climb: Climb, numbers: range) -> np.ndarray:
        """Coefficients after these levels, some of them from a checkpoint."""
        alpha = np.zeros((self.store.n, len(self.classes) - 1))
        saved = self.checkpoints.load()
        if saved is not None:
            start = min(numbers.start, int(saved["level"]) - 1)
            numbers, alpha = range(start, numbers.stop, -1), saved["alpha"]
        with self.phase("levels"):
            for number, updated in climb.run(numbers, alpha):
                alpha = updated
                self._found[number] = np.packbits(alpha.any(axis=1))
                self.checkpoints.save(level=number, alpha=alpha)
        return alpha

    def _climb(self) -> Climb:
        options = self.config.dcsvm
        return Climb(
            self._divide,
            self.kernel,
            self.targets,
            self.config.tol,
            options.adaptive,
            self.memory.cache_bytes,
            self.engine,
            self.events,
        )

    def _divide(self, number: int, candidates: np.ndarray | None) -> Level:
        options = self.config.dcsvm
        samples = self.samples
        with self.phase("cluster"):
            tree, parts = partition(
                samples,
                self.engine,
                n_parts=options.children**number,
                max_rows=self.part_rows(number),
                sample=options.sample,
                kernel=self.kernel if options.clustering == "kernel" else Kernel("linear"),
                rng=np.random.default_rng([self.config.seed, number]),
                candidates=candidates,
                events=self.events,
            )
            n_parts = int(parts.max()) + 1
            if not self.targets.parts.any():
                self.targets.parts[:] = parts
            self._facts |= {"n_parts": n_parts, "max_part_rows": int(np.bincount(parts).max())}
            self._facts["partition_bound"] = self._bound(parts)
            self._groups = self._group(parts, n_parts)
        return Level(number, tree, self._groups)

    def _bound(self, parts: np.ndarray) -> float:
        """D(pi) / sum |K|, estimated on a sample: the share of the kernel's mass between parts."""
        rng = np.random.default_rng([self.config.seed, 1 << 16])
        ids = np.sort(rng.choice(self.store.n, min(1000, self.store.n), replace=False))
        rows = self.samples.take(ids)
        K = np.abs(self.kernel.block(rows, rows))
        np.fill_diagonal(K, 0)
        apart = parts[ids][:, None] != parts[ids]
        return float(K[apart].sum() / max(K.sum(), 1e-300))

    def _group(self, parts: np.ndarray, n_parts: int) -> Any:
        if isinstance(self.samples, MemorySamples):
            return MemoryGroups(self.samples, parts, n_parts)
        for old in self.scratch.iterdir():
            shutil.rmtree(old)
        return SpooledGroups(self.samples, parts, n_parts, self.scratch / "parts")

    def _refine(self, alpha: np.ndarray) -> np.ndarray:
        support = np.flatnonzero(alpha.any(axis=1))
        row = self.memory.rows_bytes / self.store.n
        if len(support) * row * 3 > 0.5 * (self.memory.limit_bytes - self.memory.process_bytes):
            return alpha
        targets, rows = self.targets.take(support), self.samples.take(support)
        dual = in_memory(self.kernel, rows, targets, self.engine.threads, self.memory.cache_bytes)
        alpha[support], _, _ = solve_pairs(
            dual, targets, alpha[support], self.config.tol, on_step=self._on_round("refine")
        )
        return alpha

    def _whole(self) -> Dual:
        """Duals of the whole problem, in memory or streamed."""
        if isinstance(self.samples, MemorySamples):
            rows = self.samples.rows
            return in_memory(self.kernel, rows, self.targets, self.engine.threads, self.memory.cache_bytes)
        if self._groups is None:
            self._groups = self._group(np.zeros(self.store.n, np.int32), 1)

        def dual(pair: Pair) -> StreamedDual:
            return StreamedDual(
                self.kernel,
                self._groups,
                pair.ids,
                pair.y,
                self.targets.upper[pair.ids],
                self.engine,
                several(self.targets.parts[pair.ids]),
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
        exact = not self._is_early
        return self.header({"objective": objective, "gap": gap, "tol": self.config.tol, "exact": exact})

    def _report(self, model: KernelModel | LocalModel) -> dict[str, Any]:
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
