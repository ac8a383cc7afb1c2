"""One peer on one data set of the scoreboard: searched, fitted, asked and measured, in a separate process. Linux.

    python scoreboard_worker.py PROBLEM.npz PEER SECONDS CORES SEED

Prints a line of JSON as each stage ends: "ready", when everything is imported and compiled, "fitted", after search and
last fit, and "done", with the record. Peak memory is the process's most less what it held when it was ready, with data.
"""

from __future__ import annotations

import json
import os
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from areas import roc_area
from scoreboard_data import Problem
from scoreboard_ours import OURS
from scoreboard_peers import PEERS, About, Config, Peer
from scoreboard_search import Found, Search, Trial, parts, rungs
from sklearn.compose import make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mean_absolute_error, r2_score
from sklearn.preprocessing import OneHotEncoder, StandardScaler

EVERYONE = OURS | PEERS
WARM_ROWS = 200
AGAIN = 1.5  # times what a fit took: time for another on more rows
LEAST_PROBABILITY = 1e-6  # of the true class in log loss: one forest's 0 is not to cost more than all else
STATUS, CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")


@dataclass
class Fitted:
    """A fitted estimator over the classes that its rows had, answering for all classes."""

    model: Any
    present: np.ndarray
    n_classes: int

    def answers(self, X: np.ndarray) -> np.ndarray:
        """(n,) values or, of two classes, decisions for the second; (n, k) probabilities or decisions."""
        if self.n_classes == 0:
            return np.asarray(self.model.predict(X), float).ravel()
        given = self.model.predict_proba if self.gives_probabilities else self.model.decision_function
        found = np.asarray(given(X), float)
        if found.ndim == 1 and self.n_classes == 2:
            return found
        found = np.column_stack([-found, found]) if found.ndim == 1 else found
        if len(self.present) == self.n_classes:
            return found
        least = 0.0 if self.gives_probabilities else found.min(axis=1)[:, None]
        every = (
            np.full((len(found), self.n_classes), least) if np.isscalar(least) else np.repeat(least, self.n_classes, 1)
        )
        every[:, self.present] = found
        return every

    @property
    def gives_probabilities(self) -> bool:
        return hasattr(self.model, "predict_proba")


def labels(answers: np.ndarray) -> np.ndarray:
    return (answers > 0).astype(int) if answers.ndim == 1 else answers.argmax(axis=1)


class Task:
    """One peer at one problem; targets of regression are standardised."""

    def __init__(self, problem: Problem, peer: Peer, cores: int, seed: int) -> None:
        self._peer, self._problem, self._seed, self._cores = peer, problem, seed, cores
        self._middle, self._spread = (problem.y.mean(), problem.y.std()) if problem.is_regression else (0, 1)
        self.y = (problem.y - self._middle) / self._spread if problem.is_regression else problem.y

    def prepare(self) -> None:
        """The rows as the peer takes them: part of its seconds."""
        problem, numbers = self._problem, np.flatnonzero(~self._problem.is_text)
        text = np.flatnonzero(problem.is_text)
        if self._peer.takes_text:
            self.encode, self.X = (lambda X: X), problem.X
        else:
            ones = OneHotEncoder(handle_unknown="ignore", sparse_output=False, dtype=np.float32)
            columns = make_column_transformer((StandardScaler(), numbers), (ones, text))
            self.X = columns.fit_transform(problem.X)
            self.encode = columns.transform
        text_ids = tuple(text.tolist()) if self._peer.takes_text else ()
        self.about = About(problem.is_regression, problem.n_classes, text_ids, self.X.shape[1], self._cores, self._seed)
        self.parts = parts(self.y, is_regression=problem.is_regression, seed=self._seed)

    def fit(self, config: Config, ids: np.ndarray) -> Fitted:
        y, present = self.y[ids], np.arange(0)
        if not self.about.is_regression:
            present, y = np.unique(y, return_inverse=True)  # XGBoost wants 0..k-1 without gaps
        model = self._peer.make(config, self.about)
        self._peer.fit(model, np.ascontiguousarray(self.X[ids]), y, self.about)
        return Fitted(model, present, self.about.n_classes)

    def trial(self, config: Config, rows: int) -> Trial:
        answers, scores, seconds = [], [], []
        for fitted, held in self.parts:
            began = time.perf_counter()
            model = self.fit(config, fitted[:rows])
            asked = time.perf_counter()
            answers.append(model.answers(self.X[held]))
            seconds.append((asked - began, time.perf_counter() - asked))
            scores.append(self.score(self.y[held], answers[-1]))
        fit, asking = np.mean(seconds, axis=0).tolist()
        return Trial(config, rows, float(np.mean(scores)), fit, asking, np.concatenate(answers))

    def score(self, y: np.ndarray, answers: np.ndarray) -> float:
        return r2_score(y, answers) if self.about.is_regression else float(np.mean(labels(answers) == y))

    def calibration(self, answers: np.ndarray) -> Callable[[np.ndarray], np.ndarray]:
        """Decisions as probabilities, by a sigmoid (of more classes: softmax) fitted on the held-out rows."""
        y, k = self.y[np.concatenate([held for _, held in self.parts])], self.about.n_classes
        shape = (-1, 1) if answers.ndim == 1 else answers.shape
        spread = answers.std() or 1.0
        sigmoid = LogisticRegression(C=100, max_iter=300).fit(answers.reshape(shape) / spread, y)

        def probabilities(decisions: np.ndarray) -> np.ndarray:
            every = np.zeros((len(decisions), k))
            every[:, sigmoid.classes_] = sigmoid.predict_proba(decisions.reshape(len(decisions), -1) / spread)
            return every

        return probabilities

    def unscaled(self, values: np.ndarray) -> np.ndarray:
        return values * self._spread + self._middle


def measure(
    problem: Problem, peer: Peer, *, seconds: float, cores: int, seed: int = 0, tell: Callable[..., None]
) -> dict[str, Any]:
    """What the scoreboard says of a peer at a problem. Linux for its memory, else None."""
    with warnings.catch_warnings():  # of convergence, of names of columns: none says what a figure does not
        warnings.simplefilter("ignore")
        return _measured(problem, peer, seconds=seconds, cores=cores, seed=seed, tell=tell)


def _measured(
    problem: Problem, peer: Peer, *, seconds: float, cores: int, seed: int, tell: Callable[..., None]
) -> dict[str, Any]:
    _warm(problem, peer, cores, seed)
    held = _reset_peak()
    tell("ready")
    began = time.perf_counter()
    task = Task(problem, peer, cores, seed)
    task.prepare()
    left = seconds - (time.perf_counter() - began)
    model, found = _searched(task, peer, left, seed) if peer.space else _at_once(task, peer, left)
    took = time.perf_counter() - began
    tell("fitted")
    began = time.perf_counter()
    answers = model.answers(task.encode(problem.X_test))
    predicted = time.perf_counter() - began
    peak = _peak()
    return {
        **scores(problem, task, model, answers, found.best),
        "seconds": took,
        "us_per_row": 1e6 * predicted / len(answers),
        "peak_bytes": None if peak is None or held is None else peak - held,
        "model_bytes": _size(peer, model.model),
        "rows": found.rows,
        "configs": found.n_trials,
        "config": found.best.config,
        "held_out_score": found.best.score,
    }


def _searched(task: Task, peer: Peer, seconds: float, seed: int) -> tuple[Fitted, Found]:
    n = len(task.y)
    sizes = rungs(min(len(fitted) for fitted, _ in task.parts), peer.power)
    found = Search(peer, task.trial, folds=len(task.parts), seconds=seconds).run(sizes, n, seed)
    ids = np.random.default_rng(seed).permutation(n)[: found.rows]
    return task.fit(found.best.config, ids), found


def _at_once(task: Task, peer: Peer, seconds: float) -> tuple[Fitted, Found]:
    """A peer that chooses by itself: fitted on the rows that are not held out; if there is time, on all again."""
    task.parts = task.parts[:1]
    [(fitted, held)] = task.parts
    began = time.perf_counter()
    model = task.fit(peer.first, fitted)
    took, rows = time.perf_counter() - began, len(fitted)
    answers = model.answers(task.X[held])
    score = task.score(task.y[held], answers)
    if took * AGAIN < seconds - (time.perf_counter() - began):
        rows = len(task.y)
        model = task.fit(peer.first, np.arange(rows))
    return model, Found(Trial(peer.first, len(fitted), score, took, 0.0, answers), 1, rows)


def scores(problem: Problem, task: Task, model: Fitted, answers: np.ndarray, best: Trial) -> dict[str, float | None]:
    y = problem.y_test
    if problem.is_regression:
        values = task.unscaled(answers)
        return {"r2": r2_score(y, values), "mae": mean_absolute_error(y, values)}
    calibrate = (lambda given: given) if model.gives_probabilities else task.calibration(best.answers)
    probabilities = calibrate(answers)
    sure = np.clip(probabilities, LEAST_PROBABILITY, None)
    sure /= sure.sum(axis=1, keepdims=True)
    return {
        "accuracy": float(np.mean(labels(answers) == y)),
        "roc_auc": roc_area(y, answers if answers.ndim == 1 else probabilities),
        "log_loss": log_loss(y, sure, labels=np.arange(problem.n_classes)),
    }


def _warm(problem: Problem, peer: Peer, cores: int, seed: int) -> None:
    """A fit on a few rows, that loads and compiles: by the first configuration, and for all classes."""
    few = problem.capped(max(WARM_ROWS, 4 * problem.n_classes))
    task = Task(few, peer, cores, seed)
    task.prepare()
    model = task.fit(peer.configs(1, seed)[0] | peer.warm, np.arange(len(task.y)))
    model.answers(task.encode(few.X_test))


def _size(peer: Peer, model: Any) -> int:
    with tempfile.TemporaryDirectory(prefix="scoreboard-") as folder:
        peer.write(model, Path(folder) / "model")
        return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())


def _reset_peak() -> int | None:
    """From here on a new peak is counted; the bytes held now."""
    if not CLEAR.exists():
        return None
    CLEAR.write_text("5", encoding="ascii")
    return _status("VmRSS")


def _peak() -> int | None:
    return _status("VmHWM") if STATUS.exists() else None


def _status(name: str) -> int:
    lines = STATUS.read_text(encoding="utf-8").splitlines()
    return 1024 * next(int(line.split()[1]) for line in lines if line.startswith(f"{name}:"))


def main() -> None:
    path, name, seconds, cores, seed = sys.argv[1:]
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8", buffering=1)
    os.dup2(2, 1)  # libraries may print; the answers are read by a program

    def tell(stage: str, **facts: Any) -> None:
        answers.write(json.dumps({"stage": stage, **facts}) + "\n")

    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: int(cores)])
    found = measure(
        Problem.load(Path(path)),
        EVERYONE[name],
        seconds=float(seconds),
        cores=int(cores),
        seed=int(seed),
        tell=tell,
    )
    tell("done", record=found)


if __name__ == "__main__":
    main()
