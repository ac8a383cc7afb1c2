"""The small configuration of each solver, and small estimators: what tests of whole fits share.

Every solver of the catalogue is here; what makes one small is a line in SMALL, its own sections and plots in PAGES. So
is what a test registers before it runs these: `pytest -p toy_solver`.
"""

from __future__ import annotations

from collections import ChainMap
from functools import cache
from typing import Any

import numpy as np

from streamsvm import ALFPGMSVC, DCSVC, HSSSVC, AutoSVC, BudgetedSVC, CuttingPlaneSVC
from streamsvm.config import FitConfig, build_config
from streamsvm.options.layers import parse_set
from streamsvm.parallel.imports import imported
from streamsvm.solvers.catalogue import section_of, solver_names, solver_row

EARLY = {"levels": 1, "part_rows": 90, "early": True}
SMALL = {
    "dcsvm": {"levels": 2, "part_rows": 200},
    "bsgd": {"budget": 30, "epochs": 3, "partitions": 3},
    "alfpgm": {"pairs": 20},
    "admm-hss": {"leaf": 32, "polish": 50},
}


def small(name: str) -> dict[str, Any]:
    """A solver with what it needs, small."""
    needs = (parse_set(text)[1] for text in solver_row(name).needs)
    return {"solver": name, section_of(name): SMALL.get(name, {})} | dict(ChainMap(*needs))


BUDGETED = {"solver": "bsgd", "bsgd": SMALL["bsgd"]}
SOLVERS: dict[str, dict[str, Any]] = {
    **{name: small(name) for name in solver_names()},
    **{name: small(name) | {"tol": 1e-7} for name in ("dcsvm", "admm-hss")},  # several rounds
    "dcsvm early": {"dcsvm": EARLY},
    "landmarks": {"solver": "cutting-plane", "cutting_plane": {"landmarks": 40}},
    "logistic": {
        "solver": "cutting-plane",
        "kernel": {"name": "linear"},
        "cutting_plane": {"loss": "logistic"},
    },
}
VARIANTS = {  # each with another kind of model, all but the first five of early prediction
    "a bias": {"dcsvm": SMALL["dcsvm"] | {"bias": True}},
    "squared losses": {"dcsvm": SMALL["dcsvm"] | {"loss": "squared"}},
    "nu": {"C": 1.0, "nu": 0.3, "dcsvm": SMALL["dcsvm"]},
    "against the rest": {"multiclass": "rest", "dcsvm": SMALL["dcsvm"]},
    "one learner": {"solver": "bsgd", "bsgd": {"budget": 30, "epochs": 2}},
    "kernel k-means": {"dcsvm": EARLY | {"part_rows": 60, "clustering": "kernel"}},
    "several parts": {"dcsvm": EARLY | {"part_rows": 60, "neighbours": 3}},
    "committee": {"dcsvm": EARLY | {"combine": "committee"}},
    "a bias, early": {"dcsvm": EARLY | {"part_rows": 60, "bias": True}},
    "part metrics": {"dcsvm": EARLY | {"part_metric": 1}},
    "against the rest, early": {"multiclass": "rest", "dcsvm": EARLY | {"part_rows": 60, "bias": True}},
    "several labels, early": {"task": "multilabel", "dcsvm": EARLY | {"part_rows": 60, "bias": True}},
}
WITHOUT_LABELS = {  # that labels change nothing in
    "one class": {"task": "oneclass", "nu": 0.1, "dcsvm": SMALL["dcsvm"]},
    "one class, early": {"task": "oneclass", "nu": 0.1, "dcsvm": EARLY},
    "one class on a budget": {"task": "oneclass", "nu": 0.1} | BUDGETED,
    "one class by planes": {
        "task": "oneclass",
        "nu": 0.1,
        "solver": "cutting-plane",
        "cutting_plane": {"landmarks": 40},
    },
}
SHARES = {"one class on a budget": 0.04}  # how far that of outliers may be from nu; else 0.015
GAPS = {
    "dcsvm": 1e-2,
    "dcsvm early": 0.5,
    "alfpgm": 1e-2,
    "admm-hss": 1e-2,
}  # most of the objective; else tol
PAGES = {  # sections of a report beside summary and warnings, and plots beside phases and memory
    "dcsvm": (
        {"convergence", "levels", "parts", "cost"},
        {"objective", "gap", "violation", "levels", "map", "part-sizes"},
    ),
    "dcsvm early": ({"levels", "parts", "cost"}, {"map", "part-sizes"}),
    "bsgd": ({"budget", "cost"}, {"budget"}),
    "alfpgm": ({"convergence", "working-sets", "cost"}, {"objective", "gap", "violation", "working-sets"}),
    "admm-hss": (
        {"convergence", "ranks", "cost"},
        {"objective", "gap", "violation", "residuals", "ranks", "blocks"},
    ),
    "cutting-plane": ({"convergence", "planes", "cost"}, {"objective", "gap", "planes"}),
    "landmarks": ({"convergence", "planes", "cost"}, {"objective", "gap", "planes"}),
    "logistic": ({"convergence", "planes", "cost"}, {"objective", "gap", "planes"}),
}
PLAIN = ({"cost"}, set[str]())  # of a solver whose fit tells of its progress alone


def config(name: str, **values: Any) -> FitConfig:
    """A solver's small configuration, with other values over it."""
    case = (SOLVERS | VARIANTS | WITHOUT_LABELS)[name]
    kernel = {} if case.get("kernel") else {"kernel": {"gamma": 0.5}}
    return build_config(("test", {"C": 5.0, "threads": 2} | kernel), ("solver", case), ("own", values))


@cache
def labelled(k: int = 2, n: int = 600) -> tuple[np.ndarray, np.ndarray]:
    """(n, 3) float32 and k classes that a parabola and some noise tell apart."""
    rng = np.random.default_rng(k)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    score = X[:, 0] + X[:, 1] ** 2 + 0.7 * rng.normal(size=n)
    return X, np.digitize(score, np.linspace(0, 2, k)[: k - 1] if k > 2 else [0.8])


# Of fits that are compared bit by bit: a limit decides, not what the machine has free; a test process with all kernels
# compiled holds some 2 GiB itself.
EVERY_STEP = {"checkpoint_every": "1 step", "memory_limit": "8GiB"}
DIVIDED = {"levels": 1, "part_rows": 100}
COMPRESSED = {"C": [0.5, 5.0], "gamma": 0.5, "leaf": 100, "iterations": 20, "polish": 1000}
PROBABLE = {
    "exact, probable": DCSVC(C=5.0, gamma=0.5, probability=True, random_state=0),
    "early, probable": DCSVC(C=5.0, gamma=0.5, probability="isotonic", random_state=0, early=True, **DIVIDED),
    "against the rest, early, probable": DCSVC(
        C=5.0, gamma=0.5, probability=True, random_state=0, multi_class="ovr", early=True, **DIVIDED
    ),
    "budgeted, probable": BudgetedSVC(gamma=0.5, budget=30, epochs=3, probability=True, random_state=0),
    "budgeted, logistic": BudgetedSVC(C=5.0, gamma=0.5, budget=30, loss="logistic", random_state=0),
    "linear, planes, probable": CuttingPlaneSVC(probability=True, random_state=0),
    "linear, logistic": CuttingPlaneSVC(loss="logistic", tol=1e-5),
    "compressed, probable": HSSSVC(**COMPRESSED, probability=True, random_state=0),
    "many pairs, probable": ALFPGMSVC(C=5.0, gamma=0.5, probability=True),
}
ESTIMATORS = {
    "exact": DCSVC(C=5.0, gamma=0.5, random_state=0),
    "gamma from the data": DCSVC(C=5.0, random_state=0),
    "exact, divided": DCSVC(C=5.0, gamma=0.5, random_state=0, **DIVIDED),
    "early": DCSVC(C=5.0, gamma=0.5, random_state=0, early=True, **DIVIDED),
    "early, kernel k-means": DCSVC(C=5.0, gamma=0.5, random_state=0, early=True, clustering="kernel", **DIVIDED),
    "early, several parts": DCSVC(C=5.0, gamma=0.5, random_state=0, early=True, neighbours=3, **DIVIDED),
    "committee": DCSVC(C=5.0, gamma=0.5, random_state=0, early=True, combine="committee", **DIVIDED),
    "against the rest": DCSVC(C=5.0, gamma=0.5, random_state=0, multi_class="ovr", **DIVIDED),
    "many pairs, against the rest": ALFPGMSVC(C=5.0, gamma=0.5, pairs=20, multi_class="ovr"),
    "poly": DCSVC(kernel="poly", degree=2, gamma=0.3, coef0=1.0, random_state=0),
    "linear": DCSVC(kernel="linear", random_state=0),
    "budgeted": BudgetedSVC(C=5.0, gamma=0.5, budget=30, epochs=2, random_state=0),
    "budgeted, merged at once": BudgetedSVC(
        gamma=0.5, budget=20, merge=5, strategy="gradient", fit_intercept=True, average=True, random_state=0
    ),
    "linear, planes": CuttingPlaneSVC(tol=1e-5),
    "compressed, polished": HSSSVC(**COMPRESSED, random_state=0),
    "many pairs": ALFPGMSVC(C=5.0, gamma=0.5, pairs=20),
    "landmarks": CuttingPlaneSVC(C=5.0, kernel="rbf", gamma=0.5, landmarks=50, random_state=0),
    "chosen": AutoSVC(random_state=0),
} | PROBABLE
ESTIMATORS |= {name: imported(solver_row(name).estimators[0])() for name in solver_names() if name not in PAGES}
