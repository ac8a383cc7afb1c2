"""Whether reported numbers hold: random fits of all solvers, recomputed in float64 by plain NumPy.

    python pipelines/certificates.py [--fits N] [--quick] [--out certificates.md]

Each fit draws a solver, a kernel and a task that go together, an offset of the rows from 0 to 10^6 (their spread is
1), and C from 0.01 to 100,000. From the rows as the model sees them and its coefficients, whole float64 kernel matrices
give the objective, the gap, the largest violation and decision values. A number is off if it differs from the reported
one by more than tol, times the objective, for a gap times itself if that is more, and for decision values times a
typical one. A warning counts if it says that the fit has not converged, or that accuracy may be lost. Needs no data.
"""

from __future__ import annotations

import argparse
import warnings
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from bench import from_arguments
from scipy.spatial.distance import cdist
from sklearn.exceptions import ConvergenceWarning
from tables import Report, Table

from streamsvm import Store
from streamsvm.config import FitConfig
from streamsvm.data.rows import Rows
from streamsvm.errors import StreamSVMError
from streamsvm.train import train_in_memory

N, D, TOL, FITS, QUICK_FITS = 80, 4, 1e-3, 200, 8
OFFSETS = (0.0, 1.0, 30.0, 1e3, 3e4, 1e6)
LOWEST_C, HIGHEST_C = 1e-2, 1e5
SOLVERS = {
    "dcsvm": ("classify", "regress", "oneclass"),
    "alfpgm": ("classify", "regress"),
    "admm-hss": ("classify", "regress"),
    "cutting-plane": ("classify", "regress"),
    "bsgd": ("classify", "regress"),
}
KERNELS: dict[str, dict[str, float]] = {
    "rbf": {"gamma": 0.3},
    "laplacian": {"gamma": 0.3},
    "matern": {"gamma": 0.5},
    "cauchy": {"gamma": 0.3},
    "linear": {},
    "poly": {"gamma": 0.25, "coef0": 1.0, "degree": 2},
    "sigmoid": {"gamma": 0.05, "coef0": 0.0},
}
ROUNDED = 1e-6  # of C: from its bounds, coefficients that models keep as float32
DEFINITE_ONLY = ("dcsvm", "admm-hss", "bsgd")


@dataclass(frozen=True)
class Case:
    """One fit, and the seed of its rows."""

    solver: str
    task: str
    kernel: str
    offset: float
    C: float
    seed: int

    def rows(self) -> tuple[np.ndarray, np.ndarray]:
        """Rows (n, d) float64 at the offset, and labels: -1 and 1, or numbers."""
        rng = np.random.default_rng(self.seed)
        X = rng.normal(size=(N, D))
        t = X[:, 0] + 0.5 * X[:, 1] ** 2 + 0.3 * rng.normal(size=N)
        y = t if self.task == "regress" else np.where(t > np.median(t), 1.0, -1.0)
        return X + self.offset, y

    def config(self) -> FitConfig:
        own: dict[str, Any] = {"admm_hss": {"polish": 200}} if self.solver == "admm-hss" else {}
        if self.solver == "cutting-plane":  # far rows take all the passes that they get
            own = {"cutting_plane": {"passes": 30}}
        if self.solver == "bsgd":
            own = {"bsgd": {"budget": N, "strategy": "remove"}}
        kernel = {"name": self.kernel} | KERNELS[self.kernel]
        options = {"solver": self.solver, "task": self.task, "kernel": kernel, "C": self.C, "tol": TOL}
        return FitConfig.model_validate(options | own | {"scale": "none"})


def drawn(count: int, seed: int = 0) -> list[Case]:
    """Random cases that configurations allow."""
    rng, cases = np.random.default_rng(seed), []
    while len(cases) < count:
        solver = str(rng.choice(list(SOLVERS)))
        task = str(rng.choice(SOLVERS[solver]))
        kernel = "linear" if solver == "cutting-plane" else str(rng.choice(list(KERNELS)))
        C = float(np.exp(rng.uniform(np.log(LOWEST_C), np.log(HIGHEST_C))))
        if kernel == "sigmoid" and solver in DEFINITE_ONLY:
            continue
        cases.append(Case(solver, task, kernel, float(rng.choice(OFFSETS)), C, len(cases)))
    return cases


def kernel_matrix(name: str, A: np.ndarray, B: np.ndarray) -> np.ndarray:
    """K (m, q) float64, by the formula as it is printed."""
    own = KERNELS[name]
    gamma, coef0 = own.get("gamma", 1.0), own.get("coef0", 0.0)
    if name == "matern":
        s = np.sqrt(3.0) * gamma * cdist(A, B)
        return (1.0 + s) * np.exp(-s)
    values = {
        "rbf": lambda: np.exp(-gamma * cdist(A, B, "sqeuclidean")),
        "laplacian": lambda: np.exp(-gamma * cdist(A, B, "cityblock")),
        "cauchy": lambda: 1.0 / (1.0 + gamma * cdist(A, B, "sqeuclidean")),
        "linear": lambda: A @ B.T,
        "poly": lambda: (gamma * (A @ B.T) + coef0) ** int(own["degree"]),
        "sigmoid": lambda: np.tanh(gamma * (A @ B.T) + coef0),
    }
    return values[name]()


def recomputed(case: Case, model: Any) -> dict[str, float | np.ndarray]:
    """Objective, gap and violation of a model where its solver has them, and decision values."""
    X, y = case.rows()
    X = model.header.scaling.apply(Rows(X)).X.astype(np.float64)  # float32, moved if that leaves the problem the same
    if case.solver == "cutting-plane":
        return _linear(case, model, X, y)
    beta, bias = np.zeros(N), float(np.ravel(getattr(model, "intercept", getattr(model, "bias", 0.0)))[0])
    if case.solver == "bsgd":
        return {"decisions": _of_supports(case, model, X)}
    scale = np.std(y) if case.task == "regress" else 1.0
    if hasattr(model, "alpha"):
        beta[model.ids] = model.alpha[:, 0] * np.where(model.codes == 1, 1.0, -1.0)
    else:
        beta[model.ids] = model.coef[:, 0] / scale
    K = kernel_matrix(case.kernel, X, X)
    f, t = K @ beta, (y - np.mean(y)) / scale if case.task == "regress" else y
    b = (bias - np.mean(y)) / scale if case.task == "regress" else bias
    return _of_dual(case, beta, f, t, b) | {"decisions": scale * f + bias}


def _of_dual(case: Case, beta: np.ndarray, f: np.ndarray, t: np.ndarray, b: float) -> dict[str, Any]:
    """beta: y a, a - a*, or a. f = K beta, t: labels or targets, b: the bias."""
    quadratic = float(beta @ f)
    if case.task == "oneclass":
        loss = np.maximum(-(f + b), 0.0).sum()
        return {"objective": 0.5 * quadratic, "gap": quadratic + b * beta.sum() + loss}
    if case.task == "regress":
        epsilon = case.config().epsilon
        linear = epsilon * np.abs(beta).sum() - t @ beta
        loss = case.C * np.maximum(np.abs(t - f - b) - epsilon, 0.0).sum()
        return {"objective": 0.5 * quadratic + linear, "gap": quadratic + linear + loss}
    alpha, g = t * beta, t * f - 1.0
    objective = 0.5 * quadratic - alpha.sum()
    if case.solver == "dcsvm" and b:
        objective += b * beta.sum()  # 0, but for rounding
    loss = case.C * np.maximum(-(g + t * b), 0.0).sum()
    return {
        "objective": objective,
        "gap": quadratic - alpha.sum() + loss,
        "violation": _violation(alpha, g, t, case.C, has_bias=b != 0.0),
    }


def _violation(alpha: np.ndarray, g: np.ndarray, y: np.ndarray, C: float, *, has_bias: bool) -> float:
    """LIBSVM's m - M with a bias; the largest projected gradient without one."""
    above, below = alpha > ROUNDED * C, alpha < (1 - ROUNDED) * C
    if not has_bias:
        return float(np.maximum(np.where(above, g, 0.0), np.where(below, -g, 0.0)).max())
    level = -y * g
    up, low = np.where(y > 0, below, above), np.where(y > 0, above, below)
    return max(float(level[up].max(initial=-np.inf) - level[low].min(initial=np.inf)), 0.0)


def _linear(case: Case, model: Any, X: np.ndarray, y: np.ndarray) -> dict[str, Any]:
    """The primal objective of cutting planes, whose bias is one more weight."""
    is_regression = case.task == "regress"
    scale, offset = (np.std(y), np.mean(y)) if is_regression else (1.0, 0.0)
    w, b = model.coef[:, 0] / scale, (float(model.intercept[0]) - offset) / scale
    f, t = X @ w + b, (y - offset) / scale
    errors = np.abs(t - f) - case.config().epsilon if is_regression else 1.0 - t * f
    objective = 0.5 * float(w @ w + b * b) + case.C * np.maximum(errors, 0.0).sum()
    return {"objective": objective, "decisions": scale * f + offset}


def _of_supports(case: Case, model: Any, X: np.ndarray) -> np.ndarray:
    support = model.support.dense().astype(np.float64)  # merged or not, they are rows of the model's own
    return kernel_matrix(case.kernel, X, support) @ model.coef[:, 0] + float(np.ravel(model.bias)[0])


def off(case: Case, model: Any, report: Mapping[str, Any]) -> dict[str, float]:
    """What is off, by how many times tol."""
    found = recomputed(case, model)
    size = max(1.0, abs(float(found.get("objective", 1.0))))
    X, _ = case.rows()
    answers = model.binary_decisions(Rows(X))[:, 0]
    typical = max(1.0, float(np.median(np.abs(found["decisions"]))))
    errors = {"decisions": float(np.abs(answers - found["decisions"]).max()) / typical}
    for name in ("objective", "gap"):
        if name in found and report.get(name) is not None:
            errors[name] = abs(float(found[name]) - float(report[name])) / max(size, abs(float(found[name])))
    if "violation" in found:
        reported = float(report["violation"]) if report.get("violation") is not None else TOL
        errors["violation"] = float(found["violation"]) - reported
    return {name: error / TOL for name, error in errors.items() if not error <= TOL}


def outcome(case: Case) -> dict[str, Any]:
    """A fit and what became of it: right, warned, off or error."""
    X, y = case.rows()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            model, report = train_in_memory(Store.from_arrays(X, y), case.config())
        except StreamSVMError as error:
            return {"outcome": "error", "what": str(error)}
        wrong = off(case, model, report)
    if not wrong:
        return {"outcome": "right", "what": ""}
    what = ", ".join(f"{name} by {error:.3g} tol" for name, error in wrong.items())
    return {"outcome": "warned" if any(map(says_so, caught)) else "off", "what": what}


def says_so(warning: warnings.WarningMessage) -> bool:
    """Whether it says that the fit is not what was asked for."""
    return issubclass(warning.category, ConvergenceWarning) or "accuracy may be lost" in str(warning.message)


def table(count: int) -> Table:
    cases = drawn(count)
    found = [outcome(case) for case in cases]
    counts = Counter((case.solver, own["outcome"]) for case, own in zip(cases, found, strict=True))
    names = ("right", "warned", "off", "error")
    records: list[dict[str, Any]] = [
        {"solver": solver, "fits": sum(counts[solver, name] for name in names)}
        | {name: counts[solver, name] for name in names}
        for solver in SOLVERS
    ]
    bad = [
        f"{own['outcome']}: {case}: {own['what']}"
        for case, own in zip(cases, found, strict=True)
        if own["outcome"] in ("off", "error")
    ]
    notes = [
        f"{N} rows of {D} columns with a spread of 1, offsets of {', '.join(f'{o:g}' for o in OFFSETS)}, C from "
        f"{LOWEST_C:g} to {HIGHEST_C:g}, tol {TOL:g}; warned: off, and a warning says that the fit may be",
        *bad,
    ]
    total = Counter(own["outcome"] for own in found)
    checks = [
        (f"none is off without a warning ({total['off']} of {count})", total["off"] == 0),
        (f"none ends in an error ({total['error']} of {count})", total["error"] == 0),
    ]
    return Table("Certificates, recomputed in float64", records, notes, checks)


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--fits", type=int, default=FITS, metavar="N")


def main() -> None:
    with from_arguments(__doc__, _options) as (bench, args):
        Report(args.out).add([table(QUICK_FITS if bench.sizes.is_quick else args.fits)])


if __name__ == "__main__":
    main()
