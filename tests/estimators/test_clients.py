"""On the cluster of a dask client, which is active or given: the model of threads, and the client as it was."""

from __future__ import annotations

import asyncio
import pickle
import threading

import dask.array as da
import numpy as np
import pytest
from cases import ESTIMATORS
from distributed import Client, LocalCluster
from making import write
from scipy import sparse
from sklearn.base import clone
from sklearn.model_selection import GridSearchCV

from streamsvm import DCSVC
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.estimators import clients
from streamsvm.parallel import open as opening

pytestmark = pytest.mark.timeout(120)
HERE = {"processes": False, "protocol": "tcp", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
EARLY = DCSVC(C=10, gamma=0.5, early=True, levels=1, random_state=0)


def data(n=600):
    X = np.random.default_rng(0).normal(size=(n, 3)).astype(np.float32)
    return X, np.where(X[:, 0] * X[:, 1] > 0, "in", "out")


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(n_workers=2, threads_per_worker=1, **HERE) as made:
        yield made


@pytest.fixture
def client(cluster):
    """The active one."""
    with Client(cluster) as active:
        yield active


@pytest.fixture
def opened(monkeypatch):
    """The engines that fits compute on."""
    seen, on_threads = [], opening.Engine
    from streamsvm.parallel import cluster

    def watch(make):
        def made(*args, **options):
            seen.append(make(*args, **options))
            return seen[-1]

        return made

    monkeypatch.setattr(cluster, "joined_cluster", watch(cluster.joined_cluster))
    monkeypatch.setattr(opening, "Engine", watch(on_threads))
    return seen


def arrays_of(estimator):
    model = estimator.model_
    return [np.asarray(part.coef) for part in getattr(model, "parts", [model])]


@pytest.fixture(scope="module")
def expected():
    return clone(EARLY).set_params(client=False).fit(*data()).decision_function(data()[0])


def test_the_active_client_is_used_without_being_named(client, opened, expected, capsys):
    found = clone(EARLY).set_params(verbose=1).fit(*data())
    assert [engine.is_local for engine in opened] == [False]
    np.testing.assert_array_equal(found.decision_function(data()[0]), expected)
    assert f"on {client.scheduler.address}  threads 2  workers 2" in capsys.readouterr().err
    assert client.status == "running"
    assert client.submit(abs, -1).result() == 1


def test_a_client_that_is_given_and_one_that_is_refused(cluster, opened, expected):
    with Client(cluster) as active, Client(cluster, set_as_default=False) as given:
        np.testing.assert_array_equal(
            clone(EARLY).set_params(client=given).fit(*data()).decision_function(data()[0]), expected
        )
        clone(EARLY).set_params(client=False).fit(*data())
        assert active.status == given.status == "running"
    assert [engine.is_local for engine in opened] == [False, True]
    for wrong, why in ((given, "is closed"), ("tcp://h:1", "expected a distributed.Client"), (True, "True")):
        with pytest.raises(ConfigError, match=f"^client: .*{why}"):
            clone(EARLY).set_params(client=wrong).fit(*data())


def test_no_client_is_in_what_was_learned(cluster):
    """clone, pickle, get_params and searches over parameters, as scikit-learn has them."""
    with Client(cluster, set_as_default=False) as given:
        fitted = clone(EARLY).set_params(client=given).fit(*data(200))
        assert clone(fitted).client is given
        assert fitted.get_params()["client"] is given
        again = pickle.loads(pickle.dumps(fitted))
        assert again.client is None
        search = GridSearchCV(fitted, {"C": [1.0]}, cv=2).fit(*data(200))
        assert search.best_estimator_.client is given
    assert all(value is not given for value in vars(fitted.model_).values())
    np.testing.assert_array_equal(again.predict(data()[0]), fitted.predict(data()[0]))
    assert pickle.loads(pickle.dumps(clone(EARLY).set_params(client=False))).client is False


def test_a_client_that_is_closed_or_asynchronous_is_not_active(cluster, opened):
    async def inside():
        async with Client(cluster.scheduler_address, asynchronous=True) as active:
            clone(EARLY).fit(*data(100))
            with pytest.raises(ConfigError, match=r"^client: found an asynchronous one"):
                clone(EARLY).set_params(client=active).fit(*data(100))

    asyncio.run(inside())
    Client(cluster).close()
    clone(EARLY).fit(*data(100))
    assert [engine.is_local for engine in opened] == [True, True]


def test_a_fit_inside_a_task_computes_on_threads(client, opened):
    """Else it would wait for a worker, which waits for it."""

    def score():
        return float(clone(EARLY).set_params(n_jobs=1).fit(*data(300)).score(*data(300)))

    assert client.submit(score, pure=False).result() > 0.9
    assert [engine.is_local for engine in opened] == [True]


def test_where_workers_cannot_have_what_a_fit_needs_threads_compute(client, opened, monkeypatch):
    monkeypatch.setattr(clients, "MAX_SHARE", 1e-9)
    with pytest.warns(UserWarning, match="fitted on threads, not on the cluster of the active dask client: .* 0%"):
        clone(EARLY).fit(*data(100))
    with pytest.raises(ConfigError, match=r"^client: .* memory; write it to a store .*give client=False"):
        clone(EARLY).set_params(client=client).fit(*data(100))
    monkeypatch.undo()
    monkeypatch.setattr(clients, "_without_files", lambda client: "tcp://w:1")
    with pytest.raises(ConfigError, match="the worker at tcp://w:1 does not see this machine's"):
        clone(EARLY).set_params(client=client).fit(*data(100))
    assert [engine.is_local for engine in opened] == [True]


@pytest.mark.parametrize(
    "layout", [*(pytest.param(name, marks=pytest.mark.slow) for name in ("CSR", "dask")), "kept dask"]
)  # slow: they take the road of the other
def test_rows_of_dask_and_of_memory_reach_the_workers(layout, client, opened, expected):
    """Blocks that workers keep go from worker to worker: each has one thread, and none waits for another."""
    X, y = data()
    blocks = da.from_array(X, chunks=(100, 3))
    rows = {
        "CSR": lambda: sparse.csr_matrix(X),
        "dask": lambda: blocks,
        "kept dask": lambda: client.persist(blocks),
    }
    found = clone(EARLY).fit(rows[layout](), y)
    assert [engine.is_local for engine in opened] == [False]
    np.testing.assert_allclose(found.decision_function(X), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("is_kept", [False, True])
def test_partitions_reach_the_workers(is_kept, client, opened):
    """Encoded there, by what all partitions hold."""
    pd, dd = pytest.importorskip("pandas"), pytest.importorskip("dask.dataframe")
    X, y = data()
    whole = pd.DataFrame(X, columns=["a", "b", "c"]).assign(text=np.where(np.arange(600) < 450, "u", "v"))
    frame = dd.from_pandas(whole, npartitions=4)
    found = clone(EARLY).fit(client.persist(frame) if is_kept else frame, y)
    assert [engine.is_local for engine in opened] == [False]
    here = clone(EARLY).set_params(client=False).fit(whole, y).decision_function(whole)
    np.testing.assert_allclose(found.decision_function(frame).compute(), here, rtol=1e-4, atol=1e-5)


def test_a_store_is_read_by_the_workers(client, opened, expected, tmp_path):
    X, y = data()
    store = write(tmp_path / "s.zarr", Rows(X), y)
    found = clone(EARLY).fit(store)
    assert [engine.is_local for engine in opened] == [False]
    np.testing.assert_array_equal(found.decision_function(X), expected)


def test_a_cluster_that_starts_workers_on_demand_starts_one_for_a_fit(expected):
    with LocalCluster(n_workers=0, threads_per_worker=1, **HERE) as cluster, Client(cluster):
        cluster.adapt(minimum=0, maximum=1, interval="50ms")
        found = clone(EARLY).fit(*data())
    np.testing.assert_array_equal(found.decision_function(data()[0]), expected)


@pytest.mark.slow  # workers that come and go
@pytest.mark.filterwarnings("ignore:a worker was lost, its task runs again")  # one that leaves may hold rows
def test_workers_come_and_go_during_fits(expected):
    with LocalCluster(n_workers=1, threads_per_worker=1, **HERE) as cluster, Client(cluster) as client:
        ended = threading.Event()

        def change():
            while not ended.wait(0.3):
                cluster.scale(3 - len(client.scheduler_info()["workers"]))

        changing = threading.Thread(target=change)
        changing.start()
        try:
            for _ in range(5):
                found = clone(EARLY).fit(*data())
                np.testing.assert_array_equal(found.decision_function(data()[0]), expected)
        finally:
            ended.set()
            changing.join()


@pytest.mark.slow  # every solver
@pytest.mark.parametrize("name", ESTIMATORS)
def test_every_estimator_learns_the_model_of_threads(name, client, opened):
    X, y = data(300)
    here = clone(ESTIMATORS[name]).set_params(client=False).fit(X, y)
    there = clone(ESTIMATORS[name]).fit(X, y)
    assert not opened[-1].is_local
    np.testing.assert_allclose(there.decision_function(X), here.decision_function(X), atol=5e-3)
