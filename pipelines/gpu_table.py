"""What a graphics processor does for fits and predictions, next to the CPUs of the same machine.

    python pipelines/gpu_table.py --data DIR [--device cuda] [--only exact,...] [--quick] [--out gpu.json]

items, and the files of --data that they need:
    exact    covtype.csv.gz, ijcnn1.bz2 ijcnn1.t.bz2, {train,t10k}-{images-idx3,labels-idx1}-ubyte.gz, made rows
    early    covtype.csv.gz
    predict  covtype.csv.gz: a million of its rows, by the exact and the early model
    disk     covtype.csv.gz: 5,000,000 noisy copies of its rows, early, with 4 GiB of the device
    values   none: kernel values per second, next to what products and exponentials alone would take

Each fit is a process: first on the device, then on all CPUs. Needs the extra gpu; `--device torch:cpu` tries everything
on the CPU.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from bench import CONFIGS, Bench, among, from_arguments, stored
from measure import Run
from tables import Bytes, Factor, Report, Seconds, Share, Table

from streamsvm.data.rows import Rows
from streamsvm.kernels.distance import RBF
from streamsvm.parallel.devices import Device, computing_on, open_device

COPIES, PREDICTED, MADE, COLUMNS = 5_000_000, 1_000_000, 15_000, 20
VALUES = (200_000, 4_096)  # rows of the two sides of a product
PLAIN = ("--no-search", "--scale", "minmax", "--C", "10", "--gamma")


class Fitted(NamedTuple):
    """A fit on a device, or on the CPUs, and its model."""

    run: Run
    model: Path


def exact(bench: Bench, device: str) -> list[Table]:
    cases = {
        "covtype": (*bench.stores("covtype"), ("--config", CONFIGS / "covtype_exact.toml")),
        "ijcnn1": (*bench.stores("ijcnn1"), ("--config", CONFIGS / "ijcnn1.toml")),
        "mnist": (*bench.stores("mnist"), (*PLAIN, "0.02")),
        "made": (*_made(bench), (*PLAIN, "2")),
    }
    records = [_record(bench, device, name, *case) for name, case in cases.items()]
    return [Table("Exact fits", records, NOTES, [_check(record) for record in records])]


def early(bench: Bench, device: str) -> list[Table]:
    record = _record(bench, device, "covtype", *bench.stores("covtype"), ("--config", CONFIGS / "covtype_early.toml"))
    return [Table("Early prediction", [record], NOTES, [_check(record)])]


def disk(bench: Bench, device: str) -> list[Table]:
    train, test = bench.stores("covtype")
    rows = bench.copies(train, bench.sizes.train_rows or COPIES)
    words = ("--config", CONFIGS / "covtype_early.toml")
    record = _record(bench, device, f"{rows.stem}", rows, test, words, ("--device-memory", "4GiB"))
    return [Table("Rows from disk", [record], NOTES, [_check(record)])]


def predict(bench: Bench, device: str) -> list[Table]:
    train, test = bench.stores("covtype")
    rows, records = bench.copies(test, bench.sizes.train_rows or PREDICTED), []
    for name in ("exact", "early"):
        model = _fitted(bench, device, train, ("--config", CONFIGS / f"covtype_{name}.toml")).model
        seconds = {where: _predicted(bench, where, model, rows) for where in (device, "cpu")}
        records.append(
            {
                "model": name,
                "rows": bench.command("info", rows).result["rows"],
                "seconds": Seconds(seconds[device]),
                "CPUs": Seconds(seconds["cpu"]),
                "CPUs / device": Factor(seconds["cpu"] / seconds[device]),
            }
        )
    return [Table("Predictions", records, ["seconds: of the whole command, with reading and writing"], [])]


def values(bench: Bench, device: str) -> list[Table]:
    """Kernel values per second of one large sum, and of products and exponentials alone."""
    opened, (m, q) = open_device(device), VALUES
    if opened is None:
        return []
    m, q = (bench.sizes.train_rows or m, min(q, bench.sizes.train_rows or q))
    rng = np.random.default_rng(0)
    a, b = (Rows(rng.random((n, 54), dtype=np.float32)) for n in (m, q))
    kernel, coef = RBF(1.0), rng.normal(size=q)
    with computing_on(opened):
        whole = _best(lambda: kernel.apply(a, b, coef))
    alone = _best(lambda: _products(opened, m, q)) + _best(lambda: _exponentials(opened, m, q))
    record = {
        "device": str(opened),
        "values/s": round(m * q / whole),
        "of products and exponentials alone": round(m * q / alone),
        "ratio": Factor(whole / alone),
    }
    return [Table("Kernel values", [record], [f"{m:,} x {q:,} values of 54 columns, rbf"], [])]


def _best(work: Callable[[], Any]) -> float:
    """Seconds of the fastest of several."""
    seconds = []
    for _ in range(5):
        began = time.perf_counter()
        work()
        seconds.append(time.perf_counter() - began)
    return min(seconds)


def _products(device: Device, m: int, q: int) -> np.ndarray:
    left, right = (device.xp.ones((n, 54), dtype=device.xp.float32, device=device.where) for n in (m, q))
    return device.get(device.xp.sum(left @ device.xp.matrix_transpose(right), axis=0)[:1])


def _exponentials(device: Device, m: int, q: int) -> np.ndarray:
    ones = device.xp.ones((m, q), dtype=device.xp.float32, device=device.where)
    return device.get(device.xp.sum(device.xp.exp(ones), axis=0)[:1])


NOTES = [
    "device, CPUs: seconds of the whole command, one run each; fit: without starting and reading",
    "objective: how far the device's is from the CPUs', over it",
]


def _record(
    bench: Bench, device: str, name: str, train: Path, test: Path, words: tuple[Any, ...], more: tuple[str, ...] = ()
) -> dict[str, Any]:
    there, here = (
        _fitted(bench, where, train, (*words, *(more if where == device else ()))) for where in (device, "cpu")
    )
    own, peers = there.run.result, here.run.result
    scores = [
        bench.command("evaluate", "--model", model, "--store", test).result["accuracy"] for _, model in (there, here)
    ]
    return {
        "data": name,
        "rows": own["n"],
        "device": Seconds(there.run.seconds),
        "CPUs": Seconds(here.run.seconds),
        "CPUs / device": Factor(here.run.seconds / there.run.seconds),
        "fit": Seconds(_fit_seconds(own)),
        "fit, CPUs": Seconds(_fit_seconds(peers)),
        "values/s of the device": own.get("device_values_per_s"),
        "objective": f"{abs(own['objective'] / peers['objective'] - 1):.1e}",
        "accuracy": Share(scores[0]),
        "accuracy, CPUs": Share(scores[1]),
        "peak memory": Bytes(there.run.peak_rss_bytes),
    }


def _fit_seconds(report: dict[str, Any]) -> float:
    return sum(seconds for phase, seconds in report["seconds_by_phase"].items() if phase not in ("start", "compile"))


def _check(record: dict[str, Any]) -> tuple[str, bool]:
    return f"{record['data']}: objective within 1e-4", float(record["objective"]) <= 1e-4


def _fitted(bench: Bench, device: str, train: Path, words: tuple[Any, ...]) -> Fitted:
    model = bench.work / f"{train.stem}.{device.replace(':', '-')}.model"
    return Fitted(
        bench.command("fit", "--store", train, "--model", model, *words, "--device", device, "--force"), model
    )


def _predicted(bench: Bench, device: str, model: Path, rows: Path) -> float:
    out = bench.work / "predicted.npy"
    words = ("predict", "--model", model, "--store", rows, "--out", out, "--force", "--device", device)
    return min(bench.command(*words).seconds for _ in range(bench.sizes.runs))


def _made(bench: Bench) -> tuple[Path, Path]:
    """Stores of rows of two classes, with a parabola and some noise between them."""
    n, rng = bench.sizes.train_rows or MADE, np.random.default_rng(0)
    X = rng.random((2 * n, COLUMNS), dtype=np.float32)
    y = (X[:, 0] + 4 * (X[:, 1] - 0.5) ** 2 + 0.2 * rng.normal(size=2 * n) > 0.8).astype(np.int64)
    train, test = bench.work / f"made.{n}.zarr", bench.work / f"made.{n}.t.zarr"
    stored(train, X[:n], y[:n])
    stored(test, X[n:], y[n:])
    return train, test


ITEMS = {"values": values, "exact": exact, "early": early, "predict": predict, "disk": disk}


def _options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--only", type=among(ITEMS), metavar="ITEM[,ITEM...]")
    parser.add_argument("--device", default="cuda", metavar="NAME", help="as of streamsvm fit (default cuda)")


if __name__ == "__main__":
    with from_arguments(__doc__, _options) as (bench, args):
        report = Report(args.out)
        for name in args.only or ITEMS:
            report.add(ITEMS[name](bench, args.device))
