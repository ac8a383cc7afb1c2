"""One fit by `train` for every point and fold, on the fold's rows of the store."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial

from streamsvm.config import FitConfig
from streamsvm.data.folds import Folds
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, ignore
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.memory import free_bytes
from streamsvm.parallel.prefetch import ahead
from streamsvm.predict import evaluate
from streamsvm.storage.jsonable import JsonObject
from streamsvm.train import train_in_memory, without_probabilities

SMALL = 0.05  # share of the memory limit that rows may take if several fits run in parallel


@dataclass(frozen=True)
class FoldFit:
    """A fit of a point of the grid, by its number, on a fold of this share of all rows."""

    point: int
    fold: int
    share: float
    config: FitConfig


@dataclass(frozen=True)
class Outcome:
    """The score of a point on a fold's held-out rows, the seconds that it took, and whether its fit reached its tol, if
    any."""

    point: int
    fold: int
    score: float
    seconds: float
    converged: bool = True


@dataclass(frozen=True)
class Failure:
    """The error that the fit of a point raised."""

    point: int
    error: ConfigError


Score = Callable[[JsonObject], float]  # of a result of `predict.evaluate`


def one_by_one(
    store: Store, folds: Folds, jobs: list[FoldFit], score: Score, events: Events
) -> Iterator[Outcome | Failure]:
    """The outcomes of all jobs; small ones run in parallel, each on one thread."""
    with _cluster(jobs[0].config, events) as scheduler:
        slots = 1 if scheduler else slots_of(store, jobs[0].config)
        work = partial(_outcome, store, folds, score, scheduler, slots)
        with Engine(1).serial_blas():
            yield from ahead(work, jobs, slots)


def _outcome(
    store: Store, folds: Folds, score: Score, scheduler: str | None, slots: int, job: FoldFit
) -> Outcome | Failure:
    began = time.perf_counter()
    train, held_out = (store.subset(ids) for ids in folds.members(job.fold, job.share))
    config = without_probabilities(job.config).model_copy(update={"scheduler": scheduler, "workers": None})
    threads = config.threads or Engine().threads
    if slots > 1:
        config = config.model_copy(update={"threads": 1, "cache_size": config.cache_size // slots})
    try:
        model, report = train_in_memory(train, config, ignore)
        evaluation = evaluate(model, held_out, engine=Engine(threads // slots), events=ignore)
    except ConfigError as error:  # for example values beyond float32
        return Failure(job.point, error)
    seconds, converged = time.perf_counter() - began, report["converged"] is not False
    return Outcome(job.point, job.fold, score(evaluation), seconds, converged)


@contextmanager
def _cluster(config: FitConfig, events: Events) -> Iterator[str | None]:
    """The address of the scheduler of all fits, if any: workers are started once."""
    if config.workers is None:
        yield config.scheduler
        return
    from streamsvm.parallel.cluster import open_cluster

    engine = open_cluster(None, config.workers, config.memory_limit, events)
    try:
        yield engine.address
    finally:
        engine.close()


def slots_of(store: Store, config: FitConfig) -> int:
    """The number of fits at a time: one for each thread if rows take little of the memory."""
    are_small = 4 * store.nbytes < SMALL * (config.memory_limit or free_bytes())
    return config.threads or Engine().threads if are_small else 1
