"""Stores on an object store, read by whoever works on them: a local S3 server on loopback."""

from __future__ import annotations

import os

import numpy as np
import pytest
from buckets import NEEDED, bucket, forget_clients
from cases import config
from making import samples, write

from streamsvm.config import build_config, load_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError, NotFoundError, StorageError
from streamsvm.events import ignore
from streamsvm.models.files import load_model, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.storage import chunks, locks
from streamsvm.storage.locks import InUse, is_locked, locked
from streamsvm.storage.paths import kind_at, place_of, require_place
from streamsvm.tables.checks import check
from streamsvm.train import train, train_in_memory

boto3, *_ = (pytest.importorskip(name, reason="needs a local S3 server: streamsvm[dev]") for name in NEEDED)


@pytest.fixture(scope="module")
def server():
    with bucket() as running:
        yield running


def rows(is_sparse: bool = False) -> tuple[Rows, np.ndarray]:
    X = samples(300, 4, is_sparse=is_sparse)
    return X, (X.dense()[:, 0] > 20).astype(int)


@pytest.fixture(scope="module", params=["dense", pytest.param("csr", marks=pytest.mark.slow)])
def url(request, server):
    is_sparse = request.param == "csr"
    X, y = rows(is_sparse)
    there = f"s3://bucket/{request.param}.zarr"
    write(there, X, y, step=100, chunk_rows=40, overwrite=True)
    return there


@pytest.mark.slow  # a server of objects
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
    whole = client.get_object(Bucket="bucket", Key=chunk)["Body"].read()
    client.put_object(Bucket="bucket", Key=chunk, Body=b"x" * 20)
    with pytest.raises(CorruptDataError, match=f"{name}': chunk 1"):
        check(store, Engine(1))
    client.delete_object(Bucket="bucket", Key=chunk)
    with pytest.raises(CorruptDataError, match=f"{name}': chunk 1.*is missing"):
        check(Store.open(url), Engine(1))
    client.put_object(Bucket="bucket", Key=chunk, Body=whole)


class TestUnreachable:
    def test_a_server_that_comes_back_is_waited_for(self, url, monkeypatch):
        store, tries = Store.open(url), []

        def read(self, start, stop, whole=chunks.CheckedArray._read):
            tries.append(start)
            if len(tries) < 3:
                raise ConnectionResetError("reset by peer")
            return whole(self, start, stop)

        monkeypatch.setattr(chunks, "PAUSES_S", (0.0, 0.0, 0.0))
        monkeypatch.setattr(chunks.CheckedArray, "_read", read)
        np.testing.assert_array_equal(store.y, rows()[1])
        assert len(tries) == 3

    def test_a_server_that_is_gone_is_said(self, url, monkeypatch):
        monkeypatch.setattr(chunks, "PAUSES_S", (0.0,))
        store = Store.open(url)
        monkeypatch.setattr(chunks, "has_key", _unreachable)
        with pytest.raises(StorageError, match=r"entries 0 to \d+ could not be fetched.*endpoint"):
            store.read(0, 40)

    def test_so_it_is_when_a_store_is_opened(self, server, monkeypatch):
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
        forget_clients()
        with pytest.raises(StorageError, match="s3://bucket/x.zarr cannot be reached: Could not connect"):
            Store.open("s3://bucket/x.zarr")
        forget_clients()


@pytest.mark.parametrize("way", ["--model", "run directory"])
def test_a_bucket_that_is_not_there_is_said_before_any_work(server, way):
    nowhere, tiny = place_of("s3://nobody/there"), Store.from_arrays([[0.0], [1.0]], [0, 1])
    ask = {
        "--model": lambda: require_place("--model", nowhere, "a model"),
        "run directory": lambda: train(tiny, build_config(), model_path=nowhere, run_dir=nowhere),
    }
    with pytest.raises(StorageError, match="The specified bucket does not exist"):
        ask[way]()


@pytest.mark.slow  # a server of objects
def test_models_are_written_and_replaced(server):
    place, X = place_of("s3://bucket/models/m.zarr"), np.eye(3, dtype=np.float32)
    model = train_in_memory(Store.from_arrays(X, [0, 1, 1]), config("bsgd"), events=ignore)[0]
    for _ in range(2):
        save_model(model, place)
        assert kind_at(place) == "a model"
        np.testing.assert_array_equal(load_model(str(place)).predict(Rows(X)), model.predict(Rows(X)))
    assert load_config(str(place)).solver == "bsgd"


def test_one_run_at_a_time_by_conditional_writes(server, monkeypatch):
    """S3 refuses the second write; there is nothing to be told."""
    monkeypatch.setattr(locks, "BEAT_S", 0.05)
    lock, messages = place_of("s3://bucket/run/lock"), []
    with locked(lock, messages.append):
        assert not messages
        with pytest.raises(InUse, match=f"process {os.getpid()} on"), locked(lock, messages.append):
            pytest.fail("held twice")
    assert not is_locked(lock)


def _unreachable(self, key):
    from botocore.exceptions import EndpointConnectionError

    raise EndpointConnectionError(endpoint_url="http://127.0.0.1:9")
