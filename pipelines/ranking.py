"""Learning to rank: MQ2008's queries, and rows of text ordered by their class, for the area under the ROC curve. Linux.

    python pipelines/ranking.py --data DIR [--only queries,text] [--quick] [--out ranking.md]

items, and the files of --data that they need:
    queries   mq2008.s1.bz2 to .s5.bz2: each fold is tested on once, by what the other four taught; C is chosen among
              these by `tune`, by the NDCG of held-out queries (configs/ranking.toml)
    text      reuters.bz2 reuters.t.bz2: 8,315 words, few of them in a row; trained for accuracy and, as two grades
              (--task ordinal), for the area under the ROC curve, C chosen by the same score

Seconds are those of whole commands. The published RankSVM has NDCG@5 0.47 and MAP 0.47 on these folds; it chooses C on
one of them and learns from three.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from statistics import mean
from typing import Any

from bench import CONFIGS, Bench, print_tables
from tables import Seconds, Share, Table

CONFIG = CONFIGS / "ranking.toml"
PARTS = range(1, 6)
SCORES = ("ndcg", "ndcg@5", "map", "kendall_tau")


def queries(bench: Bench) -> list[Table]:
    tested = list(PARTS)[-1:] if bench.sizes.is_quick else list(PARTS)
    records, scores = zip(*(_part(bench, part) for part in tested), strict=True)
    means = {name: mean(score[name] for score in scores) for name in SCORES}
    notes = ["ndcg over whole queries; a query without a good document counts as 0", "configs/ranking.toml"]
    rows = [*records, {"test": "mean"} | _rounded(means)]
    return [Table("MQ2008, four folds teach and one tests", rows, notes)]


def _part(bench: Bench, part: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """A row of the table, and the scores in it."""
    files = {s: bench.data / f"mq2008.s{s}.bz2" for s in PARTS}
    train = _ingest(bench, "mq", *(files[s] for s in PARTS if s != part))
    test = _ingest(bench, "mq.t", files[part], like=train)
    chosen, score = _tuned(bench, train, test)
    return {"test": f"s{part}"} | chosen | _rounded(score), score


def text(bench: Bench) -> list[Table]:
    train = _ingest(bench, "reuters", bench.data / "reuters.bz2", "--sparse")
    test = _ingest(bench, "reuters.t", bench.data / "reuters.t.bz2", like=train)
    records = []
    for task, scoring in (("classify", "accuracy"), ("ordinal", "roc_auc")):
        chosen, score = _tuned(bench, train, test, f"task={task}", f"tune.scoring={scoring}")
        accuracy, area = Share(score["accuracy"]), Share(score["roc_auc"])
        records.append({"task": task} | chosen | {"accuracy": accuracy, "ROC area": area})
    return [Table("Reuters, trained for accuracy and for the ROC area", records)]


def _tuned(bench: Bench, train: Path, test: Path, *sets: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The C that is best in cross-validation, with what it took, and the scores of its model on the test rows."""
    model = bench.work / "ranking.model"
    more = [word for value in sets for word in ("--set", value)]
    common = ("--config", CONFIG, *more, *bench.few_points)
    found = bench.told("tune", "--store", train, *common, "--model", model, "--force")
    best = found.result["best"]
    chosen = {"C": best["params"]["C"], "held-out score": f"{best['score']:.4f}"}
    score = bench.told("evaluate", "--model", model, "--store", test)
    return chosen | {"tune and fit": Seconds(found.seconds)}, score.result


def _ingest(bench: Bench, name: str, *files: Any, like: Path | None = None) -> Path:
    store = bench.work / f"{name}.zarr"
    shutil.rmtree(store, ignore_errors=True)
    bench.told("ingest", *files, "--store", store, *(("--like", like) if like else ()))
    return store


def _rounded(score: dict[str, Any]) -> dict[str, str]:
    return {name: f"{score[name]:.4f}" for name in SCORES}


ITEMS = {"queries": queries, "text": text}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
