"""From a store and a configuration to a model: the one recipe. Read this page first.

labels -> scaling and gamma -> memory plan -> samples -> levels of parts -> (early model | refine, top, kernel model)
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.check import require_finite
from streamsvm.data.moments import Moments, merge, moments_of
from streamsvm.data.rows import Rows
from streamsvm.data.samples import MemoryGroups, MemorySamples, SpooledGroups, StoreSamples
from streamsvm.data.scaling import Scaling, from_moments
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError
from streamsvm.events import Events, JsonLines, ignore
from streamsvm.graph import Engine
from streamsvm.kernels import Kernel
from streamsvm.kmeans import partition
from streamsvm.memory import plan_memory
from streamsvm.models import Header, KernelModel, LocalModel, encode, label_texts, rows_state
from streamsvm.persist import ModelWriter, save_model
from streamsvm.problems import StreamedDual
from streamsvm.solvers.dcsvm import Climb, Dual, Level, default_levels, in_memory, several, solve_pairs
from streamsvm.solvers.pairs import Pair, Targets

Model = KernelModel | LocalModel


def train(
    store: Store,
    config: FitConfig,
    *,
    model_path: Path,
    run_dir: Path | None = None,
    resume: bool = False,
    events: Events = ignore,
) -> dict[str, Any]:
    """Trains, writes the model, returns the report that `fit --json` prints. Raises StreamSVMError."""
    with ExitStack() as stack:
        if run_dir is not None:
            run_dir.mkdir(parents=True, exist_ok=True)
            log = JsonLines(run_dir / "events.jsonl")
            stack.callback(log.close)
            events = events.also(log)
        fit = Fit(store, config, events, Checkpoints(run_dir, store, config, resume))
        stack.callback(fit.close)
        return fit.to_file(model_path)


def train_in_memory(store: Store, config: FitConfig, events: Events = ignore) -> tuple[Model, dict[str, Any]]:
    """Trains and returns the model itself, and the report."""
    fit = Fit(store, config, events, Checkpoints(None, store, config, False))
    try:
        return fit.model()
    finally:
        fit.close()


def plan(store: Store, config: FitConfig) -> dict[str, Any]:
    """What a fit would do: levels, parts, memory, and a rough time. Nothing is trained."""
    fit = Fit(store, config, ignore, Checkpoints(None, store, config, False))
    rows = fit.part_rows(max(fit.levels, 0)) if fit.levels else store.n
    # one block round costs about rows x 2048 kernel values at 5e8 a second and core; 12 rounds at the bottom
    seconds = store.n * 2048 * 12 / 5e8 / fit.memory.threads * max(1.0, store.d / 100)
    return fit.memory.as_dict() | {
        "n": store.n,
        "d": store.d,
        "classes": fit.classes.tolist(),
        "levels": fit.levels,
        "early": config.dcsvm.early,
        "max_part_rows": min(rows, store.n),
        "seconds_estimated_bottom_level": round(seconds, 1),
    }


class Phases:
    """Seconds by phase of a run, and how many cores were busy in it; a phase inside another is not counted twice."""

    def __init__(self) -> None:
        self.seconds: dict[str, float] = {}
        self._cpu: dict[str, float] = {}

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        wall, cpu = time.perf_counter(), time.process_time()
        inner_wall, inner_cpu = sum(self.seconds.values()), sum(self._cpu.values())
        yield
        inside = sum(self.seconds.values()) - inner_wall, sum(self._cpu.values()) - inner_cpu
        self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - wall - inside[0]
        self._cpu[name] = self._cpu.get(name, 0.0) + time.process_time() - cpu - inside[1]

    def report(self) -> dict[str, dict[str, float]]:
        busy = {name: round(self._cpu[name] / max(s, 1e-9), 2) for name, s in self.seconds.items()}
        return {
            "seconds_by_phase": {name: round(s, 4) for name, s in self.seconds.items()},
            "cores_busy_by_phase": busy,
        }


@dataclass
class Checkpoints:
    """Coefficients after each finished level, in the run directory; a resumed run starts above the last one."""

    run_dir: Path | None
    store: Store
    config: FitConfig
    resume: bool

    def save(self, level: int, alpha: np.ndarray) -> None:
        if self.run_dir is not None:
            part = self.run_dir / "state.npz.part"
            with part.open("wb") as file:
                np.savez(file, level=level, alpha=alpha, key=self._key())
            part.replace(self.run_dir / "state.npz")

    def load(self) -> tuple[int, np.ndarray] | None:
        """(level, alpha) to go on from, or None. Raises ConfigError where the state is another run's."""
        path = self.run_dir / "state.npz" if self.run_dir else None
        if not self.resume or path is None or not path.exists():
            return None
        with np.load(path, allow_pickle=False) as state:
            if str(state["key"]) != self._key():
                raise ConfigError(
                    f"{path} is the state of another store or configuration; drop --resume to start anew"
                )
            return int(state["level"]), state["alpha"]

    def _key(self) -> str:
        resolved = self.config.model_copy(update={"memory_limit": None, "workers": None})
        return f"{self.store.fingerprint()} {resolved.model_dump_json()}"


@dataclass
class Fit:
    """One fit, from labels to model."""

    store: Store
    config: FitConfig
    events: Events
    checkpoints: Checkpoints
    phase: Phases = field(default_factory=Phases)

    def __post_init__(self) -> None:
        self.engine = Engine(self.config.workers)
        self.classes, codes = self._labels()
        self.scaling, self.kernel = self._prepare()
        self.targets = Targets(codes, self._upper(codes), len(self.classes), np.zeros(self.store.n, np.int32))
        raw = self.scaling.kind == "none" and self.store.dtype == np.uint8
        self.memory = plan_memory(
            self.store,
            len(self.classes),
            self.config.memory_limit,
            self.engine.threads,
            raw=raw,
            cache_bytes=self.config.cache_size,
        )
        self.engine.threads = self.memory.threads
        options = self.config.dcsvm
        self.levels = options.levels or default_levels(self.store.n, options.children, early=options.early)
        self._scratch: Path | None = None
        self._groups: Any = None
        self._facts: dict[str, Any] = {}
        self._found: dict[int, np.ndarray] = {}  # support vectors of each level, as bits
        if options.early and self.levels == 0:
            self.events("warning", message=f"{self.store.n} rows are one part: solved exactly, early or not")

    def close(self) -> None:
        if self._scratch is not None:
            shutil.rmtree(self._scratch, ignore_errors=True)

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

    def model(self) -> tuple[Model, dict[str, Any]]:
        with self.engine.serial_blas():
            model = self._early(_Collector()) if self._is_early else self._exact()
        return model, self._report(model)

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
        return KernelModel(header, rows, alpha[support], self.targets.codes[support], support)

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
            numbers, alpha = range(min(numbers.start, saved[0] - 1), numbers.stop, -1), saved[1]
        with self.phase("levels"):
            for number, updated in climb.run(numbers, alpha):
                alpha = updated
                self._found[number] = np.packbits(alpha.any(axis=1))
                self.checkpoints.save(number, alpha)
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
        if self._scratch is None:
            where = self.checkpoints.run_dir
            self._scratch = Path(tempfile.mkdtemp(prefix="streamsvm-scratch-", dir=where))
        for old in self._scratch.iterdir():
            shutil.rmtree(old)
        return SpooledGroups(self.samples, parts, n_parts, self._scratch / "parts")

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

    def _labels(self) -> tuple[np.ndarray, np.ndarray]:
        """The classes, and each row's code."""
        y, positive = self.store.y, self.config.positive
        if positive:
            known = np.unique(label_texts(np.unique(y)))
            missing = [label for label in positive if label not in known]
            if missing:
                raise DataError(
                    f"--positive {missing[0]}: no such label; the store has {', '.join(known[:30])}"
                )
            classes = np.array([0, 1])
        else:
            classes = np.unique(y)
        codes = encode(y, classes, positive)
        present = np.unique(codes)
        if len(present) < 2:
            raise DataError(
                f"{self.store.url or 'y'} has one class only ({label_texts(np.unique(y))[0]}); expected at least two"
            )
        if classes.dtype.kind == "f" and len(classes) > 100 and not np.all(classes == np.round(classes)):
            raise DataError("Unknown label type: continuous; expected class labels")
        return classes, codes

    def _prepare(self) -> tuple[Scaling, Kernel]:
        """The scaling, and the kernel with its gamma as a number."""
        options, scaling = self.config.kernel, Scaling.none(self.store.d)
        stats = None
        with self.phase("scale"):
            if self.config.scale != "none" or (options.gamma == "scale" and options.name != "linear"):
                if self.store.is_sparse and self.config.scale in ("minmax", "standard"):
                    raise ConfigError(f"{self.config.scale} scaling would fill a sparse store; use maxabs")
                stats = self.engine.map_reduce(
                    self._moments, merge, self.store.blocks(), phase="scale", events=self.events
                )
            if stats is not None and self.config.scale != "none":
                scaling = from_moments(self.config.scale, stats)
            gamma = self._gamma(stats, scaling)
            kernel = Kernel(options.name, gamma, options.degree, options.coef0)
            if scaling.kind == "none":
                scaling = self._centred(kernel)
        return scaling, kernel

    def _moments(self, block: tuple[int, int]) -> Moments:
        rows = self.store.read(*block)
        require_finite(self.store, rows, block[0])
        return moments_of(rows)

    def _gamma(self, stats: Moments | None, scaling: Scaling) -> float:
        gamma = self.config.kernel.gamma
        if isinstance(gamma, float):
            return gamma
        if gamma == "auto" or stats is None:
            return 1.0 / self.store.d
        means = (stats.mean - scaling.offset) * scaling.scale
        variance = float(np.mean(stats.m2 / stats.n * scaling.scale**2 + means**2) - means.mean() ** 2)
        return 1.0 / (self.store.d * variance) if variance > 0 else 1.0

    def _centred(self, kernel: Kernel) -> Scaling:
        """A shift to the origin for rbf where squared norms so large would cancel in float32, else no scaling."""
        none = Scaling.none(self.store.d)
        if kernel.name != "rbf" or self.store.is_sparse:
            return none
        rows = self.store.read(0, min(self.store.n, 1000)).astype(np.float64)
        require_finite(self.store, rows, 0)
        mean = rows.dense().mean(axis=0)
        before, after = rows.sq_norms.max(), Rows(rows.dense() - mean).sq_norms.max()
        rounding = kernel.gamma * before * 2.0**-23
        return replace(none, kind="centre", offset=mean) if rounding > 1e-3 and after < before / 4 else none

    def _upper(self, codes: np.ndarray) -> np.ndarray:
        """C times class and sample weights, (n,)."""
        upper = np.full(self.store.n, float(self.config.C))
        weights = self.config.class_weight
        if weights == "balanced":
            counts = np.bincount(codes, minlength=len(self.classes))
            upper *= (self.store.n / (len(self.classes) * np.maximum(counts, 1)))[codes]
        elif weights:
            texts = label_texts(self.classes).tolist()
            unknown = [label for label in weights if label not in texts]
            if unknown:
                raise ConfigError(
                    f"class_weight names {unknown[0]!r}; the classes are {', '.join(texts[:30])}"
                )
            upper *= np.array([weights.get(text, 1.0) for text in texts])[codes]
        return upper if self.store.sample_weight is None else upper * self.store.sample_weight

    def _header(self, objective: float, gap: float) -> Header:
        config = self.config.model_dump(mode="json")
        certificate = {
            "objective": objective,
            "gap": gap,
            "tol": self.config.tol,
            "exact": not self._is_early,
        }
        return Header(
            self.kernel,
            self.scaling,
            self.classes,
            self.config.positive,
            config,
            self.store.fingerprint(),
            certificate,
        )

    def _report(self, model: Model) -> dict[str, Any]:
        certificate = model.header.certificate or {}
        return {
            "solver": self.config.solver,
            "n": self.store.n,
            "d": self.store.d,
            "n_support": model.n_support,
            "objective": certificate["objective"],
            "gap": certificate["gap"],
            "gamma": self.kernel.gamma,
            "levels": self.levels,
            **self._facts,
            "threads": self.engine.threads,
            **self.phase.report(),
        }


class _Collector:
    """Takes what a ModelWriter takes, into memory."""

    def __init__(self) -> None:
        self._blocks: dict[str, list[np.ndarray]] = {}

    def append(self, name: str, block: np.ndarray) -> None:
        self._blocks.setdefault(name, []).append(block)

    @property
    def arrays(self) -> dict[str, np.ndarray]:
        return {name: np.concatenate(blocks) for name, blocks in self._blocks.items()}
