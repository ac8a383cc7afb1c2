"""Runs that share nothing but a bucket of an object store: models are those of local folders, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, nullcontext
from pathlib import Path

import clusters
import numpy as np
import pytest
from buckets import NEEDED, bucket
from cases import EARLY, config, labelled
from making import write

from streamsvm.data import regroup
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Events, LevelSolved, Memory, Warned, ignore
from streamsvm.fits.parts import EarlyPartitions, PartitionSolver
from streamsvm.models.files import load_model
from streamsvm.report.read import read_run
from streamsvm.runs.directory import Tail
from streamsvm.storage.paths import URLPath, remove_tree
from streamsvm.train import train

for name in NEEDED:
    pytest.importorskip(name, reason="needs a local S3 server: streamsvm[dev]")

OPTIONS = config("dcsvm early", checkpoint_every="1 steps", dcsvm=EARLY)


@pytest.fixture(scope="module", params=["memory", pytest.param("s3", marks=pytest.mark.slow)])  # a server
def there(request):
    """A bucket; a file system in memory stands for one."""
    with bucket() if request.param == "s3" else nullcontext():
        yield URLPath(f"{request.param}://bucket")
        remove_tree(URLPath("memory://bucket"))


@pytest.fixture(scope="module")
def store(there):
    X, y = labelled(3)
    return write(str(there / "s.zarr"), Rows(X), y, step=300, chunk_rows=300)


@pytest.fixture
def streamed(monkeypatch):
    """A fit holds no rows, and reads them in many blocks and files."""
    monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
    monkeypatch.setattr(Store, "blocks", lambda self: [(a, min(self.n, a + 300)) for a in range(0, self.n, 300)])
    monkeypatch.setattr(regroup, "SPOOL_BYTES", 1)


@pytest.fixture(scope="module")
def whole(store, tmp_path_factory):
    """The model of an undisturbed run in local folders."""
    path = tmp_path_factory.mktemp("whole") / "m"
    train(store, OPTIONS, model_path=path, events=ignore)
    return path


def is_same(one, two) -> None:
    models = [load_model(path) for path in (one, two)]
    arrays = [model.to_state()[0] for model in models]
    assert arrays[0].keys() == arrays[1].keys()
    for name in arrays[0]:
        np.testing.assert_array_equal(np.asarray(arrays[0][name]), np.asarray(arrays[1][name]))
    assert models[0].header.certificate == models[1].header.certificate


def test_a_fit_that_was_stopped_goes_on(there, store, whole, streamed, monkeypatch):
    run_dir, model, add, tail = there / "run", there / "m", EarlyPartitions.add, Tail(there / "run")
    taken: list[object] = []

    def stop(self, *args):
        taken.append(args)
        if len(taken) > 3:
            raise ZeroDivisionError
        add(self, *args)

    with monkeypatch.context() as patch:
        patch.setattr(EarlyPartitions, "add", stop)
        with pytest.raises(ZeroDivisionError):
            train(store, OPTIONS, model_path=model, run_dir=run_dir, events=ignore)
    assert not model.exists()
    began = tail()
    assert began
    solve, again, warned = PartitionSolver.__call__, list[int](), list[str]()

    def solving(self, parts, part):
        again.append(part)
        return solve(self, parts, part)

    def warning(record):
        warned.extend([record.event.message] if isinstance(record.event, Warned) else [])

    monkeypatch.setattr(PartitionSolver, "__call__", solving)
    train(store, OPTIONS, model_path=model, run_dir=run_dir, resume=True, events=Events(warning))
    assert min(again) >= 2  # it goes on from the parts that are kept
    assert not warned
    is_same(whole, model)
    assert any(isinstance(record.event, LevelSolved) for record in tail())
    assert not tail.is_running
    run = read_run(run_dir)
    assert (run.status, run.name, run.result["model"]) == ("finished", "run", str(model))
    assert run.of(Memory)
    assert not (run_dir / "rows").exists()
    assert [path.name for path in run_dir.iterdir() if not path.name.startswith("state-")] == [
        "events.jsonl",
        "result.json",
    ]


@pytest.mark.parametrize("far", ["model", "run directory"])
def test_one_of_both_may_be_here(there, store, whole, streamed, tmp_path, far):
    """Tasks write a model's arrays where they are to be, or where all see them."""
    far_off, here = there / "one", tmp_path / "one"
    model, run_dir = (far_off, here) if far == "model" else (here, far_off)
    train(store, OPTIONS, model_path=model, run_dir=run_dir, events=ignore)
    is_same(whole, model)
    remove_tree(far_off)


FIT = """
import sys
from streamsvm.cli.app import app
from streamsvm.storage import locks
locks.BEAT_S, locks.STALE_S = 0.5, 3.0
app(sys.argv[1:])
"""


def command(*words: object, model: object, run_dir: object) -> list[str]:
    given = ["fit", "--store", "s3://bucket/s.zarr", "--no-search", "--model", model, "--run-dir", run_dir]
    given += ["--gamma", OPTIONS.kernel.gamma, "--C", OPTIONS.C, "--early", "--checkpoint-every", "1 steps"]
    given += [word for name, value in EARLY.items() for word in ("--set", f"dcsvm.{name}={value}") if name != "early"]
    return [sys.executable, "-c", FIT, *map(str, [*given, *words])]


@pytest.mark.slow  # processes, and a lock that has to be found left
@pytest.mark.parametrize("there", ["s3"], indirect=True)
def test_a_client_that_was_killed_goes_on_elsewhere(there, store, whole):
    run_dir, solved = there / "killed", there / "killed" / "rows" / "solved"
    again = command("--workers", 1, model=there / "k", run_dir=run_dir)
    with subprocess.Popen(again, start_new_session=True) as process:
        until = time.monotonic() + 120
        while len(list(solved.iterdir())) < 2 and process.poll() is None and time.monotonic() < until:
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGKILL)
    assert len(list(solved.iterdir())) >= 2
    assert not (there / "k").exists() or not (there / "k" / "zarr.json").exists()
    [left] = list((run_dir / "lock").iterdir())
    left.write_bytes(left.read_bytes().replace(b'"host": "', b'"host": "not-'))  # where nobody can look for it
    resumed = subprocess.run([*again, "--resume"], capture_output=True, text=True, check=True)
    assert "waiting up to 3 s to see whether it is alive" in resumed.stderr
    is_same(whole, there / "k")


@pytest.mark.slow  # a scheduler and workers
@pytest.mark.parametrize("there", ["s3"], indirect=True)
def test_workers_that_share_nothing_but_the_bucket(there, store, whole, tmp_path, monkeypatch):
    """Each has a folder of its own, for itself and for temporary files; so has the client."""
    words = "--nthreads=1", "--no-dashboard", "--no-nanny"
    with ExitStack() as stack:
        scheduler = "scheduler", "--host=127.0.0.1", "--port=0", "--dashboard-address=127.0.0.1:0"
        _, address = stack.enter_context(clusters.started(*scheduler))
        for folder in (tmp_path / "a", tmp_path / "b"):
            folder.mkdir()
            env = {**clusters.path(Path(__file__).parents[1]), "TMPDIR": str(folder)}
            stack.enter_context(clusters.started("worker", address, *words, env=env, cwd=folder))
        monkeypatch.chdir(tmp_path)
        options = OPTIONS.model_copy(update={"scheduler": address})
        train(store, options, model_path=there / "c", run_dir=there / "cluster", events=ignore)
    is_same(whole, there / "c")
    assert not any(path.name.startswith("streamsvm-scratch") for path in (there / "cluster").iterdir())
    assert not [path for name in "ab" for path in (tmp_path / name).rglob("*.X")]
