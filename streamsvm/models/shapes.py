"""What exporters ask a model for: sums of kernel values over support rows, or parts that rows are sent to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.kernels.base import Kernel
from streamsvm.kernels.inner import InnerProducts
from streamsvm.kernels.kmeans import Partition


@dataclass(frozen=True)
class Compact:
    """Coefficients of pairs of classes as LIBSVM keeps them: alpha (s, k - 1), see tasks.pairs, and codes (s,)."""

    alpha: np.ndarray
    codes: np.ndarray


@dataclass(frozen=True)
class Expansion:
    """g_c(x) = sum_j coef[j, c] K(x', s_j) + intercept[c], x' = (x - offset) * scale.

    A column is a pair of classes, a class against the rest, or the one score of a task that has no more. of_rows: the
    support rows are rows of data; else weights, which no row stands for.
    """

    kernel: Kernel
    scaling: Scaling
    support: Rows  # (s, d) scaled
    coef: np.ndarray  # (s, columns)
    intercept: np.ndarray  # (columns,)
    compact: Compact | None = None  # of pairs of classes
    ids: np.ndarray | None = None  # (s,) rows of the training store that they were
    of_rows: bool = True

    def folded(self) -> Expansion:
        """The same function with the scaling in the support rows, where K allows that; else itself.

        With z = scale * s the linear kernel is x's' = x'z - offset'z; under a scaling that only multiplies, the
        inner product of poly and sigmoid is x'z.
        """
        offset, scale = self.scaling.offset, self.scaling.scale
        inner = self.kernel.is_linear or (isinstance(self.kernel, InnerProducts) and not offset.any())
        if self.scaling.kind == "none" or not inner:
            return self
        X: Any = self.support.X.astype(np.float64)
        X = sparse.csr_array(X.multiply(scale)) if self.support.is_sparse else X * scale
        intercept = self.intercept - (X @ offset) @ self.coef
        return replace(self, scaling=Scaling.none(len(scale)), support=Rows(X), intercept=intercept)


@dataclass(frozen=True)
class Routes:
    """A row is decided by the mean over its own part and those with the nearest centres, `neighbours` in all.

    part(p) gives the support rows of a part and their coefficients (s, pairs), of which there are
    bounds[p + 1] - bounds[p]; one_sided (parts, pairs) is added to their sums.
    """

    kernel: Kernel
    scaling: Scaling
    partition: Partition
    neighbours: int
    bounds: np.ndarray
    part: Callable[[int], tuple[Rows, np.ndarray]]
    one_sided: np.ndarray
