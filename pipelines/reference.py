"""How exact is exact: an objective against LIBSVM's with its bias and without, and a duality gap in float64.

    python reference.py TRAIN.npz OPTIONS ROWS

LIBSVM's classifier has a bias; its regression can do without. With targets +-(1 + E) and a tolerance E larger than
any decision value, epsilon regression is the classification problem; two rows that no kernel sees, with targets +-E
and a boundless C, take up y'a at no cost, and the equality constraint that brings the bias is gone.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import numpy as np
from fit_worker import load
from sklearn.metrics.pairwise import pairwise_kernels
from sklearn.svm import SVC, SVR

from streamsvm import Store
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.models import KernelModel
from streamsvm.train import train_in_memory

TOLERANCE = 100.0  # E above
BLOCK_ROWS = 2048
TIGHT = 1e-4  # tol of a solution whose gap says where the best objective lies


def gram(a: np.ndarray, b: np.ndarray, kernel: dict[str, Any]) -> np.ndarray:
    options = dict(kernel)
    name = options.pop("name", "rbf")
    return pairwise_kernels(a.astype(np.float64), b.astype(np.float64), metric=name, **options)


def libsvm_without_bias(X: np.ndarray, y: np.ndarray, options: dict[str, Any]) -> np.ndarray:
    """(n,) y_i alpha_i of LIBSVM's solution at a hundredth of its usual tolerance."""
    n = len(y)
    K = np.zeros((n + 2, n + 2))
    K[:n, :n] = gram(X, X, options["kernel"])
    targets = np.append(y * (1 + TOLERANCE), [TOLERANCE, -TOLERANCE])
    weight = np.append(np.ones(n), [1e6, 1e6])
    solver = SVR(kernel="precomputed", C=options["C"], epsilon=TOLERANCE, tol=1e-5, cache_size=2000)
    solver.fit(K, targets, sample_weight=weight)
    signed = np.zeros(n + 2)
    signed[solver.support_] = solver.dual_coef_[0]
    return signed[:n]


def libsvm_with_bias(X: np.ndarray, y: np.ndarray, options: dict[str, Any]) -> tuple[np.ndarray, float]:
    """(n,) y_i alpha_i, and b."""
    solver = SVC(kernel="precomputed", C=options["C"], tol=1e-5, cache_size=2000)
    solver.fit(gram(X, X, options["kernel"]), y)
    signed = np.zeros(len(y))
    signed[solver.support_] = solver.dual_coef_[0]
    return signed, float(solver.intercept_[0])


def certificate(
    S: np.ndarray,
    signed: np.ndarray,
    X: np.ndarray,
    y: np.ndarray,
    options: dict[str, Any],
    bias: float = 0.0,
) -> dict[str, float]:
    """Dual objective 1/2 a'Qa - e'a of support rows S (s, d) with y_i alpha_i (s,), and its gap on X, y; float64."""
    C, kernel = options["C"], options["kernel"]
    squared = loss = 0.0
    for i in range(0, len(S), BLOCK_ROWS):
        squared += float(signed[i : i + BLOCK_ROWS] @ (gram(S[i : i + BLOCK_ROWS], S, kernel) @ signed))
    for i in range(0, len(X), BLOCK_ROWS):
        f = gram(X[i : i + BLOCK_ROWS], S, kernel) @ signed + bias
        loss += float(np.maximum(0, 1 - y[i : i + BLOCK_ROWS] * f).sum())
    dual = 0.5 * squared - float(np.abs(signed).sum())
    return {"objective": dual, "gap": 0.5 * squared + C * loss + dual}


def ours(X: np.ndarray, y: np.ndarray, options: dict[str, Any]) -> dict[str, float]:
    """The objective our solver reports, and what float64 makes of its coefficients."""
    model, report = train_in_memory(Store.from_arrays(X, y), build_config(("options", options)))
    assert isinstance(model, KernelModel)
    S, signed = model.support.dense(), model.alpha[:, 0] * np.where(model.codes == 1, 1.0, -1.0)
    scaled = model.header.scaling.apply(Rows(X)).dense()
    return {
        "reported": report["objective"],
        **certificate(S, signed, scaled, y, options, float(model.intercept[0])),
    }


def main() -> None:
    train, options, rows = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3])
    X, y = load(train)
    few = slice(0, rows)
    subset = ours(X[few], y[few], options)
    signed = libsvm_without_bias(X[few], y[few], options)
    libsvm = certificate(X[few], signed, X[few], y[few], options)
    whole, tight = ours(X, y, options), ours(X, y, {**options, "tol": TIGHT})
    biased = ours(X[few], y[few], {**options, "dcsvm": {**options.get("dcsvm", {}), "bias": True}})
    signed, b = libsvm_with_bias(X[few], y[few], options)
    result = {"rows": len(y[few]), "subset": subset, "libsvm": libsvm, "whole": whole, "tight": tight}
    result |= {"biased": biased, "libsvm_biased": certificate(X[few], signed, X[few], y[few], options, b)}
    sys.stdout.write(json.dumps(result) + "\n")


if __name__ == "__main__":
    main()
