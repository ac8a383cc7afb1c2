"""What containers, pods and jobs allow, from folders such as Linux has of either version."""

from __future__ import annotations

import math
from pathlib import Path
from types import SimpleNamespace

import cases
import numpy as np
import psutil
import pytest

from streamsvm.data.store import Store
from streamsvm.errors import MemoryLimitError
from streamsvm.events import Events
from streamsvm.parallel import cgroups
from streamsvm.parallel.machine import FREE_SHARE, MiB, allowed_bytes, cores, require_memory
from streamsvm.train import train_in_memory

JOB = "slurm/job_7"
STAT = "inactive_file 30\ntotal_inactive_file 50\n"  # of the group alone, and with those below it


@pytest.fixture
def groups(tmp_path, monkeypatch):
    """Writes the files of groups: of each folder the text of each file, and the lines that name the process's own."""
    monkeypatch.setattr(cgroups, "ROOT", tmp_path / "cgroup")
    monkeypatch.setattr(cgroups, "GROUPS", tmp_path / "lines")

    def write(lines: str, files: dict[str, str]) -> None:
        (tmp_path / "lines").write_text(lines)
        for name, text in files.items():
            file = tmp_path / "cgroup" / name
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{text}\n")

    return write


def version_1(folder: str, limit: int, used: int) -> dict[str, str]:
    of = Path("memory", folder)
    return {
        f"{of}/memory.limit_in_bytes": str(limit),
        f"{of}/memory.usage_in_bytes": str(used),
        f"{of}/memory.stat": STAT,
    }


def version_2(folder: str, limit: int | str, used: int) -> dict[str, str]:
    of = Path(folder)
    stat = STAT.splitlines()[0]
    return {f"{of}/memory.max": str(limit), f"{of}/memory.current": str(used), f"{of}/memory.stat": stat}


UNLIMITED_1 = 9223372036854771712
MEMORY = {
    "1": (f"5:memory:/{JOB}\n3:cpu,cpuacct:/\n", version_1(JOB, 1000, 400), 650),
    "1, above": (f"5:memory:/{JOB}\n", version_1(JOB, UNLIMITED_1, 400) | version_1("slurm", 800, 400), 450),
    "1, a container's root": ("5:memory:/docker/4f1\n", version_1("", 1000, 400), 650),
    "1, with another": (f"5:hugetlb,memory:/{JOB}\n0::/\n", version_1(JOB, 1000, 400), 650),
    "2": (f"0::/{JOB}\n", version_2(JOB, 1000, 400), 630),
    "2, above": (f"0::/{JOB}\n", version_2(JOB, "max", 400) | version_2("slurm", 800, 400), 430),
    "2, a container's root": ("0::/\n", version_2("", 1000, 400), 630),
    "2, more than allowed": (f"0::/{JOB}\n", version_2(JOB, 1000, 1200), 0),
    "2, no limit": (f"0::/{JOB}\n", version_2(JOB, "max", 400), math.inf),
    "no such controller": (f"3:cpu:/{JOB}\n0::/\n", {}, math.inf),
    "another's": (f"5:memory:/{JOB}\n", version_1("slurm/job_8", 1000, 400), math.inf),
}


@pytest.mark.parametrize("name", MEMORY)
def test_memory_is_what_the_tightest_group_still_allows(name, groups):
    lines, files, left = MEMORY[name]
    groups(lines, files)
    assert cgroups.memory_bytes() == left


QUOTAS = {
    "1": (
        f"3:cpu,cpuacct:/{JOB}\n",
        {f"cpu/{JOB}/cpu.cfs_quota_us": "150000", f"cpu/{JOB}/cpu.cfs_period_us": "100000"},
        1.5,
    ),
    "1, no limit": (
        f"3:cpu:/{JOB}\n",
        {f"cpu/{JOB}/cpu.cfs_quota_us": "-1", f"cpu/{JOB}/cpu.cfs_period_us": "100000"},
        math.inf,
    ),
    "2": (f"0::/{JOB}\n", {f"{JOB}/cpu.max": "50000 100000"}, 0.5),
    "2, above": (f"0::/{JOB}\n", {f"{JOB}/cpu.max": "max 100000", "slurm/cpu.max": "300000 100000"}, 3.0),
    "2, no limit": (f"0::/{JOB}\n", {f"{JOB}/cpu.max": "max 100000"}, math.inf),
}


@pytest.mark.parametrize("name", QUOTAS)
def test_cores_are_what_the_tightest_group_allows(name, groups):
    lines, files, allowed = QUOTAS[name]
    groups(lines, files)
    assert cgroups.cores() == allowed


def test_a_fit_without_a_limit_stays_within_the_group_s(groups, monkeypatch):
    monkeypatch.setattr(psutil.Process, "memory_info", lambda self: SimpleNamespace(rss=100 * MiB))
    on_machine = cores()
    groups(f"0::/{JOB}\n", version_2(JOB, 500 * MiB, 100 * MiB) | {f"{JOB}/cpu.max": "150000 100000"})
    assert allowed_bytes() == 100 * MiB + int(FREE_SHARE * (400 * MiB + 30))
    assert cores() == min(on_machine, 2)
    require_memory(None, 200 * MiB, "a matrix")
    with pytest.raises(MemoryLimitError, match=r"found 420.0 MiB of memory .* for a matrix.* at least 464 MiB"):
        require_memory(None, 300 * MiB, "a matrix")


@pytest.mark.parametrize(("limit", "is_above"), [("450MiB", False), ("2GiB", True)])
def test_a_limit_above_the_group_s_is_warned_of(limit, is_above, groups, monkeypatch):
    monkeypatch.setattr(psutil.Process, "memory_info", lambda self: SimpleNamespace(rss=100 * MiB))
    groups(f"0::/{JOB}\n", version_2(JOB, 500 * MiB, 100 * MiB))
    warned: list[str] = []
    events = Events(lambda record: warned.append(str(record.event)))
    config = cases.build_config(("test", {"memory_limit": limit}))
    train_in_memory(Store.from_arrays(np.eye(6), [0, 1] * 3), config, events)
    assert any("2.0 GiB is above the 500.0 MiB that the container" in each for each in warned) == is_above


def test_without_groups_nothing_is_limited(monkeypatch, tmp_path):
    monkeypatch.setattr(cgroups, "GROUPS", tmp_path / "none")
    assert cgroups.memory_bytes() == cgroups.cores() == math.inf
