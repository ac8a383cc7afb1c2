"""What the recipes of papers share: rows as arrays, the paper's values next to ours, and data that cannot be had."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from bench import Bench


@dataclass(frozen=True)
class Arrays:
    """Rows to learn from and to test on, float32, and their labels, -1 and +1."""

    X: np.ndarray
    y: np.ndarray
    X_test: np.ndarray
    y_test: np.ndarray

    def few(self, rows: int | None, test_rows: int | None = None) -> Arrays:
        """At most so many random rows, of both classes."""
        kept, tested = _some(self.y, rows), _some(self.y_test, test_rows)
        return Arrays(self.X[kept], self.y[kept], self.X_test[tested], self.y_test[tested])

    def scaled(self) -> Arrays:
        """Features in [0, 1] over the rows to learn from."""
        low, high = self.X.min(axis=0), self.X.max(axis=0)
        span = np.where(high > low, high - low, 1)
        return replace(self, X=(self.X - low) / span, X_test=(self.X_test - low) / span)

    def files(self, folder: Path, name: str) -> tuple[Path, Path]:
        """Files of the training and the test rows, as `Bench.compare` takes them."""
        train, test = (folder / f"{name}{part}.npz" for part in ("", ".t"))
        np.savez(train, X=self.X, y=self.y)
        np.savez(test, X=self.X_test, y=self.y_test)
        return train, test


def _some(y: np.ndarray, rows: int | None) -> np.ndarray:
    if rows is None or rows >= len(y):
        return np.arange(len(y))
    order = np.random.default_rng(0).permutation(len(y))
    first = [order[np.flatnonzero(y[order] == label)[0]] for label in np.unique(y)]  # a row of each class
    return np.sort(np.concatenate([first, order[~np.isin(order, first)]])[:rows])


def beside(
    bench: Bench, published: Mapping[str, Any], needs: Sequence[str], measured: Callable[[], Mapping[str, Any]]
) -> dict[str, Any]:
    """A row of a table: the paper's values, then ours, or the files that are not there to measure them.

    published: by column, "(paper)" in its name where ours has the same. needs: files in --data.
    """
    missing = [name for name in needs if not (bench.data / name).exists()]
    if missing:
        return {**published, "": f"not run: data ({', '.join(missing)})"}
    return {**published, **measured()}
