"""Tables end to end: files in, answers out, next to scikit-learn's steps and to Arrow's own reading. Linux.

    python pipelines/files_table.py --data DIR [--only scores,rate] [--bytes 10e9] [--quick] [--out files.md]

Items:
    scores   `fit FILE` and `evaluate FILE` on twelve tables with gaps and categories, next to a pipeline of
             SimpleImputer, OneHotEncoder and StandardScaler before the same learner: accuracy on the same test rows
    rate     a synthetic CSV of --bytes with gaps and a category: rows a second of Arrow's reader on all cores, of
             `ingest`, and of `predict FILE` by a linear model, within 1 GiB, alternating
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.csv
from bench import Bench, from_arguments
from oneclass_table import listed
from sklearn import datasets
from sklearn.compose import make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, OneHotEncoder, StandardScaler
from tables import Bytes, Factor, Report, Seconds, Share, Table

from streamsvm import DCSVC

ROWS, QUICK_ROWS, C, GAMMA = 20_000, 300, 10.0, 0.02
LABEL = "label"
RATE_BYTES, QUICK_BYTES, MEMORY, PIECE = 10e9, 3e5, "1GiB", 100_000
MiB = 1 << 20
Frame = pd.DataFrame


def gapped(frame: Frame, share: float) -> Frame:
    """A share of the numbers missing, at random."""
    rng, frame = np.random.default_rng(0), frame.copy()
    for name in frame.columns.drop(LABEL):
        frame.loc[rng.random(len(frame)) < share, name] = np.nan
    return frame


def of_sklearn(load: Callable[..., Any]) -> Frame:
    found = load(as_frame=True)
    return found.data.assign(**{LABEL: found.target_names[found.target].astype(str)})


def of_river(name: str) -> Frame:
    from river import datasets as streams

    events = [{**x, LABEL: f"is {y}"} for x, y in getattr(streams, name)()]
    return pd.DataFrame(events)


def of_file(path: Path, label: Any, **options: Any) -> Frame:
    frame = pd.read_csv(path, **options).rename(columns={label: LABEL}).rename(columns=str)
    return frame.assign(**{LABEL: "is " + frame[LABEL].astype(str)})


def census(data: Path) -> Frame:
    frame = pd.read_parquet(data / "census.parquet").drop(columns="unknown")
    text = frame.select_dtypes(exclude="number").columns
    for name in text:
        frame[name] = frame[name].str.strip("'\" ")
    return frame.rename(columns={"income_50k": LABEL})


def made_up(categories: int, rows: int = 40_000) -> Frame:
    """Numbers with gaps, and a category of so many values that decides something."""
    rng = np.random.default_rng(1)
    shop, x = rng.integers(0, categories, rows), rng.normal(size=(rows, 4))
    effect = rng.normal(size=categories)
    said = x[:, 0] * x[:, 1] + effect[shop] + 0.3 * rng.normal(size=rows) > 0
    frame = Frame(x.round(4), columns=list("abcd")).assign(**{LABEL: np.where(said, "yes", "no")})
    frame = gapped(frame, 0.05)
    return frame.assign(shop=[f"shop {number}" for number in shop])


TABLES: dict[str, Callable[[Path], Frame]] = {
    "census": census,
    "covtype": lambda data: of_file(data / "covtype.csv.gz", "Cover_Type"),
    "magic04": lambda data: of_file(data / "magic04.csv.gz", 10, header=None),
    "skin": lambda data: of_file(data / "skin_nonskin.tsv.gz", 3, header=None, sep="\t"),
    "electricity": lambda data: of_file(data / "electricity.csv.gz", "class", index_col=0),
    "breast cancer, gaps": lambda data: gapped(of_sklearn(datasets.load_breast_cancer), 0.1),
    "wine, gaps": lambda data: gapped(of_sklearn(datasets.load_wine), 0.1),
    "iris": lambda data: of_sklearn(datasets.load_iris),
    "phishing (river)": lambda data: of_river("Phishing"),
    "segments (river), gaps": lambda data: gapped(of_river("ImageSegments"), 0.05),
    "synthetic, 100 categories": lambda data: made_up(100),
    "synthetic, 10,000 categories": lambda data: made_up(10_000, 200_000),
}


def pipeline(scale: str) -> Any:
    number, text = make_column_selector(dtype_include="number"), make_column_selector(dtype_exclude="number")
    scaler, of_text = MaxAbsScaler(), MaxAbsScaler()
    if scale == "standard":
        scaler, of_text = StandardScaler(), StandardScaler(with_mean=False)
    steps = (
        (make_pipeline(SimpleImputer(), scaler), number),
        (make_pipeline(OneHotEncoder(handle_unknown="ignore"), of_text), text),
    )
    return make_pipeline(make_column_transformer(*steps, sparse_threshold=0), learner())


def learner() -> DCSVC:
    return DCSVC(C=C, gamma=GAMMA)


def scores(bench: Bench, args: argparse.Namespace) -> Table:
    most = QUICK_ROWS if bench.sizes.is_quick else ROWS
    names = ["wine, gaps", "iris"] if bench.sizes.is_quick else list(TABLES)
    records = [scored(bench, name, TABLES[name](args.data), most) for name in names]
    off = max(abs(r["streamsvm"] - r["scikit-learn"]) for r in records)
    notes = [
        f"C {C:g}, gamma {GAMMA:g}; at most {most:,} rows to learn from, at random",
        "columns are standardised, those of synthetic tables divided by their largest",
    ]
    return Table("Files next to a pipeline", records, notes, [("within 0.1 points", off <= 0.001 + 1e-9)])


def scored(bench: Bench, name: str, frame: Frame, most: int) -> dict[str, Any]:
    train, test = train_test_split(frame, test_size=0.2, random_state=0, stratify=frame[LABEL])
    train, test = train.head(most), test.head(most // 2)
    stem = bench.work / "".join(c for c in name if c.isalnum())
    files = {part: stem.with_suffix(f".{part}.csv") for part in ("train", "test")}
    for part, rows in (("train", train), ("test", test)):
        rows.to_csv(files[part], index=False)
    store, model = stem.with_suffix(".zarr"), stem.with_suffix(".model")
    scale = "maxabs" if name.startswith("synthetic") else "standard"  # stores of many categories are sparse
    fit = bench.command(
        *("fit", files["train"], "--label", LABEL, "--store", store, "--model", model, "--force"),
        *("--no-search", "--scale", scale, "--C", C, "--gamma", GAMMA),
    )
    found = bench.command("evaluate", "--model", model, files["test"]).result
    twin = pipeline(scale).fit(train.drop(columns=LABEL), train[LABEL])
    return {
        "table": name,
        "rows": f"{len(train):,}",
        "columns": fit.result["d"],
        "missing": Share(frame.isna().to_numpy().mean()),
        "streamsvm": Share(found["accuracy"]),
        "scikit-learn": Share(twin.score(test.drop(columns=LABEL), test[LABEL])),
        "seconds": Seconds(fit.seconds),
    }


def big_file(work: Path, size: float) -> Path:
    """Ten numbers, one of which has gaps, a shop and a label a row, of about so many bytes."""
    path = work / f"big.{size:.0f}.csv"
    if path.exists():
        return path
    rng, shops = np.random.default_rng(0), np.array([f"shop{i}" for i in range(20)])
    schema, writer = None, None
    part = path.with_suffix(".part")
    while writer is None or part.stat().st_size < size:
        x = rng.normal(size=(10, PIECE if size > MiB else 1000)).round(4)
        columns: dict[str, Any] = {f"x{j}": values for j, values in enumerate(x)}
        columns["x3"] = pa.array(x[3], mask=rng.random(x.shape[1]) < 0.02)
        columns |= {"shop": shops[rng.integers(0, 20, x.shape[1])]}
        table = pa.table(columns | {LABEL: np.where(x[0] + x[1] > 0, "yes", "no")})
        schema = schema or table.schema
        writer = writer or pyarrow.csv.CSVWriter(part, schema)
        writer.write(table)
    writer.close()
    part.rename(path)
    return path


def read_rows(path: Path) -> int:
    """Rows that Arrow reads, on all cores, in pieces."""
    return sum(batch.num_rows for batch in pyarrow.csv.open_csv(path))


def seconds_to_read(path: Path) -> float:
    start = time.perf_counter()
    read_rows(path)
    return time.perf_counter() - start


def rate(bench: Bench, args: argparse.Namespace) -> Table:
    size = QUICK_BYTES if bench.sizes.is_quick else args.bytes
    few, path = big_file(bench.work, min(size, 20e6)), big_file(bench.work, size)
    model = bench.work / "linear.model"
    bench.command(
        *("fit", few, "--label", LABEL, "--store", bench.work / "few.zarr", "--model", model, "--force"),
        *("--no-search", "--solver", "cutting-plane", "--kernel", "linear", "--scale", "standard"),
    )
    memory = () if bench.sizes.is_quick else ("--memory-limit", MEMORY)
    ways: dict[str, Callable[[], tuple[float, int | None]]] = {
        "Arrow, all cores": lambda: (seconds_to_read(path), None),
        "ingest": lambda: said(
            bench.command("ingest", path, "--label", LABEL, "--store", bench.work / "big.zarr", "--force", *memory)
        ),
        "predict FILE": lambda: said(
            bench.command("predict", "--model", model, path, "--out", bench.work / "answers.csv", "--force")
        ),
    }
    rows, times, peaks = read_rows(path), {name: [] for name in ways}, dict.fromkeys(ways, 0)
    for _ in range(bench.sizes.runs):
        for name, way in ways.items():
            seconds, peak = way()
            times[name].append(seconds)
            peaks[name] = max(peaks[name], peak or 0)
    medians = {name: float(np.median(found)) for name, found in times.items()}
    whole = medians["Arrow, all cores"]
    records = [
        {
            "way": name,
            "seconds": Seconds(seconds),
            "from": Seconds(min(times[name])),
            "to": Seconds(max(times[name])),
            "rows/s": f"{rows / seconds:,.0f}",
            "MB/s": f"{path.stat().st_size / 1e6 / seconds:,.0f}",
            "of Arrow's rate": Factor(whole / seconds),
            "peak memory": Bytes(peaks[name]) if peaks[name] else None,
        }
        for name, seconds in medians.items()
    ]
    slowest = max(medians["ingest"], medians["predict FILE"])
    checks = [
        ("half of Arrow's rate", slowest <= 2 * whole),
        ("1 GiB", max(peaks.values()) <= 1 << 30),
    ]
    title = f"{path.stat().st_size / 1e9:.1f} GB of CSV, {rows:,} rows, {os.cpu_count()} cores"
    return Table(title, records, [], checks)


def said(command: Any) -> tuple[float, int]:
    return command.seconds, command.peak_rss_bytes


ITEMS = {"scores": scores, "rate": rate}


def add(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=listed(ITEMS), default=list(ITEMS), metavar="ITEM[,ITEM...]")
    parser.add_argument("--bytes", type=float, default=RATE_BYTES, metavar="N")


if __name__ == "__main__":
    with from_arguments(__doc__, add) as (bench, args):
        report = Report(args.out)
        for item in args.only:
            report.add([ITEMS[item](bench, args)])
