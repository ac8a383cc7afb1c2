"""Deployment recipes: run where this machine is enough, else read by the libraries that would run them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import yaml
from making import samples, write

ROOT = Path(__file__).resolve().parents[2]


def recipe(name, *args):
    argv = [sys.executable, ROOT / "pipelines" / name, *args]
    return subprocess.run([*map(str, argv)], capture_output=True, text=True, check=False)


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


def test_the_resource_for_kubernetes():
    """dask-kubernetes is too heavy for the tests: by hand, the fields that its operator's schema requires.

    They are `scheduler` and `worker` with a pod's `spec` of named containers, `service` for the scheduler; its
    selector and ports are those by which the operator's workers find it.
    """
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
