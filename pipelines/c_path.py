"""Tuning along the path of C: one factorisation for each gamma, or folds as bounds of one problem. Linux.

    python pipelines/c_path.py --data DIR [--set-name ijcnn1|a9a] [--keep DIR] [--quick] [--out c_path.md]

The grid of configs/c_path.toml, ten values of C for each of three gammas, is searched twice by `streamsvm tune`:
    admm-hss   compresses and factorises the kernel matrix once for each gamma; every C and fold is solves from then on
    dcsvm      solves exactly; all folds share kernel values, and each C starts from the one below

The best point of each is refitted on all rows and tried on the test rows. SOLVER.csv and SOLVER.svg in --keep (here
by default) are the scores as a table and as a heat map. Needs ijcnn1.bz2 ijcnn1.t.bz2, or a9a.bz2 a9a.t.bz2, in --data.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

from bench import CONFIGS, Bench, from_arguments
from tables import Bytes, Report, Seconds, Share, Table

CONFIG = CONFIGS / "c_path.toml"
SOLVERS = {"admm-hss": ("--set", "admm_hss.storage=float32"), "dcsvm": ()}


def search(bench: Bench, solver: str, name: str, keep: Path) -> dict[str, Any]:
    """A search, the model of its best point, and what that says about the test rows."""
    train, test = bench.stores(name)
    model = bench.work / f"{solver}.model"
    kept = ("--out", keep / f"{solver}.csv", "--heat-map", keep / f"{solver}.svg")
    options = ("--config", CONFIG, "--set", f"solver={solver}", *SOLVERS[solver], *bench.few_points)
    found = bench.told("tune", "--store", train, *options, "--model", model, "--force", *kept)
    score = bench.told("evaluate", "--model", model, "--store", test)
    best = found.result["best"]
    return {
        "solver": solver,
        "points": len(found.result["results"]),
        "search": Seconds(found.result["seconds_search"]),
        "command": Seconds(found.seconds),
        "peak memory": Bytes(found.peak_rss_bytes),
        "C": best["params"]["C"],
        "gamma": best["params"]["kernel.gamma"],
        "cross-validated": Share(best["score"]),
        "test rows": Share(score.result["accuracy"]),
    }


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set-name", choices=("ijcnn1", "a9a"), default="ijcnn1")
    parser.add_argument("--keep", type=Path, default=Path(), metavar="DIR")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        args.keep.mkdir(parents=True, exist_ok=True)
        report = Report(args.out)
        records = [search(bench, solver, args.set_name, args.keep) for solver in SOLVERS]
        notes = [f"configs/{CONFIG.name}; `command` is the search and the refit of its best point"]
        report.add([Table(f"The path of C: {args.set_name}", records, notes)])


if __name__ == "__main__":
    main()
