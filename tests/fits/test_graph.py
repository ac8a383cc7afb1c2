"""The graph of an early fit: the model of `fit` to the last bit, wherever and however often its tasks are computed."""

from __future__ import annotations

import tempfile
import warnings
from pathlib import Path
from typing import Any

import dask
import numpy as np
import pytest
from dask.utils import key_split
from making import write
from scipy import sparse
from sent import arrays, sent

import streamsvm
from streamsvm import graph_of
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import Events, Warned, ignore
from streamsvm.fits import divided
from streamsvm.fits.graph import _task
from streamsvm.models import LocalModel
from streamsvm.report.graph import PhaseTasks, lines_of
from streamsvm.train import train_in_memory

N, D = 600, 4
PHASES = {"plan", "sample", "centres", "assign", "number", "regroup", "parts", "solve", "model"}


def made(folder: Path, k: int = 2, layout: str = "dense") -> Store:
    """Rows around the origin and, one in three, at a place that no centres divide: these are cut by position."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    X[::3] = 2.0
    y = np.floor(3 * np.abs(X[:, 0]) + 0.3 * rng.random(N)).astype(int) % k
    rows = Rows(sparse.csr_array(np.where(X > -0.5, X, 0)) if layout == "csr" else X)
    return write(folder / "s.zarr", rows, y, step=N, chunk_rows=200)


def values(**more: Any) -> dict[str, Any]:
    """Two parts are wanted, and ones of 60 rows are made: in several rounds."""
    early = {"early": True, "levels": 1, "children": 2, "part_rows": 60} | more.pop("dcsvm", {})
    return {"C": 5.0, "tol": 1e-2, "kernel": {"gamma": 0.5}, "threads": 2, "dcsvm": early} | more


def assert_same(found: LocalModel, expected: LocalModel) -> None:
    (arrays, attrs), (own, header) = found.small_state(), expected.small_state()
    assert attrs == header
    for ours, theirs in ((arrays, own), (found.arrays, expected.arrays)):
        assert ours.keys() == theirs.keys()
        for name, array in ours.items():
            np.testing.assert_array_equal(array, theirs[name], err_msg=name)


@pytest.mark.parametrize(
    ("k", "layout", "more", "streams"),
    [
        (2, "dense", {}, True),
        (3, "dense", {"scale": "standard", "dcsvm": {"part_metric": 1}}, False),
        (3, "csr", {"holdout": 100, "class_weight": "balanced"}, True),
        (3, "dense", {"C": 1.0, "nu": 0.02}, True),
        (2, "dense", {"dcsvm": {"loss": "squared"}}, False),
        pytest.param(
            *(2, "csr", {"rows": 500, "dcsvm": {"clustering": "kernel", "combine": "committee"}}, False),
            marks=pytest.mark.filterwarnings("ignore:dcsvm.clustering=kernel"),  # see below
        ),
    ],
    ids=[
        "dense",
        "part metrics",
        "sparse, rows kept out",
        "nu",
        "squared losses",
        "kernel k-means of some rows",
    ],
)
def test_the_model_is_that_of_fit(k, layout, more, streams, tmp_path, monkeypatch):
    if streams:
        monkeypatch.setattr(divided, "STREAMED_SHARE", 1e12)
    store, config = made(tmp_path, k, layout), values(**more)
    expected, report = train_in_memory(store, build_config(("test", config)), ignore)  # a kernel that was widened
    assert report["graph"]["rounds"] >= 2
    graph = graph_of(store, config, tmp_path / "shared")
    assert_same(graph.compute(scheduler="synchronous"), expected)
    [again] = dask.compute(graph, scheduler="threads")
    assert_same(again, expected)
    assert not list((tmp_path / "shared").iterdir())


def test_a_kernel_that_was_widened_is_told_as_fit_does(tmp_path):
    store, config = made(tmp_path), values(kernel={"gamma": 2000.0}, dcsvm={"clustering": "kernel"})
    heard: list[Any] = []
    train_in_memory(store, build_config(("test", config)), Events(lambda record: heard.append(record.event)))
    told = [event.message for event in heard if isinstance(event, Warned)]
    assert any("gamma 2000 is too large to divide the rows evenly" in message for message in told)
    with warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        graph_of(store, config).compute(scheduler="synchronous")
    assert [str(warning.message) for warning in found] == told


def _twice(task: Any, *args: Any) -> Any:
    task(*args)
    return task(*args)


def test_a_task_that_is_done_again_changes_nothing(tmp_path):
    store = made(tmp_path)
    expected, _ = train_in_memory(store, build_config(("test", values())))
    graph = graph_of(store, values())
    again = {key: (_twice, *task) if isinstance(task, tuple) else task for key, task in dict(graph.dask).items()}
    assert_same(dask.get(again, graph.key), expected)
    assert not list(Path(tempfile.gettempdir()).glob(f"*{graph.key.removeprefix('model-')}*"))


def _from_elsewhere(task: Any, *args: Any) -> Any:
    """The task, given what a scheduler brings it: arrays that begin anywhere."""

    def at_hand(*args: Any) -> Any:
        assert all(array.flags.aligned for arg in args for array in arrays(arg))
        return task.__wrapped__(*args)

    return _task(at_hand)(*(sent(arg, 1) for arg in args))


@pytest.mark.parametrize("more", [{}, {"scale": "standard", "metric": {"factor": [1.0, 0.5, 2.0, 1.0]}}])
def test_arrays_that_were_sent_are_multiplied_as_those_of_fit(more, tmp_path):
    store, config = made(tmp_path), values(holdout=60, **more)
    expected, _ = train_in_memory(store, build_config(("test", config)))
    graph = graph_of(store, config)
    moved = {
        key: (_from_elsewhere, *task) if isinstance(task, tuple) else task for key, task in dict(graph.dask).items()
    }
    assert_same(dask.get(moved, graph.key), expected)


def test_keys_are_named_after_their_phase_and_layers_after_the_round(tmp_path):
    store, config = made(tmp_path), build_config(("test", values()))
    graph = graph_of(str(tmp_path / "s.zarr"), config)
    assert {key_split(key) for key in dict(graph.dask)} == PHASES
    layers = {name.rpartition("-")[0] for name in graph.dask.layers}
    tasks = train_in_memory(store, config)[1]["graph"]
    drawn = [line for line in lines_of(tasks | {"rounds": 2}) if isinstance(line, PhaseTasks)]
    assert {line.name.replace(" ", "-") for line in drawn} <= layers
    sizes = {name.rpartition("-")[0]: len(layer) for name, layer in graph.dask.layers.items()}
    assert sizes["assign-0"] == tasks["blocks"]
    assert sizes["regroup"] == tasks["files"]
    assert sizes["solve"] >= tasks["parts"]
    assert graph.key.startswith("model-")
    assert "graph_of" in streamsvm.__all__


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"dcsvm": {"early": False}}, "an early fit"),
        ({"solver": "bsgd"}, "an early fit"),
        ({"dcsvm": {"levels": 2, "early_level": 1}}, "one level"),
        ({"dcsvm": {"levels": None}}, "one part"),
        ({"workers": 2}, "workers is 2"),
        ({"probability": {"method": "sigmoid"}}, "probability"),
    ],
)
def test_fits_that_are_no_graph_are_refused(more, message, tmp_path):
    with pytest.raises(ConfigError, match=message):
        graph_of(made(tmp_path), values(**more))


def test_what_tasks_hand_on_is_known_to_dask_by_its_size(tmp_path):
    graph, sizes = graph_of(made(tmp_path), values()), {}

    def weighed(key, value, dsk, state, worker):
        sizes[key_split(key)] = max(sizes.get(key_split(key), 0), dask.sizeof.sizeof(value))

    with dask.callbacks.Callback(posttask=weighed):
        model = graph.compute(scheduler="synchronous")
    assert sizes["solve"] < sum(array.nbytes for array in model.arrays.values())
    assert sizes["centres"] > 100 * D * 4
    assert sizes["assign"] < 2000
