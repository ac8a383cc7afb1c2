"""From a gzipped CSV to a page: covtype class 2 against the rest by early prediction, command by command. Linux.

    python pipelines/covtype.py --data DIR [--page covtype.html] [--quick] [--out covtype.md]

    ingest     covtype.csv.gz becomes a shuffled training store and a test store
    fit        configs/covtype_early.toml, with a run directory
    evaluate   the test store; the scores go into the run directory
    report     the run directory becomes one page for a browser

Needs covtype.csv.gz in --data: UCI's covertype as CSV with a header and the label in Cover_Type. The commands are
printed as they are run; with --work the stores, the model and the run directory are kept.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path
from typing import Any

from bench import CONFIGS, Bench, from_arguments
from measure import Run
from tables import Bytes, Report, Seconds, Share, Table

CONFIG = CONFIGS / "covtype_early.toml"


def steps(bench: Bench, page: Path) -> list[dict[str, Any]]:
    train, test = bench.work / "covtype.zarr", bench.work / "covtype.t.zarr"
    model, run_dir = bench.work / "covtype.model", bench.work / "covtype.run"
    for old in (train, test, run_dir):
        shutil.rmtree(old, ignore_errors=True)
    split = ("--label", "Cover_Type", "--split", "0.8", "--seed", "0", "--test-store", test)
    ingest = bench.told("ingest", bench.data / "covtype.csv.gz", "--store", train, *split)
    records = [_record("ingest", ingest, rows=ingest.result["rows"] + ingest.result["test_rows"])]
    config: tuple[Any, ...] = ("--config", CONFIG)
    if bench.sizes.train_rows is not None:
        train = bench.copies(train, bench.sizes.train_rows)
        config = (*config, "--set", "dcsvm.levels=1")  # so few rows would be one part
    fit = bench.told("fit", "--store", train, "--model", model, "--force", *config, "--run-dir", run_dir)
    facts = {"parts": fit.result["n_parts"], "support vectors": fit.result["n_support"]}
    records.append(_record("fit", fit, rows=fit.result["n"], **facts))
    score = bench.told("evaluate", "--model", model, "--store", test, "--run-dir", run_dir)
    accuracy = Share(score.result["accuracy"])
    records.append(_record("evaluate", score, rows=score.result["n"], accuracy=accuracy))
    report = bench.told("report", run_dir, "--out", page)
    return [*records, _record("report", report)]


def _record(command: str, run: Run, **more: Any) -> dict[str, Any]:
    taken = {"seconds": Seconds(run.seconds), "peak memory": Bytes(run.peak_rss_bytes)}
    return {"command": command, **more, **taken}


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--page", type=Path, default=Path("covtype.html"), metavar="FILE.html")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        report = Report(args.out)
        records = steps(bench, args.page)
        notes = [f"configs/{CONFIG.name}, whole commands; the page is {args.page}"]
        report.add([Table("Covtype, class 2 against the rest", records, notes)])


if __name__ == "__main__":
    main()
