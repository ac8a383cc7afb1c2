"""Probabilities and thresholds, from decision values of rows that the model behind them was not trained on.

Either a held-out store, or all training rows, cross-validated: a fit on the other folds predicts each fold.

Sigmoids of partitions: in a model whose partitions decide for their own rows, each may map decision values itself.

A partition has few rows for its sigmoid, so each sigmoid is drawn towards that of all rows, as if by `SHRINK` more
rows that the latter has given probabilities to. Held-out rows decide whether partitions have their own sigmoids.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.config import FitConfig, ProbabilityConfig
from streamsvm.data.folds import fold_of, together, usual_folds
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, Warned, heard, ignore
from streamsvm.judging.expected import is_surely_better
from streamsvm.judging.label_thresholds import chosen_of
from streamsvm.judging.thresholds import (
    FoldDecisions,
    require_two,
    unmet,
    with_costs,
    with_threshold,
)
from streamsvm.kernels.kmeans import by_their_part
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

Learn = Callable[
    [Store, Place, int], list[Any]
]  # models of some rows; with a folder for their files, and how
# many fits are still to come, this one and that of all rows among them


def held_out(
    model: Any, store: Store, asked: ProbabilityConfig, *, engine: Engine, events: Events = heard
) -> tuple[Any, int]:
    """The model with what is requested, from a store that it was not trained on, and how many rows it is based on.

    What is not requested stays; costs alone need no rows. Rows with labels that it does not know are ignored. Raises
    ConfigError, DataError.
    """
    require_asked(asked, model.task, len(model.classes))
    if asked.costs is not None:
        model.learned.costs(asked.costs, model.classes)  # before any work, whether its labels are known
    if not asked.is_asked:
        return replace(model, header=with_costs(model.header, asked.costs, model.learned)), 0
    codes = codes_of_labels(model, store)
    known = np.all((codes >= 0).reshape(store.n, -1), axis=1)
    groups = together(store)
    state = {
        "codes": codes[known],
        "weight": np.ones(store.n)[known] if store.sample_weight is None else store.sample_weight[known],
        "by_decisions": _by_decisions(model),
        "groups": None if groups is None else groups[known],
        "k": len(model.classes),
        "pairwise": model.is_pairwise,
    }
    found = _decisions(model, store, codes, engine, events)[known]
    decided = by_parts(_made(asked, state, found, 0), model, store, engine, rows=known)
    header = model.header
    if decided.calibration is not None:
        header = replace(header, calibration=decided.calibration)
    if decided.threshold is not None:
        header = with_threshold(header, decided.threshold)
        if (message := unmet((header.certificate or {})["threshold"])) is not None:
            events(Warned(message))
    return replace(model, header=with_costs(header, asked.costs, model.learned)), int(np.count_nonzero(known))


def require_asked(asked: ProbabilityConfig, task: str | None, n_classes: int) -> None:
    """Raises ConfigError for what this task or number of classes does not support."""
    in_sets = task is not None and task_of(task).in_sets
    if asked.method is not None:
        require_classes(task)
    if asked.threshold is not None:
        require_classes(task, "a threshold goes")
        if ThresholdObjective.of(asked.threshold).score == MICRO and not in_sets:
            raise ConfigError(
                f"threshold {MICRO} is for several labels a row, found task {task}; expected another, for example f1"
            )
        require_two(2 if in_sets else n_classes)


def _made(asked: ProbabilityConfig, state: Mapping[str, Any], found: np.ndarray, seed: int) -> FoldDecisions:
    """What decision values (n, own problems) of rows make. state: their codes, of k classes, their sample weights,
    their groups if any, and whether problems are pairs of classes, and labels follow decisions.

    Weights of classes do not count: probabilities are those of the rows as they are. Of three or more classes in pairs
    found may have all pairs, which costs need."""
    codes, calibration, threshold = state["codes"], None, None
    pairwise, k = bool(state["pairwise"]), state["k"]
    binary: np.ndarray | None = found
    if pairwise and k > 2:
        is_whole = found.shape[1] == n_pairs(k)
        binary = found if is_whole else None
        found = own_problems(found, codes, k, pairwise=True) if is_whole else found
    if asked.method is not None:
        facts: dict[str, Any] = {"method": asked.method, "pairwise": pairwise}
        calibration = calibrate(found, codes, k, weight=state["weight"], **facts)
        calibration = replace(calibration, by_decisions=bool(state["by_decisions"]))
    if asked.threshold is not None:
        threshold = chosen_of(ThresholdObjective.of(asked.threshold), codes, found, state["weight"], seed)
    return FoldDecisions(calibration, threshold, {**state, "decisions": found, "binary": binary})


def by_parts(
    decided: FoldDecisions,
    model: Any,
    store: Store,
    engine: Engine,
    *,
    rows: np.ndarray | None = None,
    seed: int = 0,
) -> FoldDecisions:
    """With a sigmoid for each partition of the model, if held-out rows show that these are surely better.

    rows (n,): the rows of the store that decided, else all; of folds by other models, whose partitions were others.
    """
    calibration, by = decided.calibration, decided.by
    if calibration is None or by is None or calibration.method != "sigmoid" or model.n_parts == 1:
        return decided
    blocks = predict_blocks(model, store, engine=engine, ask=_parts_of, phase="calibrate")
    parts = np.concatenate([own for _, _, own in blocks])
    own = parts if rows is None else parts[rows]
    found = with_parts(calibration, by, own, model.n_parts, seed)
    return replace(decided, calibration=found)


def _parts_of(model: Any, rows: Rows) -> np.ndarray:
    return model.parts_of(rows)


def cross_validated(
    store: Store,
    config: FitConfig,
    learn: Learn,
    *,
    run_dir: Place | None = None,
    resume: bool = False,
    events: Events = ignore,
) -> list[FoldDecisions]:
    """What config.probability requests, for each of the models that `learn` makes from the rows of a store.

    Finished folds are saved in the run directory. Raises what `learn` raises, and DataError if a class has one
    row only.
    """
    with ExitStack() as stack:
        if run_dir is None:
            folder: Place = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamsvm-folds-")))
        else:
            folder = run_dir / "folds"
            folder.mkdir(exist_ok=True)
        resume = resume and any(folder.iterdir())
        checkpoints = Checkpoints(folder if run_dir else None, store, config, resume, events)
        state = _predicted(store, config, learn, folder, checkpoints, events)
    state |= {
        "weight": np.ones(store.n) if store.sample_weight is None else store.sample_weight,
        "by_decisions": config.class_weight is not None,
        "groups": together(store),
        "k": state["codes"].shape[1] if state["codes"].ndim == 2 else int(state["codes"].max()) + 1,
    }
    return [_made(config.probability, state, found, config.seed) for found in state["decisions"]]


def _predicted(
    store: Store, config: FitConfig, learn: Learn, folder: Place, checkpoints: Checkpoints, events: Events
) -> dict[str, Any]:
    """decisions (models, n, own problems) of all rows, their codes (n,), and whether they are pairwise."""
    state = _begun(store, config, folder, checkpoints)
    fold, folds = state["fold"], int(state["fold"].max()) + 1
    for number in range(int(state["done"]), folds):
        inside, own = np.flatnonzero(fold == number), folder / str(number)
        own.mkdir(exist_ok=True)
        models = learn(store.subset(np.flatnonzero(fold != number)), own, folds - number + 1)
        if number == 0:
            codes = codes_of_labels(models[0], store)
            state |= {"codes": codes, "pairwise": models[0].is_pairwise}
        rows, codes = store.subset(inside), state["codes"][inside]
        where = config.threads, config.workers, config.scheduler, config.memory_limit
        engine = open_engine(*where, wait_s=config.wait_for_scheduler)
        with closing(engine):
            engine.require_folder(own)
            has_costs = config.probability.costs is not None
            found = np.stack([_decisions(model, rows, codes, engine, whole=has_costs) for model in models])
        if number == 0:
            state["decisions"] = np.zeros((len(models), store.n, found.shape[2]))
        state["decisions"][:, inside] = found
        state["done"] = number + 1
        checkpoints.offer(state.copy, last=True)
        remove_tree(own)
        events.progress("folds", number + 1, folds)
    return state


def _begun(store: Store, config: FitConfig, folder: Place, checkpoints: Checkpoints) -> dict[str, Any]:
    """The state to resume from, which knows each row's fold; a new one if an earlier run had other folds."""
    state = checkpoints.load()
    if state is not None and "fold" in state:
        return dict(state)
    for own in folder.iterdir():
        if own.is_dir():
            remove_tree(own)
    count, option = config.probability.folds, "probability.folds"
    if "folds" not in config.probability.model_fields_set:
        count = usual_folds(store, count)
    in_sets = task_for(config).in_sets
    fold = fold_of(store, count, True, config.seed, positive=config.positive, in_sets=in_sets, option=option)
    begun = {"done": 0, "fold": fold}
    checkpoints.offer(begun.copy, last=True)
    return begun


def _by_decisions(model: Any) -> bool:
    """Whether classes had weights in the fit, which decisions know and probabilities do not."""
    return (model.header.config or {}).get("class_weight") is not None


def _decisions(
    model: Any,
    store: Store,
    codes: np.ndarray,
    engine: Engine,
    events: Events = ignore,
    *,
    whole: bool = False,
) -> np.ndarray:
    """(n, own problems) decision values, see `calibration.own_problems`; whole: of all problems, unless there are many
    pairs of classes."""
    k, pairwise = len(model.classes), model.is_pairwise
    pairwise = pairwise and not (whole and k < MANY)
    blocks = predict_blocks(
        model, store, engine=engine, ask=_binary_decisions, phase="calibrate", events=events
    )
    own = [own_problems(f, codes[start:stop], k, pairwise=pairwise) for start, stop, f in blocks]
    return np.concatenate(own)


def _binary_decisions(model: Any, rows: Rows) -> np.ndarray:
    return model.binary_decisions(rows)


SHRINK = 100.0  # rows that the sigmoid of all counts as in a partition: of 0, 10, 30, 100, 300 the best on real rows
LEAST = 20  # rows of each class that a partition needs, to have its own sigmoid
FOLDS = 5


@dataclass(frozen=True)
class _Problem:
    """Of the rows of a binary problem: decision values, whether they are positive, weights with mean 1, and
    partitions."""

    f: np.ndarray
    positive: np.ndarray
    weight: np.ndarray
    parts: np.ndarray

    def take(self, ids: np.ndarray) -> _Problem:
        return _Problem(self.f[ids], self.positive[ids], self.weight[ids], self.parts[ids])

    def of_all(self) -> np.ndarray:
        """(2,) slope and offset."""
        return fit_sigmoid(self.f, targets(self.positive, self.weight), self.weight)[0]

    def of_parts(self, all_rows: np.ndarray, n_parts: int) -> np.ndarray:
        """(n_parts, 2): that of all rows, (2,), if a partition has too few of one class, else the one that minimises

            sum_i v_i H(y_i, p_i) + SHRINK / V sum_i v_i H(q_i, p_i)

        over the rows of the partition, H the cross entropy, p_i its probabilities, q_i those by all rows, V = sum_i
        v_i.
        """
        found = np.tile(all_rows, (n_parts, 1))
        for part, here in by_their_part(self.parts):
            f, positive, weight = self.f[here], self.positive[here], self.weight[here]
            if LEAST <= np.count_nonzero(positive) <= len(here) - LEAST:
                total = weight.sum()
                t = (total * positive + SHRINK * sigmoid(all_rows[0] * f + all_rows[1])) / (total + SHRINK)
                found[part] = fit_sigmoid(f, t, weight)[0]
        return found

    def log_likelihood(self, maps: np.ndarray) -> np.ndarray:
        """(n,) log p of what each row is, times its weight; maps (2,) or (n, 2)."""
        u = maps[..., 0] * self.f + maps[..., 1]
        return -self.weight * np.logaddexp(0, np.where(self.positive, -u, u))


def with_parts(
    calibration: Calibration, by: Mapping[str, Any], parts: np.ndarray, n_parts: int, seed: int
) -> Calibration:
    """The calibration that `calibrate` made, with sigmoids of partitions (n,) if these are surely better.

    by: its data, the decisions, codes, weight and, if any, groups of rows (n,), k and pairwise. That is
    if the log loss of rows is lower with maps of the other rows, in five folds.
    """
    decisions, codes, weight = (np.asarray(by[name]) for name in ("decisions", "codes", "weight"))
    units = np.arange(len(parts)) if by.get("groups") is None else by["groups"]
    fold = np.random.default_rng([seed, 29]).integers(0, FOLDS, int(units.max(initial=-1)) + 1)[units]
    problems, folds = [], []
    pairwise = bool(by["pairwise"])
    for ids, f, positive, w in binary_problems(decisions, codes, weight, by["k"], pairwise=pairwise):
        problems.append(_Problem(f, positive, w, parts[ids]))
        folds.append(fold[ids])
    told = list(_held_out(problems, folds, n_parts))
    if not told or not is_surely_better(*(np.concatenate(own) for own in zip(*told, strict=True))):
        return calibration
    own = [problem.of_parts(problem.of_all(), n_parts) for problem in problems]
    return replace(calibration, by_part=np.stack(own, axis=1))


def _held_out(
    problems: Sequence[_Problem], folds: Sequence[np.ndarray], n_parts: int
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Log likelihoods of the rows of each fold by the other rows: with sigmoids of partitions, and with one of all."""
    for problem, fold in zip(problems, folds, strict=True):
        for number in range(FOLDS):
            known, own = (problem.take(np.flatnonzero(ids)) for ids in (fold != number, fold == number))
            if not len(known.f) or not len(own.f):
                continue
            one = known.of_all()
            by_part = known.of_parts(one, n_parts)
            yield own.log_likelihood(by_part[own.parts]), own.log_likelihood(one)
