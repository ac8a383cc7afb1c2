"""The compose file's cluster on this machine, each service in its own network; cables are pulled. Linux, root.

    python pipelines/netns.py [--compose configs/compose.yaml] [--workers 3] [--rows 150000] [--cut 5,60] [--quick]
        [--victims worker-1,scheduler-1,fit-1] [--out FILE.md]

Scheduler, workers and fit run as `docker compose up` would run them (see containers.py): the commands, variables,
users and volumes of the file, names that /etc/hosts knows, no way out of their network. The data folder has deformed
digits of scikit-learn. First the fit runs on this machine's threads, then on the containers undisturbed, then once
for each service and each number of seconds of --cut: so long is the cable of one of its containers out, in the middle
of the fit. Each model has to be that of threads, bit for bit. Exits 1 where one is not.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from dataclasses import dataclass, field, replace
from hashlib import sha256
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench import CONFIGS, STREAMSVM
from containers import Container, Project, Service, enter_namespaces, services_of
from tables import Factor, Report, Seconds, Table

from streamsvm.demo import write_stores

OPTIONS = """--no-search --positive 0,2,4,6,8 --gamma 2e-2 --C 10 --scale maxabs --early --json
    --set dcsvm.levels=1 --set dcsvm.part_rows=8000""".split()
WAITS = ["--wait-for-scheduler", "5m"]
LONGEST_S = 900.0  # a fit that takes longer hangs
MOMENT = 0.5  # of an undisturbed fit's time, when the cable is pulled


def bits(model: Path) -> str:
    """A digest of every array of a model; attributes have seconds, too."""
    digest = sha256()
    for path in sorted(path for path in model.rglob("*") if path.is_file() and path.name != "zarr.json"):
        digest.update(path.relative_to(model).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()


@dataclass
class Bench:
    """The data, what threads make of it, and how long containers take."""

    folder: Path
    services: dict[str, Service]
    model: str = ""  # the digest of threads' model
    threads_s: float = 0.0
    seconds: float = 0.0
    undisturbed: dict[str, Any] = field(default_factory=dict)  # its row

    def __post_init__(self) -> None:
        for _ in range(2):  # the first one compiles
            store, model = self.folder / "data" / "train.zarr", self.folder / "threads.zarr"
            command = [*STREAMSVM, "fit", "--store", str(store), "--model", str(model), "--force", *OPTIONS]
            told = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
        self.model, self.threads_s = bits(model), told["seconds"]
        self.fit()
        self.undisturbed = self.fit()
        self.seconds = self.undisturbed["seconds"]

    def fit(self, victim: str = "", cut_s: float = 0.0) -> dict[str, Any]:
        """A row of the table: the fit on containers, of which the cable of one may be out for so long."""
        for name in ("run", "model.zarr"):
            shutil.rmtree(self.folder / "data" / name, ignore_errors=True)
        with TemporaryDirectory(dir=self.folder) as own, Project(self.services, Path(own)) as project:
            project.start("scheduler")
            project.start("worker")
            (fit,) = project.start("fit", *OPTIONS, *WAITS)
            if victim:
                time.sleep(MOMENT * self.seconds)
                project.containers[victim].cut()
                time.sleep(cut_s)
                project.containers[victim].mend()
            try:
                fit.wait(LONGEST_S)
            except subprocess.TimeoutExpired:
                print(f"the fit had not ended after {LONGEST_S:.0f} s", file=sys.stderr)
            return self._row(fit, f"{victim}, {cut_s:.0f} s" if victim else "none")

    def _row(self, fit: Container, cut: str) -> dict[str, Any]:
        lines = fit.log.read_text(encoding="utf-8").splitlines()
        print(cut, *lines, sep="\n", file=sys.stderr, flush=True)
        told = json.loads(lines[-1]) if lines and lines[-1].startswith("{") else {}
        equal = bool(told) and bits(self.folder / "data" / "model.zarr") == self.model
        seconds = told.get("seconds", LONGEST_S)
        return {
            "cable out": cut,
            "seconds": Seconds(seconds),
            "of threads": Factor(seconds / self.threads_s),
            "workers at the end": told.get("workers"),
            "model": "the same" if equal else "**not the same**",
        }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--compose", type=Path, default=CONFIGS / "compose.yaml", metavar="FILE.yaml")
    parser.add_argument("--workers", type=int, default=3, metavar="N")
    parser.add_argument("--rows", type=int, default=150_000, metavar="N")
    parser.add_argument("--cut", default="5,60", metavar="SECONDS,...")
    parser.add_argument("--victims", default="worker-1,scheduler-1,fit-1", metavar="CONTAINER,...")
    parser.add_argument("--quick", action="store_true", help="a few rows, and one worker cut off for 2 s")
    parser.add_argument("--out", type=Path, metavar="FILE")
    args = parser.parse_args()
    if args.quick:
        args.workers, args.rows, args.cut, args.victims = 2, 8_000, "2", "worker-1"
    enter_namespaces()
    with TemporaryDirectory(prefix="streamsvm-netns-") as name:
        folder = Path(name)
        services = services_of(args.compose, {"DATA": str(folder / "data")}, folder / "volumes")
        services["worker"] = replace(services["worker"], replicas=args.workers)
        write_stores(folder / "data", args.rows)
        bench = Bench(folder, services)
        rows = [bench.undisturbed]
        rows += [bench.fit(victim, float(cut)) for victim in args.victims.split(",") for cut in args.cut.split(",")]
        equal = [(f"cable out: {row['cable out']}", row["model"] == "the same") for row in rows]
        notes = [
            f"services of {args.compose.name}, each in its own network; early fits of {args.rows:,} deformed digits",
            f"a cable is out from the middle of the fit on; on threads the fit takes {Seconds(bench.threads_s)}",
        ]
        table = Table("Containers' networks", rows, notes, equal)
        Report(args.out).add([table])
    sys.exit(not all(met for _, met in equal))


if __name__ == "__main__":
    main()
