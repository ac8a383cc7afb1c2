"""A scheduler that is gone and is waited for: all goes on with the next one, or ends in one line."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from contextlib import contextmanager

import numpy as np
import pytest
from clusters import free_port, running
from distributed import LocalCluster
from making import samples, write

from streamsvm.cli.app import app, exit_status
from streamsvm.errors import ClusterError
from streamsvm.events import Events, Joined, Warned
from streamsvm.models.files import load_model
from streamsvm.parallel import contact
from streamsvm.parallel.cluster import open_cluster

pytestmark = pytest.mark.timeout(300)


@contextmanager
def cluster_at(port):
    """A cluster of this process, which goes when another one is to come to its place."""
    options = {"host": "127.0.0.1", "protocol": "tcp", "processes": False, "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=2, threads_per_worker=1, scheduler_port=port, **options) as made:
        yield made


def total(shared, held, sent):
    return float(shared.sum() + held.sum() + sent.sum())


def own_and_part(x):
    return x, np.full(1000, x)


def test_what_was_shared_held_and_begun_is_made_anew(tmp_path):
    """On a scheduler elsewhere, which its file names; at the same address: below."""
    file, told, ones = tmp_path / "scheduler.json", [], np.ones(10_000)
    with cluster_at(0) as cluster:
        file.write_text(json.dumps({"address": (first := cluster.scheduler_address)}))
        events = Events(lambda record: told.append(record.event))
        engine = open_cluster(f"file:{file}", None, None, events, None, 60.0)
        shared, held = engine.share(ones), engine.hold(np.full, [10_000] * 24, range(24))
        found = engine.map(total, held, [ones] * 24, shared=(shared,))
        results = [next(found), next(found)]
    with cluster_at(0) as cluster:
        file.write_text(json.dumps({"address": (second := cluster.scheduler_address)}))
        results += found
        owns, merged = engine.map_reduce(own_and_part, np.add, range(5))
        engine.close()
    assert results == [x * 10_000 + 20_000 for x in range(24)]
    assert (owns, merged[0]) == ([0, 1, 2, 3, 4], 10)
    waits = f"the scheduler at {first} is gone; waiting up to 1 min for one"
    assert [event.message for event in told if isinstance(event, Warned)] == [waits]
    joined = [(event.scheduler, event.facts["workers"]) for event in told if isinstance(event, Joined)]
    assert joined == [(first, 2), (second, 2)]


def test_where_none_comes_one_line_says_so_and_nobody_waits_again(monkeypatch):
    monkeypatch.setattr(contact, "LEAST_S", 0.1)
    told = []
    events = Events(lambda record: told.append(getattr(record.event, "message", "")))
    with cluster_at(free_port()) as cluster:
        address = cluster.scheduler_address
        engine = open_cluster(address, None, None, events, None, 0.1)
    with pytest.raises(ClusterError, match=f"^the scheduler at {address} is gone, and none came within 0.1 s$"):
        engine.share(np.ones(1000))
    with pytest.raises(ClusterError, match=f"^the scheduler at {address} is gone$"):
        engine.facts()
    engine.close()
    monkeypatch.setattr(contact, "CONNECT_S", 0.1)
    with pytest.raises(ClusterError, match=r"no scheduler answers there \(.*\), and none came within 0.1 s$"):
        open_cluster(address, None, None, events, None, 0.1)
    assert [line.endswith("waiting up to 0.1 s for one") for line in told if line] == [True, True]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (
            ["fit", "--wait-for-scheduler", "soon", "--scheduler", "tcp://h:1"],
            "--wait-for-scheduler: found 'soon', expected a time like 60s, 10m or 2h",
        ),
        (
            ["fit", "--wait-for-scheduler", "10m"],
            "--wait-for-scheduler: wait_for_scheduler is read by a fit on a cluster that has one only, found "
            "scheduler none",
        ),
        (
            ["check", "--wait-for-scheduler", "soon"],
            "Invalid value for '--wait-for-scheduler': found 'soon', expected",
        ),
        (
            ["check", "--wait-for-scheduler", "10m"],
            "--wait-for-scheduler needs a cluster with a scheduler; give --sch",
        ),
    ],
)
def test_what_cannot_be_waited_for_is_said(words, line, tmp_path, capfd):
    store = write(tmp_path / "s.zarr", samples(20, 3), np.arange(20) % 2)
    command, *rest = words
    given = [command, *(["--store"] if command == "fit" else []), store.url, *rest]
    assert exit_status(lambda: app(given, standalone_mode=False)) == 2
    assert capfd.readouterr().err.startswith(f"error: {line}")


@pytest.mark.slow  # processes that have to be waited for
def test_a_fit_goes_on_or_ends_in_one_line_and_goes_on_later(tmp_path):
    """Bit for bit: a scheduler that comes back is the undisturbed fit, and so is one that does not, with --resume."""
    store = write(tmp_path / "s.zarr", samples(3000, 8), np.arange(3000) % 2, step=100, chunk_rows=30)
    port = free_port()

    def fit(name, *more):
        own = [
            "--model",
            tmp_path / name,
            "--run-dir",
            tmp_path / f"{name}.run",
            "--checkpoint-every",
            "1 steps",
        ]
        solver = ["--no-search", "--solver", "cutting-plane", "--kernel", "linear", "--tol", "1e-9", "--json"]
        command = [sys.executable, "-m", "streamsvm", "fit", "--store", store.url, *own, *solver, *more]
        command += ["--scheduler", f"tcp://127.0.0.1:{port}"]
        pipes = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*map(str, command)], **pipes)

    def ended(process):
        """Its exit status, and the lines on stderr."""
        try:
            said = process.communicate(timeout=120)[1]
        finally:
            process.kill()
        return process.returncode, said.splitlines()

    def weights(name):
        return load_model(tmp_path / name).decision_function(store.read(0, 100))

    def until_state(name):
        while not [*(tmp_path / f"{name}.run").glob("state-*")]:
            time.sleep(0.05)

    with running(port=port):
        assert ended(fit("calm"))[0] == 0
        given_up = fit("given-up", "--wait-for-scheduler", "1s")
        until_state("given-up")
    status, said = ended(given_up)
    assert status == 2
    assert said[-1].startswith(f"error: the scheduler at tcp://127.0.0.1:{port} is gone"), said
    assert said[-1].endswith("none came within 1 s")
    with running(port=port):
        assert ended(fit("given-up", "--resume"))[0] == 0
        waiting = fit("waiting", "--wait-for-scheduler", "2m")
        until_state("waiting")
    with running(port=port):
        status, said = ended(waiting)
    assert (status, "waiting up to 2 min for one" in " ".join(said)) == (0, True), said
    np.testing.assert_array_equal(weights("given-up"), weights("calm"))
    np.testing.assert_array_equal(weights("waiting"), weights("calm"))
