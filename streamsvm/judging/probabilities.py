"""Probabilities and thresholds, from decision values of rows that the model behind them was not trained on.

These rows are a held-out store (`held_out`), or all training rows (`cross_validated`): a fit on the other folds
predicts each fold.

In a model whose partitions decide for their own rows, each partition may have its own sigmoid (`by_parts`). It has few
rows for that, so each sigmoid is drawn towards the sigmoid of all rows, as if by `SHRINK` more rows with the latter's
probabilities. Held-out rows decide whether partitions have their own sigmoids.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.config import FitConfig, ProbabilityConfig
from streamsvm.data.folds import assign_folds, default_folds
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, heard, ignore
from streamsvm.judging.expected import is_surely_better
from streamsvm.judging.thresholds import (
    DecidedRows,
    FoldDecisions,
    choose_thresholds,
    require_two,
    unmet,
    with_costs,
    with_threshold,
)
from streamsvm.kernels.kmeans import by_their_part
from streamsvm.models import Model
from streamsvm.models.calibration import (
    Calibration,
    binary_problems,
    calibrate,
    fit_sigmoid,
    own_problems,
    require_classes,
    sigmoid,
    targets,
)
from streamsvm.options.probability import MICRO, ThresholdObjective
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.open import open_engine
from streamsvm.predict import predict_blocks
from streamsvm.runs.checkpoints import Checkpoints
from streamsvm.storage.paths import Place, remove_tree
from streamsvm.tasks import task_for, task_of
from streamsvm.tasks.pairs import MANY, n_pairs
from streamsvm.tasks.scores import codes_of_labels

# Models of some rows, given a folder for their files and the number of fits to come: this one and that of all rows
# count.
Learn = Callable[[Store, Place, int], Sequence[Any]]
State = dict[str, Any]  # of folds, as in a checkpoint: done, fold, codes, pairwise, decisions


def held_out(
    model: Any, store: Store, requested: ProbabilityConfig, *, engine: Engine, events: Events = heard
) -> tuple[Any, int]:
    """The model with probabilities, a threshold or costs as requested, by the rows of a store that it was not trained
    on, and the number of these rows. What is not requested stays; costs alone need no rows. Rows with labels that the
    model does not know are ignored. Raises ConfigError, DataError."""
    require_supported(requested, model.task, len(model.classes))
    if requested.costs is not None:
        model.learned.costs(requested.costs, model.classes)  # before any work, whether its labels are known
    if not requested.is_requested:
        return replace(model, header=with_costs(model.header, requested.costs, model.learned)), 0
    codes = codes_of_labels(model, store)
    is_known = np.all((codes >= 0).reshape(store.n, -1), axis=1)
    groups = store.connected_groups
    rows = DecidedRows(
        _decisions(model, store, codes, engine, events)[is_known],
        codes[is_known],
        weights_of(store)[is_known],
        len(model.classes),
        model.is_pairwise,
        groups=None if groups is None else groups[is_known],
        by_decisions=(model.header.config or {}).get("class_weight") is not None,
    )
    decided = by_parts(decided_by_rows(requested, rows, 0), model, store, engine, is_decided=is_known)
    header = model.header
    if decided.calibration is not None:
        header = replace(header, calibration=decided.calibration)
    if decided.threshold is not None:
        header = with_threshold(header, decided.threshold)
        if (message := unmet((header.certificate or {})["threshold"])) is not None:
            events.warn(message)
    return replace(model, header=with_costs(header, requested.costs, model.learned)), int(np.count_nonzero(is_known))


def require_supported(requested: ProbabilityConfig, task: str | None, n_classes: int) -> None:
    """Raises ConfigError for what this task or number of classes does not support."""
    in_sets = task is not None and task_of(task).in_sets
    if requested.method is not None:
        require_classes(task)
    if requested.threshold is not None:
        require_classes(task, "a threshold goes")
        if ThresholdObjective.of(requested.threshold).score == MICRO and not in_sets:
            raise ConfigError(
                f"threshold {MICRO} is for several labels a row, found task {task}; expected another, for example f1"
            )
        require_two(2 if in_sets else n_classes)


def weights_of(store: Store) -> np.ndarray:
    return np.ones(store.n) if store.sample_weight is None else store.sample_weight


def decided_by_rows(requested: ProbabilityConfig, rows: DecidedRows, seed: int) -> FoldDecisions:
    """The requested probabilities and threshold by rows, whose decisions may be of all pairs, as costs need. Weights of
    classes do not count: probabilities are those of the rows as they are."""
    calibration, threshold = None, None
    is_whole = not rows.pairwise or rows.k <= 2 or rows.decisions.shape[1] == n_pairs(rows.k)
    if is_whole:
        own_decisions = own_problems(rows.decisions, rows.codes, rows.k, pairwise=rows.pairwise)
        rows = replace(rows, decisions=own_decisions, binary=rows.decisions)
    if requested.method is not None:
        calibration = calibrate(
            rows.decisions, rows.codes, rows.k, method=requested.method, pairwise=rows.pairwise, weight=rows.weight
        )
        calibration = replace(calibration, by_decisions=rows.by_decisions)
    if requested.threshold is not None:
        objective = ThresholdObjective.of(requested.threshold)
        threshold = choose_thresholds(objective, rows.codes, rows.decisions, rows.weight, seed)
    return FoldDecisions(calibration, threshold, rows)


def by_parts(
    decided: FoldDecisions,
    model: Any,
    store: Store,
    engine: Engine,
    *,
    is_decided: np.ndarray | None = None,
    seed: int = 0,
) -> FoldDecisions:
    """With a sigmoid for each partition of the model, if held-out rows show that these are surely better. is_decided
    (n,): which rows of the store were decided, else all. The models of folds had other partitions; rows count for the
    partitions of this model."""
    calibration, rows = decided.calibration, decided.rows
    if calibration is None or rows is None or calibration.method != "sigmoid" or model.n_parts == 1:
        return decided
    blocks = predict_blocks(model, store, engine=engine, decide=_parts_of, phase="calibrate")
    parts = np.concatenate([block_parts for _, _, block_parts in blocks])
    if is_decided is not None:
        parts = parts[is_decided]
    return replace(decided, calibration=with_parts(calibration, rows, parts, model.n_parts, seed))


def _parts_of(model: Any, rows: Rows) -> np.ndarray:
    return model.parts_of(rows)


def cross_validated(
    store: Store,
    config: FitConfig,
    learn: Learn,
    *,
    whole: bool = False,
    run_dir: Place | None = None,
    resume: bool = False,
    events: Events = ignore,
) -> list[FoldDecisions]:
    """Probabilities and a threshold by folds, as config.probability requests, for each model that `learn` makes. whole:
    with the decisions of all pairs of a few classes, as costs and log losses need. Finished folds are saved in the run
    directory. Raises what `learn` raises, and DataError if a class has one row only."""
    with ExitStack() as stack:
        if run_dir is None:
            folder: Place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamsvm-folds-")))
        else:
            folder = run_dir / "folds"
            folder.mkdir(exist_ok=True)
        resume = resume and any(folder.iterdir())
        checkpoints = Checkpoints(folder if run_dir else None, store, config, resume, events)
        state = _predicted(store, config, learn, folder, checkpoints, events, whole=whole)
    codes = state["codes"]
    rows = DecidedRows(
        state["decisions"][0],
        codes,
        weights_of(store),
        k=codes.shape[1] if codes.ndim == 2 else int(codes.max()) + 1,
        pairwise=bool(state["pairwise"]),
        groups=store.connected_groups,
        by_decisions=config.class_weight is not None,
    )
    return [
        decided_by_rows(config.probability, replace(rows, decisions=decisions), config.seed)
        for decisions in state["decisions"]
    ]


def _predicted(
    store: Store,
    config: FitConfig,
    learn: Learn,
    folder: Place,
    checkpoints: Checkpoints,
    events: Events,
    *,
    whole: bool,
) -> State:
    """decisions (models, n, own problems) of all rows, their codes (n,), and whether they are pairwise."""
    state = _first_state(store, config, folder, checkpoints)
    fold, folds = state["fold"], int(state["fold"].max()) + 1
    for number in range(int(state["done"]), folds):
        inside, fold_folder = np.flatnonzero(fold == number), folder / str(number)
        fold_folder.mkdir(exist_ok=True)
        models = learn(store.subset(np.flatnonzero(fold != number)), fold_folder, folds - number + 1)
        if number == 0:
            codes = codes_of_labels(models[0], store)
            state |= {"codes": codes, "pairwise": models[0].is_pairwise}
        rows, codes = store.subset(inside), state["codes"][inside]
        engine = open_engine(
            config.threads, config.workers, config.scheduler, config.memory_limit, wait_s=config.wait_for_scheduler
        )
        with closing(engine):
            engine.require_folder(fold_folder)
            decisions = np.stack([_decisions(model, rows, codes, engine, whole=whole) for model in models])
        if number == 0:
            state["decisions"] = np.zeros((len(models), store.n, decisions.shape[2]))
        state["decisions"][:, inside] = decisions
        state["done"] = number + 1
        checkpoints.offer(state.copy, last=True)
        remove_tree(fold_folder)
        events.progress("folds", number + 1, folds)
    return state


def _first_state(store: Store, config: FitConfig, folder: Place, checkpoints: Checkpoints) -> State:
    """The state to resume from, with each row's fold; a new one if an earlier run had other folds."""
    saved = checkpoints.load()
    if saved is not None and "fold" in saved:
        return dict(saved)
    for entry in folder.iterdir():
        if entry.is_dir():
            remove_tree(entry)
    state: State = {"done": 0, "fold": folds_of(store, config)}
    checkpoints.offer(state.copy, last=True)
    return state


def folds_of(store: Store, config: FitConfig) -> np.ndarray:
    """(n,) the fold of each row. Raises as `assign_folds`."""
    count, option = config.probability.folds, "probability.folds"
    if "folds" not in config.probability.model_fields_set:
        count = default_folds(store, count)
    in_sets = task_for(config).in_sets
    return assign_folds(store, count, True, config.seed, positive=config.positive, in_sets=in_sets, option=option)


def _decisions(
    model: Model, store: Store, codes: np.ndarray, engine: Engine, events: Events = ignore, *, whole: bool = False
) -> np.ndarray:
    """(n, own problems) decision values, see `calibration.own_problems`; whole: of all problems, unless there are many
    pairs of classes."""
    k, pairwise = len(model.classes), model.is_pairwise
    pairwise = pairwise and not (whole and k < MANY)
    blocks = decision_blocks(model, store, engine, events)
    return np.concatenate([own_problems(f, codes[start:stop], k, pairwise=pairwise) for start, stop, f in blocks])


def decision_blocks(
    model: Any, store: Store, engine: Engine, events: Events = ignore
) -> Iterator[tuple[int, int, np.ndarray]]:
    """(start, stop, decision values of all binary problems) of each row block."""
    return predict_blocks(model, store, engine=engine, decide=_binary_decisions, phase="calibrate", events=events)


def _binary_decisions(model: Model, rows: Rows) -> np.ndarray:
    return model.binary_decisions(rows)


SHRINK = 100.0  # as many rows of a partition does the sigmoid of all rows count; 0, 10, 30 and 300 were worse
LEAST = 20  # rows of each class that a partition needs for its own sigmoid
FOLDS = 5


@dataclass(frozen=True)
class _Problem:
    """Rows (n,) of a binary problem: decision values, whether they are positive, weights with mean 1, partitions."""

    f: np.ndarray
    positive: np.ndarray
    weight: np.ndarray
    parts: np.ndarray

    def take(self, ids: np.ndarray) -> _Problem:
        return _Problem(self.f[ids], self.positive[ids], self.weight[ids], self.parts[ids])

    def of_all(self) -> np.ndarray:
        return fit_sigmoid(self.f, targets(self.positive, self.weight), self.weight)[0]

    def of_parts(self, all_rows: np.ndarray, n_parts: int) -> np.ndarray:
        """(n_parts, 2) slopes and offsets: of all rows, (2,), if a partition has too few rows of a class, else those
        that minimise

            sum_i v_i H(y_i, p_i) + SHRINK / V sum_i v_i H(q_i, p_i)

        over the rows of the partition, H the cross entropy, p_i its probabilities, q_i those by all rows, V = sum_i
        v_i.
        """
        maps = np.tile(all_rows, (n_parts, 1))
        for part, ids in by_their_part(self.parts):
            f, positive, weight = self.f[ids], self.positive[ids], self.weight[ids]
            if LEAST <= np.count_nonzero(positive) <= len(ids) - LEAST:
                total = weight.sum()
                t = (total * positive + SHRINK * sigmoid(all_rows[0] * f + all_rows[1])) / (total + SHRINK)
                maps[part] = fit_sigmoid(f, t, weight)[0]
        return maps

    def log_likelihood(self, maps: np.ndarray) -> np.ndarray:
        """(n,) log probability of each row's class, times its weight; maps (2,) or (n, 2) slopes and offsets."""
        u = maps[..., 0] * self.f + maps[..., 1]
        return -self.weight * np.logaddexp(0, np.where(self.positive, -u, u))


def with_parts(calibration: Calibration, rows: DecidedRows, parts: np.ndarray, n_parts: int, seed: int) -> Calibration:
    """The calibration by rows (n,), with sigmoids of their partitions (n,) if these are surely better: if the log loss
    of rows is lower with sigmoids fitted to the other rows, in five folds."""
    units = np.arange(len(parts)) if rows.groups is None else rows.groups
    fold = np.random.default_rng([seed, 29]).integers(0, FOLDS, int(units.max(initial=-1)) + 1)[units]
    problems, folds = [], []
    for ids, f, positive, w in binary_problems(rows.decisions, rows.codes, rows.weight, rows.k, pairwise=rows.pairwise):
        problems.append(_Problem(f, positive, w, parts[ids]))
        folds.append(fold[ids])
    likelihoods = list(_held_out(problems, folds, n_parts))
    if not likelihoods:
        return calibration
    of_parts, of_all = (np.concatenate(values) for values in zip(*likelihoods, strict=True))
    if not is_surely_better(of_parts, of_all):
        return calibration
    maps = [problem.of_parts(problem.of_all(), n_parts) for problem in problems]
    return replace(calibration, by_part=np.stack(maps, axis=1))


def _held_out(
    problems: Sequence[_Problem], folds: Sequence[np.ndarray], n_parts: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Log likelihoods of the rows of each fold by sigmoids of the other rows: of partitions, and of all together."""
    for problem, fold in zip(problems, folds, strict=True):
        for number in range(FOLDS):
            train, test = (problem.take(np.flatnonzero(ids)) for ids in (fold != number, fold == number))
            if not len(train.f) or not len(test.f):
                continue
            shared_map = train.of_all()
            by_part = train.of_parts(shared_map, n_parts)
            yield test.log_likelihood(by_part[test.parts]), test.log_likelihood(shared_map)
