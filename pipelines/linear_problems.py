"""The problems of linear_table.py and paper_cutting_planes.py: rows to train on and to test on, as arrays or stores,
and seconds of fits."""

from __future__ import annotations

import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from bench import HERE, Bench
from measure import run
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from text_rows import BLOCK_ROWS, Text

from streamsvm import Store
from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter
from streamsvm.metrics import scored

GRID = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)
TEXT_ROWS = 804_414
TOPICS, TOPIC_ROWS, TOPIC_FEATURES = 20, 15_935, 62_061  # of news20
OWN_WORDS = 0.15  # share of the words of a row that follow its topic
Score = Callable[[np.ndarray, np.ndarray], float]


def accuracy(y: np.ndarray, f: np.ndarray) -> float:
    """Of labels -1 and +1; of classes 0, 1, ... if f has a column for each."""
    return float(np.mean(f.argmax(axis=1) == y if f.ndim == 2 else (f > 0) == (y > 0)))


def precision_is_recall(y: np.ndarray, f: np.ndarray) -> float:
    return scored(y > 0, f).break_even() or 0.0


@dataclass(frozen=True)
class Problem:
    """Rows to train on and to test on, labels -1 and +1 or classes 0, 1, ..., and the score that fits them."""

    X: Any
    y: np.ndarray
    X_test: Any
    y_test: np.ndarray
    score: Score

    def signs(self) -> np.ndarray:
        """(n, columns) -1 and +1: of two classes, or of each against the rest."""
        classes = np.unique(self.y)
        return np.where(self.y[:, None] == (classes[1:] if len(classes) == 2 else classes), 1, -1)


@cache
def problem(name: str, bench: Bench) -> Problem:
    if name == "covtype":
        parts = [Store.open(store) for store in bench.stores("covtype")]
        (X, y), (X_test, y_test) = (rows_of(store, slice(0, bench.sizes.train_rows)) for store in parts)
        low, span = X.min(axis=0), X.max(axis=0) - X.min(axis=0)
        X, X_test = ((rows - low) / np.where(span > 0, span, 1) for rows in (X, X_test))
        return Problem(X, np.where(y == 2, 1, -1), X_test, np.where(y_test == 2, 1, -1), accuracy)
    if name == "text":
        X, y = rows_of(text(bench))
        test = np.arange(len(y)) % 5 == 0
        return Problem(X[~test], y[~test], X[test], y[test], precision_is_recall)
    return Problem(*bench.two_classes(name), accuracy if name == "a9a" else precision_is_recall)


def sector(bench: Bench) -> Problem:
    X, y, X_test, y_test = bench.svmlight("sector.bz2", "sector.t.bz2")
    classes, codes = np.unique(y, return_inverse=True)
    known = np.isin(y_test, classes)
    return Problem(X, codes, X_test[known], np.searchsorted(classes, y_test[known]), accuracy)


def topics(bench: Bench, *, counted: bool = False) -> Problem:
    """Generated text in the shape of news20, as rows of length 1 or as counts of words. In each topic, other words
    are frequent."""
    n, text = bench.sizes.train_rows or TOPIC_ROWS, Text(features=TOPIC_FEATURES)
    blocks, rng = range(-(-n // BLOCK_ROWS)), np.random.default_rng(0)
    X = sparse.vstack([text.counts(block) for block in blocks], format="csr")[:n].tocoo()
    y = rng.integers(TOPICS, size=n)
    first = np.where(rng.random(X.nnz) < OWN_WORDS, (1 + y[X.row]) * (TOPIC_FEATURES // (TOPICS + 1)), 0)
    X = sparse.csr_array((X.data, (X.row, (X.col + first) % TOPIC_FEATURES)), X.shape)
    X = (X if counted else text.weighted(X)).astype(np.float32)
    test = np.arange(n) % 5 == 0
    return Problem(X[~test], y[~test], X[test], y[test], accuracy)


def grid(bench: Bench) -> Sequence[float]:
    return GRID if bench.sizes.train_rows is None else (0.1, 1.0)


def for_peers(X: Any) -> Any:
    """Rows as LIBLINEAR wants them, float64 with 32-bit indices: not in its time."""
    X = X.astype(np.float64)
    if sparse.issparse(X):
        X.indices, X.indptr = X.indices.astype(np.int32), X.indptr.astype(np.int32)
    return X


def timed(estimator: Any, *data: Any, **more: Any) -> tuple[Any, float]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)
        start = time.perf_counter()
        fitted = type(estimator)(**estimator.get_params()).fit(*data, **more)
        return fitted, time.perf_counter() - start


def rows_of(store: Store, here: slice = slice(None)) -> tuple[Any, np.ndarray]:
    start, stop, _ = here.indices(store.n)
    return store.read(start, stop).X, store.y[start:stop]


def text(bench: Bench, rows: int = TEXT_ROWS, *, is_unequal: bool = False) -> Store:
    rows = rows if bench.sizes.train_rows is None else 10 * bench.sizes.train_rows
    made = bench.work / f"text.{rows}{'.unequal' if is_unequal else ''}.zarr"
    if not made.exists():
        more = ["--unequal"] if is_unequal else []
        run([sys.executable, HERE / "text_rows.py", made, "--rows", str(rows), *more])
    return Store.open(made)


def stored(name: str, p: Problem, bench: Bench) -> Store:
    """The training rows as a store on disk."""
    return store_of(p.X, p.y, bench.work / f"linear.{name}.{len(p.y)}.zarr")


def store_of(X: Any, y: np.ndarray, path: Path) -> Store:
    if not path.exists():
        with StoreWriter(path, d=X.shape[1], dtype=np.float32, is_sparse=sparse.issparse(X)) as store:
            for start in range(0, len(y), 50_000):
                here = slice(start, start + 50_000)
                store.append(Rows(X[here]), y[here])
    return Store.open(path)
