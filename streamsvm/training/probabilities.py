"""Where probabilities come from: decision values of rows that no model of them was trained on.

Either of a held-out store, or of all training rows, cross-validated: each fold is predicted by a fit on the others.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from contextlib import ExitStack, closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.folds import fold_of
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Events, heard, ignore
from streamsvm.models.calibration import Calibration, calibrate, own_problems, require_classes
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.open import open_engine
from streamsvm.predict import predict_blocks
from streamsvm.runs.checkpoints import Checkpoints
from streamsvm.tasks.scores import codes_of_labels
from streamsvm.training.weights import row_weights

Learn = Callable[[Store, Path], list[Any]]  # models of some rows; with a folder for their files


def held_out(
    model: Any, store: Store, method: str, *, engine: Engine, events: Events = heard
) -> tuple[Any, int]:
    """The model with probabilities from a store that it was not trained on, and how many rows told.

    Rows of labels that it does not know tell nothing. Raises ConfigError, DataError.
    """
    require_classes(model.task)
    codes, weight = codes_of_labels(model, store), store.sample_weight
    found, known = _decisions(model, store, codes, engine, events), codes >= 0
    weight = _weights(model, codes[known], None if weight is None else weight[known])
    facts: dict[str, Any] = {"method": method, "pairwise": model.is_pairwise, "weight": weight}
    calibration = calibrate(found[known], codes[known], len(model.classes), **facts)
    return replace(model, header=replace(model.header, calibration=calibration)), len(weight)


def cross_validated(
    store: Store,
    config: FitConfig,
    learn: Learn,
    *,
    run_dir: Path | None = None,
    resume: bool = False,
    events: Events = ignore,
) -> list[Calibration]:
    """A calibration for each of the models that `learn` makes of the rows of a store, by config.probability.

    Folds that are done are kept in the run directory. Raises what `learn` raises, and DataError where a class has one
    row only.
    """
    method = config.probability.method
    assert method is not None  # or nobody asks
    with ExitStack() as stack:
        if run_dir is None:
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamsvm-folds-")))
        else:
            folder = run_dir / "folds"
            folder.mkdir(exist_ok=True)
        resume = resume and any(folder.iterdir())
        checkpoints = Checkpoints(folder if run_dir else None, store, config, resume, events)
        state = _predicted(store, config, learn, folder, checkpoints, events)
    codes = state["codes"]
    facts: dict[str, Any] = {"method": method, "pairwise": bool(state["pairwise"]), "weight": state["weight"]}
    return [calibrate(found, codes, int(codes.max()) + 1, **facts) for found in state["decisions"]]


def _predicted(
    store: Store, config: FitConfig, learn: Learn, folder: Path, checkpoints: Checkpoints, events: Events
) -> dict[str, Any]:
    """decisions (models, n, own problems) of all rows, their codes and weight (n,), and whether they are pairwise."""
    state = _begun(store, config, folder, checkpoints)
    fold, folds = state["fold"], config.probability.folds
    for number in range(int(state["done"]), folds):
        inside, own = np.flatnonzero(fold == number), folder / str(number)
        own.mkdir(exist_ok=True)
        models = learn(store.subset(np.flatnonzero(fold != number)), own)
        if number == 0:
            codes = codes_of_labels(models[0], store)
            weight = _weights(models[0], codes, store.sample_weight)
            state |= {"codes": codes, "weight": weight, "pairwise": models[0].is_pairwise}
        rows, codes = store.subset(inside), state["codes"][inside]
        where = config.threads, config.workers, config.scheduler, config.memory_limit
        engine = open_engine(*where, wait_s=config.wait_for_scheduler)
        with closing(engine):
            engine.require_folder(own)
            found = np.stack([_decisions(model, rows, codes, engine) for model in models])
        if number == 0:
            state["decisions"] = np.zeros((len(models), store.n, found.shape[2]))
        state["decisions"][:, inside] = found
        state["done"] = number + 1
        checkpoints.offer(state.copy, last=True)
        shutil.rmtree(own)
        events.progress("folds", number + 1, folds)
    return state


def _begun(store: Store, config: FitConfig, folder: Path, checkpoints: Checkpoints) -> dict[str, Any]:
    """The state to go on from, which knows each row's fold; a new one where those of an earlier one were others."""
    state = checkpoints.load()
    if state is not None and "fold" in state:
        return dict(state)
    for own in folder.iterdir():
        if own.is_dir():
            shutil.rmtree(own)
    count, option = config.probability.folds, "probability.folds"
    fold = fold_of(store, count, True, config.seed, positive=config.positive, option=option)
    begun = {"done": 0, "fold": fold}
    checkpoints.offer(begun.copy, last=True)
    return begun


def _weights(model: Any, codes: np.ndarray, sample_weight: np.ndarray | None) -> np.ndarray:
    """(n,) what rows weigh: as in the fit of the model, or labels and decisions would not go together."""
    class_weight = (model.header.config or {}).get("class_weight")
    return row_weights(codes, model.classes, class_weight, sample_weight)


def _decisions(
    model: Any, store: Store, codes: np.ndarray, engine: Engine, events: Events = ignore
) -> np.ndarray:
    """(n, own problems) decision values, see `calibration.own_problems`."""
    k, pairwise = len(model.classes), model.is_pairwise
    blocks = predict_blocks(
        model, store, engine=engine, ask=_binary_decisions, phase="calibrate", events=events
    )
    own = [own_problems(f, codes[start:stop], k, pairwise=pairwise) for start, stop, f in blocks]
    return np.concatenate(own)


def _binary_decisions(model: Any, rows: Rows) -> np.ndarray:
    return model.binary_decisions(rows)
