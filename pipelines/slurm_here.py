"""A SLURM of three hosts on this machine, and deploy_slurm.py on it: real daemons, each in its own network.

    apt-get install slurmctld slurmd slurm-client   # no service of them has to run
    python pipelines/slurm_here.py [--nodes 2] [--rows 6000] [--config configs/slurm.yaml]

Linux, root. One container (see containers.py) is the controller, one each a node of two cores, and one submits: it has
`deploy_slurm.py fit` with the configuration, whose jobs are made small enough for a node, and a folder that all share.
The model has to be that of threads, bit for bit, and no job may be left; exits 1 where that is not so.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

import yaml
from bench import CONFIGS, HERE, STREAMSVM
from containers import IMAGE, Container, Project, Service, enter_namespaces
from netns import OPTIONS, bits

from streamsvm.demo import write_stores

SETTINGS = """
ClusterName=here
SlurmctldHost=controller-1
AuthType=auth/none
CredType=cred/none
SlurmUser=root
SlurmdUser=root
StateSaveLocation=/tmp
SlurmdSpoolDir=/tmp/slurmd
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
MpiDefault=none
ReturnToService=2
NodeName=node-[1-{nodes}] CPUs=2 RealMemory=4096
PartitionName=batch Nodes=ALL Default=YES State=UP
"""
SMALL = {"cores": 2, "processes": 2, "memory": "4GiB", "log_directory": "/shared/logs"}
DAEMONS = ("slurmctld", "slurmd", "sbatch", "scancel", "squeue")
LONGEST_S = 600.0


def services_of(nodes: int, config: Path, shared: Path) -> dict[str, Service]:
    """The controller, the nodes, and who submits."""
    (shared / "slurm.conf").write_text(SETTINGS.format(nodes=nodes))
    (shared / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # which nothing here asks
    settings = yaml.safe_load(config.read_text(encoding="utf-8")) | SMALL
    settings["job_script_prologue"] = [f"export PYTHONPATH={IMAGE[-1]}"]
    (shared / "slurm.yaml").write_text(yaml.safe_dump(settings))
    environment = {"SLURM_CONF": "/shared/slurm.conf", "HOME": "/tmp", "NUMBA_CACHE_DIR": "/shared/compiled"}

    def service(*command: str, replicas: int = 1) -> Service:
        volumes = [(str(shared), "/shared")]
        return Service([*command], environment, volumes, "0:0", replicas, health=[], restarts=False)

    deploy = [
        sys.executable,
        str(HERE / "deploy_slurm.py"),
        "--config",
        "/shared/slurm.yaml",
        "--jobs",
        str(nodes),
    ]
    fit = [
        "fit",
        "--store",
        "/shared/train.zarr",
        "--model",
        "/shared/model.zarr",
        "--run-dir",
        "/shared/run",
    ]
    return {
        "controller": service("slurmctld", "-D"),
        "node": service("slurmd", "-D", replicas=nodes),
        "idle": service("sh", "-c", "sinfo --noheader --states=idle --Node | wc -l"),
        "submit": service(*deploy, *fit, *OPTIONS),
        "left": service("squeue", "--noheader"),
    }


def said(container: Container) -> list[str]:
    container.wait(LONGEST_S)
    return container.log.read_text(encoding="utf-8").splitlines()


def wait_for_nodes(project: Project, nodes: int) -> None:
    until = time.monotonic() + 60.0
    while said(project.start("idle")[0])[-1:] != [str(nodes)]:
        if time.monotonic() > until:
            raise TimeoutError("".join(c.log.read_text()[-1000:] for c in project.containers.values()))
        project.containers["idle-1"].remove()
        time.sleep(1.0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--nodes", type=int, default=2, metavar="N")
    parser.add_argument("--rows", type=int, default=6_000, metavar="N")
    parser.add_argument("--config", type=Path, default=CONFIGS / "slurm.yaml", metavar="FILE.yaml")
    args = parser.parse_args()
    missing = [name for name in DAEMONS if shutil.which(name) is None]
    if missing:
        sys.exit(f"there is no {missing[0]}: apt-get install slurmctld slurmd slurm-client")
    enter_namespaces()
    with TemporaryDirectory(prefix="streamsvm-slurm-") as name:
        folder, shared = Path(name), Path(name) / "shared"
        write_stores(shared, args.rows)
        store, model = shared / "train.zarr", shared / "threads.zarr"
        subprocess.run(
            [*STREAMSVM, "fit", "--store", str(store), "--model", str(model), *OPTIONS],
            check=True,
            stdout=subprocess.PIPE,
        )
        with Project(services_of(args.nodes, args.config, shared), folder) as project:
            project.start("controller")
            project.start("node")
            wait_for_nodes(project, args.nodes)
            lines = said(project.start("submit")[0])
            print(*lines, sep="\n")
            left = said(project.start("left")[0])
        told = json.loads(lines[-1]) if lines[-1:] and lines[-1].startswith("{") else {}
        checks: dict[str, Callable[[], bool]] = {
            "the model is that of threads": lambda: bits(shared / "model.zarr") == bits(model),
            "no job is left": lambda: not left,
        }
        met = {what: bool(told) and check() for what, check in checks.items()}
    print(*(f"{'met' if well else 'not met'}: {what}" for what, well in met.items()), sep="\n")
    sys.exit(not all(met.values()))


if __name__ == "__main__":
    main()
