"""The five solvers of streamsvm and their peers on one data set: test error over seconds of training. Linux.

    python pipelines/comparison.py --data DIR [--set-name ijcnn1|a9a] [--plots DIR] [--quick] [--out comparison.md]
                                   [--runs 3] [--peer-python PYTHON]

configs/comparison.toml lists the curves and a point for each fit: tolerances, early prediction, ranks, landmarks,
budgets; of the peers LIBSVM (scikit-learn's SVC) and scikit-learn-intelex on random subsets of the rows, Nystroem with
LinearSVC, LinearSVC, SGDClassifier. The curve to beat is LIBSVM's: a plain SVC on as many rows as there is time for.
`LIBSVM by then` is the least error of that curve in no more seconds.

Fits are on the same arrays, each in a separate process; fits before the first counted one compile, and are not
counted. --plots draws comparison.png and comparison.svg. Needs ijcnn1.bz2 ijcnn1.t.bz2, or a9a.bz2 a9a.t.bz2, in
--data. Run it on a machine that does nothing else.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import matplotlib
from bench import CONFIGS, Bench, Solver, from_arguments, options
from tables import Report, Share, Table

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

CONFIG = CONFIGS / "comparison.toml"
KERNEL_MACHINES = ("streamsvm", "libsvm", "intelex")


def measured(bench: Bench, name: str) -> Iterator[dict[str, Any]]:
    """A record for each fit, curve by curve."""
    store, test_store = bench.stores(name)
    train, test = bench.arrays(store, name), bench.arrays(test_store, name, like=store)
    for curve in tomllib.loads(CONFIG.read_text())["curve"]:
        solvers = _solvers(curve, options(name), first_only=bench.sizes.is_quick)
        for record, solver in zip(bench.compare(train, test, solvers), solvers, strict=True):
            yield {"curve": curve["name"], "kind": curve["kind"], "setting": solver.name, **_plain(record)}


def _solvers(curve: dict[str, Any], shared: dict[str, Any], *, first_only: bool) -> list[Solver]:
    kind, solvers = curve["kind"], []
    if kind == "nystroem":
        shared = {"gamma": shared["kernel"]["gamma"]}
    elif kind not in KERNEL_MACHINES:
        shared = {}
    for point in curve["points"][: 1 if first_only else None]:
        given = shared | curve.get("options", {}) | point
        compiles = kind == "streamsvm" and not first_only
        tried = compiles or kind == "intelex"  # which may not be installed
        solvers.append(Solver(_setting(point) or "all rows", kind, given, tried))
    return solvers


def _setting(point: dict[str, Any]) -> str:
    """A point as people read it, without the names of tables."""
    flat = {name: value for name, value in point.items() if not isinstance(value, dict)}
    inner = {name: value for table in point.values() if isinstance(table, dict) for name, value in table.items()}
    return ", ".join(f"{name} {value}" for name, value in (flat | inner).items())


def _plain(record: dict[str, Any]) -> dict[str, Any]:
    if "seconds" not in record:
        return {"note": "not installed"}
    kept = {name: record[name] for name in ("seconds", "peak memory", "support vectors")}
    return kept | {"error": Share(1 - record["accuracy"])}


def with_baseline(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each record next to the least error of the first curve in no more seconds."""
    fitted = [record for record in records if "seconds" in record]
    baseline = [record for record in fitted if record["curve"] == records[0]["curve"]]
    for record in fitted:
        sooner = [b["error"] for b in baseline if b["seconds"].median <= record["seconds"].median]
        record["LIBSVM by then"] = Share(min(sooner)) if sooner else None
    return records


def table(name: str, records: list[dict[str, Any]]) -> Table:
    ours = [record for record in records if record["kind"] == "streamsvm"]
    below = [r for r in ours if r["LIBSVM by then"] is None or r["error"] < r["LIBSVM by then"]]
    rows = [{k: v for k, v in record.items() if k != "kind"} for record in records]
    notes = [
        f"{len(below)} of {len(ours)} fits of streamsvm are below the curve to beat, or faster than its first point",
        f"configs/{CONFIG.name}; C and gamma of configs/{name}.toml",
    ]
    return Table(f"Error over seconds: {name}", rows, notes)


def plot(name: str, records: list[dict[str, Any]], folder: Path) -> None:
    figure, axes = plt.subplots(figsize=(9, 6), layout="constrained")
    for curve in dict.fromkeys(record["curve"] for record in records):
        line = [record for record in records if record["curve"] == curve and "seconds" in record]
        points = [(r["seconds"].median, 100 * r["error"]) for r in line]
        is_ours = line and line[0]["kind"] == "streamsvm"
        style = {"lw": 1.8} if is_ours else {"lw": 1, "ls": "--"}
        if curve == records[0]["curve"]:
            style = {"lw": 2.5, "color": "black"}
        if points:
            axes.plot(*zip(*sorted(points), strict=True), marker="o", ms=4, label=curve, **style)
    axes.set(xscale="log", yscale="log", xlabel="seconds of training", ylabel="test error, %", title=name)
    for formatted in (axes.yaxis.set_major_formatter, axes.yaxis.set_minor_formatter):
        formatted("{x:.3g}")
    axes.grid(alpha=0.3, which="both")
    axes.legend(fontsize="small")
    for suffix in ("png", "svg"):
        figure.savefig(folder / f"comparison.{suffix}", dpi=150)
    plt.close(figure)


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--set-name", choices=("ijcnn1", "a9a"), default="ijcnn1")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw comparison.png and .svg here")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        report = Report(args.out)
        records = with_baseline(list(measured(bench, args.set_name)))
        if args.plots is not None:
            args.plots.mkdir(parents=True, exist_ok=True)
            plot(args.set_name, records, args.plots)
        report.add([table(args.set_name, records)])


if __name__ == "__main__":
    main()
