"""`streamsvm warm-up`: functions compiled before anybody waits for them."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from streamsvm.cli.options import AsJson, option
from streamsvm.cli.output import emit, progress
from streamsvm.errors import ConfigError
from streamsvm.kernels.table import KERNELS
from streamsvm.options.layers import parse_set
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, SOLVERS
from streamsvm.tasks.pairs import MANY

if TYPE_CHECKING:
    from streamsvm.config import FitConfig
    from streamsvm.data.store import Store

ORIGIN = "warm-up"  # of options, in messages
ROWS, EVENTS = 400, 64


def warm_up(
    solver: Annotated[
        list[str] | None,
        option("--solver", f"Only what fits with this one need; repeat it for several: {', '.join(SOLVERS)}.", "NAME"),
    ] = None,
    as_json: AsJson = False,
) -> None:
    """Compile now, for this machine, what fits, predictions and streams would compile at their first use."""
    from streamsvm.parallel.compiling import compile_notices, compiled_s
    from streamsvm.private.numba import cache_folder
    from streamsvm.train import train_in_memory

    for name in solver or ():
        if name not in SOLVERS:
            raise ConfigError(f"--solver: found {name!r}, expected one of {', '.join(SOLVERS)}")
    with progress() as events, compile_notices(events), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that made-up rows are few, or that a fit of them ends early
        for config, store in _fits(solver or list(SOLVERS)):
            model, _ = train_in_memory(store, config)
            model.predict(store.read(0, store.n))
        if solver is None:
            _read()
            _multiply()
            _stream()
    wall_s, cpu_s = compiled_s()
    folder = cache_folder()
    kept = "nowhere: no cache folder can be written" if folder is None else str(folder)
    emit({"compile_seconds": wall_s, "cpu_seconds": cpu_s, "folder": kept}, as_json=as_json, title="Compiled")


def _fits(solvers: list[str]) -> Iterator[tuple[FitConfig, Store]]:
    """Small fits that call what most fits call: of each solver, kernel and layout of rows, and searches of options."""
    import numpy as np
    from scipy import sparse

    from streamsvm.data.store import Store
    from streamsvm.search.options import completed

    rng = np.random.default_rng(0)
    X = rng.normal(size=(ROWS, 6)).astype(np.float32)
    f = X[:, 0] * X[:, 1] + 0.3 * rng.normal(size=ROWS)
    layouts = X, sparse.csr_array(np.where(np.abs(X) > 1.5, X, 0))
    two, many = (np.digitize(f, np.quantile(f, np.arange(1, k) / k)) for k in (2, MANY))
    stores = {"classify": [Store.from_arrays(rows, two) for rows in layouts]}
    stores["regress"] = [Store.from_arrays(rows, f) for rows in layouts]
    for name in solvers:
        needs = [*map(parse_set, SOLVERS[name].needs), (ORIGIN, {"solver": name})]
        for task in filter(SOLVERS[name].tasks.__contains__, stores):
            config = completed([*needs, (ORIGIN, {"task": task})], searches=False)
            yield from ((config, store) for store in stores[task])
        yield completed(needs, searches=True), stores["classify"][0]
    if DEFAULT_SOLVER in solvers:
        for store in stores["classify"]:
            for kernel, row in KERNELS.items():
                if row.definite:
                    gamma = {"gamma": 0.1} if "gamma" in row.parameters else {}
                    options = {"kernel": {"name": kernel, **gamma}, "search": {"options": ["metric"]}}
                    yield completed([(ORIGIN, options)], searches=False), store
        for store in (stores["classify"][1], Store.from_arrays(X, many)):
            yield from ((completed([], searches=searches), store) for searches in (False, True))


def _read() -> None:
    """A file of LIBSVM's format; the other formats compile nothing."""
    from streamsvm.ingest.files import ingest

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.svm")
        source.write_text("1 1:0.5 3:2\n-1 2:1\n", encoding="utf-8")
        ingest([source], Path(folder, "rows.zarr"))


def _multiply() -> None:
    """A product of rows most of which are far from each other: small fits make none."""
    import numpy as np

    from streamsvm.data.rows import Rows
    from streamsvm.kernels.distance import RBF

    rows = Rows(np.random.default_rng(0).normal(size=(2100, 6)).astype(np.float32))
    RBF(50.0).apply(rows, rows, np.ones(len(rows)))


def _stream() -> None:
    """Events of streams, one by one and in blocks."""
    import numpy as np
    import pandas as pd

    from streamsvm.online import BSGDClassifier, BSGDRegressor

    X = pd.DataFrame(np.random.default_rng(0).normal(size=(EVENTS, 6)), columns=list("abcdef"))
    for learner, y in ((BSGDClassifier(), X["a"] > 0), (BSGDRegressor(), X["a"])):
        for x, target in zip(X.to_dict("records"), y, strict=True):
            learner.predict_one(x)
            learner.learn_one(x, target)
        learner.learn_many(X, y)
        learner.predict_many(X)
