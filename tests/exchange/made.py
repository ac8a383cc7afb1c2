"""Models of every kind out of random numbers, no training."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling, from_quantiles
from streamsvm.data.statistics import moments_of
from streamsvm.kernels.distance import RBF, Cauchy, Laplacian, Matern
from streamsvm.kernels.inner import Linear, Poly, Precomputed, Sigmoid
from streamsvm.kernels.kmeans import Centres, Partition
from streamsvm.models import (
    BudgetModel,
    ExpansionModel,
    ExpertsModel,
    Header,
    KernelModel,
    LinearModel,
    LocalBudgetModel,
    LocalModel,
)
from streamsvm.online import BSGDClassifier
from streamsvm.tasks.pairs import n_columns, n_pairs

D = 4
KERNELS = {
    "rbf": RBF(0.3),
    "poly": Poly(0.2, 3, 1.0),
    "sigmoid": Sigmoid(0.05, -0.5),
    "linear": Linear(),
}
GRAPHS = KERNELS | {  # that ONNX has operators for, and LIBSVM no name
    "matern 1/2": Matern(0.4, 0.5),
    "matern 3/2": Matern(0.4, 1.5),
    "matern 5/2": Matern(0.4, 2.5),
    "cauchy": Cauchy(0.3),
    "laplacian": Laplacian(0.3),
    "precomputed": Precomputed(),
}
SUMS = ("kernel", "budget", "expansion", "linear", "landmarks", "ordinal", "rank", "regress")
LABELS = {
    "text": np.array(["ant", "bee", "\u00fcber", "dog"]),
    "int": np.array([-1, 1, 7, 2**40]),
    "float": np.array([-1.0, 1.0, 2.0, 3.0]),
    "half": np.array([0.5, 1.5, 2.5, 3.5]),
}


def raw_rows(n: int = 60, seed: int = 9, *, is_sparse: bool = False) -> Rows:
    rng = np.random.default_rng(seed)
    X = np.where(rng.random((n, D)) < 0.7, rng.normal(1, 2, (n, D)), 0).astype(np.float32)
    return Rows(sparse.csr_array(X) if is_sparse else X)


def scaling_of(scale: str) -> Scaling:
    if scale == "quantile":
        rows = raw_rows(150)  # so many quantiles are no power of two
        return from_quantiles(rows, moments_of(rows))
    offset, slope = np.array([1.0, -0.5, 0.25, 3.0]), np.array([0.5, 1.25, 0.0, 2.0])
    return Scaling.none(D) if scale == "none" else Scaling(scale, offset * (scale != "maxabs"), slope)


def model_of(
    kind: str,
    kernel: str = "rbf",
    k: int = 2,
    scale: str = "none",
    *,
    labels: str = "text",
    is_sparse: bool = False,
    n_support: int = 15,
    seed: int = 0,
) -> Any:
    rng = np.random.default_rng(seed)
    header = Header(GRAPHS[kernel], scaling_of(scale), LABELS[labels][:k])
    support = header.scaling.apply(Rows(raw_rows(n_support, seed).X))
    support = Rows(sparse.csr_array(support.X)) if is_sparse else support
    columns = 1 if kind in ("ordinal", "rank", "regress") else n_columns(k)
    coef, intercept = rng.normal(size=(n_support, columns)), rng.normal(size=columns)
    ids = np.arange(n_support)
    if kind == "kernel":
        alpha, codes = rng.random((n_support, k - 1)), rng.integers(0, k, n_support)
        bias = rng.normal(size=n_pairs(k))
        return KernelModel(header, support, alpha, codes, ids, bias, break_ties=bool(seed % 2))
    if kind == "budget":
        return BudgetModel(header, support, coef, intercept, None, {})  # type: ignore[arg-type]
    if kind in ("expansion", "regress"):
        task = "regress" if kind == "regress" else "classify"
        return ExpansionModel(header, support, coef, intercept, ids, task)
    if kind == "landmarks":
        return LinearModel(header, coef, intercept, landmarks=support)
    thresholds = np.sort(rng.normal(size=k - 1)) if kind == "ordinal" else np.empty(0)
    task = kind if kind in ("ordinal", "rank") else "classify"
    return LinearModel(header, rng.normal(size=(D, columns)), intercept, task, thresholds)


def local_model(
    kernel: str,
    k: int,
    scale: str = "none",
    *,
    clustering: str = "linear",
    neighbours: int = 1,
    weighed: bool = False,
    seed: int = 0,
) -> LocalModel:
    """A tree of three nodes; part 2 has no support vectors, nothing goes to part 5, one centre is of an empty leaf."""
    rng = np.random.default_rng(seed)
    children = ((0, ~1, 1, 6), (2, ~2), (3, 4))
    nodes = tuple(_centres(rng, clustering, number, len(below)) for number, below in enumerate(children))
    nodes[0].offsets[3] = np.inf
    sizes = np.array([5, 4, 0, 3, 6, 2, 0])
    n, bounds = int(sizes.sum()), np.cumsum([0, *sizes])
    header = Header(GRAPHS[kernel], scaling_of(scale), LABELS["int"][:k])
    support = header.scaling.apply(raw_rows(n, seed))
    arrays = {"support": support.X, "alpha": rng.random((n, k - 1)), "codes": rng.integers(0, k, n)}
    present = rng.random((len(sizes), k)) < 0.7
    weights = rng.uniform(0.3, 2, (len(sizes), D)) if weighed else None
    tree = Partition(nodes, children)
    bias = rng.normal(size=(len(sizes), k * (k - 1) // 2))
    return LocalModel(header, tree, bounds, present, arrays, "nearest", neighbours, weights, bias)


def local_budget_model(kernel: str, k: int, scale: str = "none") -> LocalBudgetModel:
    """The parts of `local_model`, with a column for two classes, else one for each."""
    made, rng = local_model(kernel, k, scale), np.random.default_rng(1)
    support, columns = Rows(made.arrays["support"]), n_columns(k)
    coef, bias = rng.normal(size=(len(support), columns)), rng.normal(size=(len(made.present), columns))
    return LocalBudgetModel(made.header, made.partition, made.bounds, support, coef, bias)


@cache
def pooled_model(k: int, kernel: str) -> tuple[ExpertsModel, np.ndarray]:
    """A pool that has learned a stream of k classes, two are True and False; rows of its columns, NaN if absent."""
    rng, names = np.random.default_rng(k), ("a", "b", "constant", "late", "rare")
    learner = BSGDClassifier(kernel=kernel, budget=20)
    X = np.full((600, len(names)), np.nan, np.float32)
    X[:, :2], X[:, 2] = rng.normal((1e3, -2), (10, 0.1), (600, 2)), 7
    X[300:, 3] = rng.normal(size=300)
    X[::5, 4] = rng.random(120)
    codes = (X[:, 0] > 1e3).astype(int) + (k > 2) * (X[:, 1] > -1.95)
    for x, code in zip(X.tolist(), codes.tolist(), strict=True):
        event = {name: value for name, value in zip(names, x, strict=True) if not np.isnan(value)}
        learner.learn_one(event, {1: True, 2: bool(code)}.get(k, code))
    return learner.to_model(), X  # type: ignore[return-value]


def _centres(rng: np.random.Generator, clustering: str, number: int, k: int) -> Centres:
    if clustering == "linear":
        rows = rng.normal(0.5, 1, (k, D)).astype(np.float32)
        return Centres(Linear(), Rows(rows), np.eye(k, dtype=np.float32), (rows.astype(float) ** 2).sum(1))
    rows = rng.normal(0.5, 1, (5 + number, D)).astype(np.float32)
    weights = rng.random((5 + number, k)).astype(np.float32)
    kernel = {
        "rbf": RBF(0.1 * (1 + number)),
        "matern": Matern(0.3 * (1 + number), 2.5),
        "sigmoid": Sigmoid(0.1),
    }
    return Centres(kernel[clustering], Rows(rows), weights / weights.sum(axis=0), rng.random(k) / 4)
