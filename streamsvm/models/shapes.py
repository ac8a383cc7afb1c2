"""The forms of a model that exporters need: sums of kernel values over support rows, or partitions that rows are sent
to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.errors import ModelError
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.inner import InnerProducts
from streamsvm.kernels.kmeans import Partition


@dataclass(frozen=True)
class PairCoefficients:
    """Coefficients of pairs of classes as LIBSVM keeps them: alpha (s, k - 1), see tasks.pairs, and codes (s,)."""

    alpha: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class Expansion:
    """g_c(x) = sum_j coef[j, c] K(x', s_j) + intercept[c], x' the scaled row. A column is a pair of classes, a class
    against the rest, or the one score of a task that has no more. of_rows: the support rows are rows of data; else
    weights, which correspond to no row."""

    kernel: Kernel
    scaling: Scaling
    support: Rows  # (s, d) scaled
    coef: np.ndarray  # (s, columns)
    intercept: np.ndarray  # (columns,)
    compact: PairCoefficients | None = None  # of pairs of classes
    ids: np.ndarray | None = None  # (s,) rows of the training store that they were
    of_rows: bool = True

    def unmixed(self) -> Expansion:
        """The same function under a scaling without a metric, whose support rows have all columns. Raises ModelError. A
        diagonal metric is an extra scale; its columns of 0 are 0 in support rows. For a full one with an inner product
        s'L'x = (L s)'x; distances have no such form."""
        metric, scaling = self.scaling.metric, self.scaling
        if metric is None:
            return self
        X: Any = self.support.X
        if metric.is_diagonal:
            spread = sparse.csr_array(np.eye(metric.d, dtype=X.dtype)[metric.columns])
            kind = "metric" if scaling.kind == "none" else scaling.kind
            scaling = replace(scaling, kind=kind, scale=scaling.scale * metric.factor, metric=None)
            return replace(self, scaling=scaling, support=Rows(X @ spread))
        if not isinstance(self.kernel, InnerProducts):
            raise ModelError(
                "a full metric mixes columns, which the format cannot express; fit with --metric diagonal, or "
                "export --format onnx"
            )
        return replace(self, scaling=replace(scaling, metric=None), support=Rows(X @ metric.factor.T))

    def weights(self) -> tuple[np.ndarray, np.ndarray]:
        """coef (columns, d) and intercept (columns,) of raw rows: g(x) = coef x + intercept, for the linear kernel."""
        plain = self.folded()
        X: Any = plain.support.X.astype(np.float64)
        return (X.T @ plain.coef).T, plain.intercept

    def folded(self) -> Expansion:
        """The same function with offset and scale in the support rows, if K allows that; else itself. With z = scale *
        s the linear kernel is x's' = x'z - offset'z; under a scaling that only multiplies, the inner product of poly
        and sigmoid is x'z."""
        if self.scaling.metric is not None:
            return self.unmixed().folded()
        offset, scale = self.scaling.offset, self.scaling.scale
        inner = self.kernel.is_linear or (isinstance(self.kernel, InnerProducts) and not offset.any())
        if self.scaling.kind == "none" or not inner:
            return self
        X: Any = self.support.X.astype(np.float64)
        X = sparse.csr_array(X.multiply(scale)) if self.support.is_sparse else X * scale
        intercept = self.intercept - (X @ offset) @ self.coef
        none = Scaling.none(len(scale))
        scaling = replace(self.scaling, kind=none.kind, offset=none.offset, scale=none.scale)
        return replace(self, scaling=scaling, support=Rows(X), intercept=intercept)


@dataclass(frozen=True)
class PartitionRouting:
    """A row is decided by the mean over its partition and those with the nearest centres, `neighbours` in all.

    part(p) gives the support rows of a partition and their coefficients (s, pairs), of which there are
    bounds[p + 1] - bounds[p]; intercept (partitions, pairs) is added to their sums. weights (partitions, width): what a
    partition multiplies the columns of scaled rows with, its support rows among them; None if no partition does."""

    kernel: Kernel
    scaling: Scaling
    partition: Partition
    neighbours: int
    bounds: np.ndarray
    part: Callable[[int], tuple[Rows, np.ndarray]]
    intercept: np.ndarray
    weights: np.ndarray | None = None

    def expansion(self, p: int) -> Expansion:
        """The expansion of a partition, under the partition's scaling."""
        rows, coef = self.part(p)
        if self.weights is None:
            return Expansion(self.kernel, self.scaling, rows, coef, self.intercept[p])
        weights = self.weights[p]
        scaling = self.scaling.times(weights)
        return Expansion(self.kernel, scaling, rows.times(weights), coef, self.intercept[p])
