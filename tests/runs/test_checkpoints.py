"""States of a run: whole or not there, the last two kept, another run's refused, hostile ones without harm."""

from __future__ import annotations

import errno
import io
import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, CorruptDataError, StorageError
from streamsvm.events import Events
from streamsvm.runs import checkpoints
from streamsvm.runs.checkpoints import Checkpoints, read_state, run_folder

pytestmark = pytest.mark.lowest

X = np.arange(12.0).reshape(6, 2)


def store(X: np.ndarray = X) -> Store:
    return Store.from_arrays(X, np.arange(6) % 2)


def of(folder: Path, *, resume: bool = False, said: list | None = None, **options: object) -> Checkpoints:
    events = Events(lambda record: said is not None and said.append(record))
    config = build_config(("test", {"checkpoint_every": "1 step"} | options))
    return Checkpoints(folder, store(), config, resume, events)


def states(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("state*"))


ARRAYS = hnp.arrays(
    st.sampled_from(["<f8", "<f4", "<i8", "<i4", "|u1", "|b1", "<U5"]),
    hnp.array_shapes(min_dims=0, min_side=0),
)


@given(st.dictionaries(st.from_regex(r"[a-z_]{1,8}", fullmatch=True).filter(lambda k: k != "identity"), ARRAYS))
@settings(max_examples=50)
def test_what_was_saved_is_loaded(tmp_path_factory, state):
    folder = tmp_path_factory.mktemp("run")
    of(folder).offer(lambda: state)
    found = of(folder, resume=True).load()
    assert set(found) == set(state)
    for name, array in state.items():
        assert (found[name].dtype, found[name].shape) == (array.dtype, array.shape)
        np.testing.assert_array_equal(found[name], array)


class TestSaving:
    def test_the_last_two_are_kept(self, tmp_path):
        saving = of(tmp_path)
        for number in range(5):
            saving.offer(lambda number=number: {"number": number})
        assert states(tmp_path) == ["state-000004.npz", "state-000005.npz"]
        assert of(tmp_path, resume=True).load()["number"] == 4

    def test_without_a_folder_nothing_is_made(self):
        of(None).offer(lambda: pytest.fail("asked for a state"), last=True)
        assert of(None, resume=True).load() is None

    def test_every_so_many_steps_and_at_the_end(self, tmp_path):
        saving, asked = of(tmp_path, checkpoint_every="3 steps"), []
        for step in range(8):
            saving.offer(lambda step=step: asked.append(step) or {}, last=step == 7)
        assert asked == [2, 5, 7]

    def test_every_so_many_seconds_but_not_most_of_the_time(self, tmp_path, monkeypatch):
        clock = [0.0]
        monkeypatch.setattr(checkpoints.time, "perf_counter", lambda: clock[0])
        saving, asked = of(tmp_path, checkpoint_every=10), []

        def state(cost: float) -> dict:
            asked.append(clock[0])
            clock[0] += cost
            return {}

        for _ in range(200):
            clock[0] += 1.0
            saving.offer(lambda: state(2.0))
        assert asked[0] == 10.0
        assert np.all(np.diff(asked) >= 2.0 / checkpoints.MOST_SHARE)

    def test_a_full_disk_ends_nothing(self, tmp_path, monkeypatch):
        said: list = []
        saving = of(tmp_path, said=said)
        saving.offer(lambda: {"number": 1})

        def full(handle: int) -> None:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            saving.offer(lambda: {"number": 2})
        assert "No space left on device" in said[-1].event.message
        assert states(tmp_path) == ["state-000001.npz"]
        saving.offer(lambda: {"number": 3})
        assert of(tmp_path, resume=True).load()["number"] == 3

    def test_a_new_run_says_that_there_was_one(self, tmp_path):
        of(tmp_path).offer(lambda: {"number": 1})
        said: list = []
        of(tmp_path, said=said)
        assert "with --resume it would continue from it" in said[0].event.message


class TestLoading:
    @pytest.mark.parametrize("length", [0, 1, 100, -1])
    def test_a_torn_state_gives_way_to_the_one_before(self, tmp_path, length):
        saving = of(tmp_path)
        for number in range(2):
            saving.offer(lambda number=number: {"number": number, "more": np.arange(100)})
        newest = tmp_path / "state-000002.npz"
        newest.write_bytes(newest.read_bytes()[:length])
        said: list = []
        assert of(tmp_path, resume=True, said=said).load()["number"] == 0
        assert "state-000002.npz: the checkpoint is damaged" in said[0].event.message

    def test_without_a_whole_one_the_run_starts_anew(self, tmp_path):
        said: list = []
        assert of(tmp_path, resume=True, said=said).load() is None
        assert "holds no whole checkpoint" in said[0].event.message

    def test_after_a_search_it_does_not(self, tmp_path):
        of(tmp_path).inside("search").offer(lambda: {"number": 1})
        said: list = []
        resumed = of(tmp_path, resume=True, said=said)
        assert resumed.inside("search").load()["number"] == 1
        assert resumed.load() is None
        assert not said

    @pytest.mark.parametrize(
        ("change", "named"),
        [({"C": 2.0}, "C was 1.0, is 2.0"), ({"dcsvm": {"early": True}}, "dcsvm.early was False, is True")],
    )
    def test_other_options_are_named(self, tmp_path, change, named):
        of(tmp_path).offer(dict)
        with pytest.raises(ConfigError, match=named):
            of(tmp_path, resume=True, **change).load()

    def test_other_data_and_another_version_are_named(self, tmp_path, monkeypatch):
        of(tmp_path).offer(dict)
        other = of(tmp_path, resume=True)
        other.identity["store"] = "0"
        with pytest.raises(ConfigError, match="store was"):
            other.load()
        monkeypatch.setattr(checkpoints, "__version__", "9.9")
        with pytest.raises(ConfigError, match="streamsvm was .*, is 9.9"):
            of(tmp_path, resume=True).load()

    def test_how_a_run_is_done_may_change(self, tmp_path):
        of(tmp_path).offer(dict)
        how = {"threads": 1, "memory_limit": "1GiB", "checkpoint_every": 5}
        how |= {"scheduler": "tcp://a:1", "wait_for_scheduler": "10m"}
        assert of(tmp_path, resume=True, **how).load() == {}


def hostile(kind: str) -> bytes:
    """Bytes of files that nobody but an attacker writes."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED if kind == "bomb" else zipfile.ZIP_STORED) as archive:
        archive.writestr("a.npy", MEMBERS[kind])
    return file.getvalue()


def header(text: str) -> bytes:
    padded = text.ljust(128 - 10 - 1) + "\n"
    return b"\x93NUMPY\x01\x00" + len(padded).to_bytes(2, "little") + padded.encode()


MEMBERS = {
    "bomb": bytes(1 << 24),
    "huge shape": header("{'descr': '<f8', 'fortran_order': False, 'shape': (10000000000000,), }"),
    "negative shape": header("{'descr': '<f8', 'fortran_order': False, 'shape': (-1,), }"),
    "objects": header("{'descr': '|O', 'fortran_order': False, 'shape': (1,), }") + pickle.dumps([print]),
    "code": header("__import__('os').system('touch harm')"),
    "nested": header("(" * 100),
    "long header": b"\x93NUMPY\x01\x00\xff\xff" + b"{" * 65535,
    "not an array": b"hello",
}


@every_case("kind", MEMBERS)
def test_hostile_states_are_refused(tmp_path, kind):
    path = tmp_path / "state-000001.npz"
    path.write_bytes(hostile(kind))
    with pytest.raises(CorruptDataError, match="the checkpoint is damaged"):
        read_state(path)
    assert os.listdir(tmp_path) == [path.name]


def test_a_changed_header_that_still_reads_is_damage(tmp_path):
    """Fewer entries than were written: what is read would be the beginning of them, without a checksum."""
    of(tmp_path).offer(lambda: {"a": np.arange(20.0)})
    path = tmp_path / "state-000001.npz"
    raw = path.read_bytes()
    assert raw.count(b"(20,)") == 1
    path.write_bytes(raw.replace(b"(20,)", b"(10,)"))
    with pytest.raises(CorruptDataError, match="the checkpoint is damaged .the checksum of a.npy is wrong"):
        read_state(path)


@given(st.data())
@settings(max_examples=3 * settings.default.max_examples)
def test_any_bytes_give_arrays_or_one_error(tmp_path_factory, data):
    """Whole states with some bytes changed, cut or doubled."""
    folder = tmp_path_factory.getbasetemp() / "mutated"
    folder.mkdir(exist_ok=True)
    path = folder / "state-000001.npz"
    np.savez(path, allow_pickle=False, identity="{}", a=np.arange(20.0), b=np.array(["x", "yz"]))
    raw = bytearray(path.read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        at = data.draw(st.integers(0, len(raw) - 1))
        length = data.draw(st.integers(0, 16))
        raw[at : at + length] = data.draw(st.binary(max_size=16))
        if not raw:
            raw = bytearray(1)
    path.write_bytes(bytes(raw))
    try:
        found = read_state(path)
    except CorruptDataError:
        return
    assert sum(array.nbytes for array in found.values()) <= len(raw)


class TestFolder:
    def test_a_second_writer_is_refused(self, tmp_path):
        held = f"""
import sys, time
from pathlib import Path
from streamsvm.runs.checkpoints import run_folder
with run_folder(Path({str(tmp_path / "run")!r})):
    print("held", flush=True)
    time.sleep(60)
"""
        other = subprocess.Popen([sys.executable, "-c", held], stdout=subprocess.PIPE, text=True)
        try:
            assert other.stdout.readline() == "held\n"
            with (
                pytest.raises(StorageError, match=f"in use by process {other.pid} on "),
                run_folder(tmp_path / "run"),
            ):
                pass
        finally:
            other.kill()
            other.wait()
            other.stdout.close()
        with run_folder(tmp_path / "run"):
            pass

    def test_a_file_in_its_place_is_named(self, tmp_path):
        (tmp_path / "run").write_text("")
        with pytest.raises(StorageError, match="run failed: File exists"), run_folder(tmp_path / "run"):
            pass


def test_data_of_an_earlier_version_is_compared_as_far_as_it_was_noted(tmp_path):
    rows, y, said = np.random.default_rng(0).normal(size=(100, 2)), np.arange(100) % 2, list[str]()
    store, other = Store.from_arrays(rows, y), Store.from_arrays(rows + 1, y)
    events = Events(lambda record: said.append(record.event.message))
    own = {"store": store.fingerprint()}
    checkpoints.require_same_run(tmp_path, json.dumps(own), own, store, events)
    assert not said
    early, far = (json.dumps({"store": one._digest().hexdigest()}) for one in (store, other))
    checkpoints.require_same_run(tmp_path, early, own, store, events)
    assert "is of an earlier version of streamsvm" in said[0]
    for found in (far, json.dumps({"store": other.fingerprint()})):
        with pytest.raises(ConfigError, match="another store or configuration"):
            checkpoints.require_same_run(tmp_path, found, own, store, events)
