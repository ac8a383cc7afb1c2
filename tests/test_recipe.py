"""One recipe: what is read when, what a fit is made of, and the stations that docs/design.md tells of."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from contextlib import closing
from importlib import import_module
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import numpy as np
import pytest
from cases import SOLVERS, config, labelled
from making import write
from scipy import sparse

from streamsvm import BudgetedSVC
from streamsvm.cli.app import app
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import ignore
from streamsvm.fits.base import FitContext
from streamsvm.fits.prepare import FIRST_ROWS, prepare, with_task
from streamsvm.parallel.engine import Engine
from streamsvm.runs.checkpoints import Checkpoints
from streamsvm.runs.phases import Phases
from streamsvm.search.options import TuneConfig, points
from streamsvm.search.search import tune
from streamsvm.solvers.catalogue import fit_class
from streamsvm.train import train_path

N = 3 * FIRST_ROWS
DESIGN = Path(__file__).parents[1] / "docs" / "design.md"
CHOICES = "choosing.choices.with_choices"


@pytest.fixture
def reads(monkeypatch) -> list[int]:
    """Rows of each read of a store."""
    rows, original = [], Store.read

    def counted(self: Store, start: int, stop: int) -> Rows:
        rows.append(stop - start)
        return original(self, start, stop)

    monkeypatch.setattr(Store, "read", counted)
    return rows


@pytest.fixture(scope="module", params=["dense", "csr"])
def store(request, tmp_path_factory) -> Store:
    X, y = labelled(2, N)
    rows = Rows(X if request.param == "dense" else sparse.csr_array(X))
    return write(tmp_path_factory.mktemp("store") / request.param, rows, y, step=300, chunk_rows=300)


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"kernel": {"gamma": "scale"}}, N),
        ({"scale": "maxabs"}, N),
        ({"scale": "maxabs", "kernel": {"gamma": "scale"}}, N),
        ({"kernel": {"name": "poly", "gamma": "scale"}}, N),
        ({}, FIRST_ROWS),
    ],
)
def test_to_prepare_every_row_is_read_once_at_most(store, reads, options, expected):
    prepare(store, config("dcsvm", **options), Engine(2))
    assert sum(reads) == expected


def test_the_first_rows_of_a_pass_are_those_that_are_read_alone(store, monkeypatch):
    """Advice and shifts do not depend on who reads them."""
    seen: list[Any] = []
    monkeypatch.setattr("streamsvm.fits.prepare.advice", lambda kernel, scaling, first, names: seen.append(first))
    for options in ({}, {"kernel": {"gamma": "scale"}}):
        prepare(store, config("dcsvm", **options), Engine(2))
    alone, of_pass = (rows.X if isinstance(rows.X, np.ndarray) else rows.X.toarray() for rows in seen)
    np.testing.assert_array_equal(alone, of_pass)


@pytest.mark.parametrize("name", SOLVERS)
def test_a_fit_is_made_and_planned_without_a_look_at_the_rows(name, store, reads):
    options = with_task(config(name), store)
    states = Checkpoints(None, store, options, False)
    prepared = prepare(store, options, Engine(2))
    reads.clear()
    with closing(FitContext(Engine(2), states, ignore, Phases())) as context:
        fit_class(options.solver)(prepared, context).plan()
    assert not reads


def test_the_first_batch_is_prepared_as_a_fit_is():
    """Rows far from the origin are shifted there: before, `partial_fit` lost their distances in rounding."""
    X, y = labelled(2)
    far = X.astype(np.float64) + 1e4
    first = BudgetedSVC(budget=30, random_state=0).partial_fit(far, y, classes=[0, 1])
    whole = BudgetedSVC(budget=30, random_state=0).fit(far, y)
    assert first.model_.header.scaling.kind == whole.model_.header.scaling.kind == "centre"
    assert first.model_.header.kernel == whole.model_.header.kernel
    assert first.score(far, y) > 0.8
    weighted = BudgetedSVC(class_weight={0: 2.0}).partial_fit(X, y, classes=[0, 1])
    assert weighted.model_.header.config["class_weight"] == {"0": 2.0, "1": 1.0}
    with pytest.raises(ConfigError, match="values of the poly kernel reach"):
        BudgetedSVC(kernel="poly", degree=9, gamma=1.0, strategy="remove").partial_fit(1e6 * X, y, classes=[0, 1])


def test_several_C_are_for_those_that_share_them():
    with pytest.raises(ConfigError, match="solver alfpgm learns one C at a time, found 2"):
        train_path(Store.from_arrays(*labelled()), config("alfpgm"), [1.0, 2.0])


def test_a_search_looks_at_the_first_rows_once(store, reads, monkeypatch):
    monkeypatch.setattr("streamsvm.search.search._Search.ranked", lambda self: ([0], [{"mean_score": 0.0}]))
    options = TuneConfig(grid={"C": [1.0]}, folds=2)
    tune(store, options, points(options))
    assert sum(reads) == FIRST_ROWS


def stations() -> list[str]:
    """Dotted names of functions, in the order of the page."""
    return re.findall(r"^\d+\. `([\w.]+)`", DESIGN.read_text(encoding="utf-8"), re.MULTILINE)


def code_of(name: str) -> CodeType:
    """The body of a function of this name below `streamsvm`, whatever is around it."""
    parts = name.split(".")
    depth = next(i for i, part in enumerate(parts) if part[0].isupper() or i == len(parts) - 1)
    found: Any = import_module(".".join(["streamsvm", *parts[:depth]]))
    for part in parts[depth:]:
        found = getattr(found, part)
    while hasattr(found, "__wrapped__"):
        found = found.__wrapped__
    return found.__code__


def test_a_store_passes_the_stations_that_design_tells_of(tmp_path):
    assert 0 < len(stations()) <= 12
    names = {code_of(name): name for name in stations()}
    passed: list[str] = []

    choosing: list[str] = []  # it makes small fits, which pass stations of their own

    def follow(frame: FrameType, event: str, _: Any) -> None:
        name = names.get(frame.f_code) if event in ("call", "return") else None
        if name and name not in passed and not choosing:
            passed.append(name)
        if name == CHOICES:
            choosing[:] = [name] if event == "call" else []

    there = write(tmp_path / "s", Rows(labelled()[0]), labelled()[1])
    words = ["fit", "--store", there.url, "--run-dir", str(tmp_path / "run"), "--json"]
    before = sys.getprofile()
    sys.setprofile(follow)
    try:
        app(words, standalone_mode=False)
    finally:
        sys.setprofile(before)
    assert passed == stations()


@pytest.mark.parametrize("name", ["admm-hss", pytest.param("cutting-plane", marks=pytest.mark.slow)])  # processes
def test_every_blas_that_a_fit_loads_is_serial_in_its_tasks(name):
    """Threads of tasks, each with threads of BLAS, took a third more CPU."""
    script = f"""
import numpy as np
from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.train import planned_fit
from threadpoolctl import threadpool_info
asked = build_config(("t", {{"solver": {name!r}, "task": "classify", "kernel": {{"name": "linear"}}, "threads": 2}}))
with planned_fit(Store.from_arrays(np.eye(8, dtype=np.float32), np.arange(8) % 2), asked) as fit:
    with fit.engine.serial_blas():
        assert {{pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"}} == {{1}}
"""
    env = os.environ | {"OPENBLAS_NUM_THREADS": "2", "PYTHONPATH": str(DESIGN.parents[1])}
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, env=env)
    assert ended.returncode == 0, ended.stderr
