"""Accuracy over seconds of training: covtype, class 2 against the rest, streamsvm and its peers. Linux.

    python pipelines/covtype_picture.py --data DIR [--only "CURVE|..|Areas"] [--runs 3] [--out FILE.json]

Fits what configs/covtype_picture.toml lists and keeps it in --out (docs/figures/covtype.json), curve by curve, each
with its machine, versions, command and date. --only measures some curves and leaves the others as they are. plots.py
draws the picture of README from that file.

Seconds of streamsvm are those of the whole `fit` command, which reads a store on disk; those of LightGBM,
scikit-learn-intelex (`pip install '.[bench]'`) and liquidSVM (`pip install 'setuptools<81' liquidSVM`) of `fit` on the
same rows in memory. CPU seconds of all cores together are kept next to them. A fit before the first counted one
compiles, and is not counted. Published points are of another machine. Needs covtype.csv.gz in --data.

Areas: a random split rewards neighbours, as the rows are cells of a map of four wilderness areas. So fits of three
areas are judged on the fourth, each in turn.
"""

from __future__ import annotations

import time
import tomllib
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from bench import CONFIGS, Bench, Solver, from_arguments, options, stored
from figures import FIGURES
from tables import Bytes, Seconds, Share, Table, keep, this_run

from streamsvm import Store

CONFIG = CONFIGS / "covtype_picture.toml"
PUBLISHED = "Hsieh, Si and Dhillon 2014, table 3; one 2.66 GHz Xeon X5355"
POSITIVE = 2
FEW = 1_000  # rows of a first fit, which is not counted
AREAS, FIRST_AREA = 4, 10  # columns of 0 and 1, the first of them
Files = tuple[Path, Path]  # to train and to test on


def entries(kind: str) -> list[dict[str, Any]]:
    return tomllib.loads(CONFIG.read_text(encoding="utf-8"))[kind]


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
    return (_command(bench, curve["config"], point, bench.stores("covtype")) for point in curve["points"])


def _command(bench: Bench, config: str, point: dict[str, Any], stores: Files) -> dict[str, Any]:
    """A `fit` of a store, and the accuracy of its model."""
    train, test = stores
    model = bench.work / "picture.model"
    words = [word for name, value in point.items() for word in ("--set", f"{name}={_shown(value)}")]
    given = ("--force", "--config", CONFIGS / config, "--positive", "2", *words)
    _compile(bench, given)
    fit = bench.command("fit", "--store", train, "--model", model, *given)
    accuracy = bench.command("evaluate", "--model", model, "--store", test).result["accuracy"]
    return {
        "setting": _setting(point),
        "seconds": Seconds(fit.seconds),
        "CPU seconds": Seconds(fit.cpu_seconds),
        "peak memory": Bytes(fit.peak_rss_bytes),
        "accuracy": Share(accuracy),
    }


def _compile(bench: Bench, given: tuple[Any, ...]) -> None:
    """A fit of few rows that compiles what the large one needs."""
    few = bench.copies(bench.stores("covtype")[0], min(20_000, bench.sizes.subset_rows))
    bench.command("fit", "--store", few, "--model", bench.work / "small.model", *given, "--set", "dcsvm.levels=1")


def _in_memory(bench: Bench, curve: dict[str, Any]) -> Iterator[dict[str, Any]]:
    kind = curve["kind"]
    shared = options("covtype_early") if kind == "intelex" else {}
    store, test_store = bench.stores("covtype")
    if curve.get("scaled", True):
        files = bench.arrays(store, "covtype_early"), bench.arrays(test_store, "covtype_early", like=store)
    else:
        files = _as_they_are(bench, store), _as_they_are(bench, test_store)
    [first] = bench.compare(*files, [Solver(kind, kind, shared | {"rows": FEW})], 1)  # tells if it is there
    for point in curve["points"] if "seconds" in first else ():
        yield _fitted(bench, kind, _setting(point), shared | point, files)


def _as_they_are(bench: Bench, url: Path) -> Path:
    """Arrays of the rows of a store, not scaled."""
    store, out = Store.open(url), bench.work / f"{url.stem}.raw.npz"
    np.savez(out, X=store.read(0, store.n).dense(), y=_signs(store.y))
    return out


def _signs(y: np.ndarray) -> np.ndarray:
    return np.where(y == POSITIVE, 1, -1)


def _fitted(bench: Bench, kind: str, setting: str, given: dict[str, Any], files: Files) -> dict[str, Any]:
    """A record of `Bench.compare` as those of commands are."""
    [record] = bench.compare(*files, [Solver(setting, kind, given, compiles=False)])
    seconds = record["seconds"].median
    return {
        "setting": setting,
        "seconds": Seconds(seconds),
        "CPU seconds": Seconds(seconds * record["cores busy"]),
        "accuracy": record["accuracy"],
    }


def of_areas(bench: Bench) -> Table:
    """Accuracies on each area by fits of the others."""
    opened = [Store.open(store) for store in bench.stores("covtype")]
    X = np.concatenate([store.read(0, store.n).dense() for store in opened])
    y = np.concatenate([store.y for store in opened])
    if bench.sizes.is_quick:
        X, y = X[: bench.sizes.subset_rows], y[: bench.sizes.subset_rows]
    area = X[:, FIRST_AREA : FIRST_AREA + AREAS].argmax(axis=1)
    records, right, total = [], Counter[str](), 0
    for number in range(AREAS):
        is_left_out = area == number
        stores, files = _files_of_area(bench, number, X, y, is_left_out)
        is_positive = y[is_left_out] == POSITIVE
        accuracies = {"the larger class": max(is_positive.mean(), 1 - is_positive.mean())}
        for entry in entries("area"):
            name, point = entry["name"], entry["point"]
            if "config" in entry:
                record = _command(bench, entry["config"], point, stores)
            else:
                record = _fitted(bench, entry["kind"], name, point, files)
            accuracies[name] = record["accuracy"]
        n = int(np.count_nonzero(is_left_out))
        right.update({name: n * float(accuracy) for name, accuracy in accuracies.items()})
        total += n
        records.append({"area": str(number + 1), "rows": n, **{name: Share(a) for name, a in accuracies.items()}})
    records.append({"area": "all", "rows": total, **{name: Share(count / total) for name, count in right.items()}})
    return Table("Areas: each judged by fits of the three others", records, ["class 2 against the rest"])


def _files_of_area(
    bench: Bench, number: int, X: np.ndarray, y: np.ndarray, is_left_out: np.ndarray
) -> tuple[Files, Files]:
    """Stores and arrays of the rows of other areas, and of those of an area. Rows are in random order."""
    order = np.random.default_rng(number).permutation(len(y))
    parts = order[~is_left_out[order]], order[is_left_out[order]]
    stores, arrays = (
        (bench.work / f"covtype.area{number}.{end}", bench.work / f"covtype.area{number}.t.{end}")
        for end in ("zarr", "npz")
    )
    for ids, store, array in zip(parts, stores, arrays, strict=True):
        stored(store, X[ids], y[ids])
        np.savez(array, X=X[ids], y=_signs(y[ids]))
    return stores, arrays


def _setting(point: dict[str, Any]) -> str:
    return ", ".join(f"{name} {_shown(value, ',')}" for name, value in point.items())


def _shown(value: float | bool, style: str = "") -> str:
    return str(value).lower() if isinstance(value, bool) else format(value, style)


def chosen_tables(bench: Bench, beginnings: tuple[str, ...]) -> Iterator[Table]:
    """Of curves whose names begin so, and of areas."""
    for curve in entries("curve"):
        if curve["name"].startswith(beginnings):
            yield from measured(bench, curve)
    if "Areas".startswith(beginnings):
        yield of_areas(bench)


def main() -> None:
    only = {"metavar": "CURVE[|CURVE..]", "help": "those whose names begin like this"}
    with from_arguments(__doc__, lambda parser: parser.add_argument("--only", **only)) as (bench, args):
        figures = args.out or FIGURES / "covtype.json"
        run, chosen = this_run(), tuple((args.only or "").split("|"))
        start = time.monotonic()
        for table in chosen_tables(bench, chosen):
            print(table.markdown(), flush=True)
            keep(figures, replace(run, tables=[table], seconds=round(time.monotonic() - start, 1)))


if __name__ == "__main__":
    main()
