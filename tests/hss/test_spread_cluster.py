"""Subtrees with the workers of a cluster, which may be lost."""

from __future__ import annotations

import os
import signal

import numpy as np
import psutil
import pytest
from cases import labelled

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Event, Events, Record
from streamsvm.train import train_in_memory

pytestmark = pytest.mark.slow  # processes that have to be waited for


def test_a_model_is_that_of_threads_whoever_is_lost(monkeypatch):
    monkeypatch.setattr("streamsvm.hss.tree.SUBTREE_ROWS", 200)
    X, y = labelled(2, 900)
    store, options = Store.from_arrays(X, y), {"solver": "admm-hss", "kernel": {"gamma": 0.5}, "C": 2.0}
    options |= {"admm_hss": {"leaf": 32, "landmarks": 16}, "threads": 2}
    expected, _ = train_in_memory(store, build_config(("t", options)))
    lost: list[str] = []

    def lose(record: Record[Event]) -> None:
        phase = getattr(record.event, "phase", "")
        if phase in ("factorise", "admm") and phase not in lost:
            lost.append(phase)
            workers = [p for p in psutil.Process().children(recursive=True) if "spawn_main" in p.cmdline()[-2]]
            os.kill(max(worker.pid for worker in workers), signal.SIGKILL)

    found, _ = train_in_memory(store, build_config(("t", options | {"workers": 2})), Events(lose))
    assert lost == ["factorise", "admm"]
    decided = expected.decision_function(Rows(X))
    np.testing.assert_allclose(found.decision_function(Rows(X)), decided, rtol=1e-6, atol=1e-8)
