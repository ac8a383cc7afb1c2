"""Cores, memory and locks wherever this runs; and the main commands with the Unix-only names of Python gone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock

import numpy as np
import psutil
import pytest

from streamsvm.parallel.machine import cores, peak_rss_bytes, rss_bytes
from streamsvm.storage import locks
from streamsvm.storage.locks import InUse, is_locked, locked, sync_folder

pytestmark = pytest.mark.lowest


class TestCores:
    def test_what_python_says_goes_first(self, monkeypatch):
        monkeypatch.setattr(os, "process_cpu_count", lambda: 3, raising=False)
        assert cores() == 3

    def test_then_those_that_the_process_is_tied_to(self, monkeypatch):
        monkeypatch.delattr(os, "process_cpu_count", raising=False)
        monkeypatch.setattr(psutil.Process, "cpu_affinity", lambda self: [0, 2, 5], raising=False)
        assert cores() == 3

    def test_then_all(self, monkeypatch):
        monkeypatch.delattr(os, "process_cpu_count", raising=False)
        monkeypatch.delattr(psutil.Process, "cpu_affinity", raising=False)
        assert cores() == os.cpu_count()


class TestMemory:
    def test_the_peak_is_no_less_than_what_is_held(self):
        assert 1 << 20 < rss_bytes() < 1.05 * peak_rss_bytes()  # Linux counts in batches

    def test_the_peak_is_the_process_s_own(self):
        """getrusage counts what the parent held when it started the process."""
        held = np.ones(60_000_000)
        assert peak_rss_bytes() > held.nbytes
        said = "from streamsvm.parallel.machine import peak_rss_bytes; print(peak_rss_bytes())"
        own = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, check=True)
        assert 1 << 20 < int(own.stdout) < held.nbytes

    def test_elsewhere_the_system_is_asked(self, monkeypatch):
        resource = pytest.importorskip("resource", reason="the system's own number, to compare with: Unix")
        monkeypatch.setattr(Path, "read_text", Mock(side_effect=FileNotFoundError))
        assert peak_rss_bytes() == resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    def test_windows_keeps_it_itself(self, monkeypatch):
        monkeypatch.setattr(Path, "read_text", Mock(side_effect=FileNotFoundError))
        monkeypatch.setattr(psutil.Process, "memory_info", lambda self: SimpleNamespace(rss=1, peak_wset=2))
        assert peak_rss_bytes() == 2

    def test_where_nobody_keeps_it_it_is_what_is_held(self, monkeypatch):
        monkeypatch.setattr(Path, "read_text", Mock(side_effect=FileNotFoundError))
        monkeypatch.setitem(sys.modules, "resource", None)
        assert peak_rss_bytes() == pytest.approx(rss_bytes(), rel=0.1)


def test_a_folder_that_opens_as_no_file_is_not_waited_for(tmp_path, monkeypatch):
    def refuse(path, flags):
        raise PermissionError(13, "Permission denied", str(path))

    sync_folder(tmp_path)
    monkeypatch.setattr(os, "open", refuse)
    sync_folder(tmp_path)


HOLD = """
import sys, time, warnings
sys.modules.update(dict.fromkeys(sys.argv[2:]))
warnings.simplefilter("ignore")
from pathlib import Path
from streamsvm.storage.locks import InUse, is_locked, locked
path = Path(sys.argv[1])
try:
    print(is_locked(path), flush=True)
    with locked(path):
        print("held", flush=True)
        time.sleep(60)
except InUse as owner:
    print(owner, flush=True)
"""


class TestLocks:
    @pytest.mark.parametrize("gone", [[], ["fcntl"]], ids=["of the system", "of a marker"])
    def test_a_second_process_hears_who_holds_it_until_that_is_killed(self, tmp_path, gone):
        ask = [sys.executable, "-c", HOLD, str(tmp_path / "lock"), *gone]
        with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as holder:
            try:
                assert [holder.stdout.readline() for _ in range(2)] == ["False\n", "held\n"]
                second = subprocess.run(ask, capture_output=True, text=True, check=True)
                assert second.stdout == f"True\nprocess {holder.pid} on {socket.gethostname()}\n"
            finally:
                holder.kill()
        with subprocess.Popen(ask, stdout=subprocess.PIPE, text=True) as third:
            assert third.stdout.readline() in (
                "False\n",
                "True\n",
            )  # a marker outlives its process, till one asks
            assert third.stdout.readline() == "held\n"
            third.kill()

    def test_nothing_is_left_and_it_is_free_again(self, tmp_path):
        with locked(tmp_path / "lock"):
            assert is_locked(tmp_path / "lock")
        assert not is_locked(tmp_path / "lock")
        assert [path.name for path in tmp_path.iterdir()] in ([], ["lock"])

    def test_a_full_disk_does_not_keep_it_from_being_held(self, tmp_path, monkeypatch):
        monkeypatch.setattr(Path, "write_text", _full)
        with (
            locked(tmp_path / "lock"),
            pytest.raises(InUse, match="another process"),
            locked(tmp_path / "lock"),
        ):
            pass

    @pytest.mark.parametrize(
        ("owner", "held"),
        [
            (f"process {os.getpid()} on {socket.gethostname()}", True),
            (f"process {2**30} on {socket.gethostname()}", False),
            (f"process {os.getpid()} on elsewhere", False),
            ("", False),
        ],
        ids=["at work", "ended", "on another machine", "unknown"],
    )
    def test_of_another_users_what_its_holder_wrote_counts(self, tmp_path, monkeypatch, owner, held):
        (tmp_path / "lock").touch()
        (tmp_path / "lock.owner").write_text(owner, encoding="utf-8")
        monkeypatch.setattr(locks, "_locked", _forbidden)
        assert is_locked(tmp_path / "lock") == held


def _full(self, *args, **options):
    raise OSError(28, "No space left on device")


def _forbidden(path, wait_s):
    raise PermissionError(13, "Permission denied", str(path))


@pytest.mark.skipif(sys.platform != "linux", reason="there the other tests of commands say the same")
@pytest.mark.slow  # processes that have to be waited for
def test_the_main_commands_run_elsewhere(tmp_path):
    """See elsewhere.py. The system's encoding is ASCII here, so a file without one of its own would not open."""
    script = Path(__file__).with_name("elsewhere.py")
    env = os.environ | {"PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0", "LC_ALL": "C"}
    command = [sys.executable, "-X", "warn_default_encoding", str(script), str(tmp_path)]
    run = subprocess.run(command, capture_output=True, text=True, env=env, check=False)
    done = [json.loads(line) for line in run.stdout.splitlines()]
    assert run.returncode == 0, run.stderr[-3000:]
    failed = [" ".join(one["words"]) for one in done if one["status"] != 0]
    assert not failed, "\n".join([*failed, run.stderr[-3000:]])
    assert {
        "ingest",
        "info",
        "check",
        "fit",
        "tune",
        "predict",
        "evaluate",
        "stream",
        "report",
        "top",
        "demo",
    } <= {one["words"][0] for one in done}
    assert (tmp_path / "p.csv").read_text(encoding="utf-8").split()[0] == "label"
    assert set((tmp_path / "p.csv").read_bytes().decode().split()[1:]) == {"猫", "naïve"}
