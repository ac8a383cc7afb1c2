"""Data sets of two classes as arrays of float32, for recipes that compare fits in memory: `arrays(name, bench)`."""

from __future__ import annotations

import gzip

import numpy as np
from bench import Bench
from sklearn.model_selection import train_test_split

from streamsvm import Store


def arrays(name: str, bench: Bench) -> tuple[np.ndarray, ...]:
    """Training and test rows as float32, labels -1 and +1; what is neither binary nor scaled goes to [0, 1]."""
    if name.startswith("covtype"):
        train, test = (Store.open(store) for store in bench.stores("covtype"))
        rows = slice(0, 100_000 if name == "covtype-100k" else train.n)
        X, X_test = (np.asarray(s.read(0, s.n).X, np.float32) for s in (train, test))
        low, span = X.min(axis=0), np.ptp(X, axis=0)
        X, X_test = ((Z - low) / np.where(span > 0, span, 1) for Z in (X, X_test))
        y, y_test = (np.where(s.y == 2, 1, -1) for s in (train, test))
        return X[rows], y[rows], X_test, y_test
    if name in READ:
        X, y = READ[name](bench)
        X = ((X - X.min(axis=0)) / np.ptp(X, axis=0)).astype(np.float32)
        X, X_test, y, y_test = train_test_split(X, y, train_size=0.7, random_state=0)
        return X, y, X_test, y_test
    X, y, X_test, y_test = bench.two_classes(name)
    return X.toarray(), y, X_test.toarray(), y_test


def _skin(bench: Bench) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(bench.data / "skin_nonskin.tsv.gz") as file:
        values = np.loadtxt(file, np.float32)
    return values[:, :3], np.where(values[:, 3] == 1, 1, -1)


def _electricity(bench: Bench) -> tuple[np.ndarray, np.ndarray]:
    with gzip.open(bench.data / "electricity.csv.gz", "rt") as file:
        header, *lines = (line.strip().split(",") for line in file)
    labels = np.array([line[-1].strip("'\"") for line in lines])
    return np.array([line[1:-1] for line in lines], np.float32), np.where(labels == "UP", 1, -1)


def _magic04(bench: Bench) -> tuple[np.ndarray, np.ndarray]:
    table = np.genfromtxt(bench.data / "magic04.csv.gz", delimiter=",", dtype=str)
    return table[:, :-1].astype(np.float32), np.where(table[:, -1] == "g", 1, -1)


READ = {"skin": _skin, "electricity": _electricity, "magic04": _magic04}
