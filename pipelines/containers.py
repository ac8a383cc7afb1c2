"""Services of a compose file as processes of this machine, each with its own network, host name and files.

What Docker makes of namespaces, without a daemon and without images: this machine's files stand for the image, under
a separate layer of each container, a bridge joins the networks, and volumes alone are shared. All of it is inside one
`unshare`, so that nothing is left, however the program ends. Linux, root, with iproute2 and util-linux.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

import psutil
import yaml

import streamsvm

IMAGE = [*dict.fromkeys([sys.base_prefix, sys.prefix, str(Path(streamsvm.__file__).resolve().parents[1])])]
NETWORK = "10.77.0"  # inside of the namespaces alone
INSIDE = "STREAMSVM_CONTAINERS"  # set where the namespaces have been made
START_S = 60.0


def enter_namespaces() -> None:
    """Runs this program again in separate namespaces, unless it is in them already."""
    if os.environ.get(INSIDE):
        for line in ("ip link set lo up", "mount -t tmpfs tmpfs /run", "ip link add bridge type bridge"):
            _do(line)
        _do("ip link set bridge up")
        return
    missing = [name for name in ("unshare", "nsenter", "ip", "mount", "chroot") if shutil.which(name) is None]
    if os.geteuid() or missing:
        sys.exit(f"network namespaces need {f'the programs {missing}' if missing else 'root'}")
    own = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"]
    os.execvpe(own[0], [*own, sys.executable, *sys.argv], os.environ | {INSIDE: "1"})


@dataclass(frozen=True)
class Service:
    """What of a compose file's service matters to its processes."""

    command: list[str]
    environment: dict[str, str]
    volumes: list[tuple[str, str]]  # (here, there)
    user: str
    replicas: int
    health: list[str]
    restarts: bool


def services_of(compose: Path, values: Mapping[str, str], kept: Path) -> dict[str, Service]:
    """By name; values are of its variables, `kept` is the folder of its named volumes."""
    text = re.sub(
        r"\$\{(\w+):-([^}]*)\}",
        lambda found: values.get(found[1], found[2]),
        compose.read_text(encoding="utf-8"),
    )
    project = yaml.safe_load(text)
    named = project.get("volumes", {})

    def place(source: str) -> str:
        return str(kept / source if source in named else (compose.parent / source).resolve())

    made = {}
    for name, service in project["services"].items():
        build = service["build"]
        image = (compose.parent / build["context"] / build["dockerfile"]).read_text(encoding="utf-8")
        own = dict(word.split("=", 1) for line in re.findall(r"^ENV (.+)", image, re.M) for word in shlex.split(line))
        test = service.get("healthcheck", {}).get("test", [])
        made[name] = Service(
            command=[*service.get("entrypoint", []), *service["command"]],
            environment=own | {key: str(value) for key, value in service.get("environment", {}).items()},
            volumes=[
                (place(source), there) for source, there in (volume.split(":") for volume in service.get("volumes", []))
            ],
            user=str(service["user"]),
            replicas=service.get("deploy", {}).get("replicas", 1),
            health=test[1:],
            restarts=service.get("restart", "no") != "no",
        )
    return made


@dataclass
class Container:
    """One process of a service, and those that it starts."""

    name: str
    service: Service
    address: str
    log: Path
    process: subprocess.Popen[bytes] | None = None

    def start(self, hosts: str, stage: Path, *more: str) -> None:
        """Its network, files and process; `stage` is an empty folder."""
        for line in (
            f"ip netns add {self.name}",
            f"ip link add {self.name} type veth peer name eth0 netns {self.name}",
            f"ip link set {self.name} master bridge up",
            f"ip -n {self.name} address add {self.address}/24 dev eth0",
            f"ip -n {self.name} link set eth0 up",
            f"ip -n {self.name} link set lo up",
        ):
            _do(line)
        own = ["unshare", "--mount", "--pid", "--uts", "--ipc", "--fork", "--kill-child"]
        command = ["ip", "netns", "exec", self.name, *own, "sh", "-euc", self._script(hosts, stage, *more)]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)

    def _script(self, hosts: str, stage: Path, *more: str) -> str:
        """What makes its file system out of this machine's, and runs its command there."""
        root, temporary = stage / "root", tempfile.gettempdir()
        lines = [
            f"mount -t tmpfs tmpfs {stage}",
            f"mkdir {stage}/changes {stage}/work {root}",
            f"mount -t overlay overlay -o lowerdir=/,upperdir={stage}/changes,workdir={stage}/work {root}",
            f"mount -t proc proc {root}/proc",
            f"mount --rbind /dev {root}/dev",
            f"mount --rbind /sys {root}/sys",
            f"mount -t tmpfs tmpfs {root}{temporary}",
        ]
        for here, there in [*zip(IMAGE, IMAGE, strict=True), *self.service.volumes]:
            lines += [f"mkdir -p {root}{there}", f"mount --bind {here} {root}{there}"]
            lines += [f"chmod a+x {root}{folder}" for folder in Path(there).parents]
        lines += [f"mount -o remount,bind,ro {root}{folder}" for folder in IMAGE]
        lines += [f"printf %s {shlex.quote(hosts)} >{root}/etc/hosts", f"hostname {self.name}"]
        user = f"--userspec={self.service.user}"
        path = f"{Path(sys.executable).parent}:/usr/sbin:/usr/bin:/bin"
        alike = {key: value for key, value in os.environ.items() if key.startswith("OPENBLAS_")}  # rounding
        environment = {"PATH": path, "PYTHONPATH": IMAGE[-1]} | alike | self.service.environment
        words = ["env", "-i", *(f"{key}={value}" for key, value in environment.items())]
        run = shlex.join(["chroot", user, "--groups=", str(root), *words, *self.service.command, *more])
        forever = f"while true; do {run} || true; sleep 1; done"
        return "\n".join([*lines, forever if self.service.restarts else f"exec {run}"])

    def is_healthy(self) -> bool:
        """Whether the check that its service names ends well, in its namespaces."""
        assert self.process is not None
        inside = psutil.Process(self.process.pid).children()
        if not inside:
            return False
        command = ["nsenter", f"--target={inside[0].pid}", "--net", "--pid", *self.service.health]
        return subprocess.run(command, capture_output=True).returncode == 0

    def cut(self) -> None:
        """Its cable is out."""
        _do(f"ip link set {self.name} down")

    def mend(self) -> None:
        _do(f"ip link set {self.name} up")

    def wait(self, timeout_s: float) -> int:
        assert self.process is not None
        return self.process.wait(timeout_s)

    def remove(self) -> None:
        if self.process is not None:
            self.process.kill()  # unshare, and with it all in its namespace of processes
            self.process.wait()
            _do(f"ip link delete {self.name}")  # by itself, the kernel takes its time
            _do(f"ip netns delete {self.name}")


@dataclass
class Project:
    """The containers of a compose file's services; logs and stages are in `folder`."""

    services: dict[str, Service]
    folder: Path
    containers: dict[str, Container] = field(default_factory=dict)

    def __enter__(self) -> Self:
        for service in self.services.values():
            for here, _ in service.volumes:
                Path(here).mkdir(parents=True, exist_ok=True)
                Path(here).chmod(0o1777)
        for name, service in self.services.items():
            for number in range(1, service.replicas + 1):
                own = f"{name}-{number}"
                address = f"{NETWORK}.{len(self.containers) + 2}"
                self.containers[own] = Container(own, service, address, self.folder / f"{own}.log")
        return self

    def __exit__(self, *error: object) -> None:
        for container in self.containers.values():
            container.remove()

    def start(self, name: str, *more: str) -> list[Container]:
        """All containers of a service, with more words of its command; healthy, where it says what that is."""
        hosts = "127.0.0.1 localhost\n" + "".join(
            f"{container.address} {own.rpartition('-')[0]} {own}\n" for own, container in self.containers.items()
        )
        mine = [c for own, c in self.containers.items() if own.rpartition("-")[0] == name]
        for container in mine:
            stage = Path(tempfile.mkdtemp(dir=self.folder))
            container.start(hosts, stage, *more)
        deadline = time.monotonic() + START_S
        while self.services[name].health and not all(container.is_healthy() for container in mine):
            if time.monotonic() > deadline:
                raise TimeoutError(f"{name} is not healthy: {mine[0].log.read_text()[-2000:]}")
            time.sleep(0.2)
        return mine


def _do(line: str) -> None:
    subprocess.run(line.split(), check=True, capture_output=True)
