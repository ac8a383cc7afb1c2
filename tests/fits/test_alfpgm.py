"""ALFPGM over rows that do not fit in memory: the same problems, whose products tasks make."""

from __future__ import annotations

import numpy as np
import pytest
from cases import config
from making import write

from streamsvm.data.rows import Rows
from streamsvm.errors import MemoryLimitError
from streamsvm.events import STEPS, Events
from streamsvm.fits import alfpgm
from streamsvm.models.files import load_model
from streamsvm.train import plan, train, train_in_memory

N = 300


@pytest.fixture(params=["classify", "regress"])
def task(request):
    return request.param


@pytest.fixture
def store(task, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4)).astype(np.float32)
    noisy = X[:, 0] * X[:, 1] + 0.2 * rng.normal(size=N)
    y = noisy if task == "regress" else np.digitize(noisy, [-0.3, 0.3])
    return write(tmp_path / "s.zarr", Rows(X), y, step=N, chunk_rows=64)


@pytest.fixture
def no_room(monkeypatch):
    """Rows fit in no memory, and each block of the store is a part."""
    monkeypatch.setattr(alfpgm, "fits_memory", lambda limit_bytes, needed_bytes: False)
    monkeypatch.setattr(alfpgm, "PART_BYTES", 1)


def test_it_is_the_solution_of_rows_in_memory(store, task, request):
    options = config("alfpgm", task=task, threads=2)
    model, report = train_in_memory(store, options)
    request.getfixturevalue("no_room")
    assert not plan(store, options)["in_memory"]
    streamed, again = train_in_memory(store, options)
    assert again["converged"]
    assert "read" not in again["seconds_by_phase"]
    assert again["objective"] == pytest.approx(report["objective"], rel=1e-4)
    rows = store.read(0, N)
    np.testing.assert_allclose(streamed.decision_function(rows), model.decision_function(rows), atol=0.02)
    alone, _ = train_in_memory(store, config("alfpgm", task=task, threads=1))
    np.testing.assert_array_equal(alone.decision_function(rows), streamed.decision_function(rows))


@pytest.mark.parametrize("task", ["classify"], indirect=True)
def test_interrupted_and_resumed_it_is_the_same(store, no_room, tmp_path):
    options, left = config("alfpgm", checkpoint_every="1 step"), 12
    expected, _ = train_in_memory(store, options)

    def interrupt(record) -> None:
        nonlocal left
        is_step = isinstance(record.event, STEPS)  # others come from threads of their own
        left -= is_step
        if is_step and left == 0:
            raise KeyboardInterrupt

    run = {"model_path": tmp_path / "model", "run_dir": tmp_path / "run"}
    with pytest.raises(KeyboardInterrupt):
        train(store, options, **run, events=Events(interrupt))
    train(store, options, **run, resume=True)
    rows, found = store.read(0, N), load_model(tmp_path / "model")
    np.testing.assert_array_equal(found.decision_function(rows), expected.decision_function(rows))


@pytest.mark.parametrize("task", ["classify"], indirect=True)
def test_the_least_memory_is_told(store):
    with pytest.raises(MemoryLimitError, match=r"alfpgm, which holds vectors of all rows: give at least \d+ MiB"):
        train_in_memory(store, config("alfpgm", memory_limit="1MiB"))
