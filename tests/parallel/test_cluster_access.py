"""How a cluster is reached and looked at: TLS, the dashboard, dask's performance report; and that it is let go of."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from importlib.metadata import PackageNotFoundError

import dask
import dask.array as da
import numpy as np
import psutil
import pytest
from distributed import Client, LocalCluster, Security
from making import samples, write

from streamsvm import DCSVC, BudgetedSVC
from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.errors import ClusterError, ConfigError, DataError
from streamsvm.events import Events
from streamsvm.parallel.cluster import open_cluster
from streamsvm.parallel.engine import Engine
from streamsvm.parallel.open import open_engine
from streamsvm.train import train_in_memory

pytestmark = pytest.mark.timeout(120)
TLS = "distributed.comm.tls"


@pytest.fixture(scope="module")
def security():
    pytest.importorskip("cryptography", reason="certificates need cryptography: streamsvm[dev]")
    return Security.temporary()


@pytest.fixture(scope="module")
def cluster(security):
    """A scheduler and a worker in this process that speak TLS only."""
    with LocalCluster(
        n_workers=1,
        threads_per_worker=1,
        processes=False,
        host="tls://127.0.0.1",
        dashboard_address="127.0.0.1:0",
        security=security,
    ) as made:
        yield made


def settings(security):
    return {
        f"{TLS}.ca-file": security.tls_ca_file,
        f"{TLS}.client.cert": security.tls_client_cert,
        f"{TLS}.client.key": security.tls_client_key,
    }


@pytest.fixture
def store(tmp_path):
    return write(tmp_path / "s.zarr", samples(60, 3), np.arange(60) % 2, chunk_rows=20)


@pytest.mark.slow  # a process of the command
def test_dask_s_own_settings_reach_a_scheduler_with_tls(cluster, security, store, tmp_path):
    files = {}
    for name, text in settings(security).items():
        path = tmp_path / f"{name}.pem"
        path.write_text(text)
        files[f"DASK_{name.replace('.', '__').replace('-', '_').upper()}"] = str(path)
    page = tmp_path / "page.html"
    options = ("--scheduler", cluster.scheduler_address, "--performance-report", page, "--json")
    argv = [sys.executable, "-m", "streamsvm", "check", store.url, *options]
    done = subprocess.run(argv, env=os.environ | files, capture_output=True, text=True, check=False)
    assert (done.returncode, json.loads(done.stdout)["rows"]) == (0, 60), done.stderr
    assert done.stderr.splitlines() == [f"dashboard: {cluster.dashboard_link}"]
    assert "Dask Performance Report" in page.read_text()
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize(
    ("scheme", "certificates", "message"),
    [
        ("tls", "none", "distributed.comm.tls in dask's configuration"),
        ("tls", "others", "TLS certificate does not match.*distributed.comm.tls"),
        ("tls", "missing", "No such file.*distributed.comm.tls"),
        ("tcp", "none", "one with TLS begins with tls://"),
        ("tcp", "required", "encryption required"),
    ],
)
def test_what_is_wrong_with_a_certificate_is_one_line(cluster, security, scheme, certificates, message):
    given = {
        "none": {},
        "others": settings(Security.temporary()),
        "missing": dict.fromkeys(settings(security), "/nowhere/c.pem"),
        "required": settings(security) | {"distributed.comm.require-encryption": True},
    }[certificates]
    address = cluster.scheduler_address.replace("tls", scheme, 1)
    with dask.config.set(given), pytest.raises(ClusterError, match=f"^--scheduler {address}: .*{message}"):
        open_cluster(address, None, None)


def test_what_listens_and_says_nothing_is_not_waited_for(monkeypatch):
    monkeypatch.setattr("streamsvm.parallel.contact.CONNECT_S", 0.5)
    began = time.monotonic()
    with socket.create_server(("127.0.0.1", 0)) as mute:
        address = f"tcp://127.0.0.1:{mute.getsockname()[1]}"
        with pytest.raises(ClusterError, match=f"--scheduler {address}: no scheduler answers there"):
            open_cluster(address, None, None)
    assert time.monotonic() - began < 20


def test_local_processes_listen_on_loopback_alone():
    said = []
    engine = open_engine(workers=1, events=Events(said.append))
    try:
        processes = [psutil.Process(), *psutil.Process().children(recursive=True)]
        listening = {
            connection.laddr
            for process in processes
            for connection in process.net_connections("inet")
            if connection.status == psutil.CONN_LISTEN
        }
        dashboard = int(said[0].event.dashboard.rpartition(":")[2].partition("/")[0])
        assert dashboard in {port for _, port in listening}
        assert {ip for ip, _ in listening} == {"127.0.0.1"}
    finally:
        engine.close()


class TestPerformanceReport:
    @pytest.fixture
    def address(self, cluster, security):
        with dask.config.set(settings(security)):
            yield cluster.scheduler_address

    def test_threads_have_none(self, tmp_path):
        with pytest.raises(ConfigError, match="give --workers or --scheduler too"):
            open_engine(performance_report=tmp_path / "page.html")

    def test_a_folder_has_to_be_there(self, address, tmp_path):
        with pytest.raises(ConfigError, match=f"there is no folder {tmp_path / 'none'}"):
            open_cluster(address, None, None, performance_report=tmp_path / "none" / "page.html")

    def test_the_scheduler_has_to_have_bokeh(self, address, tmp_path, monkeypatch):
        monkeypatch.setattr("streamsvm.parallel.contact.version", _absent)
        with pytest.raises(ConfigError, match="pip install bokeh there"):
            open_cluster(address, None, None, performance_report=tmp_path / "page.html")

    def test_what_keeps_it_from_being_written_is_told(self, address, tmp_path):
        said, folder = [], tmp_path / "soon-gone"
        folder.mkdir()
        engine = open_cluster(address, None, None, Events(said.append), folder / "page.html")
        folder.rmdir()
        engine.close()
        assert "page.html: was not written" in said[-1].event.message


def test_a_fit_that_cannot_begin_lets_go_of_its_engine(monkeypatch):
    class Watched(Engine):
        closed = False

        def close(self):
            self.closed = True

    engine = Watched()
    monkeypatch.setattr("streamsvm.train.open_engine", lambda *options: engine)
    with pytest.raises(DataError, match="one class only"):
        train_in_memory(Store.from_arrays(samples(20, 3).X, np.zeros(20, int)), build_config())
    assert engine.closed


def _absent(name):
    raise PackageNotFoundError(name)


def test_dask_arrays_that_a_cluster_keeps_are_fitted_and_predicted():
    """As dask-ml's guide teaches: persist, then fit. The client need not be the default one."""
    X, y = samples(300, 4, seed=3).X, np.arange(300) % 2
    options = {"C": 5.0, "gamma": 1e-4, "random_state": 0}
    with LocalCluster(n_workers=1, processes=False, dashboard_address="127.0.0.1:0") as cluster:
        with Client(cluster, set_as_default=False) as client:
            kept, labels = client.persist([da.from_array(X, chunks=(70, 4)), da.from_array(y, chunks=70)])
            svm = DCSVC(**options).fit(kept, labels)
            online = BudgetedSVC(gamma=1e-4, random_state=0).partial_fit(kept, labels, classes=[0, 1])
            lazily = [estimator.decision_function(kept) for estimator in (svm, online)]
            found, decisions = client.gather(client.compute(lazily))
    here = DCSVC(**options).fit(X, y).decision_function(X)
    np.testing.assert_allclose(found, here, rtol=1e-5)  # by other blocks, so other roundings
    again = BudgetedSVC(gamma=1e-4, random_state=0).partial_fit(X, y, classes=[0, 1])
    np.testing.assert_allclose(decisions, again.decision_function(X), rtol=1e-5)
