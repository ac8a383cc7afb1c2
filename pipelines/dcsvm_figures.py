"""DC-SVM from level to level, and three ways in which partitions predict together. Linux.

    python pipelines/dcsvm_figures.py --data DIR [--rows 50000] [--quick] [--out figures.md]

levels       figure 2 and table 6 of Hsieh, Si and Dhillon 2014: each level's time, objective and support vectors,
             from the events of an exact fit
combination  their table 1: early prediction by the nearest partition, by the sum of all, and by a Bayesian committee

needs covtype.csv.gz in --data: UCI's covertype as CSV with a header and the label in Cover_Type.
"""

from __future__ import annotations

import argparse
import shutil
from typing import Any

from bench import CONFIGS, Bench, from_arguments
from tables import Report, Seconds, Share, Table

from streamsvm.events import LevelSolved, SupportCompared
from streamsvm.report.read import Run, read_run

LEVELS = 3  # 64, 16 and 4 parts


def levels(bench: Bench, rows: int) -> Table:
    run_dir = bench.work / "levels.run"
    shutil.rmtree(run_dir, ignore_errors=True)
    fit = _fit(bench, rows, "covtype_exact", "--run-dir", run_dir)
    records = [_level(record) for record in _records(read_run(run_dir))]
    phases = {name: seconds for name, seconds in fit["seconds_by_phase"].items() if name in ("refine", "top")}
    for name, seconds in phases.items():
        records.append({"level": name, "seconds training": Seconds(seconds)})
    records[-1] |= {"objective": fit["objective"], "n support": fit["n_support"]}
    return Table(f"Levels: {rows:,} rows of covtype, exact", records)


def _records(run: Run) -> list[dict[str, Any]]:
    """What the events say about each level, taken together."""
    found: dict[int, dict[str, Any]] = {}
    for _, event in [*run.of(LevelSolved), *run.of(SupportCompared)]:
        found.setdefault(event.level, {}).update(vars(event))
    return list(found.values())


def _level(record: dict[str, Any]) -> dict[str, Any]:
    return {
        name.replace("_", " "): Seconds(value) if name.startswith("seconds") else value
        for name, value in record.items()
    }


def combination(bench: Bench, rows: int) -> Table:
    test = bench.stores("covtype")[1]
    records = []
    for combine in ("nearest", "naive", "committee"):
        fit = _fit(bench, rows, "covtype_early", "--set", f"dcsvm.combine={combine}")
        score = bench.command("evaluate", "--model", bench.work / "figures.model", "--store", test)
        records.append(
            {
                "combine": combine,
                "parts": fit.get("n_parts"),
                "accuracy": Share(score.result["accuracy"]),
                "seconds of evaluate": Seconds(score.seconds),
            }
        )
    return Table(f"Prediction from {4**LEVELS} partitions and more: {rows:,} rows of covtype", records)


def _fit(bench: Bench, rows: int, config: str, *more: Any) -> dict[str, Any]:
    few = bench.copies(bench.stores("covtype")[0], rows)
    model = ("--model", bench.work / "figures.model", "--force", "--config", CONFIGS / f"{config}.toml")
    return bench.command("fit", "--store", few, *model, "--set", f"dcsvm.levels={LEVELS}", *more).result


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--rows", type=int, default=50_000)


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        report = Report(args.out)
        rows = min(args.rows, bench.sizes.subset_rows)
        report.add([levels(bench, rows)])
        report.add([combination(bench, rows)])


if __name__ == "__main__":
    main()
