"""The same rows in every layout that estimators take."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import dask.array as da
import numpy as np
from making import write
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store

CHUNK = 64
LABELS = {"two": np.array(["no", "yes"]), "three": np.array([-3, 0, 8])}


@cache
def labelled(classes: str) -> tuple[np.ndarray, np.ndarray]:
    """(260, 4) float32, a third of the entries zero, and labels."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(260, 4)).astype(np.float32)
    X[rng.random(X.shape) < 0.3] = 0
    truth = (X[:, 0] * X[:, 1] > 0.1).astype(int) + ((X[:, 2] > 0.8) if classes == "three" else 0)
    return X, LABELS[classes][truth]


def _csr(X: np.ndarray, make: type, index: type) -> Any:
    out = make(X)
    out.indices, out.indptr = out.indices.astype(index), out.indptr.astype(index)
    return out


def _stored(X: Any, y: np.ndarray, folder: Path) -> Store:
    return write(folder / "store", Rows(X), y, step=50, chunk_rows=CHUNK)


# layout: (X float32, y, empty folder) -> what to fit on; a Store brings its own y
DENSE: dict[str, Callable[[np.ndarray, np.ndarray, Path], Any]] = {
    "numpy": lambda X, y, folder: X,
    "numpy float64": lambda X, y, folder: X.astype(np.float64),
    "numpy, columns first": lambda X, y, folder: np.asfortranarray(X),
    "dask": lambda X, y, folder: da.from_array(X, chunks=(CHUNK, X.shape[1])),
    "dask, column chunks": lambda X, y, folder: da.from_array(X, chunks=(50, 2)),
    "Store over numpy": lambda X, y, folder: Store.from_arrays(X, y),
    "Store over dask": lambda X, y, folder: Store.from_arrays(da.from_array(X, chunks=(CHUNK, X.shape[1])), y),
    "Store": _stored,
}
SPARSE: dict[str, Callable[[np.ndarray, np.ndarray, Path], Any]] = {
    "csr_matrix, 32 bit": lambda X, y, folder: _csr(X, sparse.csr_matrix, np.int32),
    "csr_matrix, 64 bit": lambda X, y, folder: _csr(X, sparse.csr_matrix, np.int64),
    "csr_array, 32 bit": lambda X, y, folder: _csr(X, sparse.csr_array, np.int32),
    "csr_array, 64 bit": lambda X, y, folder: _csr(X, sparse.csr_array, np.int64),
    "dask of CSR": lambda X, y, folder: da.from_array(X, chunks=(CHUNK, X.shape[1])).map_blocks(sparse.csr_array),
    "CSR Store": lambda X, y, folder: _stored(sparse.csr_array(X), y, folder),
}
LAYOUTS = DENSE | SPARSE
