"""What a full budget should give up on streams that change: merge, the oldest, or the least recently used.

    python pipelines/forgetting.py --data DIR [--quick] [--out forgetting.md]

Accuracies are of predictions before each event is learned, by one kernel expansion on standardised columns, at the best
lambda and gamma of a grid: chosen in hindsight, for all strategies alike. Streams, budgets and the grid are in
configs/forgetting.toml.

Needs electricity.csv.gz in --data.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
from bench import CONFIGS, Bench, print_tables
from river.datasets import synth
from streams import Event, Made, events
from tables import Share, Table

from streamsvm.data.rows import Rows
from streamsvm.data.running import RunningScaling
from streamsvm.kernels.distance import RBF
from streamsvm.models.learner import BudgetLearner, BudgetOptions

CONFIG = tomllib.loads((CONFIGS / "forgetting.toml").read_text())


def moving(speed: float) -> Made:
    kind = {"n_classes": 4, "n_features": 10, "n_centroids": 50, "n_drift_centroids": 50}
    return Made(lambda seed: synth.RandomRBFDrift(seed, seed, change_speed=speed, **kind))


def streams(bench: Bench) -> Iterator[tuple[str, list[Event]]]:
    n = bench.sizes.train_rows or CONFIG["events"]
    for name in CONFIG["streams"]:
        yield name, events(name, bench.data, n)
    for speed in CONFIG["speeds"]:
        source = moving(speed)(bench.data, n, 1)
        yield f"RandomRBFDrift {speed:g}", [event for event, _ in zip(source, range(n), strict=False)]


def rows_of(stream: list[Event]) -> tuple[Rows, np.ndarray]:
    """Rows standardised as they come, and targets (n, columns)."""
    X = np.array([[float(value) for value in x.values()] for x, _ in stream])
    classes, code = np.unique([str(y) for _, y in stream], return_inverse=True)
    columns = np.arange(len(classes)) if len(classes) > 2 else np.ones(1)
    return Rows(RunningScaling(X.shape[1]).learn(X)), np.where(code[:, None] == columns, 1.0, -1.0)


def accuracy(rows: Rows, Y: np.ndarray, width: float, **options: Any) -> float:
    learner = BudgetLearner(RBF(width / rows.d), rows.d, Y.shape[1], BudgetOptions(**options))
    f = learner.learn(rows, Y)
    right = (f > 0) == (Y > 0) if Y.shape[1] == 1 else f.argmax(axis=1) == Y.argmax(axis=1)
    return float(right.mean())


def forgetting(bench: Bench) -> list[Table]:
    records, grid = [], [*product(CONFIG["grid"]["widths"], CONFIG["grid"]["lam"])]
    for name, stream in streams(bench):
        rows, Y = rows_of(stream)
        for budget in CONFIG["budgets"]:
            best = {
                strategy: Share(max(accuracy(rows, Y, w, lam=lam, budget=budget, strategy=strategy) for w, lam in grid))
                for strategy in CONFIG["strategies"]
            }
            records.append({"stream": name, "budget": budget} | best)
    n = bench.sizes.train_rows or CONFIG["events"]
    notes = [f"{n:,} events of each stream; sequence merges three support vectors into one"]
    return [Table("What a full budget gives up", records, notes)]


if __name__ == "__main__":
    print_tables(__doc__, {"forgetting": forgetting})
