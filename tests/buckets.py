"""A local S3 server on loopback, which all processes find by their environment."""

from __future__ import annotations

from contextlib import contextmanager
from importlib import import_module

import fsspec
import pytest

from streamsvm.private.zarr import sync

NEEDED = "boto3", "moto.server", "s3fs"  # imported when used: each test file skips itself without them

ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "nobody",
    "AWS_SECRET_ACCESS_KEY": "nothing",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_MAX_ATTEMPTS": "1",
}


@contextmanager
def bucket():
    """A server of one bucket, named bucket."""
    boto3, server, _ = map(import_module, NEEDED)
    running = server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
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
    s3fs = import_module("s3fs")
    for fs in s3fs.S3FileSystem._cache.values():
        if fs._s3 is not None:
            sync(fs._s3.close()) if fs.asynchronous else fsspec.asyn.sync(fs.loop, fs._s3.close)
    s3fs.S3FileSystem.clear_instance_cache()
