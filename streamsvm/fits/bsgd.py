"""Budgeted SGD over a store: epochs of shuffled windows of rows; the next window is read while this one is learned.

Windows do not follow the store's chunks, so the model does not depend on them: they are several chunks long, and rows
are shuffled inside. Rows sorted by class over more than a window need `ingest --shuffle`.

With several regions of input space (`regions`), each has its own learner, which sees no other rows: a turn is a window
of each region, in parallel. Regions come from a sample; then one pass sends every row to its region, and writes it to
scratch files sorted by region with its label and weight. From there each learner streams its own rows.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.regroup import PartitionsOnDisk, Spool
from streamsvm.data.rows import Rows
from streamsvm.data.samples import gather
from streamsvm.data.scaling import Scaling
from streamsvm.data.store import Store
from streamsvm.events import Epoch, Window
from streamsvm.fits.base import CostGrowth, Fit, FitContext, Measurements, Solution
from streamsvm.fits.drafts import ModelDraft
from streamsvm.fits.parts import ColumnForm, PartitionColumns
from streamsvm.fits.prepare import TrainingData, first_rows
from streamsvm.fits.targets import TargetSource
from streamsvm.kernels.kmeans import Partition, balanced
from streamsvm.models import BudgetModel, LocalBudgetModel
from streamsvm.models.learner import BudgetLearner, BudgetOptions, BudgetStats, together
from streamsvm.options.probability import are_odds
from streamsvm.parallel.machine import MiB, allowed_bytes, process_bytes, require_memory
from streamsvm.parallel.prefetch import ahead
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.solvers.budget.losses import right, values
from streamsvm.solvers.in_turn import prefixed, unprefixed
from streamsvm.solvers.loop import is_late
from streamsvm.storage.paths import remove_tree
from streamsvm.storage.text import JsonObject
from streamsvm.tasks.base import LabelScale, Task
from streamsvm.tasks.weights import class_factors

COOLING = 0.2  # of the rows of all epochs, or of the time if that ends first, over which steps fall to 0
SHUFFLE = 2  # random stream of the order of windows, and of rows inside them
WINDOW_BYTES = 32 * MiB
VECTOR_BYTES = 100  # of labels, codes, weights and their order, for a row of the windows in use
CODED_BYTES = 6  # of the number and the code of a row in scratch files, without weights
BLOCKS = 8  # of a learner, between checks of the time
DIVIDE = 3  # random stream of the rows that regions are computed from
SAMPLE_ROWS = 8192  # of these rows, or REGION_ROWS for each region
REGION_ROWS = 256

Labelled = tuple[Rows, np.ndarray, np.ndarray]  # rows, the target of each, and their weights


@dataclass(frozen=True)
class Regions(SizedInBytes):
    """Regions of input space, and their rows in files, with columns in this form. C: of the bounds, which are C times
    weights."""

    partition: Partition
    spool: Spool
    C: float
    form: ColumnForm

    @property
    def sizes(self) -> np.ndarray:
        """(regions,) rows of each region."""
        return self.spool.sizes

    def turns(self, rows: int) -> list[np.ndarray]:
        """For each turn (regions, 2), the first and last row of each region that its learner learns: at most so many.
        All regions have the same number of turns."""
        count = -(-int(self.sizes.max()) // rows)
        cuts = np.arange(count + 1)[:, None] * self.sizes // count
        return [np.stack(pair, axis=1) for pair in zip(cuts[:-1], cuts[1:], strict=True)]

    def read(self, region: int, start: int, stop: int) -> Labelled:
        """Rows start..stop of a region in the order of the store, the target of each, and their weights."""
        _, data = self.form.restored(self.spool.columns(region, start, stop))
        Y = self.form.task.learnable(data.targets)
        return self.spool.rows(region, start, stop), Y, data.upper / self.C


@dataclass(frozen=True)
class RegionLabels(SizedInBytes):
    """The region of each row, as `Labels`."""

    partition: Partition

    def of(self, rows: Rows, start: int) -> np.ndarray:
        return self.partition.assign(rows)


def share_of_time(until: float | None, waiting: int, slots: int) -> float | None:
    """The time at which a region that starts now ends its turn, so that all that wait for a slot, itself included, have
    their share of the time left."""
    if until is None:
        return None
    now, waves = time.time(), -(-waiting // slots)
    return now + max(until - now, 0.0) / waves


def time_passed(began: float, until: float | None) -> float:
    """The share of the time from `began` until then that is over; 0 if there is no limit."""
    if until is None:
        return 0.0
    return min(max((time.time() - began) / (until - began), 0.0), 1.0) if until > began else 1.0


@dataclass(frozen=True)
class Pace:
    """How far a learner is in its fit, from 0 to 1: by its rows or by its time, whichever is further. Time does not
    count for the first rows, which are learned however little there is. A last step as long as those before would
    decide by the last few rows, so steps fall to 0 over the last share, `COOLING`. The mean of all steps would keep
    what merges have lost in the meantime.

    rows: of all epochs; 0: steps stay as long as they are. began, until: the time.time() of start and end; None: no
    limit. passed: the share of the fit's time that was over at the start."""

    rows: int
    began: float = 0.0
    until: float | None = None
    passed: float = 0.0

    def progress(self, t: int, m: int) -> np.ndarray:
        """(m,) before each of the next m rows, when t have been learned."""
        of_rows = (t + np.arange(m)) / self.rows
        if self.until is None or t == 0:
            return of_rows
        of_time = self.passed + (1 - self.passed) * time_passed(self.began, self.until)
        return np.maximum(of_rows, of_time)

    def factors(self, t: int, m: int) -> np.ndarray:
        """(m,) on the steps after t."""
        if not self.rows:
            return np.ones(m)
        return np.clip((1 - self.progress(t, m)) / COOLING, 0.0, 1.0)


@dataclass(frozen=True)
class Turn:
    """What all regions have in common in a turn. cooled_epochs: as of `BSGDFit`; seed: with the region's number, of the
    order of its rows; count: of regions. slots: regions that learn at a time, each with so many threads. until: the end
    of the fit, and passed: the share of its time that was over before. order: counts regions as they start; None where
    they start by their numbers."""

    cooled_epochs: int
    seed: list[int]
    count: int
    slots: int
    threads: int
    until: float | None
    passed: float
    order: Iterator[int] | None

    def pace(self, region: int, rows: int) -> Pace:
        """That of a region of so many rows which starts now, until it has had its share of time."""
        started = region if self.order is None else next(self.order)
        until = share_of_time(self.until, self.count - started, self.slots)
        return Pace(self.cooled_epochs * rows, time.time(), until, self.passed)


def sample_rows(n: int, n_regions: int, most: int) -> int:
    """The number of rows to compute the regions from: at most `most`, unless separating the regions needs more."""
    return min(n, max(min(max(SAMPLE_ROWS, REGION_ROWS * n_regions), most), 2 * n_regions))


def regions(fit: Fit, most: int, n_regions: int, C: float) -> Regions:
    """At most n_regions regions of a fit's rows, computed from about `most` of them. C: of the bounds of the rows,
    which are C times weights."""
    samples, engine, folder = fit.prepared.samples, fit.engine, fit.scratch / "regions"
    rng = np.random.default_rng([fit.config.seed, DIVIDE])
    ids = np.sort(rng.choice(samples.n, sample_rows(samples.n, n_regions, most), replace=False))
    partition = balanced(gather(samples, ids, engine), n_regions, rng)

    engine.require_folder(fit.scratch)
    remove_tree(folder)  # of an earlier fit
    form = ColumnForm.of(fit.prepared.target_source, fit.task, fit.prepared.no_targets)
    rows = PartitionsOnDisk(
        samples,
        RegionLabels(partition),
        len(partition.nodes) + 1,
        folder,
        engine,
        PartitionColumns(fit.prepared.target_source, form),
        fit.events,
    )
    return Regions(partition, rows.reader, C, form)


class _Growth(CostGrowth):
    def is_spread(self, config: FitConfig, problems: int) -> bool:
        return config.bsgd.partitions > 1

    def network_bytes(self, seen: Measurements) -> float:
        return 0.0

    def scratch_bytes(self, seen: Measurements) -> int:
        """Of regions, whose files small fits have, too: rows, their codes and weights."""
        return int((seen.row_bytes + CODED_BYTES) * seen.n) if seen.is_spread else 0

    def own_fit_s(self, n: int, config: FitConfig, pass_s: float, value_s: float) -> float:
        return config.bsgd.epochs * (pass_s + n * config.bsgd.budget * value_s)


class BSGDFit(Fit):
    """min over w of lambda/2 |w|^2 + mean loss, with at most `budget` support vectors, by stochastic gradient descent
    (Wang, Crammer and Vucetic 2012). One learner over all epochs, or one for each region."""

    growth = _Growth(1.2, ("cluster", "learn"))
    has_budget = True

    def __init__(self, prepared: TrainingData, context: FitContext) -> None:
        super().__init__(prepared, context)
        store, config = prepared.store, prepared.config
        self.require_no_choice_of_nu()
        self.calibration = self.odds(config.bsgd.loss)
        self.units, is_scaled = self._units()
        # C and epsilon are in units of the labels, or of scaled ones already
        self.options = BudgetOptions.of(config, self.task, store.n, 1.0 if is_scaled else self.units.scale)
        row = store.nbytes / store.n * (1 if store.is_sparse else 4 / store.dtype.itemsize)  # as float32, all columns
        rows = int(max(1024, WINDOW_BYTES // row))
        self.source = _WindowReader(
            store, self.scaling, prepared.target_source, config.C if self.task.reads_labels else 1.0
        )
        self.windows = [(start, min(start + rows, store.n)) for start in range(0, store.n, rows)]
        self.bytes = self._planned(rows, row)
        columns = self.task.columns(len(self.classes))
        self._learner = partial(
            BudgetLearner, self.kernel, self.scaling.width, columns, units=(self.units.offset, self.units.scale)
        )
        self.learners: list[BudgetLearner] = []  # from `solve` on
        self.regions: Regions | None = None  # where there are several, once they are known
        self.n_turns = len(self.windows)  # of an epoch
        self.epochs, self.late = 0.0, False  # so far; whether time was up before the last row
        self.loss = 0.0  # mean loss of the last epoch's rows, each before its step
        self.began = 0.0  # time.time() of the first row, in a resumed run of the first one after the checkpoint

    def _units(self) -> tuple[LabelScale, bool]:
        """The scale of the learned numbers, and whether the targets are scaled already."""
        units = self.prepared.no_targets.units
        if units != LabelScale() or self.task.has_classes or not self.task.reads_labels:
            return units, True
        return LabelScale.of(self.task.learnable(self.prepared.targets)), False

    def plan(self) -> JsonObject:
        """Memory, and the numbers of rows and kernel values to compute."""
        rows = self.store.n * self.config.bsgd.epochs
        facts = {"n": self.store.n, "d": self.store.d, "classes": self.classes.tolist()}
        return self.bytes | facts | {"steps": rows, "kernel_values": rows * self.config.bsgd.budget}

    def solve(self, draft: ModelDraft) -> Solution:
        self.options = bounded(self.options, self.prepared)
        self.learners = [self._learner(self.options)]
        if self.config.bsgd.partitions > 1:
            with self.engine.serial_blas(), self.phase("cluster"):
                self._divide()
        with self.engine.serial_blas(), self.phase("learn"):
            accuracy = self._learn()
        model = self._model()
        epochs = self.epochs if self.late else self.config.bsgd.epochs
        facts = asdict(self._stats()) | self._facts() | {"epochs": epochs}
        facts |= {"online_accuracy": accuracy} if self.task.has_classes else {}
        return Solution(
            model,
            objective=self._objective(),
            gap=None,
            n_support=model.n_support,
            exact=False,
            converged=None,
            facts=facts,
            late=self.late,
        )

    def _divide(self) -> None:
        partitions, n = self.config.bsgd.partitions, self.store.n
        self.regions = regions(self, self.windows[0][1], partitions, self.source.C)
        self.spans = self.regions.turns(self.windows[0][1])
        self.n_turns = len(self.spans)
        lams = self.options.lam * n / self.regions.sizes
        self.learners = [self._learner(replace(self.options, lam=lam)) for lam in lams.tolist()]

    def _model(self) -> BudgetModel | LocalBudgetModel:
        header = self.prepared.header(calibration=self.calibration)
        if self.regions is None:
            return BudgetModel.of(header, self.learners[0], task=self.task.name)
        return LocalBudgetModel.of(header, self.regions.partition, self.learners, self.task.name)

    def _stats(self) -> BudgetStats:
        return together([learner.stats() for learner in self.learners])

    def _facts(self) -> JsonObject:
        """For regions: their number, rows of the largest, and the mean number of supports that decide about a row."""
        if self.regions is None:
            return {}
        sizes = self.regions.sizes
        supports = np.array([learner.n_support for learner in self.learners])
        mean_supports = float(sizes @ supports / sizes.sum())
        return {"regions": len(sizes), "max_region_rows": int(sizes.max()), "supports_a_decision": mean_supports}

    def _learn(self) -> float:
        """Learns all epochs, or those after a checkpoint. Returns the accuracy of the last one, before each step."""
        first_epoch, first_block, counted = self._resumed()
        self.began = time.time()
        for epoch in range(first_epoch, self.config.bsgd.epochs):
            order = np.random.default_rng([self.config.seed, SHUFFLE, epoch]).permutation(self.n_turns)
            counted = counted if epoch == first_epoch else np.zeros(3)
            start = first_block if epoch == first_epoch else 0
            self._learn_epoch(epoch, order, start, counted)
            if epoch + 1 < self.config.bsgd.epochs and self._is_over():
                break
        right, loss, rows = counted
        self.loss = loss / max(rows, 1)
        return right / max(rows, 1)

    def _learn_epoch(self, epoch: int, order: np.ndarray, start: int, counted: np.ndarray) -> None:
        """counted (3,): of this epoch so far the rows predicted right, sum of losses, rows; counting continues."""
        began, before, number = time.perf_counter(), int(counted[2]), start
        learnt = self._alone if self.regions is None else self._together
        for score in learnt(epoch, order[start:]):
            number += 1
            counted += score
            seconds = time.perf_counter() - began
            stats = asdict(self._stats())
            self.events(Window(accuracy=self._accuracy(score), loss=score[1] / score[2], **stats))
            mean = {"accuracy": self._accuracy(counted)} if self.task.has_classes else {"loss": counted[1] / counted[2]}
            facts = mean | {"supports": stats["supports"], "rows_s": (counted[2] - before) / seconds}
            self.events.progress(f"epoch {epoch + 1}", int(counted[2]), self.store.n, **facts)
            position = {"epoch": epoch, "block": number, "counted": counted}
            self.checkpoints.offer(partial(self._state, position), last=number == len(order))
            if number < len(order) and self._is_over():
                break
        self.epochs = epoch + float(counted[2]) / self.store.n
        means = {"accuracy": self._accuracy(counted), "loss": counted[1] / counted[2]}
        self.events(Epoch(epoch=epoch + 1, **means, **asdict(self._stats())))

    def _accuracy(self, counted: np.ndarray) -> float | None:
        return float(counted[0] / counted[2]) if self.task.has_classes else None

    def _alone(self, epoch: int, order: np.ndarray) -> Iterator[np.ndarray]:
        """The score of each window; they are learned one after the other."""
        [learner] = self.learners
        pace = Pace(self._cooled_epochs * self.store.n, self.began, self.until)

        def read(number: int) -> Labelled:
            return self.source.read(self.windows[number], [self.config.seed, SHUFFLE, epoch, int(number)])

        for window in ahead(read, order):
            step, rows = BLOCKS * learner.block_rows, len(window[0])
            pieces = [slice(start, start + step) for start in range(0, rows, step)]
            yield _learned(self.task, learner, window, pieces, pace, self.engine.threads, self._is_over)

    @property
    def _cooled_epochs(self) -> int:
        """The epochs at whose end steps become shorter; 0 if they do not: with the published steps, and in runs of
        0.2.0."""
        is_bounded = self.options.loss == "hinge" and self.options.longest > 0
        return self.config.bsgd.epochs if is_bounded else 0

    def _is_over(self) -> bool:
        self.late = self.late or is_late(self.until)
        return self.late

    def _together(self, epoch: int, order: np.ndarray) -> Iterator[np.ndarray]:
        """The score of each turn: one window of every region, learned in parallel."""
        assert self.regions is not None
        shared = (self.engine.share(self.regions),)
        window = len(self.learners) if self.engine.is_local else None  # a free slot takes the next region at once
        for number in order:
            spans = self.spans[number].tolist()
            learn = partial(_take_turn, self._turn([self.config.seed, SHUFFLE, epoch, int(number)]))
            makers = (partial(self._learner, learner.options) for learner in self.learners)
            states_before = (learner.to_state() for learner in self.learners)
            turns = self.engine.map(learn, list(enumerate(spans)), makers, states_before, shared=shared, window=window)
            states, scores = zip(*turns, strict=True)
            for learner, state in zip(self.learners, states, strict=True):
                learner.restore(state)
            score: np.ndarray = sum(scores, start=np.zeros(3))
            self.late = self.late or score[2] < sum(stop - start for start, stop in spans)
            yield score

    def _turn(self, seed: list[int]) -> Turn:
        is_local, count, slots = self.engine.is_local, len(self.learners), self.engine.slots
        return Turn(
            self._cooled_epochs,
            seed,
            count,
            slots,
            threads=max(1, slots // count) if is_local else 1,  # more than one, if there are more slots than regions
            until=self.until,
            passed=time_passed(self.began, self.until),
            order=itertools.count() if is_local else None,
        )

    def _state(self, position: Mapping[str, object]) -> dict[str, object]:
        states = (prefixed(_prefix(number), learner.to_state()) for number, learner in enumerate(self.learners))
        arrays = {name: array for state in states for name, array in state.items()}
        return {**position, "longest": self.options.longest} | arrays

    def _resumed(self) -> tuple[int, int, np.ndarray]:
        saved = self.checkpoints.load()
        if saved is None:
            return 0, 0, np.zeros(3)
        # runs of 0.2.0 have no bound of the hinge loss, and go on as they began
        before = 0.0 if self.options.loss == "hinge" else self.options.longest
        longest = float(saved.get("longest", before))
        if longest != self.options.longest:
            self.options = replace(self.options, longest=longest)
            self.learners = [self._learner(replace(learner.options, longest=longest)) for learner in self.learners]
        for number, learner in enumerate(self.learners):
            learner.restore(unprefixed(_prefix(number), saved))
        epoch, block = int(saved["epoch"]), int(saved["block"])
        if block == self.n_turns and epoch + 1 < self.config.bsgd.epochs:
            return epoch + 1, 0, np.zeros(3)
        return epoch, block, saved["counted"]

    def _objective(self) -> float:
        """lambda/2 |w|^2 + mean loss, summed over columns and regions. w includes the bias; losses are those of rows
        before their steps. For one class, nu rho is subtracted."""
        sizes = np.array([self.store.n]) if self.regions is None else self.regions.sizes
        rho = -np.array([float(learner.coefficients()[1].sum()) for learner in self.learners])
        outside = self.options.nu * float(sizes @ rho / sizes.sum()) if self.options.nu else 0.0
        lam = self.options.lam / self.units.scale
        return 0.5 * lam * sum(map(self._squared_norm, self.learners)) + self.loss - outside

    def _squared_norm(self, learner: BudgetLearner) -> float:
        supports, (A, bias) = learner.supports(), learner.coefficients()
        squared = float(np.sum((bias - self.units.offset) ** 2)) if self.options.bias else 0.0
        return squared + float(np.sum(A * self.kernel.apply(supports, supports, A))) if len(A) else squared

    def _planned(self, rows: int, row_bytes: float) -> dict[str, int]:
        """The memory of the fit; with regions for as many threads as it allows. Raises MemoryLimitError."""
        o, limit = self.config.bsgd, self.config.memory_limit
        what = f"a budget of {o.budget}" + (f" in each of {o.partitions} regions" if o.partitions > 1 else "")
        tasks = self.engine.threads if o.partitions > 1 and self.engine.is_local else 1
        room = allowed_bytes(limit) - process_bytes()
        while tasks > 1 and sum(self._bytes(rows, row_bytes, tasks).values()) > room:
            tasks -= 1
            self.engine = self.engine.on(tasks)
        planned = self._bytes(rows, row_bytes, tasks)
        require_memory(limit, sum(planned.values()), what)
        return planned

    def _bytes(self, rows: int, row_bytes: float, tasks: int) -> dict[str, int]:
        """Supports and their values, labels and weights, windows of rows. With regions: every learner and the state of
        each in transit, a window and a learner for each task, and the rows that regions are computed from."""
        partitions, slots = self.config.bsgd.partitions, self.config.bsgd.budget + 1
        columns = max(1, len(self.classes))
        supports = 4 * slots * (self.scaling.width + slots + 5 * columns)
        planned = {
            "supports_bytes": supports,
            "vector_bytes": self.prepared.target_source.nbytes,
            "window_bytes": int(tasks * rows * (4 * row_bytes + VECTOR_BYTES)) + 32 * MiB,
        }
        if partitions == 1:
            return planned
        sample = sample_rows(self.store.n, partitions, rows)
        of_regions = {
            "supports_bytes": (3 * partitions + tasks) * supports,
            "sample_bytes": int(3 * sample * row_bytes),
        }
        return planned | of_regions


def bounded(options: BudgetOptions, prepared: TrainingData, *, is_endless: bool = False) -> BudgetOptions:
    """Options of a fit, or of an endless stream, with a bound on steps. With the hinge loss, steps are the published
    ones, 1 / (lambda t), if lambda is given; and in a stream, at whose end they cannot fall to 0."""
    if are_odds(options.loss):
        return options.bounded(_diagonal(prepared) * _typical_weight(prepared))
    if options.loss == "hinge" and prepared.config.bsgd.lam is None and not is_endless:
        return options.bounded(_diagonal(prepared))  # heavy rows take longer steps, whatever makes them heavy
    return options


def _diagonal(prepared: TrainingData) -> float:
    """The mean K(x, x) of some rows."""
    return float(prepared.kernel.diag(prepared.scaling.apply(first_rows(prepared.store))).mean())


def _typical_weight(prepared: TrainingData) -> float:
    """The mean weight of a row by its class."""
    counts = prepared.class_rows
    factors = np.ones(len(counts))
    if not prepared.task.in_sets and prepared.task.has_classes:
        factors = class_factors(counts, prepared.classes, prepared.config.class_weight)
    return float((counts @ factors) / max(counts.sum(), 1))


@dataclass(frozen=True)
class _WindowReader(SizedInBytes):
    store: Store
    scaling: Scaling
    target_source: TargetSource
    C: float

    def read(self, window: tuple[int, int], seed: list[int]) -> Labelled:
        """Scaled rows in a random order, the target of each, and their weights."""
        rows = self.store.read_finite(*window, gaps=self.scaling.fill is not None)
        shuffled = np.random.default_rng(seed).permutation(len(rows))
        rows = rows.take(shuffled)  # as stored, which often is narrower
        rows = rows if self.scaling.is_none else self.scaling.apply(rows)
        dual_data = self.target_source.read(*window)
        Y = dual_data.task.learnable(dual_data.targets)
        return rows, Y[shuffled], (dual_data.upper / self.C)[shuffled]


def _take_turn(
    turn: Turn,
    regions: Regions,
    part: tuple[int, tuple[int, int]],
    make_learner: Callable[[], BudgetLearner],
    state: Mapping[str, np.ndarray],
) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """A learner's state after a turn, and its score there, of the rows that there was time for. part: a region, and its
    rows start..stop."""
    learner, (region, span) = make_learner(), part
    pace = turn.pace(region, int(regions.sizes[region]))
    learner.restore(state)
    window = regions.read(region, *span)
    order = np.random.default_rng([*turn.seed, region]).permutation(len(window[0]))
    step = BLOCKS * learner.block_rows
    pieces = [order[start : start + step] for start in range(0, len(order), step)]
    score = _learned(regions.form.task, learner, window, pieces, pace, turn.threads, lambda: is_late(pace.until))
    return learner.to_state(), score


def _prefix(number: int) -> str:
    return f"learner{number or ''}_"


def _learned(
    task: Task,
    learner: BudgetLearner,
    window: Labelled,
    pieces: Sequence[Any],
    pace: Pace,
    threads: int,
    is_over: Callable[[], bool],
) -> np.ndarray:
    """(3,) of rows that are learned piece by piece, as far as there is time: how many were predicted right, the sum of
    their losses over all columns, and how many they are."""
    (rows, targets, weights), score = window, np.zeros(3)
    options, (origin, unit) = learner.options, learner.units
    for number, piece in enumerate(pieces):
        if number and is_over():
            break
        cooled = weights[piece] * pace.factors(learner.t, len(weights[piece]))
        decisions = learner.learn(rows.take(piece), targets[piece], cooled, threads)
        Y, f = (targets[piece] - origin) / unit, (decisions - origin) / unit
        losses = values(options.loss, Y, f, options.epsilon)
        loss = float(unit * (weights[piece] @ losses.sum(axis=1)))
        is_right = right(options.loss, Y, f, losses, in_sets=task.in_sets)
        score += np.array([np.count_nonzero(is_right), loss, len(Y)], np.float64)
    return score
