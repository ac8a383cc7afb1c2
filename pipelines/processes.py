"""A scheduler and workers with their nannies, as processes that are watched, or that faults befall. Linux."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import psutil

WORKERS = 2
WORKER_BYTES = 1 << 30
START_S = 60.0


@dataclass
class Cluster:
    """One scheduler and two workers of one thread; files and the log are in `folder`."""

    folder: Path
    settings: dict[str, str] = field(default_factory=dict)  # of dask, as variables of the environment
    processes: list[subprocess.Popen[bytes]] = field(default_factory=list)
    address: str = ""
    port: int = 0  # of the scheduler; 0: any

    def __enter__(self) -> Self:
        file = self.folder / f"scheduler-{time.monotonic_ns()}.json"
        self._start("scheduler", "--host", "127.0.0.1", "--port", self.port, "--scheduler-file", file)
        _wait(file.exists, "the scheduler")
        _wait(lambda: _read(file), "the scheduler")
        self.address = _read(file)["address"]
        common = ("--nthreads", "1", "--memory-limit", WORKER_BYTES, "--host", "127.0.0.1")
        for number in range(WORKERS):
            address = self.scheduler_of(number)
            self._start("worker", address, *common, "--local-directory", self.folder, "--name", number)
        _wait(lambda: self._registered() == WORKERS, "the workers")  # a nanny gives up on one that dies before
        return self

    def __exit__(self, *error: object) -> None:
        self.kill()

    def scheduler_of(self, number: int) -> str:
        """The address at which this worker reaches the scheduler."""
        return self.address

    def kill(self) -> None:
        for process in self.processes:
            children = []
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(process.pid).children(recursive=True)
            process.kill()  # first: it may start another child
            for child in children:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
            process.wait()
        self.processes.clear()

    def workers(self) -> list[psutil.Process]:
        """The processes that compute: children of the nannies."""
        found = []
        for nanny in self.processes[1:]:
            with suppress(psutil.NoSuchProcess):
                children = psutil.Process(nanny.pid).children(recursive=True)
                found += [p for p in children if "spawn_main" in " ".join(p.cmdline())]
        return found

    def _registered(self) -> int:
        """Workers, as the last scheduler that was started reports them."""
        log = (self.folder / "cluster.log").read_text(encoding="utf-8", errors="replace")
        told = log.rpartition("Scheduler at:")[2]
        return told.count("Register worker addr:") - told.count("Remove worker addr:")

    def _start(self, *what: object) -> None:
        command = [sys.executable, "-m", "distributed.cli.dask_" + str(what[0]), *map(str, what[1:])]
        with (self.folder / "cluster.log").open("ab") as log:
            quiet = ["--no-dashboard"] if what[0] == "worker" else ["--dashboard-address", "127.0.0.1:0"]
            command = [*self.around(), *command, *quiet]
            env = os.environ | self.settings
            self.processes.append(subprocess.Popen(command, stdout=log, stderr=log, env=env))

    def around(self) -> list[str]:
        """The command that runs each of the processes, if any."""
        return []


class SupervisedCluster(Cluster):
    """Whatever ends is started again, as systemd or Kubernetes would: the scheduler at the same port."""

    def __enter__(self) -> Self:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        return super().__enter__()

    def around(self) -> list[str]:
        return ["sh", "-c", 'while true; do "$@"; sleep 1; done', "supervised"]

    def kill_scheduler(self) -> None:
        for process in psutil.Process(self.processes[0].pid).children():
            process.kill()
        (self.folder / "cluster.log").write_bytes(b"")  # nobody is registered any more

    def settle(self) -> None:
        """Until all are there that were killed."""
        time.sleep(1.0)  # which the scheduler may take to hear of it
        _wait(lambda: self._registered() == WORKERS, "the workers")


class RelayedCluster(Cluster):
    """The first worker reaches the scheduler through a relay that can be cut."""

    def scheduler_of(self, number: int) -> str:
        if number > 0:
            return self.address
        self.relay = Relay(int(self.address.rpartition(":")[2]))
        return f"tcp://127.0.0.1:{self.relay.port}"

    def kill(self) -> None:
        super().kill()
        self.relay.close()


class Relay:
    """A port whose connections are forwarded to another one, until they are cut."""

    def __init__(self, target: int) -> None:
        self._target, self._open = target, set[socket.socket]()
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        for end in list(self._open):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._listening.close()
        self.cut()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                here, _ = self._listening.accept()
                there = socket.create_connection(("127.0.0.1", self._target))
                self._open |= {here, there}
                for a, b in ((here, there), (there, here)):
                    threading.Thread(target=self._pass_on, args=(a, b), daemon=True).start()

    def _pass_on(self, a: socket.socket, b: socket.socket) -> None:
        with suppress(OSError):
            while data := a.recv(1 << 16):
                b.sendall(data)
        for end in (a, b):
            with suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            self._open.discard(end)


def _wait(ready: Callable[[], Any], what: str) -> None:
    deadline = time.monotonic() + START_S
    while not ready():
        if time.monotonic() > deadline:
            raise AssertionError(f"{what} did not start in {START_S:.0f} s")
        time.sleep(0.05)


def _read(file: Path) -> Any:
    with suppress(ValueError):
        return json.loads(file.read_text(encoding="utf-8"))
    return None
