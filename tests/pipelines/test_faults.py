"""Some faults that may befall a fit on a cluster, each tried once; `pipelines/faults.py` tries all of them often."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

RECIPE = Path(__file__).resolve().parents[2] / "pipelines" / "faults.py"


@pytest.mark.timeout(420)
def test_a_fault_leaves_the_model_as_it_would_have_been():
    faults = "workers-killed,client-killed,state-torn,chunk-damaged,disk-full"
    ended = subprocess.run(
        [sys.executable, RECIPE, "--quick", "--solvers", "dcsvm", "--only", faults],
        capture_output=True,
        text=True,
        timeout=400,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert ended.stdout.count("- met: ") in (4, 5)  # without disk-full where nothing can be mounted
