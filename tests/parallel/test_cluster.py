"""On a cluster: the same models, whatever happens to its workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial

import cloudpickle
import numpy as np
import pytest
from cases import SOLVERS, VARIANTS, WITHOUT_LABELS, config
from dask.sizeof import sizeof
from distributed import Client, LocalCluster, Scheduler, SpecCluster, Worker, span
from making import samples, write
from scipy import sparse

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ClusterError, ConfigError, CorruptDataError
from streamsvm.events import Events, Progress, TasksRun
from streamsvm.fits import alfpgm
from streamsvm.models.files import load_model
from streamsvm.parallel import contact
from streamsvm.parallel.cluster import INLINE_BYTES, ClusterEngine, RemoteValue, open_cluster
from streamsvm.parallel.contact import Contact
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.open import open_engine
from streamsvm.predict import evaluate, predict_blocks
from streamsvm.tables.checks import check
from streamsvm.train import graph_of, plan, train, train_in_memory

SLOW = pytest.mark.slow
MADE = (*SOLVERS, *WITHOUT_LABELS, "squared losses", "nu")
FAST = ("dcsvm early", "cutting-plane", "alfpgm")
pytestmark = pytest.mark.timeout(300)
N, D = 900, 4
IN_PROCESS = {
    "processes": False,
    "protocol": "tcp",
    "host": "127.0.0.1",
    "dashboard_address": "127.0.0.1:0",
    "memory_limit": "4GiB",
}


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        memory_limit="2GiB",
    ) as made:
        yield made


@pytest.fixture
def engine(cluster):
    opened = open_engine(scheduler=cluster.scheduler_address)
    yield opened
    opened.close()


def data(k: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, D)).astype(np.float32)
    angle = np.arctan2(X[:, 0], X[:, 1]) + 0.3 * rng.normal(size=N)
    return X, np.floor((angle + np.pi) / (2 * np.pi) * k).astype(int) % k


@pytest.fixture
def store(tmp_path):
    X, y = data()
    return write(tmp_path / "s.zarr", Rows(X), y, step=N, chunk_rows=64)


class TestEngine:
    def test_results_come_in_order_with_progress(self, engine):
        done = []
        events = Events(lambda record: done.append((record.event.done, record.event.total)))
        squares = engine.map(_times, range(30), [2] * 30, shared=(engine.share(10),), events=events)
        assert list(squares) == [20 * x for x in range(30)]
        assert done[-1] == (30, 30)

    def test_each_task_is_recorded_with_its_worker_and_time(self, engine):
        found, names = [], set(engine.client.run(_worker_name).values())
        events = Events(lambda record: found.append(record.event))
        for _ in zip(range(4), engine.map(time.sleep, [0.1] * 4, phase="sleep", events=events), strict=False):
            pass  # zip takes the last one, and does not look for the end
        engine.map_reduce(_slow_own, _add, range(2), phase="reduce", events=events)
        for phase, count in (("sleep", 4), ("reduce", 2)):
            [told] = [event for event in found if isinstance(event, TasksRun) and event.phase == phase]
            took = [end - start for _, start, end in told.spans]
            assert sum(seconds > 0.09 for seconds in took) == count
            moments = [moment for _, *span in told.spans for moment in span]
            assert max(abs(moment - events.now) for moment in moments) < 60  # the scheduler's clock may be set
            assert set(told.workers) <= names

    def test_a_reduction_is_that_of_threads(self, engine):
        values = np.random.default_rng(0).normal(size=37)
        here, there = (e.map_reduce(_own, _add, values) for e in (Engine(2), engine))
        assert here == there  # to the last bit

    def test_large_values_do_not_pass_the_scheduler(self, engine, monkeypatch):
        submitted, submit = [], engine.client.map
        monkeypatch.setattr(
            engine.client,
            "map",
            lambda fn, *args, **more: submitted.extend(args) or submit(fn, *args, **more),
        )
        large = np.ones(100_000)
        shared, held = engine.share(large), engine.hold(np.copy, [large] * 3)
        assert list(engine.map(_dot, held, [large] * 3, shared=(shared,))) == [1e5 * 2] * 3
        assert not any(isinstance(arg, np.ndarray) for args in submitted for arg in args)

    def test_what_workers_have_no_room_for_is_read_by_the_task_that_uses_it(self, engine, monkeypatch):
        submitted, submit = [], engine.client.map
        monkeypatch.setattr(
            engine.client,
            "map",
            lambda fn, *args, **more: submitted.append(len(more["key"])) or submit(fn, *args, **more),
        )
        monkeypatch.setattr(engine, "_memory_bytes", lambda: 1.0)
        large = engine.share(np.ones(100_000))
        held = engine.hold(np.multiply, range(3), shared=(large,), nbytes=1e6)
        assert submitted == []
        assert list(engine.map(_dot, held, [np.ones(100_000)] * 3, shared=(np.ones(100_000),))) == [
            1e5 + x * 1e5 for x in range(3)
        ]
        assert sum(submitted) == 3
        halves = engine.hold(np.take, held, [np.arange(50_000)] * 3, nbytes=1e6)  # of what is read itself
        assert list(engine.map(np.sum, halves)) == [5e4 * x for x in range(3)]
        assert sum(submitted) == 6

    def test_tasks_are_named_after_what_they_do(self, engine):
        list(engine.map(_times, [1], [2], shared=(3,)))
        engine.map_reduce(partial(_own), _add, range(37))  # so many that workers do not merge all by themselves
        seen = set(engine.client.run_on_scheduler(_prefixes))
        assert {"times", "own", "add"} <= seen
        assert "call" not in seen

    def test_an_error_in_a_task_reaches_the_caller_as_it_is(self, engine):
        with pytest.raises(CorruptDataError, match="chunk 7"):
            list(engine.map(_fail, [7]))

    def test_results_before_an_error_are_taken_first(self, engine):
        found = engine.map(_fail_at, range(9), [5] * 9)
        assert [next(found) for _ in range(5)] == [*range(5)]
        with pytest.raises(CorruptDataError, match="chunk 5"):
            next(found)

    @pytest.mark.parametrize(
        ("floats", "window", "least", "most"),
        [(1, None, 40, 513), pytest.param(1, 3, 4, 7, marks=SLOW), (1000, None, 4, 9)],
    )
    def test_as_many_are_under_way_as_their_values_allow(self, engine, monkeypatch, floats, window, least, most):
        """Two windows of two a slot, or as many as asked; more where results and arguments are small."""
        begun, submitted = [], engine._submitted
        monkeypatch.setattr(engine, "_submitted", lambda fn, jobs: begun.extend(jobs) or submitted(fn, jobs))
        found = engine.map(np.ones, [floats] * 150, window=window)
        under_way = [len(begun) - taken for taken, _ in enumerate(found)]
        assert least <= max(under_way) <= most

    def test_small_results_are_fetched_together(self, engine, monkeypatch):
        fetched, fetch = [], contact.gather
        monkeypatch.setattr(
            contact,
            "gather",
            lambda client, futures, *more: fetched.append(len(futures)) or fetch(client, futures, *more),
        )
        assert list(engine.map(abs, range(60))) == [*range(60)]
        assert max(fetched) > 4
        fetched.clear()
        assert len(list(engine.map(np.ones, [1 << 17] * 12))) == 12
        assert sum(fetched[1:]) == 0  # after the first ones, of which the size was not known

    def test_a_task_counts_when_it_ends_though_one_before_it_does_not(self, engine, tmp_path):
        """The first one waits until three others were counted."""
        three = tmp_path / "three"
        events = Events(lambda record: getattr(record.event, "done", 0) == 3 and three.touch())
        assert list(engine.map(_is_there, [three, *[tmp_path] * 6], events=events)) == [True] * 7

    def test_workers_keep_nothing_of_a_reduction(self, engine):
        engine.map_reduce(_own, _add, range(9))
        deadline = time.monotonic() + 10
        while engine.client.run_on_scheduler(_tasks_there) and time.monotonic() < deadline:
            time.sleep(0.01)
        assert engine.client.run_on_scheduler(_tasks_there) == 0

    @pytest.mark.slow  # processes that have to be waited for
    def test_what_a_lost_worker_held_is_made_again(self, engine):
        """Values from here, held ones and results, while workers die."""
        shared = engine.share(np.ones(50_000))
        held = engine.hold(np.full, [10_000] * 6, range(6))
        found = engine.map(_slow_dot, held, [np.ones(10_000)] * 6, shared=(shared,))
        results = [next(found)]
        for pid in engine.client.run(os.getpid).values():
            os.kill(pid, signal.SIGKILL)
        results += found
        assert results == [x * 10_000 + 50_000 for x in range(6)]

    def test_a_folder_that_workers_do_not_see_is_named(self, engine, tmp_path, monkeypatch):
        engine.require_folder(tmp_path)
        monkeypatch.setattr(engine.client, "run", lambda *args: {"tcp://w": False})
        with pytest.raises(ConfigError, match="worker at tcp://w does not see"):
            engine.require_folder(tmp_path)

    def test_no_scheduler(self, monkeypatch):
        monkeypatch.setattr("streamsvm.parallel.contact.CONNECT_S", 1)
        for address in ("tcp://127.0.0.1:9", "nonsense://x"):
            with pytest.raises(ClusterError, match=f"--scheduler {address}: no scheduler answers there"):
                open_cluster(address, None, None)

    def test_workers_and_scheduler(self):
        with pytest.raises(ConfigError, match="give one of them"):
            open_cluster("tcp://127.0.0.1:9", 2, None)


def test_a_worker_that_leaves_while_values_are_sent_costs_another_try(engine, monkeypatch):
    told, send = [], contact.scatter
    monkeypatch.setattr(engine, "_events", Events(told.append))

    def first_fails(*args, **options):
        monkeypatch.setattr(contact, "scatter", send)
        raise KeyError("tcp://127.0.0.1:44583")

    monkeypatch.setattr(contact, "scatter", first_fails)
    ones = np.ones(1000)
    shared = engine.share(ones)
    assert list(engine.map(_dot, [ones], [ones], shared=(shared,))) == [2000.0]
    assert "a worker was lost" in told[0].event.message


@pytest.mark.slow  # processes that have to be waited for
def test_a_scheduler_that_dies_stops_the_client():
    command = [sys.executable, "-m", "distributed.cli.dask_scheduler", "--host=127.0.0.1", "--port=0"]
    scheduler = subprocess.Popen([*command, "--dashboard-address=127.0.0.1:0"], stderr=subprocess.PIPE, text=True)
    address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at" in line)
    worker = subprocess.Popen(
        [sys.executable, "-m", "distributed.cli.dask_worker", address, "--nthreads=1", "--no-dashboard"],
        stderr=subprocess.DEVNULL,
    )
    try:
        engine = open_cluster(address, None, None)
        results = engine.map(time.sleep, [0.0, 100.0])
        next(results)
        scheduler.kill()
        with pytest.raises(ClusterError, match=f"the scheduler at {address} is gone"):
            next(results)
        engine.close()
    finally:
        for process in (worker, scheduler):
            process.kill()
            process.communicate()


def fit_config(name: str, **where):
    return config(name, scale="standard", **where)


@pytest.mark.parametrize(
    "name",
    [name if name == "dcsvm" else pytest.param(name, marks=SLOW) for name in MADE],
)
def test_the_model_is_that_of_threads(name, store, cluster, tmp_path):
    reports, decisions = [], []
    for where in ({"threads": 2}, {"scheduler": cluster.scheduler_address}):
        path = tmp_path / f"{len(reports)}.zarr"
        reports.append(train(store, fit_config(name, **where), model_path=path))
        decisions.append(load_model(path).decision_function(Rows(data()[0])))
    assert reports[1]["objective"] == pytest.approx(reports[0]["objective"], rel=1e-5)
    np.testing.assert_allclose(decisions[1], decisions[0], atol=5e-3)
    assert (reports[1]["workers"], reports[1]["threads"]) == (2, 2)


@pytest.mark.parametrize(
    "name", [name if name in FAST else pytest.param(name, marks=SLOW) for name in (*SOLVERS, *VARIANTS)]
)
def test_dask_knows_the_size_of_what_travels(name, cluster, tmp_path, monkeypatch):
    """And nothing above a few KiB goes with a task, through the scheduler."""
    submitted, inline = ClusterEngine._submitted, []

    def weighed(self, fn, jobs):
        args = [arg for job in jobs for arg in job if not isinstance(arg, RemoteValue)]
        inline.extend(len(cloudpickle.dumps(arg)) for arg in args)
        return submitted(self, partial(_weighed, fn), jobs)

    monkeypatch.setattr(ClusterEngine, "_submitted", weighed)
    X, y = data(4)
    store = write(tmp_path / "s.zarr", Rows(X), y, step=N, chunk_rows=300)
    train(store, fit_config(name, scheduler=cluster.scheduler_address), model_path=tmp_path / "m.zarr")
    assert max(inline) < 2 * INLINE_BYTES


def test_cutting_planes_send_nothing_of_each_row(store, cluster, tmp_path, monkeypatch):
    sent, send = [], Contact.send
    monkeypatch.setattr(Contact, "send", lambda self, values: sent.extend(values) or send(self, values))
    there = fit_config("cutting-plane", scheduler=cluster.scheduler_address)
    report = train(store, there, model_path=tmp_path / "m.zarr")
    assert report["passes"] > 3
    assert not [value for value in sent if isinstance(value, np.ndarray) and len(value) > D + 1]


@pytest.mark.parametrize(("share", "is_dual"), [(0.5, True), (0.0, False)])
def test_sparse_rows_have_the_model_of_threads(share, is_dual, cluster, tmp_path, monkeypatch):
    """By dual descent, in this process, if they fit; else by planes, on the workers."""
    monkeypatch.setattr("streamsvm.fits.cutting_plane.DUAL_SHARE", share)
    rng = np.random.default_rng(0)
    X = sparse.random_array((N, 60), density=0.1, format="csr", dtype=np.float32, rng=rng)
    y = np.argmax(X[:, :3].toarray() + 0.1 * rng.random((N, 3)), axis=1)
    store = write(tmp_path / "s.zarr", Rows(X), y, step=N, chunk_rows=64)
    options = {"solver": "cutting-plane", "kernel": {"name": "linear"}, "scale": "maxabs", "memory_limit": "2GiB"}
    (here, report), (there, theirs) = (
        train_in_memory(store, build_config(("t", options | where)))
        for where in ({"threads": 2}, {"scheduler": cluster.scheduler_address})
    )
    assert ((report["planes"] == 0), (theirs["planes"] == 0)) == (is_dual, is_dual)
    np.testing.assert_array_equal(here.coef, there.coef)
    np.testing.assert_array_equal(here.intercept, there.intercept)
    for name in ("objective", "gap", "steps", "passes", "n_support"):
        assert report[name] == theirs[name]


def test_cutting_planes_stop_by_their_slack_where_threads_do(store, cluster):
    options = {"solver": "cutting-plane", "kernel": {"name": "linear"}, "cutting_plane": {"epsilon": 1e-2}}
    reports = [
        train_in_memory(store, build_config(("t", options | where)))[1]
        for where in ({"threads": 2}, {"scheduler": cluster.scheduler_address})
    ]
    for name in ("stopped_by", "slack", "relative_gap", "steps"):
        assert reports[0][name] == reports[1][name]
    assert reports[0]["stopped_by"] == "epsilon"


@pytest.mark.parametrize("task", ["regress", "oneclass"])
def test_numbers_and_one_class_by_planes_are_those_of_threads(task, cluster, tmp_path):
    X = data()[0]
    store = write(tmp_path / "s.zarr", Rows(X), 3 * X[:, 0] + X[:, 1] ** 2, step=N, chunk_rows=300)
    options = {"task": task, "solver": "cutting-plane", "cutting_plane": {"landmarks": 30}, "tol": 1e-2}
    models = [
        train_in_memory(store, build_config(("t", options | {"kernel": {"gamma": 0.5}} | where)))[0]
        for where in ({"threads": 2}, {"scheduler": cluster.scheduler_address})
    ]
    np.testing.assert_array_equal(*(model.decision_function(Rows(X)) for model in models))


@pytest.mark.slow  # processes that have to be waited for
def test_workers_come_and_go_during_a_fit(store, tmp_path):
    """One, two from the third step on, and one again from the twelfth."""
    seen = []

    def scale(record):
        if isinstance(record.event, Progress):
            seen.append(len(cluster.scheduler.workers))
            wanted = {3: 2, 12: 1}.get(len(seen))
            if wanted:
                cluster.scale(wanted)
                deadline = time.monotonic() + 30
                while len(cluster.scheduler.workers) != wanted and time.monotonic() < deadline:
                    time.sleep(0.02)

    expected = train(store, fit_config("dcsvm", threads=2), model_path=tmp_path / "here.zarr")
    with LocalCluster(**IN_PROCESS, n_workers=1, threads_per_worker=1) as cluster:
        where = {"scheduler": cluster.scheduler_address}
        options = fit_config("dcsvm", **where)
        report = train(store, options, model_path=tmp_path / "there.zarr", events=Events(scale))
    assert [number for number, before in zip(seen, [0, *seen], strict=False) if number != before] == [1, 2, 1]
    assert report["objective"] == pytest.approx(expected["objective"], rel=1e-5)
    here, there = (load_model(tmp_path / f"{name}.zarr") for name in ("here", "there"))
    rows = Rows(data()[0])
    np.testing.assert_allclose(there.decision_function(rows), here.decision_function(rows), atol=5e-3)


def test_a_scheduler_keeps_no_more_of_many_fits_than_of_one(cluster, monkeypatch):
    """dask forgets no span (dask/distributed#7977)."""
    monkeypatch.setattr("streamsvm.private.distributed.REPORTED_S", 0.0)

    def kept():
        time.sleep(1)  # a heartbeat of the workers may name a span
        spans = cluster.scheduler.extensions["spans"].spans
        ours = spans["streamsvm"]
        ended = ours.stop  # which a dashboard asks for
        assert ended >= ours.start
        return len(spans), len(ours.groups), len(ours.metadata["collections"])

    found = []
    for _ in range(4):
        engine = open_engine(scheduler=cluster.scheduler_address)
        five = engine.share(5)
        assert list(engine.map(pow, range(1, 4), shared=(five,), events=Events([].append)))
        engine.close()
        found.append(kept())
    assert found[1:] == [found[1]] * 3
    assert found[1][1:] == (2, 1)


def test_tasks_belong_to_the_span_of_the_caller(cluster, engine):
    with span("mine") as own:
        assert list(engine.map(abs, range(3))) == [0, 1, 2]
    (group,) = cluster.scheduler.extensions["spans"].spans[own].groups
    assert group.name == "abs"


def test_parts_are_sized_for_the_smallest_worker(store, tmp_path):
    sizes = ((1, 4 << 30), (3, 6 << 30))  # more than this process holds, in which they are
    workers = {
        i: {"cls": Worker, "options": {"nthreads": threads, "memory_limit": limit, "host": "127.0.0.1"}}
        for i, (threads, limit) in enumerate(sizes)
    }
    options = {"host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    expected = train(store, fit_config("dcsvm early", threads=2), model_path=tmp_path / "here.zarr")
    with SpecCluster(workers, {"cls": Scheduler, "options": options}) as cluster:
        there = fit_config("dcsvm early", scheduler=cluster.scheduler_address)
        assert plan(store, there)["limit_bytes"] == 4 << 30
        report = train(store, there, model_path=tmp_path / "there.zarr")
    assert (report["workers"], report["threads"]) == (2, 4)
    assert report["n_support"] == expected["n_support"]


def test_many_pairs_of_classes(cluster, tmp_path):
    X, y = data(8)
    store = write(tmp_path / "s.zarr", Rows(X), y, step=N)
    objectives = [
        train(store, fit_config("alfpgm", **where), model_path=tmp_path / "m.zarr")["objective"]
        for where in ({"threads": 2}, {"scheduler": cluster.scheduler_address})
    ]
    assert objectives[1] == pytest.approx(objectives[0], rel=1e-6)


@pytest.mark.slow  # workers that import and compile what tasks need
def test_rows_that_the_leading_process_has_no_memory_for(cluster, store, tmp_path, monkeypatch):
    """Models of threads and of any number of workers are equal to the last bit."""
    monkeypatch.setattr(alfpgm, "fits_memory", lambda limit_bytes, needed_bytes: False)
    monkeypatch.setattr(alfpgm, "PART_BYTES", 1)
    found = []
    there = {"scheduler": cluster.scheduler_address}
    for where, share in (({"threads": 2}, 0.0), (there, 0.3), ({"workers": 1}, 0.0)):
        monkeypatch.setattr("streamsvm.parallel.cluster.HELD_SHARE", share)  # of workers' memory, for rows
        train(store, fit_config("alfpgm", **where), model_path=tmp_path / f"{len(found)}.zarr")
        found.append(load_model(tmp_path / f"{len(found)}.zarr").decision_function(Rows(data()[0])))
    np.testing.assert_array_equal(found[1], found[0])
    np.testing.assert_array_equal(found[2], found[0])


@pytest.mark.slow  # workers that import and compile what tasks need
def test_a_graph_that_a_client_computes(cluster, store, tmp_path):
    options = fit_config("dcsvm early")
    expected, _ = train_in_memory(store, options)
    with Client(cluster, set_as_default=False) as client:
        found = client.compute(graph_of(store, options, tmp_path / "shared")).result()
    for name, array in expected.arrays.items():
        np.testing.assert_array_equal(found.arrays[name], array)
    assert found.header.certificate == expected.header.certificate


def test_predictions_scores_and_checks(store, engine, tmp_path):
    train(store, fit_config("dcsvm"), model_path=tmp_path / "m.zarr")
    model, here = load_model(tmp_path / "m.zarr"), Engine(2)
    for (start, stop, there), (_, _, expected) in zip(
        predict_blocks(model, store, engine=engine), predict_blocks(model, store, engine=here), strict=True
    ):
        np.testing.assert_array_equal(there, expected)
        assert len(there) == stop - start
    assert evaluate(model, store, engine=engine) == evaluate(model, store, engine=here)
    assert check(store, engine) == check(store, here)
    (tmp_path / "s.zarr" / "X" / "c" / "3" / "0").unlink()
    with pytest.raises(CorruptDataError, match="'X': chunk 3"):
        check(Store.open(tmp_path / "s.zarr"), engine)


def test_relative_paths_are_found_from_elsewhere(cluster, engine, tmp_path, monkeypatch):
    write(tmp_path / "s.zarr", samples(20, 3), np.arange(20) % 2)
    monkeypatch.chdir(tmp_path)
    engine.client.run(os.chdir, "/")
    assert check(Store.open("s.zarr"), engine)["rows"] == 20


def _weighed(fn, *args):
    """The result, of which dask knows the size as of the arguments."""
    result = fn(*args)
    for value in (*args, result):
        travels = len(cloudpickle.dumps(value))
        assert sizeof(value) >= (travels - INLINE_BYTES) / 2, (type(value), travels, sizeof(value))
    return result


def _prefixes(dask_scheduler):
    return list(dask_scheduler.task_prefixes)


def _tasks_there(dask_scheduler):
    return sum(key.startswith(("own", "first", "second", "add")) for key in dask_scheduler.tasks)


def _fail_at(x, bad):
    return x if x != bad else _fail(x)


def _is_there(path, within_s=30.0):
    until = time.monotonic() + within_s
    while not path.exists() and time.monotonic() < until:
        time.sleep(0.01)
    return path.exists()


def _times(a, x, y):
    return a * x * y


def _own(x):
    return None, x


def _slow_own(x):
    time.sleep(0.1)
    return None, x


def _worker_name(dask_worker):
    return str(dask_worker.name)


def _add(a, b):
    return a + b


def _dot(a, x, y):
    return float(a @ x + a @ y)


def _slow_dot(a, x, y):
    time.sleep(0.3)
    return float(x @ y + a.sum())


def _fail(chunk):
    raise CorruptDataError(f"array 'X': chunk {chunk}")
