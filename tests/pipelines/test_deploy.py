"""Deployment recipes: run where this machine is enough, else read by the libraries that would run them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from making import samples, write

ROOT = Path(__file__).resolve().parents[2]
CONFIGS = ROOT / "configs"
sys.path.insert(0, str(ROOT / "pipelines"))
try:
    from containers import services_of
    from manifests import CHECKS, Absent
finally:
    sys.path.remove(str(ROOT / "pipelines"))

# A SLURM of this machine alone: jobs are processes, and directives those that sbatch knows.
SBATCH = """
import argparse, os, subprocess, sys
known = argparse.ArgumentParser()
for option in ("-J", "-p", "-A", "-n", "--cpus-per-task", "--mem", "-t", "-e", "-o"):
    known.add_argument(option, required=option in ("-n", "--cpus-per-task", "--mem", "-t"))
if sys.argv[1:] == ["--test-only"]:
    script = sys.stdin.read()
else:
    script = open(sys.argv[1]).read()
known.parse_args(" ".join(line.removeprefix("#SBATCH") for line in script.splitlines() if "#SBATCH" in line).split())
if sys.argv[1:] != ["--test-only"]:
    log = open(f"{os.environ['JOBS']}/log", "a")
    job = subprocess.Popen(["bash", "-euc", script], stdout=log, stderr=log, start_new_session=True)
    open(f"{os.environ['JOBS']}/{job.pid}", "w").close()
    print("Submitted batch job", job.pid)
"""
# What containers are made of: some machines allow it to nobody.
PROBE = """
mount -t tmpfs tmpfs /mnt
mkdir /mnt/changes /mnt/work /mnt/root
mount -t overlay overlay -o lowerdir=/,upperdir=/mnt/changes,workdir=/mnt/work /mnt/root
ip link add bridge type bridge
ip link add one type veth peer name two
"""
SCANCEL = """
import os, signal, sys
os.remove(f"{os.environ['JOBS']}/{sys.argv[1]}")
os.killpg(int(sys.argv[1]), signal.SIGTERM)
"""


def recipe(name, *args, env=None):
    argv = [sys.executable, ROOT / "pipelines" / name, *args]
    return subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False, env=env)


@pytest.mark.slow  # processes that have to be waited for
def test_a_local_cluster_by_hand(tmp_path):
    store = write(tmp_path / "s.zarr", samples(200, 3), np.arange(200) % 2, chunk_rows=50)
    config = tmp_path / "local.yaml"
    settings = yaml.safe_load((ROOT / "configs" / "local.yaml").read_text())
    config.write_text(yaml.safe_dump(settings | {"n_workers": 1}))
    fit = ("fit", "--no-search", "--store", store.url, "--model", tmp_path / "m.zarr", "--json")
    done = recipe("deploy_local.py", "--config", config, *fit)
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout)
    assert (report["n"], report["workers"], report["threads"]) == (200, 1, 1)


def test_slurm_s_job_script():
    pytest.importorskip("dask_jobqueue", reason="needs dask-jobqueue: streamsvm[deploy]")
    done = recipe("deploy_slurm.py", "--print")
    assert done.returncode == 0, done.stderr
    settings = yaml.safe_load((ROOT / "configs" / "slurm.yaml").read_text())
    script = done.stdout.splitlines()
    assert "#SBATCH --mem=64G" in script
    assert f"#SBATCH --cpus-per-task={settings['cores']}" in script
    assert f"#SBATCH -t {settings['walltime']}" in script
    (worker,) = (line for line in script if "dask_worker" in line)
    assert "--nthreads 4 --memory-limit 32.00GiB --nworkers 2" in worker
    assert " ".join(settings["worker_extra_args"]) in worker


@pytest.mark.slow  # jobs are processes, and have to be waited for
def test_slurm_s_jobs_are_submitted_and_cancelled(tmp_path):
    (tmp_path / "bin").mkdir()
    for name, program in (("sbatch", SBATCH), ("scancel", SCANCEL)):
        (tmp_path / "bin" / name).write_text(f"#!{sys.executable}\n{program}")
        (tmp_path / "bin" / name).chmod(0o755)
    store = write(tmp_path / "s.zarr", samples(200, 3), np.arange(200) % 2, chunk_rows=50)
    settings = yaml.safe_load((CONFIGS / "slurm.yaml").read_text())
    settings |= {"cores": 2, "memory": "2GiB", "job_script_prologue": [], "scheduler_options": {}}
    (tmp_path / "slurm.yaml").write_text(yaml.safe_dump(settings))
    (tmp_path / "jobs").mkdir()
    env = os.environ | {"PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}", "JOBS": str(tmp_path / "jobs")}
    fit = ("fit", "--no-search", "--store", store.url, "--model", tmp_path / "m.zarr", "--json")
    done = recipe("deploy_slurm.py", "--config", tmp_path / "slurm.yaml", "--jobs", "1", *fit, env=env)
    assert done.returncode == 0, done.stderr + (tmp_path / "jobs" / "log").read_text()
    assert json.loads(done.stdout)["n"] == 200
    assert [path.name for path in (tmp_path / "jobs").iterdir()] == ["log"]  # cancelled


@pytest.mark.slow  # a scheduler that starts for nothing
def test_a_job_that_slurm_does_not_take_ends_the_recipe(tmp_path):
    refusing = tmp_path / "sbatch"
    refusing.write_text("#!/bin/sh\necho 'sbatch: error: invalid partition specified: batch' >&2; exit 1\n")
    refusing.chmod(0o755)
    for path, said in (
        (f"{tmp_path}:{os.environ['PATH']}", "invalid partition"),
        (str(tmp_path / "none"), "no sbatch"),
    ):
        done = recipe("deploy_slurm.py", "info", "s.zarr", env=os.environ | {"PATH": path})
        assert done.returncode == 1
        assert said in done.stderr.splitlines()[-1]


def found(check, folder):
    try:
        return CHECKS[check](folder)
    except Absent as tool:
        pytest.skip(f"there is no {tool}")


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "slurm"])
def test_files_that_deploy_are_read_by_their_tools(check):
    assert found(check, CONFIGS) == []


@pytest.mark.parametrize(
    ("check", "name", "given", "written"),
    [
        ("compose", "compose.yaml", "healthcheck:", "healthchecks:"),
        ("commands", "compose.yaml", "--nthreads", "--nthreadz"),
        ("commands", "compose.yaml", "--run-dir", "--run-dirs"),
        ("commands", "kubernetes.yaml", "[dask, worker", "[dask-worker"),
        ("hadolint", "Dockerfile", "WORKDIR /data", "WORKDIR data"),
        ("DaskCluster", "kubernetes.yaml", "replicas:", "replica:"),
        ("DaskCluster", "kubernetes.yaml", "limits:", "limit:"),
        ("kubernetes", "kubernetes.yaml", "httpGet: { port", "httpGet: { ports"),
        ("kubectl", "kubernetes.yaml", "readinessProbe", "readinesProbe"),
        ("kubectl", "kubernetes.yaml", "targetPort", "targetPorts"),
    ],
)
def test_a_misspelt_field_is_found(check, name, given, written, tmp_path):
    for file in ("compose.yaml", "kubernetes.yaml", "Dockerfile"):
        shutil.copy(CONFIGS / file, tmp_path)
    text = (tmp_path / name).read_text()
    assert given in text
    (tmp_path / name).write_text(text.replace(given, written))
    assert any(written.split()[-1].strip("[:") in line or "absolute" in line for line in found(check, tmp_path))


def test_services_are_read_as_compose_reads_them(tmp_path):
    services = services_of(CONFIGS / "compose.yaml", {"DATA": "/rows"}, tmp_path)
    fit, worker = services["fit"], services["worker"]
    assert (fit.command[:2], fit.volumes) == (["streamsvm", "fit"], worker.volumes)
    assert worker.volumes == [("/rows", "/data"), (str(tmp_path / "compiled"), "/compiled")]
    assert fit.environment == {"HOME": "/tmp", "NUMBA_CACHE_DIR": "/compiled"}  # of the image
    assert (worker.replicas, worker.restarts, fit.restarts, worker.user) == (2, True, False, "1000:1000")
    assert services["scheduler"].health[0] == "python"


@pytest.mark.slow  # clusters in network namespaces, whose processes compile
@pytest.mark.timeout(500)
def test_containers_whose_network_is_cut_make_the_model_of_threads():
    if sys.platform != "linux" or os.geteuid() or not (shutil.which("ip") and shutil.which("unshare")):
        pytest.skip("network namespaces need Linux, root, iproute2 and util-linux")
    if subprocess.run(["unshare", "--net", "--mount", "--pid", "--fork", "sh", "-ec", PROBE]).returncode:
        pytest.skip("this machine lets nobody make networks and file systems of their own")
    done = recipe("netns.py", "--quick")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "- met: cable out: worker-1, 2 s" in done.stdout


def test_the_resource_for_kubernetes():
    """What no schema says: ports and the selector are those by which the operator's workers find the scheduler."""
    resource = yaml.safe_load((ROOT / "configs" / "kubernetes.yaml").read_text())
    assert (resource["apiVersion"], resource["kind"]) == ("kubernetes.dask.org/v1", "DaskCluster")
    worker, scheduler = resource["spec"]["worker"], resource["spec"]["scheduler"]
    assert worker["replicas"] > 0
    images = set()
    for part in (worker, scheduler):
        (container,) = part["spec"]["containers"]
        assert container["name"] in ("worker", "scheduler")
        assert container["resources"]["limits"] == container["resources"]["requests"]
        images.add(container["image"])
    assert len(images) == 1
    assert "$(DASK_WORKER_NAME)" in worker["spec"]["containers"][0]["args"]
    named = {port["name"]: port["containerPort"] for port in scheduler["spec"]["containers"][0]["ports"]}
    served = {port["targetPort"]: port["port"] for port in scheduler["service"]["ports"]}
    assert named == served == {"tcp-comm": 8786, "http-dashboard": 8787}
    assert scheduler["service"]["selector"] == {
        "dask.org/cluster-name": resource["metadata"]["name"],
        "dask.org/component": "scheduler",
    }
