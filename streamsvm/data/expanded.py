"""Columns of codes of categories, replaced by the values of these categories."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from scipy import sparse


def column(X: Any, at: int) -> np.ndarray:
    """(m,) int64 a column of codes, dense or CSR."""
    own = X[:, at] if isinstance(X, np.ndarray) else X[:, [at]].toarray().ravel()
    return own.astype(np.int64)


def expanded(X: Any, values: Mapping[int, np.ndarray], fold: np.ndarray | None = None) -> Any:
    """Rows (m, d) with the values of their categories instead of their codes, which count from 1.

    values: by column, (categories, outputs), or with `fold` (m,), (categories, folds, outputs): a row has those of its
    fold.
    """
    if not values:
        return X
    pieces, done = [], 0
    for at, own in sorted(values.items()):
        codes = column(X, at) - 1
        found = own[codes] if fold is None else own[codes, fold]
        pieces += [X[:, done:at], found.astype(X.dtype)]
        done = at + 1
    pieces = [piece for piece in [*pieces, X[:, done:]] if piece.shape[1]]
    if isinstance(X, np.ndarray):
        return np.concatenate(pieces, axis=1)
    return sparse.csr_array(sparse.hstack([sparse.csr_array(piece) for piece in pieces], format="csr"))
