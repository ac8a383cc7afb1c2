"""Accuracy over seconds of training: covtype, class 2 against the rest, streamsvm and its peers. Linux.

    python pipelines/covtype_picture.py --data DIR [--only "CURVE|.."] [--runs 3] [--out FILE.json]

Fits what configs/covtype_picture.toml lists and keeps it in --out (docs/figures/covtype.json), curve by curve, each
with its machine, versions, command and date. --only measures some curves and leaves the others as they are. plots.py
draws the picture of README from that file.

Seconds of streamsvm are those of the whole `fit` command, which reads a store on disk; those of LightGBM,
scikit-learn-intelex (`pip install '.[bench]'`) and liquidSVM (`pip install 'setuptools<81' liquidSVM`) of `fit` on the
same rows in memory. CPU seconds of all cores together are kept next to them. A fit before the first counted one
compiles, and is not counted. Published points are of another machine. Needs covtype.csv.gz in --data.
"""

from __future__ import annotations

import time
import tomllib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from bench import CONFIGS, Bench, Solver, from_arguments, options
from figures import FIGURES
from tables import Bytes, Seconds, Share, Table, keep, this_run

CONFIG = CONFIGS / "covtype_picture.toml"
PUBLISHED = "Hsieh, Si and Dhillon 2014, table 3; one 2.66 GHz Xeon X5355"
FEW = 1_000  # rows of a first fit, which is not counted


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
    return {"seconds": Seconds(point["seconds"]), "accuracy": Share(point["accuracy"])}


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
    bench.command("fit", "--store", few, "--model", bench.work / "small.model", *given, "--set", "dcsvm.levels=1")


def _in_memory(bench: Bench, curve: dict[str, Any]) -> Iterator[dict[str, Any]]:
    store, test_store = bench.stores("covtype")
    scaled, kind = "covtype_early", curve["kind"]
    train, test = bench.arrays(store, scaled), bench.arrays(test_store, scaled, like=store)
    shared = options(scaled) if kind == "intelex" else {}
    [first] = bench.compare(train, test, [Solver(kind, kind, shared | {"rows": FEW})], 1)  # tells if it is installed
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


def main() -> None:
    only = {"metavar": "CURVE[|CURVE..]", "help": "those whose names begin like this"}
    with from_arguments(__doc__, lambda parser: parser.add_argument("--only", **only)) as (bench, args):
        figures = args.out or FIGURES / "covtype.json"
        run, chosen = this_run(), tuple((args.only or "").split("|"))
        start = time.monotonic()
        for curve in curves():
            if curve["name"].startswith(chosen):
                for table in measured(bench, curve):
                    print(table.markdown(), flush=True)
                    keep(figures, replace(run, tables=[table], seconds=round(time.monotonic() - start, 1)))


if __name__ == "__main__":
    main()
