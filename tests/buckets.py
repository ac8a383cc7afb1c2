"""A local S3 server on loopback, which all processes find by their environment."""

from __future__ import annotations

from contextlib import contextmanager

import fsspec
import pytest

from streamsvm.private.zarr import sync

boto3 = pytest.importorskip("boto3", reason="needs a local S3 server: streamsvm[dev]")
moto_server = pytest.importorskip("moto.server", reason="needs a local S3 server: streamsvm[dev]")
s3fs = pytest.importorskip("s3fs", reason="needs the extra s3")

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",
}


@contextmanager
def bucket():
    """A server of one bucket, named bucket."""
    running = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    running.start()
    host, port = running.get_host_and_port()
    with pytest.MonkeyPatch.context() as patched:
        for name, value in {**ENVIRONMENT, "AWS_ENDPOINT_URL": f"http://{host}:{port}"}.items():
            patched.setenv(name, value)
        boto3.client("s3").create_bucket(Bucket="bucket")
        yield running
        forget_clients()
    running.stop()


def forget_clients() -> None:
    """Their sessions are closed in the event loop in which each was used: fsspec's, or zarr's."""
    for fs in s3fs.S3FileSystem._cache.values():
        if fs._s3 is not None:
            sync(fs._s3.close()) if fs.asynchronous else fsspec.asyn.sync(fs.loop, fs._s3.close)
    s3fs.S3FileSystem.clear_instance_cache()
