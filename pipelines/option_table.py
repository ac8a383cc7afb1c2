"""What one option, one command or one place changes: smaller comparisons than those of the other recipes. Linux.

    python pipelines/option_table.py --data DIR [--only bias,explain,...] [--quick] [--out options.md]

items, and the files of --data that they need:
    bias        a bias, with the other options chosen: ijcnn1.bz2 ijcnn1.t.bz2 a9a.bz2 a9a.t.bz2 phishing.bz2
                magic04.csv.gz electricity.csv.gz skin_nonskin.tsv.gz; and exact on all rows of covtype.csv.gz
    rest        each class against the rest instead of pairs: letter.bz2 letter.t.bz2, MNIST's four files
    partitions  a metric of each partition, where there is none of all rows: covtype.csv.gz
    left        options that `fit` leaves at their defaults: covtype.csv.gz, and those of `bias`
    large       the bare command on larger tables: census.parquet census.t.parquet sector.bz2 sector.t.bz2, MNIST's
                four files, covtype.csv.gz
    graph       a fit as a lazy dask graph, next to `train_in_memory`: covtype.csv.gz
    workers     exact fits and a compressed matrix on threads and on two processes: covtype.csv.gz
    regression  HSSSVR next to LIBSVM's SVR: abalone.bz2, and synthetic rows
    bucket      model and run directory in an object store, next to local folders: nothing
    explain     `explain` of large models: covtype.csv.gz ijcnn1.bz2

Whole commands unless an item says something else. A small fit that compiles comes first, and is not counted.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from bench import CONFIGS, Bench, print_tables, stored
from measure import Run, Spread
from scoreboard_data import SETS
from sklearn.svm import SVR
from svr_table import block
from tables import Bytes, Factor, Seconds, Share, Table

from streamsvm import HSSSVR, Store, graph_of
from streamsvm.config import build_config
from streamsvm.options.layers import read_layer
from streamsvm.train import train_in_memory

Words = tuple[Any, ...]  # of a command
SMALL = ("ijcnn1", "a9a", "phishing", "magic04", "electricity", "skin")
SMALL_ROWS = 16_000
EXACT = ("--config", CONFIGS / "covtype_exact.toml", "--memory-limit", "6GiB")
EARLY = ("--config", CONFIGS / "covtype_early.toml")
TWO = ("--positive", 2)
GIVEN = ("--no-search", "--scale", "minmax", *TWO)
COSTLY, WHOLE_MATRIX = ("--gamma", 32, "--C", 32), ("--solver", "admm-hss", "--gamma", 50, "--C", 1)
BIAS, NO_BIAS = ("--set", "dcsvm.bias=true"), ("--set", "dcsvm.bias=false")
WHOLE = "whole commands"


def bias(bench: Bench) -> list[Table]:
    records = []
    for name in SMALL[: 1 if bench.sizes.is_quick else None]:
        stores = _small(bench, name)
        for kernel in ("rbf", "linear"):
            chosen = ("--solver", "dcsvm", "--metric", "none", "--kernel", kernel)
            with_it, without = (_scored(bench, *stores, *chosen, *option) for option in (BIAS, NO_BIAS))
            records.append(
                {
                    "set, kernel": f"{name}, {kernel}",
                    "without": without["accuracy"],
                    "with a bias": with_it["accuracy"],
                    "points": Factor(100 * (with_it["accuracy"] - without["accuracy"])),
                }
            )
    notes = [f"at most {SMALL_ROWS:,} training rows, one seed; scaling, C and gamma are chosen for each fit"]
    large = [
        {"fit": name, **_scored(bench, *bench.stores("covtype"), *EXACT, *option)}
        for name, option in (("without", NO_BIAS), ("with a bias", BIAS))
    ]
    return [
        Table("A bias", records, notes),
        Table("Exact: covtype with a bias", large, [WHOLE, "one run each"]),
    ]


def rest(bench: Bench) -> list[Table]:
    """Pairs of classes, and each class against the rest."""
    letter: Words = ("letter", "--scale", "standard", "--C", 8, "--gamma", 0.25)
    fits: dict[str, Words] = {
        "letter, 26 classes": letter,
        "the same, early": (*letter, "--early", "--set", "dcsvm.levels=2"),
        "MNIST, 10,000 rows": ("mnist", "--C", 10, "--set", f"rows={min(10_000, bench.sizes.subset_rows)}"),
    }
    records = [
        {"fit": fit, "classes": way, **_scored(bench, *bench.stores(data), "--no-search", *words, *more)}
        for fit, (data, *words) in fits.items()
        for way, more in (("pairs", ()), ("against the rest", ("--set", "multiclass=rest")))
    ]
    return [Table("Pairs of classes, or each against the rest", records, [WHOLE, "one run each"])]


def partitions(bench: Bench) -> list[Table]:
    stores = bench.stores("covtype")
    _compile(bench, stores[0])
    fits: dict[str, Words] = {"none": (), "two refits": (2,), "eight refits": (8,)}
    records = [
        {
            "metric of each partition": name,
            **_scored(
                bench,
                *stores,
                *(*EARLY, "--kernel", "matern", "--set", 'search.options=["gamma"]'),
                *(word for n in refits for word in ("--set", f"dcsvm.part_metric={n}")),
            ),
        }
        for name, refits in fits.items()
    ]
    return [Table("covtype, early: no metric of all rows", records, [WHOLE, "matern, gamma chosen; one run each"])]


def left(bench: Bench) -> list[Table]:
    stores = bench.stores("covtype")
    _compile(bench, stores[0])
    records = [{"fit": "everything chosen", **_scored(bench, *stores, *TWO)}]
    kept = (bench.work / "option.fit.toml").rename(bench.work / "chosen.toml")
    levels = max(1, (records[0]["levels"] or 1) - 1)
    others: dict[str, Words] = {
        "partitions four times as large": ("--early", "--set", f"dcsvm.levels={levels}"),
        "a metric of each partition": ("--early", "--set", "dcsvm.part_metric=1"),
    }
    records += [{"fit": name, **_scored(bench, *stores, "--config", kept, *words)} for name, words in others.items()]
    scaled = []
    for name in SMALL[: 1 if bench.sizes.is_quick else None]:
        small = _small(bench, name)
        as_chosen, quantile = (_scored(bench, *small, *words) for words in ((), ("--scale", "quantile")))
        points = Factor(100 * (quantile["accuracy"] - as_chosen["accuracy"]))
        scaled.append(
            {
                "set": name,
                "as chosen": as_chosen["accuracy"],
                "quantile": quantile["accuracy"],
                "points": points,
            }
        )
    return [
        Table(
            "Options that are not chosen",
            records,
            [f"{WHOLE}; covtype, class 2 against the rest, one run each"],
        ),
        Table("--scale quantile", scaled, [f"at most {SMALL_ROWS:,} training rows, one seed"]),
    ]


def large(bench: Bench) -> list[Table]:
    """Bare commands; a budget of time for the largest."""
    train, test = bench.stores("covtype")
    many = bench.copies(train, 1_000 if bench.sizes.is_quick else 10_000_000)
    tables: dict[str, Words] = {
        "census": (
            *_ingested(bench, "census", ".parquet", "--label", "income_50k", "--ignore", CENSUS_IGNORED),
            (),
        ),
        "MNIST": (*bench.stores("mnist"), ()),
        "text, 105 classes": (*_ingested(bench, "sector", ".bz2"), ()),
        "covtype copied with noise": (many, test, (*TWO, "--time-budget", "300s", "--memory-limit", "2GiB")),
    }
    records = [{"table": name, **_scored(bench, *stores, *words)} for name, (*stores, words) in tables.items()]
    return [Table("Larger tables, everything chosen", records, [f"{WHOLE}; copies of covtype: in 300 s and 2 GiB"])]


CENSUS_IGNORED = "unknown,__index_level_0__"


def _ingested(bench: Bench, name: str, suffix: str, *words: Any) -> tuple[Path, Path]:
    train, test = (bench.work / f"{name}{part}.zarr" for part in ("", ".t"))
    if not train.exists():
        bench.command("ingest", bench.data / f"{name}{suffix}", "--store", train, *words)
        bench.command("ingest", bench.data / f"{name}.t{suffix}", "--store", test, "--like", train)
    return train, test


def graph(bench: Bench) -> list[Table]:
    """In this process, alternating."""
    store = Store.open(bench.stores("covtype")[0])
    few = [("quick", {"dcsvm": {"levels": 1}})] if bench.sizes.is_quick else []
    config = build_config(read_layer(CONFIGS / "covtype_early.toml"), *few)
    ways: dict[str, Callable[[], Any]] = {
        "train_in_memory": lambda: train_in_memory(store, config)[0],
        "graph_of": lambda: graph_of(store, config).compute(),
    }
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    models: dict[str, Any] = {}
    for number in bench.sizes.numbers:
        for name, fit in ways.items():
            began = time.perf_counter()
            models[name] = fit()
            if number >= 0:  # the one before compiles
                seconds[name].append(time.perf_counter() - began)
    rows = store.read(0, min(store.n, 20_000))
    one, two = (model.decision_function(rows) for model in models.values())
    tasks = len(graph_of(store, config).__dask_graph__())
    whole = Spread.of(seconds["train_in_memory"]).median
    records = [
        {"by": name, "seconds": Spread.of(s), "of train_in_memory": Factor(Spread.of(s).median / whole)}
        for name, s in seconds.items()
    ]
    checks = [("decisions are equal to the last bit", bool(np.array_equal(one, two)))]
    notes = [f"threads of one process; the graph has {tasks} tasks"]
    return [Table("covtype, early, as a graph", records, notes, checks)]


def workers(bench: Bench) -> list[Table]:
    train, test = bench.stores("covtype")
    fits: dict[str, Words] = {
        "dcsvm, exact": (20_000, *COSTLY),
        "alfpgm": (20_000, *COSTLY, "--solver", "alfpgm"),
        "admm-hss": (50_000, *WHOLE_MATRIX),
    }
    records = []
    for name, (rows, *words) in fits.items():
        few = bench.copies(train, min(rows, bench.sizes.poly_rows))
        for place, more in (("threads", ()), ("two processes", ("--workers", 2))):
            if bench.sizes.is_quick and more:
                continue
            records.append({"fit": name, "on": place, **_scored(bench, few, test, *GIVEN, *words, *more)})
    return [Table("Solvers on workers", records, [f"{WHOLE}; peak memory is that of the leading process"])]


def regression(bench: Bench) -> list[Table]:
    """In this process."""
    abalone = SETS["abalone"](bench.data)
    X, y = block(0, 400 if bench.sizes.is_quick else 20_000)
    problems = {"synthetic": (X[:, :4], y, 0.1), "abalone": (abalone.X, abalone.y, 1.0)}
    records = []
    for name, (rows, target, epsilon) in problems.items():
        given: dict[str, Any] = {"C": 10.0, "gamma": 1.0, "epsilon": epsilon}
        ours: dict[str, Any] = {**given, "scale_targets": False, "random_state": 0}
        ways: dict[str, Any] = {
            "HSSSVR": HSSSVR(**ours),
            "HSSSVR, polish=1000": HSSSVR(**ours, polish=1000),
            "SVR (LIBSVM)": SVR(**given, cache_size=2000),
        }
        for way, model in ways.items():
            taken = []
            for number in bench.sizes.numbers:
                began = time.perf_counter()
                model.fit(rows, target)
                if number >= 0:
                    taken.append(time.perf_counter() - began)
            objective = f"{_dual(model, rows, target, epsilon):.7g}"
            record = {"data": name, "rows": len(target), "by": way, "seconds": Spread.of(taken)}
            records.append(record | {"objective": objective})
    notes = [
        "fits in memory, C 10, gamma 1; objective: of LIBSVM's dual problem, computed from the coefficients in float64"
    ]
    return [Table("Regression on a compressed matrix", records, notes)]


def bucket(bench: Bench) -> list[Table]:
    """A server on the same cores stands for the object store."""
    rows = 600 if bench.sizes.is_quick else 20_000
    store, (X, y) = bench.work / f"block.{rows}.zarr", block(0, rows)
    stored(store, X, y > 0)
    fit = ("fit", "--store", store, "--no-search", "--checkpoint-every", "1 steps", "--force")
    solvers = {"dcsvm, early": ("--early",), "bsgd": ("--solver", "bsgd")}
    seconds: dict[tuple[str, str], list[float]] = {}
    with _object_store():
        for number in bench.sizes.numbers:
            for name, words in solvers.items():
                for place, at in (("local folder", str(bench.work)), ("bucket", "s3://bucket")):
                    run = bench.command(*fit, *words, "--model", f"{at}/m", "--run-dir", f"{at}/{words[-1]}{number}")
                    seconds.setdefault((name, place), []).append(run.seconds)
    records = [{"fit": name, "in a": place, "seconds": Spread.of(s[1:] or s)} for (name, place), s in seconds.items()]
    notes = [f"{WHOLE}, {rows:,} rows, with a checkpoint after each step; the server, moto, is on the same cores"]
    return [Table("Model and run directory in a bucket", records, notes)]


@contextmanager
def _object_store() -> Iterator[None]:
    """Commands find it by their environment."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    keys = {
        "AWS_ACCESS_KEY_ID": "nobody",
        "AWS_SECRET_ACCESS_KEY": "nothing",
        "AWS_DEFAULT_REGION": "us-east-1",
    }
    try:
        with mock.patch.dict(os.environ, {**keys, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}):
            boto3.client("s3").create_bucket(Bucket="bucket")
            yield
    finally:
        server.stop()


def explain(bench: Bench) -> list[Table]:
    fits: dict[str, Words] = {
        "covtype, early": (*bench.stores("covtype"), *EARLY),
        "ijcnn1, exact": (*bench.stores("ijcnn1"), "--config", CONFIGS / "ijcnn1.toml"),
    }
    records = []
    for name, (train, test, *words) in fits.items():
        model = bench.work / "explained.model"
        fit = bench.command("fit", "--store", train, "--model", model, "--force", *words)
        some = ("--store", test)
        rows = min(1_000, Store.open(test).n) - 1
        for what, asked in {
            "the model": (),
            "three rows, Shapley values": (*some, "--shapley"),
            f"{rows + 1:,} rows": (*some, "--rows", f"0..{rows}"),
            f"{rows + 1:,} rows, Shapley values": (*some, "--rows", f"0..{rows}", "--shapley"),
        }.items():
            runs = [bench.command("explain", "--model", model, *asked) for _ in bench.sizes.numbers]
            record = {"model": name, "support vectors": fit.result["n_support"], "explained": what}
            records.append(record | _taken(runs[1:] or runs))
    return [Table("What `explain` takes", records, [WHOLE])]


def _scored(bench: Bench, train: Path, test: Path, *words: Any) -> dict[str, Any]:
    """One fit, and its accuracy on the test rows."""
    model = bench.work / "option.model"
    fit = bench.command("fit", "--store", train, "--model", model, "--force", *words)
    accuracy = bench.command("evaluate", "--model", model, "--store", test).result["accuracy"]
    size = {"training rows": fit.result["n"]}
    size |= {"levels": fit.result.get("levels"), "partitions": fit.result.get("n_parts", 1)}
    return size | _taken([fit]) | {"accuracy": Share(accuracy)}


def _taken(runs: Sequence[Run]) -> dict[str, Any]:
    return {
        "seconds": Spread.of([run.seconds for run in runs]),
        "CPU seconds": Seconds(np.median([run.cpu_seconds for run in runs])),
        "peak memory": Bytes(max(run.result.get("peak_rss_bytes", run.peak_rss_bytes) for run in runs)),
    }


def _small(bench: Bench, name: str) -> tuple[Path, Path]:
    """Stores of a table of the scoreboard, of at most `SMALL_ROWS` training rows."""
    problem = SETS[name](bench.data).capped(bench.sizes.train_rows or SMALL_ROWS)
    return bench.split(f"small.{name}", problem)


def _compile(bench: Bench, train: Path) -> None:
    few = bench.copies(train, min(20_000, bench.sizes.subset_rows))
    for words in (TWO, (*EARLY, "--set", "dcsvm.part_metric=1")):
        bench.command("fit", "--store", few, "--model", bench.work / "small.model", "--force", *words)


def _dual(model: Any, X: np.ndarray, y: np.ndarray, epsilon: float) -> float:
    """1/2 b'Kb - b'y + epsilon |b|_1 of a regression, b its coefficients."""
    b, supports = model.dual_coef_[0].astype(float), model.support_
    Kb = model.predict(X[supports]) - model.intercept_[0]
    return float(0.5 * b @ Kb - b @ y[supports] + epsilon * np.abs(b).sum())


ITEMS = {f.__name__: f for f in (bias, rest, partitions, left, large, graph, workers, regression, bucket, explain)}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
