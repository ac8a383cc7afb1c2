"""Estimates the cost of a fit from a few small fits: seconds by phase, memory, and bytes read, written and sent.

The fit's own code runs on growing random subsets of the rows, as many as the given seconds allow. Their costs are
extrapolated to n rows: along the line through the last two if they grow no faster than the rows, else by their power of
n. DC-SVM divides a subset into as many partitions as all rows, so that it has the same regions with fewer rows in each.

If options have to be chosen, one search on fewer rows chooses them first, and the small fits use its choice.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from streamsvm.choosing.choices import DENSE, as_chosen
from streamsvm.choosing.time_budget import FIT_SHARE, SEARCH_S, planned_in_time
from streamsvm.choosing.trials import folds_of
from streamsvm.config import FitConfig
from streamsvm.data.sources import ArraySource
from streamsvm.data.store import Store
from streamsvm.events import Event, Events, Phase, Record, Round
from streamsvm.fits.base import END_S, LEAST_ROWS, CostGrowth, Measurements
from streamsvm.fits.divided import stay_in_memory
from streamsvm.fits.prepare import with_task
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.machine import MiB, allowed_bytes
from streamsvm.runs.phases import SEARCH, usage_so_far
from streamsvm.solvers.catalogue import fit_class
from streamsvm.tasks import task_for
from streamsvm.train import Run, fit_models, plan, planned_fit

STRETCHES = 64  # of neighbouring rows that pilots are drawn from, so that a large store is not read whole
SAMPLE_SHARE = 1 / 8  # of the memory limit, for the rows of pilots
SAMPLE_BYTES_S = 32 * MiB  # of rows, for each second that pilots may take; else a high limit would be read for minutes
SEARCH_ROWS = 6_000  # for the search before the pilots: above the size up to which folds are held out
SEARCH_POWER = 1.2  # of the rows, by which the time of a search grows
AGAIN_SHARE = 1 / 8  # of the seconds, within which the smallest pilot is repeated, to know what loading takes
LEAST_PILOT_S = 2.0  # for a pilot, however late it is
MOST_LOADING_S = 2.0  # to load compiled code
TASK_S = 2e-3  # of the leading process, for each task on a cluster
PROCESSES_S = 5.0  # to start local processes


@dataclass(frozen=True)
class Pilot:
    """A small fit: its rows, seconds by phase, rows read in all passes, rounds of the whole problem times its rows,
    support vectors, partitions, the peak memory of the process so far, and whether time ended it."""

    n: int
    seconds: dict[str, float]
    rows_read: int
    rows_of_rounds: int
    n_support: int
    n_parts: int
    peak_rss_bytes: int
    is_cut: bool = False

    @property
    def total_s(self) -> float:
        return sum(self.seconds.values())


@dataclass(frozen=True)
class SearchCost:
    """A search on fewer rows: their number, its seconds by phase, the configuration for all rows, and the rows that a
    time budget leaves for the fit, if these are not all."""

    rows: int
    seconds: dict[str, float]
    config: FitConfig
    facts: dict[str, Any]
    fit_rows: int | None = None

    def grown(self, n: int, sample: int, most_s: float | None = None) -> dict[str, float]:
        """Seconds by phase of a search for n rows: on a sample, with folds if there are few, within its time limit.

        most_s: seconds that a time budget leaves for it; None: there is none.
        """
        most = min(n, max(sample, self.rows))
        longer = (most / self.rows) ** SEARCH_POWER * folds_of(most) / folds_of(self.rows)
        search_s = self.seconds.get("search", 0.0)
        limit_s = max(search_s, SEARCH_S) if most_s is None else max(most_s, 0.0)
        return self.seconds | {"search": min(longer * search_s, limit_s)}


@dataclass(frozen=True)
class Machines:
    """The machines that a fit will run on. workers: processes, 0 for threads only. threads: of each process.

    network_bytes_s: between the leading process and all workers. store_bytes_s: from the store to all workers.
    """

    workers: int
    threads: int
    network_bytes_s: float = 1.25e9
    store_bytes_s: float = math.inf

    @property
    def slots(self) -> int:
        return max(1, self.workers) * self.threads


@dataclass(frozen=True)
class Costs:
    """The cost model of a configuration on data of one kind.

    columns: coefficients of a row. row_bytes: of a row as stored. spooled_row_bytes: of a row in scratch files.
    read_bytes_s: of one process, including decoding. limit_bytes, threads: of the pilots. start_s: until a process is
    ready, including the loading of compiled code. base_bytes: its memory then. is_spread: whether workers share more
    than reading. divided: rows beyond which a fit has more partitions, not larger ones, and all costs are proportional
    to the rows; None if a fit also solves the whole problem. sample: maximum number of rows for the search. choice: the
    result of a search on fewer rows. compares_rows: whether the task compares rows with each other. budget_s: seconds
    for all of it.
    """

    solver: str
    d: int
    columns: int
    row_bytes: float
    spooled_row_bytes: float
    block_rows: int
    read_bytes_s: float
    limit_bytes: int
    threads: int
    start_s: float
    base_bytes: int
    is_spread: bool
    divided: int | None
    pilots: Sequence[Pilot]
    sample: int = 0
    choice: SearchCost | None = None
    compares_rows: bool = False
    budget_s: float = math.inf

    def at(self, n: int, site: Machines) -> dict[str, Any]:
        """Estimates for n rows: seconds, seconds by phase, bytes."""
        growth, seen, last = self.growth, self.seen(n, on_workers=site.workers > 0), self.pilots[-1]
        regroups, scratch_bytes = growth.regroups(seen), growth.scratch_bytes(seen)
        network_bytes = growth.network_bytes(seen) if site.workers else 0
        rows_read = seen.rows_read + (n if regroups else 0)
        faster = self.threads / site.slots if site.workers else 1.0
        shared = {"scale", *(growth.spread if self.is_spread else ())}
        seconds = {}
        for name in dict.fromkeys(name for pilot in self.pilots for name in pilot.seconds):
            values = [pilot.seconds.get(name, 0.0) for pilot in self.pilots]
            seconds[name] = self._grown(n, values) * (faster if name in shared else 1.0)
        rate = min(self.read_bytes_s * max(1, site.workers), site.store_bytes_s)
        seconds["read store"] = rows_read * self.row_bytes / rate
        seconds["scratch"] = 2 * scratch_bytes / rate if regroups else 0.0
        if site.workers:
            tasks = self.grown(n, "n_parts") + rows_read / self.block_rows
            seconds["lead"] = PROCESSES_S + tasks * TASK_S + network_bytes / site.network_bytes_s
        seconds["start"] = self.start_s
        if self.choice:
            left_s = None if math.isinf(self.budget_s) else self.budget_s - sum(seconds.values())
            seconds |= self.choice.grown(n, self.sample, left_s)
        return {
            "seconds_estimated": sum(seconds.values()),
            "seconds_estimated_by_phase": seconds,
            "peak_rss_bytes_estimated": self.base_bytes + (last.peak_rss_bytes - self.base_bytes) * n // last.n,
            "n_support_estimated": int(seen.n_support),
            "store_read_bytes_estimated": int(rows_read * self.row_bytes),
            "scratch_bytes_estimated": scratch_bytes,
            "network_bytes_estimated": int(network_bytes),
            "pilots": [{"n": p.n, "seconds": p.total_s} for p in self.pilots],
        }

    @property
    def growth(self) -> CostGrowth:
        """How the costs of the solver grow."""
        return fit_class(self.solver).growth

    def seen(self, n: int, *, on_workers: bool = False) -> Measurements:
        """What the pilots say of n rows."""
        return Measurements(
            n=n,
            d=self.d,
            columns=self.columns,
            row_bytes=self.spooled_row_bytes,
            base_bytes=self.base_bytes,
            n_support=self.grown(n, "n_support"),
            rows_read=self.grown(n, "rows_read"),
            rows_of_rounds=self.grown(n, "rows_of_rounds"),
            is_divided=bool(self.divided),
            is_held=self.is_held(n),
            is_spread=self.is_spread,
            on_workers=on_workers,
            compares_rows=self.compares_rows,
        )

    def least_bytes(self, n: int) -> int:
        """Memory that no limit can reduce. Other memory is in the plan, which refuses a limit that is too low."""
        return self.growth.least_bytes(self.seen(n))

    def is_held(self, n: int) -> bool:
        """Whether n rows stay in memory."""
        parts_alone = self.divided is not None
        return stay_in_memory(n, self.spooled_row_bytes, self.columns, self.limit_bytes, self.threads, parts_alone)

    def grown(self, n: int, what: str) -> float:
        """A count of the pilots, extrapolated to n rows."""
        return self._grown(n, [getattr(pilot, what) for pilot in self.pilots])

    def _grown(self, n: int, values: Sequence[float]) -> float:
        most = min(n, self.divided or n)
        return grown([p.n for p in self.pilots], values, most, self.growth.steepest) * n / most


def grown(sizes: Sequence[int], values: Sequence[float], n: int, steepest: float = 2.5) -> float:
    """Values at growing sizes, extrapolated to n: along the line through the last two, or their power if above 1."""
    if len(values) == 1:
        return values[0] * n / sizes[0]
    (m0, m1), (v0, v1) = sizes[-2:], values[-2:]
    if v1 <= v0:
        return v1
    power = math.log(v1 / v0) / math.log(m1 / m0) if v0 > 0 else 1.0
    if power <= 1.0:
        return v1 + (v1 - v0) / (m1 - m0) * (n - m1)
    return v1 * (n / m1) ** min(power, steepest)


def measure(store: Store, config: FitConfig, seconds: float, start_s: float = 0.0) -> Costs:
    """The cost model of a fit of `config` on rows like those of `store`, from a search and pilots that take about
    `seconds` in all, and end as they are where they would take longer.

    start_s: seconds until a process is ready.
    """
    limit, until = allowed_bytes(config.memory_limit), time.time() + seconds
    budget_s = config.search.time_budget or math.inf
    execution: dict[str, Any] = {"workers": None, "scheduler": None, "memory_limit": None}  # SAMPLE_SHARE is less
    execution |= {"holdout": 0, "interval": None}  # pilots are small
    config = with_task(config, store).model_copy(update=execution)
    most_bytes, sample, choice = SAMPLE_SHARE * limit, config.search.sample, None
    most = int(min(most_bytes, SAMPLE_BYTES_S * max(seconds, 1.0)) / (store.nbytes / store.n))
    if config.search.chosen:
        choice = chosen(store, config, most, until, budget_s - start_s)
        config = choice.config
    sizes = [m for m in _sizes(store.n, config) if LEAST_ROWS <= m <= most] or [min(store.n, most)]
    rows, read_bytes_s = _drawn(store, sizes[-1], np.random.default_rng(config.seed))
    first = again = _pilot(rows, config, store.n, min(LEAST_ROWS, sizes[0]), until)
    if first.total_s < AGAIN_SHARE * seconds or seconds < LEAST_PILOT_S:
        again = _pilot(rows, config, store.n, min(LEAST_ROWS, sizes[0]), until)
    pilots, growth = list[Pilot](), growth_of(config)
    for m, following in zip(sizes, [*sizes[1:], None], strict=True):
        pilot = _pilot(rows, config, store.n, m, until)
        if pilot.is_cut and pilots:
            break
        pilots.append(pilot)
        if following is None:
            break
        next_s = grown([p.n for p in pilots], [p.total_s for p in pilots], following, growth.steepest)
        if time.time() + next_s > until:
            break
    task = task_for(config)
    k = len(task.classes_of(store.classes.values)) if task.has_classes else 0
    loading = min(max(first.total_s - again.total_s, 0.0), MOST_LOADING_S)
    return Costs(
        solver=config.solver,
        d=store.d,
        columns=task.coefficients(k),
        row_bytes=store.nbytes / store.n,
        spooled_row_bytes=_spooled_row_bytes(store, config),
        block_rows=store.blocks()[0][1],
        read_bytes_s=read_bytes_s,
        limit_bytes=limit,
        threads=Engine(config.threads).threads,
        start_s=start_s + loading,
        base_bytes=again.peak_rss_bytes,
        is_spread=growth.is_spread(config, task.n_subproblems(k)),
        divided=growth.divided(store.n, config),
        pilots=pilots,
        sample=sample,
        choice=choice,
        compares_rows=task.compares_rows,
        budget_s=budget_s,
    )


def chosen(store: Store, config: FitConfig, most: int, until: float, left_s: float = math.inf) -> SearchCost:
    """The result of a search on at most `most` rows, that ends soon enough for pilots until then, a time.time(). It
    chooses early prediction as all rows need it in the seconds that are left of a time budget."""
    sample = config.search.sample
    few = min(sample, SEARCH_ROWS)
    like = few * min(store.n / sample, DENSE)  # enough rows for regions, if all rows would have them
    m = min(most, store.n, max(few, round(like)))
    rows, _ = _drawn(store, m, np.random.default_rng(config.seed))
    search = config.search.model_copy(update={"sample": few, "time_budget": None})
    with planned_fit(rows, config.model_copy(update={"search": search}), Run(until=until)) as fit:
        prepared = fit.prepared.all_rows or fit.prepared
        facts = dict(prepared.choices or {})
        phases = {name: s for name, s in fit.phase.seconds.items() if name in SEARCH}
        fit_config = prepared.config
        if steps := facts.get("rungs"):
            pass_s = fit.phase.seconds.get("scale", 0.0) * store.n / rows.n
            fit_left_s = left_s if math.isinf(left_s) else max((1 - FIT_SHARE) * left_s, left_s - sum(phases.values()))
            fit_config, _ = planned_in_time(replace(prepared, store=store), steps, fit_left_s, pass_s)
    named = ("kernel", "gamma", "C", "scale", "score")
    reported: dict[str, Any] = {name: facts[name] for name in named if name in facts}
    reported |= {"metric": facts.get("kind", "none"), "early": fit_config.dcsvm.early}
    cut = fit_config.rows if fit_config.rows != config.rows else None
    reported |= {} if cut is None else {"rows": cut}
    return SearchCost(min(m, few), phases, as_chosen(fit_config), reported, cut)


def _spooled_row_bytes(store: Store, config: FitConfig) -> float:
    """Bytes of a row in scratch files: float32, unscaled uint8 as it is, 12 bytes for a sparse entry."""
    if store.is_sparse:
        return 12 * (store.nbytes / store.n - 8) / (store.dtype.itemsize + 4) + 8
    return store.d * (1.0 if config.scale == "none" and store.dtype == np.uint8 else 4.0)


def growth_of(config: FitConfig) -> CostGrowth:
    return fit_class(config.solver).growth


def _sizes(n: int, config: FitConfig) -> list[int]:
    """Growing sizes of pilots: halves of halves, down to the smallest that partitions allow."""
    least = growth_of(config).rows_of_pilot(n, config)
    return [n >> j for j in range(n.bit_length(), 0, -1) if n >> j >= min(least, n // 4)]


def _drawn(store: Store, m: int, rng: np.random.Generator) -> tuple[Store, float]:
    """m random rows in random order, in memory, two of each class first, and the bytes read per second.

    From a store with queries, random queries.
    """
    blocks = store.blocks()
    chosen = np.sort(rng.permutation(len(blocks))[: max(STRETCHES, -(-len(blocks) * m // store.n))])
    ids = np.concatenate([np.arange(*blocks[b]) for b in chosen])
    key = rng.permutation(len(ids))
    if store.qid is not None:
        queries = np.unique(store.qid[ids], return_inverse=True)[1]
        key = rng.permutation(queries.max() + 1)[queries] * len(ids) + key
    elif store.has_y and len(classes := np.unique(y := store.labels_at(ids))) <= m // 4:
        for c in classes:
            key[np.flatnonzero(y == c)[:2]] -= len(ids)
    ids = ids[np.argsort(key, kind="stable")][:m]
    began = time.perf_counter()
    rows = store.take(ids)
    nbytes = sum(blocks[b][1] - blocks[b][0] for b in chosen) * store.nbytes / store.n
    rate = nbytes / max(time.perf_counter() - began, 1e-6)
    return Store(ArraySource(rows.X), store.columns_at(ids)), rate


class _Counted(ArraySource):
    """Rows in memory, with a count of those read."""

    def __init__(self, X: Any) -> None:
        super().__init__(X)
        self.rows_read = 0

    def read(self, start: int, stop: int) -> Any:
        self.rows_read += stop - start
        return super().read(start, stop)

    def take(self, ids: np.ndarray) -> Any:
        self.rows_read += len(ids)
        return super().take(ids)


def _pilot(rows: Store, config: FitConfig, n: int, m: int, until: float) -> Pilot:
    """Fits the first m rows as if they were n; ends as it is if `until`, a time.time(), is past."""
    source = _Counted(rows.read(0, m).X)
    rounds = 0

    def count(record: Record[Event]) -> None:
        nonlocal rounds
        rounds += isinstance(record.event, Round) and record.event.phase == Phase.TOP

    began = time.perf_counter()
    store = Store(source, {name: values[:m] for name, values in rows.columns().items()})
    until = max(until, time.time() + LEAST_PILOT_S)
    smaller = with_task(growth_of(config).smaller(config, n, m), store)
    [(_, report)] = fit_models(store, smaller, Run(Events(count), until=until))
    phases = dict(report["seconds_by_phase"])
    total = time.perf_counter() - began - phases.pop("compile", 0.0)  # the fit will not compile again
    return Pilot(
        m,
        phases | {"other": max(total - sum(phases.values()), 0.0)},
        source.rows_read,
        rounds * m,
        report["n_support"],
        report.get("n_parts", 0),
        usage_so_far()["peak_rss_bytes"],
        report["converged"] is False and until - END_S < time.time(),
    )


def site_of(config: FitConfig) -> Machines:
    """Local threads, or as many local processes as the configuration asks for."""
    threads = Engine(config.threads).threads
    return Machines(config.workers or 0, max(1, threads // config.workers) if config.workers else threads)


def estimate(store: Store, config: FitConfig, seconds: float, start_s: float) -> dict[str, Any]:
    """Estimates the cost of a fit of the whole store, where the configuration runs it.

    peak_rss_bytes_estimated: with unlimited memory. With less, a fit reads rows again that it cannot hold, down to
    least_bytes_estimated. `fits`: whether the limit is above that. If options have to be chosen: the choice, and its
    plan. A time budget ends a fit that would take longer.
    """
    costs, limit = measure(store, config, seconds, start_s), allowed_bytes(config.memory_limit)
    least = costs.least_bytes(store.n)
    memory = {"limit_bytes": limit, "least_bytes_estimated": least, "fits": least <= limit}
    rows = costs.choice.fit_rows if costs.choice and costs.choice.fit_rows else store.n
    report = costs.at(rows, site_of(config)) | memory
    if costs.choice:
        report = plan(store, costs.choice.config) | {"chosen": costs.choice.facts} | report
    if config.search.has_ensemble:
        report |= {"folds": config.n_folds, "seconds_estimated": report["seconds_estimated"] * (1 + config.n_folds)}
    budget_s = config.search.time_budget or math.inf
    return report | {"seconds_estimated": min(report["seconds_estimated"], budget_s)}


def does_not_fit(report: dict[str, Any]) -> str:
    """The advice for an estimate that does not fit."""
    limit, least = report["limit_bytes"] / MiB, -(-report["least_bytes_estimated"] // MiB)
    return (
        f"does not fit into {limit:.0f} MiB of memory, with about {report['n_support_estimated']:,} support vectors: "
        f"give at least {least} MiB, or --early, which writes its model during the fit, or --solver bsgd --budget B"
    )
