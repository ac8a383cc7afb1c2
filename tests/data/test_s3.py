"""Stores on an object store, read by whoever works on them: a local S3 server on loopback."""

from __future__ import annotations

import boto3
import fsspec
import numpy as np
import pytest
from making import samples, write
from moto.server import ThreadedMotoServer
from s3fs import S3FileSystem

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.data.verify import check
from streamsvm.errors import CorruptDataError, ModelError, NotFoundError, StorageError
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.private.zarr import sync
from streamsvm.storage import checked_array
from streamsvm.train import train

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",
}


@pytest.fixture(scope="module")
def server():
    """A server of one bucket, which all processes find by their environment."""
    running = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patched.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield running
        _forget_clients()
    running.stop()


def _forget_clients() -> None:
    """Their sessions are closed in the event loop in which each was used: fsspec's, or zarr's."""
    for fs in S3FileSystem._cache.values():
        if fs._s3 is not None:
            sync(fs._s3.close()) if fs.asynchronous else fsspec.asyn.sync(fs.loop, fs._s3.close)
    S3FileSystem.clear_instance_cache()


def rows(is_sparse: bool = False) -> tuple[Rows, np.ndarray]:
    X = samples(300, 4, is_sparse=is_sparse)
    return X, (X.dense()[:, 0] > 20).astype(int)


@pytest.fixture(params=["dense", pytest.param("csr", marks=pytest.mark.slow)])
def url(request, server):
    is_sparse = request.param == "csr"
    X, y = rows(is_sparse)
    there = f"s3://bucket/{request.param}.zarr"
    write(there, X, y, step=100, chunk_rows=40, overwrite=True)
    return there


def test_written_and_read_whole(url):
    store, (X, y) = Store.open(url), rows()
    np.testing.assert_array_equal(store.read(0, 300).dense(), X.dense())
    np.testing.assert_array_equal(store.y, y)
    assert check(store, Engine(2))["rows"] == 300


@pytest.mark.slow  # processes that have to be waited for
def test_a_fit_by_workers_is_that_by_threads(url, tmp_path):
    """The workers read it themselves."""
    dcsvm = {"levels": 1, "part_rows": 100}
    decisions = []
    for where in ({"threads": 2}, {"workers": 1}):
        options = build_config(("test", {"kernel": {"gamma": 1e-4}, "dcsvm": dcsvm} | where))
        train(Store.open(url), options, model_path=tmp_path / "m")
        decisions.append(load_model(tmp_path / "m").decision_function(rows()[0]))
    np.testing.assert_allclose(decisions[1], decisions[0], atol=5e-3)


@pytest.mark.parametrize("where", ["s3://bucket/nothing.zarr", "s3://nobody/s.zarr"])
def test_what_is_not_there(server, where):
    with pytest.raises(NotFoundError, match="holds no zarr group"):
        Store.open(where)


def test_a_lost_chunk_is_named(url):
    store = Store.open(url)
    name = "X/data" if store.is_sparse else "X"
    client = boto3.client("s3")
    keys = [entry["Key"] for entry in client.list_objects_v2(Bucket="bucket")["Contents"]]
    chunk = next(key for key in keys if key.startswith(f"{url[12:]}/{name}/c/1"))
    client.put_object(Bucket="bucket", Key=chunk, Body=b"x" * 20)
    with pytest.raises(CorruptDataError, match=f"{name}': chunk 1"):
        check(store, Engine(1))
    client.delete_object(Bucket="bucket", Key=chunk)
    with pytest.raises(CorruptDataError, match=f"{name}': chunk 1.*is missing"):
        check(Store.open(url), Engine(1))


class TestUnreachable:
    def test_a_server_that_comes_back_is_waited_for(self, url, monkeypatch):
        store, tries = Store.open(url), []

        def read(self, start, stop, whole=checked_array.CheckedArray._read):
            tries.append(start)
            if len(tries) < 3:
                raise ConnectionResetError("reset by peer")
            return whole(self, start, stop)

        monkeypatch.setattr(checked_array, "PAUSES_S", (0.0, 0.0, 0.0))
        monkeypatch.setattr(checked_array.CheckedArray, "_read", read)
        np.testing.assert_array_equal(store.y, rows()[1])
        assert len(tries) == 3

    def test_a_server_that_is_gone_is_said(self, url, monkeypatch):
        monkeypatch.setattr(checked_array, "PAUSES_S", (0.0,))
        store = Store.open(url)
        monkeypatch.setattr(checked_array, "has_key", _unreachable)
        with pytest.raises(StorageError, match=r"entries 0 to \d+ could not be fetched.*endpoint"):
            store.read(0, 40)

    def test_so_it_is_when_a_store_is_opened(self, server, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        _forget_clients()
        with pytest.raises(StorageError, match="s3://bucket/x.zarr cannot be reached: Could not connect"):
            Store.open("s3://bucket/x.zarr")
        _forget_clients()


def test_models_are_local(server):
    for use in (
        load_model,
        lambda path: train(Store.from_arrays([[0.0], [1.0]], [0, 1]), build_config(), model_path=path),
    ):
        with pytest.raises(ModelError, match="a model is a local folder, found a URL"):
            use("s3://bucket/m.zarr")


def _unreachable(self, key):
    from botocore.exceptions import EndpointConnectionError

    raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")
