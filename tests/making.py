"""Small samples and stores for tests."""

from __future__ import annotations

import numpy as np
import pytest
from scipy import sparse

from streamsvm.data.cache import CachedSamples
from streamsvm.data.columns import ColumnValues
from streamsvm.data.rows import Rows
from streamsvm.data.samples import SamplesInMemory
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.parallel.engine import Engine
from streamsvm.problems.passes import Passes

# checks of scikit-learn that hold to 1e-5, not to 1e-7: some BLAS rounds float32 products of a row alone in another way
ROUNDED = {"check_methods_subset_invariance": "float32 kernel values"}
DTYPES = ["uint8", "float32", "float64"]
LABELS = {
    "int": lambda n: np.arange(n) % 3 - 1,
    "float": lambda n: np.arange(n) / 7,
    "text": lambda n: np.array(["UP", "down", "\u00fcber"])[np.arange(n) % 3],
}


def samples(n: int, d: int, dtype: str = "float32", is_sparse: bool = False, seed: int = 0) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, d)) < 0.4, rng.integers(1, 200, (n, d)), 0).astype(dtype)
    return Rows(sparse.csr_array(X) if is_sparse else X)


def write(url: object, rows: Rows, y: np.ndarray | None = None, step: int = 7, **options: object) -> Store:
    integral = bool(options.pop("integral_labels", False))
    facts = {"d": rows.d, "dtype": rows.X.dtype, "is_sparse": rows.is_sparse, **options}
    with StoreWriter(str(url), **facts) as writer:  # type: ignore[arg-type]
        writer.integral_labels = integral
        for lo in range(0, len(rows), step):
            part = slice(lo, lo + step)
            writer.append(rows.take(part), None if y is None else y[part])
    return Store.open(str(url))


class Beside:
    """What is beside rows: arrays in memory."""

    def __init__(self, *columns: np.ndarray) -> None:
        self.columns, self.row_bytes = columns, sum(column.itemsize for column in columns)

    def read(self, start: int, stop: int) -> tuple[np.ndarray, ...]:
        return tuple(column[start:stop] for column in self.columns)


def passes_over(X: np.ndarray, *beside: np.ndarray, bias: float = 0.0) -> Passes:
    """Passes over rows in memory, with what is beside them."""
    samples = SamplesInMemory(Rows(X.astype(np.float32)))
    held = CachedSamples(samples, 1 << 30, lambda: pytest.fail("no folder"), Beside(*beside))
    return Passes(held, Engine(2), bias)


def refuse_whole_columns(patch: pytest.MonkeyPatch) -> None:
    """Fails where labels or weights that can be read in parts are read whole."""
    whole = ColumnValues.all.func

    def read(values: ColumnValues) -> np.ndarray:
        assert not values.in_parts, "a column was read whole"
        return whole(values)

    patch.setattr(ColumnValues, "all", property(read))
