"""Stores that others wrote, opened as they are: an xarray dataset and AnnData objects, next to an ingested one. Linux.

    python pipelines/foreign_stores.py --data DIR [--quick] [--out stores.md]

The rows of a9a as
    ours      an ingested store
    xarray    Dataset.to_zarr: indicator (row, feature) and income (row), by --x indicator --y income
    anndata   AnnData.write_zarr: X as a csr_matrix; labels in obs, categorical by --y obs/income, or nullable integers
              by --y obs/code

Each is fitted with configs/a9a.toml and tried on test rows of the same writer. A chunk that is not there is taken for
a lost one, and zarr leaves out chunks of zeros alone if nobody says write_empty_chunks. Needs a9a.bz2 a9a.t.bz2 in
--data, and `pip install '.[recipes]'`; without anndata, its rows are left out.
"""

from __future__ import annotations

import importlib.util
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from bench import CONFIGS, Bench, from_arguments
from scipy import sparse
from tables import Report, Seconds, Share, Table

from streamsvm import Store

CONFIG = CONFIGS / "a9a.toml"
CHUNK_ROWS = 8_192
Write = Callable[[np.ndarray, np.ndarray, Path], None]


def write_xarray(X: np.ndarray, y: np.ndarray, out: Path) -> None:
    columns = {"indicator": (("row", "feature"), X.astype(np.uint8)), "income": ("row", y)}
    chunks = {"indicator": {"chunks": (CHUNK_ROWS, X.shape[1])}, "income": {"chunks": (CHUNK_ROWS,)}}
    xr.Dataset(columns).to_zarr(out, encoding=chunks, write_empty_chunks=True, consolidated=False)


def write_anndata(X: np.ndarray, y: np.ndarray, out: Path) -> None:
    from anndata import AnnData

    names = pd.Index([f"row {i}" for i in range(len(y))])
    income = pd.Categorical(np.where(y > 0, "more", "less"))
    obs = pd.DataFrame({"income": income, "code": pd.array(y, dtype="Int64")}, index=names)
    AnnData(sparse.csr_matrix(X.astype(np.float32)), obs=obs).write_zarr(out)


def written(bench: Bench, ours: tuple[Path, Path], write: Write, writer: str) -> tuple[Path, Path]:
    """The same rows in stores of another writer."""
    made = bench.work / f"a9a.{writer}.zarr", bench.work / f"a9a.{writer}.t.zarr"
    for source, out in zip(map(Store.open, ours), made, strict=True):
        shutil.rmtree(out, ignore_errors=True)
        write(source.read(0, source.n).dense(), source.y, out)
    return made


def fitted(bench: Bench, writer: str, stores: tuple[Path, Path], *names: str) -> dict[str, Any]:
    train, test = stores
    model = bench.work / "foreign.model"
    fit = bench.told("fit", "--store", train, "--model", model, "--force", "--config", CONFIG, *names)
    score = bench.told("evaluate", "--model", model, "--store", test, *names)
    return {
        "store": writer,
        "options": " ".join(names),
        "layout": "sparse" if Store.open(train, x=names[1] if "--x" in names else "X").is_sparse else "dense",
        "fit": Seconds(fit.seconds),
        "support vectors": fit.result["n_support"],
        "objective": f"{fit.result['objective']:.4f}",
        "accuracy": Share(score.result["accuracy"]),
    }


def a9a(bench: Bench) -> Table:
    ours = bench.stores("a9a")
    by_xarray = written(bench, ours, write_xarray, "xarray")
    records = [
        fitted(bench, "ours", ours),
        fitted(bench, "xarray", by_xarray, "--x", "indicator", "--y", "income"),
    ]
    notes = [f"configs/{CONFIG.name}; whole commands"]
    if importlib.util.find_spec("anndata") is None:
        notes.append("anndata is not installed")
    else:
        by_anndata = written(bench, ours, write_anndata, "anndata")
        records += [fitted(bench, "anndata", by_anndata, "--y", f"obs/{name}") for name in ("income", "code")]
    best = float(records[0]["objective"])
    apart = max(abs(float(record["objective"]) / best - 1) for record in records)
    check = (f"the same objective ({apart:.1e} apart)", apart <= 1e-3)
    return Table("a9a in stores of three writers", records, notes, [check])


def main() -> None:
    with from_arguments(__doc__, lambda parser: None) as (bench, args):
        report = Report(args.out)
        report.add([a9a(bench)])


if __name__ == "__main__":
    main()
