"""What `streamsvm fit --store S` comes to where nothing else is given: accuracy, seconds, and what it promises. Linux.

    python pipelines/choice_table.py --data DIR [--only sets,...] [--quick] [--out table.md]

items, which need the files of the scoreboard (scoreboard.py names them):
    sets      the bare command on tables, next to the plain defaults (--no-search), and LightGBM and
              HistGradientBoosting as they come: `pip install lightgbm`
    budgets   random time budgets: does the command end in time, with a model
    interval  rows drawn again for each seed: how often is the score on new rows inside the interval that was promised

"expected" is the interval of the score, and whether a test of as many rows or more missed it. Seconds are of whole
commands; those of trees are of the fit alone, in this process. "held" is the share of seeds whose
score on as many new rows as it names was inside. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from bench import Bench, print_tables
from scoreboard_data import SETS, Problem
from tables import Factor, Seconds, Share, Table

from streamsvm import Store
from streamsvm.data.rows import Rows
from streamsvm.search.options import completed
from streamsvm.train import train_in_memory

TABLES = (
    "covtype-2",
    "covtype-7",
    "electricity",
    "letter",
    "magic04",
    "skin",
    "ijcnn1",
    "phishing",
    "a9a",
    "digits",
    "breast_cancer",
    "wine",
    "iris",
    "river-phishing",
    "river-bananas",
    "river-segments",
    "river-shuttle",
)
BUDGETED = ("covtype-2", "letter", "electricity", "a9a", "river-segments")
DRAWN = {  # rows of each set; there are twice as many
    "phishing": 1500,
    "river-bananas": 1500,
    "breast_cancer": 250,
    "magic04": 1500,
    "electricity": 1500,
    "covtype-2": 1500,
    "skin": 1500,
    "ijcnn1": 1500,
    "a9a": 1500,
    "letter": 1500,
    "digits": 800,
    "river-segments": 1000,
}
BUDGETS, LEAST_S, MOST_S = 20, 10.0, 600.0
SEEDS, FIRST_SEED = 25, 100  # 0 to 24 said how wide intervals have to be
PLAIN_ROWS = 100_000  # of a table up to which the plain defaults, an exact fit of raw rows, are tried
BEHIND = 0.005  # of accuracy, that is not counted


def sets(bench: Bench) -> list[Table]:
    names = ("wine", "iris") if bench.sizes.is_quick else TABLES
    records = [_bare(bench, name) for name in names]
    notes = [
        "accuracy on unseen rows; seconds of whole commands, those of trees of the fit alone",
        "plain: --no-search; LightGBM and HistGradientBoosting have their defaults",
        "expected: the interval that the fit reports for tests with as many rows as it was computed from",
    ]
    for peer in ("LightGBM", "HistGradientBoosting"):
        known = [r for r in records if r[peer] is not None]
        ahead = sum(r["bare"] >= r[peer] - BEHIND for r in known)
        notes.append(f"not behind {peer} by more than {100 * BEHIND:g} points on {ahead} of {len(known)}")
    return [Table("The bare command", records, notes)]


def _bare(bench: Bench, name: str) -> dict[str, Any]:
    problem = SETS[name](bench.data)
    train, test = bench.split(f"choice.{name}", problem)
    bare = _fitted(bench, train, test)
    has_plain = len(problem.y) <= PLAIN_ROWS
    plain = _fitted(bench, train, test, "--no-search") if has_plain else None
    expected = bare["result"]["expected"]
    few = len(problem.y_test) < expected["rows"]  # the interval is of tests of as many rows
    inside = few or expected["low"] <= bare["accuracy"] <= expected["high"]
    trees = {peer: fit(problem) for peer, fit in PEERS.items()}
    return {
        "set": name,
        "rows": bare["result"]["n"],
        "bare": Share(bare["accuracy"]),
        "its seconds": Seconds(bare["seconds"]),
        "expected": f"{100 * expected['low']:.1f} to {100 * expected['high']:.1f}{'' if inside else ' (missed)'}",
        "plain": Share(plain["accuracy"]) if plain else None,
        "plain seconds": Seconds(plain["seconds"]) if plain else None,
        **{peer: None if found is None else Share(found[0]) for peer, found in trees.items()},
        **{f"{peer}, s": None if found is None else Seconds(found[1]) for peer, found in trees.items()},
    }


def _fitted(bench: Bench, train: Path, test: Path, *words: Any) -> dict[str, Any]:
    model = bench.work / "choice.model"
    fit = bench.command("fit", "--store", train, "--model", model, "--force", *words)
    accuracy = bench.command("evaluate", "--model", model, "--store", test).result["accuracy"]
    return {"result": fit.result, "seconds": fit.seconds, "accuracy": accuracy}


def _trees(kind: str, problem: Problem) -> tuple[float, float] | None:
    """Accuracy and seconds of boosted trees as they come; None where they are not installed."""
    try:
        if kind == "LightGBM":
            from lightgbm import LGBMClassifier

            model: Any = LGBMClassifier(verbose=-1)
        else:
            from sklearn.ensemble import HistGradientBoostingClassifier

            model = HistGradientBoostingClassifier(random_state=0)
    except ImportError:
        return None
    began = time.perf_counter()
    model.fit(problem.X, problem.y)
    seconds = time.perf_counter() - began
    return float(np.mean(model.predict(problem.X_test) == problem.y_test)), seconds


PEERS = {name: partial(_trees, name) for name in ("LightGBM", "HistGradientBoosting")}


def budgets(bench: Bench) -> list[Table]:
    rng = np.random.default_rng(23)
    names: Iterable[str] = ("wine",) if bench.sizes.is_quick else BUDGETED
    given = np.exp(rng.uniform(np.log(LEAST_S), np.log(MOST_S), 2 if bench.sizes.is_quick else BUDGETS))
    records = []
    for number, budget in enumerate(np.sort(given).round(1).tolist()):
        name = list(names)[number % len(list(names))]
        problem = SETS[name](bench.data)
        train, test = bench.split(f"choice.{name}", problem)
        found = _fitted(bench, train, test, "--time-budget", f"{budget}s")
        late = found["seconds"] - budget
        records.append(
            {
                "set": name,
                "budget": Seconds(budget),
                "seconds": Seconds(found["seconds"]),
                "rows": found["result"]["n"],
                "accuracy": Share(found["accuracy"]),
                "in time": late <= max(3.0, 0.1 * budget),
            }
        )
    checks = [("all end within 10 % or 3 s of the budget", all(record["in time"] for record in records))]
    notes = ["fit --time-budget, which has to end with a model; whole commands, one run each"]
    return [Table("Random time budgets", records, notes, checks)]


def interval(bench: Bench) -> list[Table]:
    sizes = {"wine": 60} if bench.sizes.is_quick else DRAWN
    records = []
    for name, rows in sizes.items():
        problem = SETS[name](bench.data)
        X, y = np.concatenate([problem.X, problem.X_test]), np.concatenate([problem.y, problem.y_test])
        seeds = range(FIRST_SEED, FIRST_SEED + (2 if bench.sizes.is_quick else SEEDS))
        found = [_promise(X, y, rows, seed) for seed in seeds]
        held = [low <= score <= high for low, score, high in found]
        records.append(
            {
                "set": name,
                "rows": rows,
                "held": Share(np.mean(held)),
                "too high": sum(score > high for _, score, high in found),
                "too low": sum(score < low for low, score, _ in found),
                "width": Factor(100 * float(np.mean([high - low for low, _, high in found]))),
            }
        )
    total = float(np.mean([record["held"] for record in records]))
    notes = [
        f"{SEEDS} seeds, from {FIRST_SEED}, draw the rows to fit, and as many new ones, on which the score has to be "
        "inside the interval. Of other seeds than those that said how wide intervals have to be",
        "held: the share of seeds where it is; width: points of accuracy, on average",
    ]
    checks = [(f"19 of 20: {100 * total:.0f} %", total >= 0.95)]
    return [Table("Intervals that hold", records, notes, checks)]


def _promise(X: np.ndarray, y: np.ndarray, rows: int, seed: int) -> tuple[float, float, float]:
    """Low, the score on as many other rows, and high."""
    order = np.random.default_rng(seed).permutation(len(y))
    train, new = order[:rows], order[rows : 2 * rows]
    model, report = train_in_memory(Store.from_arrays(X[train], y[train]), completed([("seed", {"seed": seed})]))
    score = float(np.mean(model.predict(Rows(X[new])) == y[new]))
    return report["expected"]["low"], score, report["expected"]["high"]


ITEMS = {"sets": sets, "budgets": budgets, "interval": interval}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
