"""Schedulers and workers in processes of their own."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager

from distributed import Client, LocalCluster


@contextmanager
def started(*words, env=None, cwd=None):
    """A scheduler or worker in a process of its own, in a folder of its own, and the address that it tells."""
    command = [sys.executable, "-m", f"distributed.cli.dask_{words[0]}", *words[1:]]
    process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=os.environ | (env or {}), cwd=cwd)
    try:
        told = "Scheduler at" if words[0] == "scheduler" else "Start worker at"
        address = next(line.split()[-1] for line in process.stderr if told in line)
        yield process, address
    finally:
        process.kill()
        process.communicate()


@contextmanager
def running(workers=1, env=None, of_scheduler=None, port=0):
    """(scheduler's process, its address, workers' processes, their addresses)."""
    with ExitStack() as stack:
        options = ("--host=127.0.0.1", f"--port={port}", "--dashboard-address=127.0.0.1:0")
        scheduler, address = stack.enter_context(started("scheduler", *options, env=of_scheduler))
        own = ("--nthreads=1", "--no-dashboard", "--no-nanny", "--host=127.0.0.1")
        there = [stack.enter_context(started("worker", address, *own, env=env)) for _ in range(workers)]
        with Client(address, set_as_default=False) as client:
            client.wait_for_workers(workers)
        yield scheduler, address, [process for process, _ in there], [name for _, name in there]


@contextmanager
def inside(workers=2):
    """The address of a cluster inside this process, where that its workers are processes does not matter."""
    own = {"processes": False, "protocol": "tcp", "host": "127.0.0.1", "dashboard_address": "127.0.0.1:0"}
    with LocalCluster(n_workers=workers, threads_per_worker=1, **own) as made:
        yield made.scheduler_address


def path(*first):
    """An environment in which processes see the modules that this one sees, after those in these folders."""
    return {"PYTHONPATH": os.pathsep.join([*map(str, first), *sys.path])}


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return taken.getsockname()[1]
