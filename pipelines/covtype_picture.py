"""Accuracy over CPU seconds of training: covtype, class 2 against the rest, streamsvm and its peers. Linux.

    python pipelines/covtype_picture.py --data DIR --measure [--only "CURVE|.."] [--out FILE.json]
    python pipelines/covtype_picture.py --draw docs/pictures/covtype.svg [--out FILE.json]

--measure fits what configs/covtype_picture.toml lists and keeps it in --out (docs/figures/covtype.json), curve by
curve, each with its machine, versions, command and date. --only measures some curves and leaves the others as they are.
--draw makes the picture of what is kept, and prints its table. Both may be given.

CPU seconds are those of all cores together, and hardly change when other programs run, too; elapsed seconds are kept
next to them. Those of streamsvm are of the whole `fit` command, which reads a store on disk; those of LightGBM and
scikit-learn-intelex (`pip install '.[bench]'`) of `fit` on the same rows in memory. A fit before the first counted one
compiles, and is not counted. Published points are of another machine. Needs covtype.csv.gz in --data.
"""

from __future__ import annotations

import argparse
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import matplotlib
from bench import CONFIGS, Bench, Solver, from_arguments, options
from figures import FIGURES, in_one
from tables import Bytes, Seconds, Share, Table, keep, read, this_run

matplotlib.use("Agg")
from matplotlib import pyplot as plt  # noqa: E402

CONFIG = CONFIGS / "covtype_picture.toml"
PUBLISHED = "Hsieh, Si and Dhillon 2014, table 3; one 2.66 GHz Xeon X5355"
INK = "#808080"  # can be read on white and on black
FEW = 1_000  # rows of a first fit, which is not counted
ERRORS = (20, 10, 5, 4, 3, 2, 1.5)  # per cent, at which accuracy is written
TICKS_S = (1, 10, 60, 600, 3600, 86400)
COLOURS = {"streamsvm": "#d9480f", "LightGBM": "#37b24d", "scikit-learn-intelex": "#1c7ed6"}


def curves() -> list[dict[str, Any]]:
    return tomllib.loads(CONFIG.read_text(encoding="utf-8"))["curve"]


def measured(bench: Bench, curve: dict[str, Any]) -> Iterator[Table]:
    """The table of a curve, after each point."""
    if "config" in curve:
        records, note = _commands(bench, curve), f"whole commands; configs/{curve['config']}"
    elif "kind" in curve:
        records, note = _in_memory(bench, curve), "fits on rows in memory"
    else:
        records, note = map(_published, curve["points"]), PUBLISHED
    rows = list[dict[str, Any]]()
    for record in records:
        rows.append(record)
        yield Table(curve["name"], rows, [note])


def _published(point: dict[str, Any]) -> dict[str, Any]:
    return {"CPU seconds": Seconds(point["seconds"]), "accuracy": Share(point["accuracy"])}


def _commands(bench: Bench, curve: dict[str, Any]) -> Iterator[dict[str, Any]]:
    return (_command(bench, curve["config"], point) for point in curve["points"])


def _command(bench: Bench, config: str, point: dict[str, Any]) -> dict[str, Any]:
    """A `fit` of a store, and the accuracy of its model."""
    train, test = bench.stores("covtype")
    model = bench.work / "picture.model"
    words = [word for name, value in point.items() for word in ("--set", f"{name}={value}")]
    given = ("--force", "--config", CONFIGS / config, "--positive", "2", *words)
    _compile(bench, train, given)
    fit = bench.command("fit", "--store", train, "--model", model, *given)
    accuracy = bench.command("evaluate", "--model", model, "--store", test).result["accuracy"]
    return {
        "setting": _setting(point),
        "seconds": Seconds(fit.seconds),
        "CPU seconds": Seconds(fit.cpu_seconds),
        "peak memory": Bytes(fit.peak_rss_bytes),
        "accuracy": Share(accuracy),
    }


def _compile(bench: Bench, train: Path, given: tuple[Any, ...]) -> None:
    """A fit of few rows that compiles what the large one needs."""
    few = bench.copies(train, min(20_000, bench.sizes.subset_rows))
    bench.command(
        "fit", "--store", few, "--model", bench.work / "small.model", *given, "--set", "dcsvm.levels=1"
    )


def _in_memory(bench: Bench, curve: dict[str, Any]) -> Iterator[dict[str, Any]]:
    store, test_store = bench.stores("covtype")
    scaled, kind = "covtype_early", curve["kind"]
    train, test = bench.arrays(store, scaled), bench.arrays(test_store, scaled, like=store)
    shared = options(scaled) if kind == "intelex" else {}
    [first] = bench.compare(
        train, test, [Solver(kind, kind, shared | {"rows": FEW})], 1
    )  # tells if it is installed
    for point in curve["points"] if "seconds" in first else ():
        solver = Solver(_setting(point), kind, shared | point, compiles=False)
        [record] = bench.compare(train, test, [solver])
        yield _fitted(record)


def _fitted(record: dict[str, Any]) -> dict[str, Any]:
    """A record of `Bench.compare` as those of commands are."""
    seconds = record["seconds"].median
    return {
        "setting": record["solver"],
        "seconds": Seconds(seconds),
        "CPU seconds": Seconds(seconds * record["cores busy"]),
        "accuracy": record["accuracy"],
    }


def _setting(point: dict[str, Any]) -> str:
    return ", ".join(f"{name} {value:,}" for name, value in point.items())


def draw(tables: list[Table], out: Path) -> None:
    """One line for each table, on no ground, so that it can be read on light and dark pages."""
    inks = ("text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color")
    fixed = {"svg.fonttype": "none", "svg.hashsalt": "streamsvm", "font.size": 11}
    with plt.rc_context(dict.fromkeys(inks, INK) | fixed):
        figure, axes = plt.subplots(figsize=(8, 4.2), layout="constrained")
        axes.set(xscale="log", yscale="log", xlim=(1, 2e5), ylim=(25, 1.2))
        for table in tables:
            _draw_curve(axes, table)
        axes.set(xlabel="CPU time of training", ylabel="accuracy on unseen rows, %")
        axes.set_xticks(TICKS_S, ["1 s", "10 s", "1 min", "10 min", "1 h", "1 day"])
        axes.set_yticks(ERRORS, [f"{100 - error:g}" for error in ERRORS])
        axes.minorticks_off()
        axes.spines[["top", "right"]].set_visible(False)
        axes.grid(alpha=0.25)
        axes.set_title("covtype, class 2 against the rest, 464,810 rows to train on", fontsize=11)
        axes.annotate("published in 2014", (8e3, 5.4), color=INK, fontsize=10, ha="center")
        figure.savefig(out, transparent=True, metadata={"Date": None})
        plt.close(figure)


def _draw_curve(axes: Any, table: Table) -> None:
    points = sorted((row["CPU seconds"], 100 * (1 - row["accuracy"])) for row in table.rows)
    title = table.title
    curve = next(curve for curve in curves() if curve["name"] == title)
    colour = COLOURS.get(title.partition(",")[0], INK)
    look = {"mfc": "none"} if "published" in title else {}
    axes.plot(*zip(*points, strict=True), marker="o", ms=6, lw=2, color=colour, **look)
    placed = {"xytext": curve["at"], "textcoords": "offset points"}
    axes.annotate(curve["label"], points[-1], color=colour, fontsize=10, **placed)


def _own_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--measure", action="store_true", help="fit, and keep what comes of it in --out")
    parser.add_argument("--only", metavar="CURVE[|CURVE..]", help="those whose names begin like this")
    parser.add_argument("--draw", type=Path, metavar="FILE.svg", help="draw what is kept in --out")


def main() -> None:
    with from_arguments(__doc__, _own_options) as (bench, args):
        figures = args.out or FIGURES / "covtype.json"
        run, chosen = this_run(), tuple((args.only or "").split("|"))
        for curve in curves() if args.measure else ():
            if curve["name"].startswith(chosen):
                for table in measured(bench, curve):
                    print(table.markdown(), flush=True)
                    keep(figures, replace(run, tables=[table]))
        if args.draw:
            tables = [table for run in read(figures) for table in run.tables]
            draw(tables, args.draw)
            print(in_one(tables, "curve").markdown())


if __name__ == "__main__":
    main()
