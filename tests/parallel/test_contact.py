"""A cluster with something in the way: no workers yet, closed ports, frozen ones, packages that they lack."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import time

import dask
import numpy as np
import pytest
from clusters import path, running
from distributed import LocalCluster
from distributed.comm import tcp
from making import samples, write

from streamsvm.errors import ClusterError
from streamsvm.events import Events
from streamsvm.parallel.cluster import open_cluster

pytestmark = pytest.mark.timeout(120)


def total(x, y):
    return float(x.sum() + y.sum())


def test_a_cluster_that_starts_workers_on_demand_is_asked_for_one():
    with LocalCluster(n_workers=0, threads_per_worker=1, processes=False, dashboard_address=":0") as cluster:
        cluster.adapt(minimum=0, maximum=1, interval="50ms")
        engine = open_cluster(cluster.scheduler_address, None, None)
        ones = np.ones(10_000)
        assert list(engine.map(total, [ones] * 3, [ones] * 3)) == [20_000.0] * 3
        engine.close()


@pytest.mark.slow  # processes that have to be waited for
def test_workers_behind_closed_ports_are_reached_through_the_scheduler(monkeypatch):
    told, connect = [], tcp.TCPConnector.connect
    with running() as (_, address, _, (worker,)):

        async def refused(self, to, *args, **options):
            if f"tcp://{to}" == worker:
                raise ConnectionRefusedError(to)
            return await connect(self, to, *args, **options)

        monkeypatch.setattr(tcp.TCPConnector, "connect", refused)
        monkeypatch.setattr("streamsvm.parallel.contact.REACH_S", 0.5)
        began, ones = time.monotonic(), np.ones(10_000)
        engine = open_cluster(address, None, None, Events(told.append))
        found = list(engine.map(np.add, [ones] * 2, [ones] * 2))
        engine.close()
    np.testing.assert_array_equal(found, np.full((2, 10_000), 2.0))
    assert [f"cannot reach the worker at {worker}" in getattr(event, "message", "") for _, event in told].count(
        True
    ) == 1
    assert time.monotonic() - began < 20


@pytest.mark.slow  # processes that have to be waited for
def test_a_frozen_worker_gets_no_data_for_ever(monkeypatch):
    monkeypatch.setattr("streamsvm.parallel.contact.MOVE_S", 1.0)
    monkeypatch.setattr("streamsvm.parallel.contact.CONNECT_S", 1.0)
    monkeypatch.setattr("streamsvm.parallel.contact.REACH_S", 0.5)
    with running(2, path(), path()) as (_, address, workers, (frozen, _)):
        told = []
        engine = open_cluster(address, None, None, Events(told.append))
        workers[0].send_signal(signal.SIGSTOP)
        held = [engine.share(np.ones(10_000)) for _ in range(4)]
        workers[0].send_signal(signal.SIGCONT)
        assert list(engine.map(total, held[:2], held[2:])) == [20_000.0] * 2
        engine.close()
    assert any(f"{frozen} took no data for 1 s" in getattr(event, "message", "") for _, event in told)


@pytest.mark.parametrize("where", ["worker", "scheduler"])
@pytest.mark.slow  # clusters of processes
def test_a_package_that_is_not_there_is_named(where, tmp_path):
    (tmp_path / "numba.py").write_text("raise ModuleNotFoundError('No module named numba')")
    lacks = {"env" if where == "worker" else "of_scheduler": path(tmp_path)}
    with running(**lacks) as (_, address, _, (worker,)):
        who = f"the worker at {worker}" if where == "worker" else f"the scheduler at {address}"
        with pytest.raises(ClusterError, match=f"{who} lacks a package .*numba.*same ones there"):
            open_cluster(address, None, None)


@pytest.mark.slow  # a cluster of processes
def test_a_package_that_a_task_lacks_is_named():
    with running(env=path(), of_scheduler=path()) as (_, address, _, _):
        engine = open_cluster(address, None, None)
        with pytest.raises(ClusterError, match=r"^a worker lacks a package \(No module named 'nowhere'\)"):
            list(engine.map(lacking, [1]))
        engine.close()


def lacking(x):
    raise ModuleNotFoundError("No module named 'nowhere'")


@pytest.mark.parametrize(("asked", "level"), [({}, logging.WARNING), ({"distributed": "info"}, logging.INFO)])
def test_distributed_tells_of_itself_where_it_is_asked_to(asked, level, monkeypatch):
    logger = logging.getLogger("distributed")
    monkeypatch.setattr(logger, "level", logger.level)
    logger.setLevel(logging.INFO)
    with dask.config.set(logging=asked), pytest.raises(ClusterError):
        open_cluster("nonsense://", None, None)
    assert logger.level == level


@pytest.mark.parametrize("moment", ["a task runs", "nothing runs", "before data is sent"])
@pytest.mark.slow  # processes that have to be waited for
def test_a_scheduler_that_dies_is_one_line(moment, caplog):
    with running() as (scheduler, address, _, _):
        engine = open_cluster(address, None, None)
        found = engine.map(time.sleep, [0.0, 60.0])
        next(found)
        scheduler.kill()
        scheduler.wait()
        if moment != "a task runs":
            time.sleep(0.5)
        ask = {
            "a task runs": lambda: next(found),
            "nothing runs": lambda: engine.slots,
            "before data is sent": lambda: engine.share(np.ones(10_000)),
        }[moment]
        with pytest.raises(ClusterError, match=f"^the scheduler at {address} is gone"):
            ask()
        engine.close()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]  # nor a traceback


@pytest.mark.slow  # processes that have to be waited for
def test_a_scheduler_that_dies_in_a_fit_is_one_line_on_stderr(tmp_path):
    store = write(tmp_path / "s.zarr", samples(3000, 8), np.arange(3000) % 2, step=100, chunk_rows=30)
    with running() as (scheduler, address, _, _):
        options = (
            "--no-search",
            "--solver",
            "cutting-plane",
            "--kernel",
            "linear",
            "--tol",
            "1e-12",
            "--scheduler",
            address,
        )
        argv = [sys.executable, "-m", "streamsvm", "fit", "--store", store.url, *options, "--json"]
        fit = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        first = fit.stderr.readline()
        time.sleep(1.5)
        scheduler.kill()
        _, rest = fit.communicate(timeout=60)
    assert (fit.returncode, "dashboard:" in first) == (2, True), rest
    assert all(line.startswith("error: the scheduler") for line in rest.splitlines()), rest
