"""`streamsvm warm-up`: functions compiled before anybody waits for them."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from streamsvm.cli.options import AsJson, option
from streamsvm.cli.output import emit, progress
from streamsvm.kernels.table import KERNELS
from streamsvm.options.layers import parse_set
from streamsvm.solvers.catalogue import DEFAULT_SOLVER, SOLVERS, solver_row
from streamsvm.tasks.pairs import MANY

if TYPE_CHECKING:
    from streamsvm.config import FitConfig
    from streamsvm.data.store import Store

ORIGIN = "warm-up"  # of options, in messages
ROWS, EVENTS = 400, 64
FEW = {"search": {"trials": 1}}  # steps of a search: the others compile nothing
LEARNS = {"metric": {"kind": "diagonal", "iterations": 1}, "search": {"options": ["metric"]}}
PARAMETERS = {"gamma": 0.1, "nu": 0.5}  # of kernels; matern's gradients with this nu are a function of their own


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

    solvers = solver or list(SOLVERS)
    for name in solvers:
        solver_row(name)  # or an error
    with progress() as events, compile_notices(events), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that made-up rows are few, or that a fit of them ends early
        for config, store in _fits(solvers):
            model, _ = train_in_memory(store, config)
            model.predict(store.read(0, store.n))
        if DEFAULT_SOLVER in solvers:
            _multiply()
        if solver is None:
            _read()
            _stream()
    wall_s, cpu_s = compiled_s()
    kept = str(cache_folder() or "nowhere: each process compiles its own")
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
        yield completed([*needs, (ORIGIN, FEW)]), stores["classify"][0]
    if DEFAULT_SOLVER in solvers:
        for store in stores["classify"]:
            for kernel, row in KERNELS.items():
                if row.definite:
                    given = {name: value for name, value in PARAMETERS.items() if name in row.parameters}
                    learns = {} if row.is_linear else LEARNS
                    yield completed([(ORIGIN, {"kernel": {"name": kernel, **given}} | learns)], searches=False), store
        for store in (stores["classify"][1], Store.from_arrays(X, many)):
            yield completed([], searches=False), store
            yield completed([(ORIGIN, FEW)]), store


def _read() -> None:
    """A file of LIBSVM's format; the other formats compile nothing."""
    from streamsvm.ingest.files import ingest

    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder, "rows.svm")
        source.write_text("1 1:0.5 3:2\n-1 2:1\n", encoding="utf-8")
        ingest([source], Path(folder, "rows.zarr"))


def _multiply() -> None:
    """What only large fits multiply: rows most of which are far from each other, and kernel rows kept for later, of
    which some columns are left out."""
    import numpy as np

    from streamsvm.data.rows import Rows
    from streamsvm.kernels.distance import RBF
    from streamsvm.kernels.row_cache import LEAST_ROWS, WIDE
    from streamsvm.problems.dual import KernelDual

    rng = np.random.default_rng(0)
    rows = Rows(rng.normal(size=(2100, 6)).astype(np.float32))
    RBF(50.0).apply(rows, rows, np.ones(len(rows)))
    wide, ones = Rows(rng.normal(size=(LEAST_ROWS, WIDE)).astype(np.float32)), np.ones(LEAST_ROWS)
    dual = KernelDual(RBF(1.0), wide, ones, ones, cache_bytes=4 * LEAST_ROWS**2)
    dual.apply(np.arange(2), ones[:2])
    dual.apply(np.arange(2), ones[:2], np.arange(2))


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
