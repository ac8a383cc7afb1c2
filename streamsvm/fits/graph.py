"""An early fit as one lazy dask graph, whose keys are named after their phase.

    plan -> (sample -> centres -> assign a block) a round -> number -> regroup a file -> partitions -> solve -> model

The data of each row is in files of a folder that all tasks see. Tasks pass on receipts, samples of rows, centres and
the support rows of partitions. A task that runs again writes the same. The data decides how many rounds and partitions
there will be; a graph has as many as there can be, and those that are not needed do nothing.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field, replace
from functools import wraps
from itertools import chain
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any, TypeVar
from uuid import uuid4

import numpy as np

from streamsvm.data.regroup import Spool, SpoolFile, write_file
from streamsvm.data.rows import Rows
from streamsvm.data.vectors import Vector, VectorFactory
from streamsvm.events import heard, ignore
from streamsvm.fits.base import Fit, Solution, with_certificate
from streamsvm.fits.dcsvm import DCSVMFit, require_graph
from streamsvm.fits.divided import TaskSpans, cuts_of, division_of, part_solver, rng_of, spans_of, widened_advice
from streamsvm.fits.drafts import ModelDraft
from streamsvm.fits.parts import (
    ColumnForm,
    EarlyPartitions,
    PartitionColumns,
    PartitionSolver,
    SolvedPartition,
    TaskPartitions,
)
from streamsvm.fits.prepare import TrainingData
from streamsvm.kernels.division import (
    LeafPartitions,
    PartitionOptions,
    Routes,
    TreeGrowth,
    leaf_counts,
    leaves_of,
    most_rounds,
    relabelled,
)
from streamsvm.kernels.kmeans import Partition
from streamsvm.models import LocalModel
from streamsvm.parallel.engine import Deferred, SerialEngine
from streamsvm.parallel.imports import uncollected
from streamsvm.parallel.sizes import SizedInBytes, aligned
from streamsvm.runs.checkpoints import PartLog
from streamsvm.storage.paths import Place, URLPath, remove_tree

if TYPE_CHECKING:
    from dask.delayed import Delayed

SERIAL = SerialEngine()
Task = TypeVar("Task", bound=Callable[..., Any])


@dataclass(frozen=True)
class Plan(SizedInBytes):
    """The arguments of every task. cuts: the required partitions; folder: for the data of each row."""

    prepared: TrainingData
    level: int
    cuts: PartitionOptions
    solver: PartitionSolver
    spans: TaskSpans
    folder: Place


@dataclass(frozen=True)
class Round(SizedInBytes):
    """The leaves of all rows in a round, and the rows that it fits the centres of leaves to split on, none if it splits
    none; then, by routes, old leaves have become these."""

    growth: TreeGrowth
    leaves: Vector | None
    rows: list[Rows]
    old: Vector | None = None
    routes: Routes = field(default_factory=dict)


def early_graph(fit: Fit, folder: Place | None = None) -> Delayed:
    """The model of an early fit, lazily. folder: that all tasks see; None: a temporary one. Raises ConfigError."""
    require_graph(fit.config, fit.store.n)
    assert isinstance(fit, DCSVMFit)
    assert fit.solver.early is not None
    token = uuid4().hex
    place: Place = Path(tempfile.gettempdir()) if folder is None else folder.absolute()
    level, memory = fit.solver.early, fit.memory
    prepared = replace(fit.prepared, expectation=None, all_rows=None)  # nobody would hear of it
    cuts = cuts_of(prepared, level, fit.part_rows(level))
    spans = spans_of(prepared.samples, cuts, in_memory=memory.in_memory)
    solver = part_solver(prepared, 1, memory.cache_bytes // memory.threads, is_last=True)
    return _delayed(Plan(prepared, level, cuts, solver, spans, place / f"streamsvm-graph-{token}"), token)


def _delayed(plan: Plan, token: str) -> Delayed:
    """The graph, a layer a phase and round; keys are (phase, number) where a phase has several tasks."""
    with uncollected():
        from dask.delayed import Delayed
        from dask.highlevelgraph import HighLevelGraph
    layers: dict[str, dict[Any, Any]] = {}
    needed: dict[str, set[str]] = {}

    def layer(phase: str, task: Callable[..., Any], *needs: Any, count: int | None = None) -> Any:
        """The key of a task of these needs, keys or lists of keys; count: the keys of so many, by number."""
        name = f"{phase}-{token}"
        keys = chain.from_iterable(need if isinstance(need, list) else [need] for need in needs)
        needed[name] = {key if isinstance(key, str) else key[0] for key in keys}
        if count is None:
            layers[name] = {name: (task, *needs)}
            return name
        layers[name] = {(name, i): (task, *needs, i) for i in range(count)}
        return list(layers[name])

    plan_key = f"plan-{token}"
    layers[plan_key], needed[plan_key] = {plan_key: plan}, set()
    last: Any = None
    receipts: list[Any] = []
    for number in range(most_rounds(plan.prepared.store.n, plan.cuts)):
        last = layer(f"sample-{number}", _sampled, plan_key, *([last, receipts] if number else []))
        last = layer(f"centres-{number}", _centred, plan_key, last)
        receipts = layer(f"assign-{number}", _assigned, plan_key, last, count=len(plan.spans.blocks))
    numbered = layer("number", _numbered, plan_key, last, receipts)
    files = layer("regroup", _regrouped, plan_key, numbered, count=len(plan.spans.files))
    parts = layer("parts", _parts, plan_key, files)
    solved = layer("solve", _solved, plan_key, parts, count=plan.spans.slots)
    model = layer("model", _model, plan_key, numbered, solved)
    return Delayed(model, HighLevelGraph(layers, needed))


class _SerialBlas:
    """BLAS on one thread, for as long as a task of this process is at work: a limit of each would end another's."""

    def __init__(self) -> None:
        self._lock, self._tasks = Lock(), 0
        self._limit: Any = None

    @contextmanager
    def __call__(self) -> Iterator[None]:
        with self._lock:
            self._tasks += 1
            self._limit = self._limit or SERIAL.serial_blas().__enter__()
        try:
            yield
        finally:
            with self._lock:
                self._tasks -= 1
                if not self._tasks:
                    self._limit.__exit__(None, None, None)
                    self._limit = None


_serial_blas = _SerialBlas()


def _task(fn: Task) -> Task:
    """A task that multiplies as `fit` does, on one thread and by arrays that begin where those of `fit` do."""

    @wraps(fn)
    def alone(*args: Any) -> Any:
        with _serial_blas():
            return fn(*map(aligned, args))

    return alone  # type: ignore[return-value]


class _Spans:
    def __init__(self, plan: Plan) -> None:
        self.blocks, self.take, read = plan.spans.whole, plan.prepared.samples.take, plan.prepared.samples.read
        self.rows, self.in_memory = [Deferred(read, *span) for span in self.blocks], plan.spans.in_memory


@_task
def _sampled(plan: Plan, last: Round | None = None, receipts: Sequence[np.ndarray | None] = ()) -> Round:
    """What a round fits centres on. receipts: of the blocks of the round before, if there is one."""
    if last is None:
        growth, leaves = TreeGrowth(plan.prepared.store.n, plan.cuts, rng_of(plan.prepared, plan.level)), None
    else:
        growth, leaves = _grown(last, receipts), last.leaves
    return Round(growth, leaves, growth.samples(leaves, _Spans(plan), SERIAL) if growth.todo else [])


def _grown(last: Round, receipts: Sequence[np.ndarray | None]) -> TreeGrowth:
    growth = deepcopy(last.growth)  # what another task, or this one again, is given stays as it is
    if last.routes:
        growth.end_round(counts for counts in receipts if counts is not None)
    return growth


@_task
def _centred(plan: Plan, sampled: Round) -> Round:
    """The centres of a round, and room for the leaves of all rows."""
    if not sampled.rows:
        return sampled
    growth = deepcopy(sampled.growth)
    routes = growth.split(growth.fit(sampled.rows))
    leaves = VectorFactory(plan.spans.whole, plan.folder).new(growth.name, np.int32, keeps=True)
    return Round(growth, leaves, [], sampled.leaves, routes)


@_task
def _assigned(plan: Plan, last: Round, number: int) -> np.ndarray | None:
    """Writes the leaves of a span, and counts them."""
    if not last.routes or last.leaves is None:
        return None
    start, stop = plan.spans.whole[number]
    rows, before = plan.prepared.samples.read(start, stop), leaves_of(last.old, (start, stop))
    cuts = [slice(lo - start, hi - start) for lo, hi in plan.spans.blocks[number]]
    leaves = np.concatenate([relabelled(last.routes, before[cut], rows.take(cut)) for cut in cuts])
    last.leaves.write(start, leaves)
    return leaf_counts(leaves)


@_task
def _numbered(plan: Plan, last: Round, receipts: Sequence[np.ndarray | None]) -> tuple[Partition, LeafPartitions]:
    """What assigns new rows and training rows to partitions."""
    return _grown(last, receipts).finish(last.leaves, plan.spans.whole, SERIAL)


@_task
def _regrouped(plan: Plan, numbered: tuple[Partition, LeafPartitions], number: int) -> tuple[SpoolFile, np.ndarray]:
    """A file of rows by partition. It gets its name when complete, as files of a task that runs again are read."""
    folder, (_, numbers) = plan.folder / "parts", numbered
    sources = plan.prepared.samples, numbers, PartitionColumns(plan.prepared.target_source, _form(plan))
    if isinstance(folder, URLPath):  # objects are there when they are whole
        return write_file(folder, len(numbers.sizes), sources, plan.spans.files[number])
    unfinished = folder / uuid4().hex
    unfinished.mkdir(parents=True)
    file, bounds = write_file(unfinished, len(numbers.sizes), sources, plan.spans.files[number])
    path = (unfinished / file.path.name).replace(folder / file.path.name)
    unfinished.rmdir()
    return replace(file, path=path), bounds


@_task
def _parts(plan: Plan, files: list[tuple[SpoolFile, np.ndarray]]) -> TaskPartitions:
    places, bounds = zip(*files, strict=True)
    return TaskPartitions(Spool(places, np.stack(bounds, axis=1)), _form(plan))


def _form(plan: Plan) -> ColumnForm:
    return ColumnForm.of(plan.prepared.target_source, plan.prepared.task, plan.prepared.no_targets)


@_task
def _solved(plan: Plan, parts: TaskPartitions, number: int) -> list[SolvedPartition]:
    """The solutions of this partition and of those that come so many slots after it: mostly one, or none."""
    assert isinstance(parts.reader, Spool)
    numbers = range(number, len(parts.reader.sizes), plan.spans.slots)
    return [plan.solver(parts, part) for part in numbers]


@_task
def _model(
    plan: Plan, numbered: tuple[Partition, LeafPartitions], solved: Sequence[list[SolvedPartition]]
) -> LocalModel:
    """The model of all partitions, with its certificate; the files are no longer needed."""
    prepared, (partition, numbers) = plan.prepared, numbered
    slots, n_parts = plan.spans.slots, len(numbers.sizes)
    parts = [solved[number % slots][number // slots] for number in range(n_parts)]
    keep = EarlyPartitions(ModelDraft(), prepared, PartLog(None, ignore))
    division = division_of(plan.level, partition, numbers.sizes)
    if advice := widened_advice(prepared, division):
        heard.advise(advice)
    for part in parts:
        assert part.in_model is not None  # of the last level
        keep.add(division, part.in_model)
    model, late = keep.model(prepared.header(), division), any(part.late for part in parts)
    solution = Solution(
        model,
        objective=sum(part.objective for part in parts),
        gap=sum(part.gap for part in parts),
        n_support=model.n_support,
        exact=False,
        converged=not late,
        held_out_decisions=keep.decided(model)[0],
        late=late,
        violation=max(part.violation for part in parts),
    )
    certified = with_certificate(prepared, solution)
    assert isinstance(certified, LocalModel)
    remove_tree(plan.folder)
    return certified
