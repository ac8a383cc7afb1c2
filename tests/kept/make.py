"""Stores and models as this version writes them, and what they answer: `python tests/kept/make.py 0.1.0`.

Later versions open the archive and answer the same (tests/test_kept.py). One is made before formats may change, and
never made again.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

from streamsvm import Store, load_model
from streamsvm.cli.app import app

N = 150
SHOWN = 20  # rows whose answers are kept
PARTS = ("--set", "dcsvm.levels=1", "--set", "dcsvm.part_rows=60")
EARLY = ("--early", *PARTS)
LINEAR = ("--kernel", "linear")
PLANES = ("--solver", "cutting-plane")
FITS = {
    "exact": (),
    "poly": ("--kernel", "poly", "--degree", "2", "--coef0", "1", "--scale", "standard"),
    "linear": LINEAR,
    "early": (*EARLY, "--scale", "minmax"),
    "kernel-kmeans": (*EARLY, "--set", "dcsvm.clustering=kernel"),
    "several-parts": (*EARLY, "--set", "dcsvm.neighbours=2"),
    "committee": (*EARLY, "--set", "dcsvm.combine=committee"),
    "probable": ("--probability", "sigmoid"),
    "isotonic": (*EARLY, "--probability", "isotonic"),
    "bsgd": ("--solver", "bsgd", "--budget", "20", "--set", "bsgd.bias=true", "--set", "bsgd.average=true"),
    "planes": (*PLANES, *LINEAR),
    "landmarks": (*PLANES, "--set", "cutting_plane.landmarks=15"),
    "ordinal": (*PLANES, *LINEAR, "--task", "ordinal"),
    "rank": (*PLANES, *LINEAR, "--task", "rank"),
    "admm": ("--solver", "admm-hss", "--set", "hss.leaf=32", "--set", "hss.polish=100"),
    "alfpgm": ("--solver", "alfpgm"),
    "regress": ("--solver", "alfpgm", "--task", "regress"),
    "positive": ("--positive", "0,2"),
    "encoded": ("--probability", "sigmoid"),
    "marked": ("--gaps", "median", "--mark-gaps", "--scale", "standard"),
    "metric": ("--metric", "diagonal", "--scale", "quantile"),
    "outliers": ("--task", "oneclass", "--nu", "0.2"),
    "interval": ("--task", "regress", "--interval", "0.9"),
    "costs": ("--positive", "2", "--probability", "sigmoid", "--costs", "1>0=5,0>1=1"),
}
SPARSE, WITH_GAPS = ("exact", "planes", "rank"), ("encoded", "marked")


def run(*words: object) -> None:
    app([*map(str, words)], standalone_mode=False)


def table() -> tuple[list[str], list[str], list[str], list[str]]:
    """Lines of a CSV file with names, of svmlight with queries, of a stream, and of a CSV file with towns and gaps."""
    rng = np.random.default_rng(0)
    X, red = rng.normal(size=(N, 3)).round(3), rng.random(N) < 0.5
    y = np.digitize(X[:, 0] + X[:, 1] ** 2 + red + 0.5 * rng.normal(size=N), [0.5, 1.8])
    csv, svmlight, events, with_gaps = ["height,width,colour,y"], [], [], ["height,town,y"]
    for (a, b, c), colour, label in zip(X.tolist(), np.where(red, "red", "blue"), y, strict=True):
        csv.append(f"{a},{b},{colour},{label}")
        svmlight.append(f"{label} qid:{len(svmlight) // 10} 2:{a} 5:{b} 9:{c}")
        events.append(json.dumps({"a": a, "b": b, "red": bool(colour == "red"), "y": f"class {label}"}))
        with_gaps.append(f"{'' if a > 1.5 else a},town {int(10 * b)},{label}")
    return csv, svmlight, events, with_gaps


def answers(model: str, store: str) -> dict[str, np.ndarray]:
    """Decision values and labels, and probabilities where there are any."""
    loaded, rows = load_model(model), Store.open(store)
    found = {"decisions": loaded.decision_function(rows), "labels": loaded.predict(rows)}
    return found if loaded.header.calibration is None else found | {"p": loaded.predict_proba(rows)}


def make(folder: Path) -> None:
    """Stores `dense` and `sparse`, a model of each fit, one of a stream, and answers.npz."""
    kept: dict[str, np.ndarray] = {}
    with tempfile.TemporaryDirectory() as scratch:
        for name, lines in zip(("rows.csv", "rows.svm", "events", "gaps.csv"), table(), strict=True):
            (Path(scratch) / name).write_text("\n".join(lines) + "\n")
        dense, sparse, gaps, stream = (folder / name for name in ("dense", "sparse", "gaps", "stream"))
        run("ingest", f"{scratch}/rows.csv", "--store", dense, "--label", "y")
        run("ingest", f"{scratch}/rows.svm", "--store", sparse, "--sparse")
        run("ingest", f"{scratch}/gaps.csv", "--store", gaps, "--label", "y", "--target-encode", "town")
        run("stream", "--model", stream, "--input", f"{scratch}/events", "--budget", 20)
    for name, options in FITS.items():
        store = sparse if name in SPARSE else gaps if name in WITH_GAPS else dense
        gamma = () if "linear" in options else ("--gamma", 0.5)
        C = () if "oneclass" in options else ("--C", 5)
        run("fit", "--no-search", "--store", store, "--model", folder / name, *gamma, *C, *options)
        found = answers(str(folder / name), str(store)) | {"store": np.array(store.name)}
        kept |= {f"{name}.{what}": values if what == "store" else values[:SHOWN] for what, values in found.items()}
    events = np.arange(-1.0, 2.0, 0.25)[:, None] * np.ones(3)
    for what in ("decision_function", "predict", "predict_proba"):
        kept[f"stream.{what}"] = getattr(load_model(str(stream)), what)(events)
    for store in (dense, sparse):
        opened = Store.open(str(store))
        kept[f"{store.name}.X"], kept[f"{store.name}.y"] = opened.read(0, SHOWN).dense(), opened.y
    np.savez_compressed(folder / "answers.npz", **kept)


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        make(Path(place))
        with tarfile.open(Path(__file__).with_name(f"{sys.argv[1]}.tar.xz"), "w:xz", preset=9) as archive:
            for file in sorted(Path(place).rglob("*")):
                if file.is_file() and file.suffix != ".lock":
                    archive.add(file, file.relative_to(place))
