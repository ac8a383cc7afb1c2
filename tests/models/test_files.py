"""Models come back bit by bit, and a file that is not whole or not ours is refused with a reason."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
import zarr
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from streamsvm.errors import CorruptDataError, ModelError, NotFoundError, StorageError
from streamsvm.models import files
from streamsvm.models.files import ModelWriter, load_model, save_model
from streamsvm.storage import chunks

pytestmark = pytest.mark.lowest


@dataclass
class Toy:
    """A model that is only its state."""

    kind: ClassVar[str] = "toy"
    arrays: dict[str, np.ndarray]
    attrs: dict[str, Any]

    def to_state(self):
        return self.arrays, self.attrs

    @classmethod
    def from_state(cls, arrays, attrs):
        return cls({name: np.asarray(arrays[name]) for name in arrays}, attrs)


@pytest.fixture(autouse=True)
def _toy_kind(monkeypatch):
    monkeypatch.setitem(files.MODELS, "toy", f"{__name__}:Toy")


@pytest.fixture
def toy():
    rng = np.random.default_rng(0)
    arrays = {
        "coef": rng.normal(size=(500, 3)),
        "ids": np.arange(500),
        "classes": np.array(["a", "bcd", "ä"]),
    }
    return Toy(arrays, {"gamma": 0.1, "C": 32.0, "config": {"kernel": {"name": "rbf"}}})


def assert_same(a: Toy, b: Toy) -> None:
    assert a.attrs == b.attrs
    assert a.arrays.keys() == b.arrays.keys()
    for name, array in a.arrays.items():
        assert array.dtype == b.arrays[name].dtype
        assert array.shape == b.arrays[name].shape
        assert array.tobytes() == b.arrays[name].tobytes()


DTYPES = st.sampled_from(["u1", "i4", "i8", "f4", "f8", "?", "U3"])


@settings(max_examples=40)
@given(
    array=hnp.arrays(DTYPES, hnp.array_shapes(max_dims=3, max_side=5, min_side=0)),
    number=st.floats(allow_nan=False, allow_infinity=False),
)
def test_state_comes_back_bit_by_bit(tmp_path_factory, array, number):
    if array.dtype.kind == "U":
        array = np.array(array.ravel().tolist(), str)
    model = Toy({"a": array}, {"number": number})
    path = tmp_path_factory.mktemp("models") / "m"
    save_model(model, path)
    loaded = load_model(path)
    assert_same(model, loaded)
    assert np.float64(loaded.attrs["number"]).tobytes() == np.float64(number).tobytes()


def test_blocks_add_up_to_the_array_in_whole_chunks(tmp_path, monkeypatch):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1024)
    X = np.random.default_rng(0).integers(0, 2, size=(1000, 7)).astype(np.float32)
    X[:200] = 0
    with ModelWriter(tmp_path / "m", "toy") as writer:
        block = np.empty((0, 7), np.float32)
        writer.append("X", block)
        for start, stop in ((0, 1), (1, 50), (50, 900), (900, 1000)):
            block = X[start:stop].copy()
            writer.append("X", block)
            block[:] = np.nan
        writer.append("none", np.empty((0, 4)))
    assert np.array_equal(load_model(tmp_path / "m").arrays["X"], X)
    stored = zarr.open_array(tmp_path / "m" / "X", mode="r")
    assert stored.chunks == (1024 // 28, 7)
    assert stored.nchunks_initialized == stored.nchunks
    assert load_model(tmp_path / "m").arrays["none"].shape == (0, 4)


def test_rows_of_another_shape_are_refused_and_leave_nothing(tmp_path):
    def write():
        with ModelWriter(tmp_path / "m", "toy") as writer:
            writer.append("X", np.zeros((2, 3)))
            writer.append("X", np.zeros((2, 4)))

    with pytest.raises(ValueError, match="expected"):
        write()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("keep_bytes", [0, 1 << 20])
def test_arrays_are_read_when_used_and_kept_or_their_last_chunks(tmp_path, toy, monkeypatch, keep_bytes):
    seen = {}
    kept = classmethod(lambda cls, arrays, attrs: seen.update(arrays) or cls({}, attrs))
    monkeypatch.setattr(Toy, "from_state", kept)
    monkeypatch.setattr(files, "KEEP_BYTES", keep_bytes)
    save_model(toy, tmp_path / "m")
    load_model(tmp_path / "m")
    coef = seen["coef"]
    assert (coef.shape, len(coef), coef.dtype) == ((500, 3), 500, np.float64)
    for rows in (slice(10, 20), slice(None), slice(490, None), slice(-1, 3)):
        assert np.array_equal(coef[rows], toy.arrays["coef"][rows])
    assert np.array_equal(np.asarray(coef, dtype=np.float32), toy.arrays["coef"].astype(np.float32))
    with pytest.raises(IndexError, match="step of 2"):
        coef[::2]
    _chunks(tmp_path / "m", "coef")[0].unlink()
    assert np.array_equal(coef[:5], toy.arrays["coef"][:5])  # of the array, or of its last chunks
    load_model(tmp_path / "m")
    with pytest.raises(CorruptDataError, match="chunk 0"):
        seen["coef"][:5]


def test_an_older_model_is_replaced_and_other_things_are_not(tmp_path, toy):
    save_model(Toy({}, {"old": True}), tmp_path / "m")
    save_model(toy, tmp_path / "m")
    assert_same(toy, load_model(tmp_path / "m"))
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("mine")
    for name in ("folder", "file"):
        with pytest.raises(StorageError, match="already exists"):
            save_model(toy, tmp_path / name)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["file", "folder", "m"]
    assert (tmp_path / "file").read_text() == "mine"


def test_a_failed_save_keeps_the_older_model(tmp_path, toy):
    def interrupted():
        with ModelWriter(tmp_path / "m", "toy") as writer:
            writer.append("coef", np.zeros((3, 3)))
            raise KeyboardInterrupt

    save_model(toy, tmp_path / "m")
    with pytest.raises(KeyboardInterrupt):
        interrupted()
    with pytest.raises(ValueError, match="kind"), ModelWriter(tmp_path / "m", "toy") as writer:
        writer.attrs = {"kind": "mine"}
    assert_same(toy, load_model(tmp_path / "m"))
    assert [p.name for p in tmp_path.iterdir()] == ["m"]


KILLED = """
    import os, signal
    import numpy as np
    from streamsvm.models.files import ModelWriter
    with ModelWriter("m", "kernel") as writer:
        for _ in range(4):
            writer.append("X", np.random.default_rng(0).normal(size=(100_000, 10)))
        os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_killed_save_leaves_nothing_that_loads(tmp_path):
    run = subprocess.run([sys.executable, "-c", textwrap.dedent(KILLED)], cwd=tmp_path, check=False)
    assert run.returncode == -signal.SIGKILL
    assert not (tmp_path / "m").exists()
    for part in tmp_path.iterdir():
        with pytest.raises(ModelError):
            load_model(part)


FULL = """
    import numpy as np
    from streamsvm.errors import StorageError
    from streamsvm.models.files import ModelWriter
    try:
        with ModelWriter("m", "kernel") as writer:
            writer.append("X", np.random.default_rng(0).normal(size=(100_000, 10)))
    except StorageError as error:
        print(error)
"""


def test_a_disk_that_fills_up_is_said_in_one_line_and_cleaned_up(tmp_path):
    resource = pytest.importorskip("resource", reason="needs a limit on the size of files: Unix")

    def tiny_files():
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, 1 << 20))

    code = textwrap.dedent(FULL)
    run = subprocess.run(
        [sys.executable, "-Bc", code],
        cwd=tmp_path,
        preexec_fn=tiny_files,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.stdout == "writing m failed: File too large; nothing was kept\n"
    assert list(tmp_path.iterdir()) == []


def _edit_attrs(path: Path, **changes: Any) -> None:
    metadata = json.loads((path / "zarr.json").read_text())
    metadata["attributes"] |= changes
    (path / "zarr.json").write_text(json.dumps(metadata))


@every_case(
    ("changes", "message"),
    [
        ({"version": 7}, "found model version 7, this streamsvm reads versions 1 to 3"),
        ({"kind": "quantum"}, "found a model of kind 'quantum', supported are kernel, local"),
        ({"kind": ["toy"]}, "found a model of kind"),
        ({"format": "other"}, "is not a model"),
        ({"streamsvm_store": 1}, "--store"),
    ],
)
def test_what_is_not_our_model_is_refused(tmp_path, toy, changes, message):
    save_model(toy, tmp_path / "m")
    _edit_attrs(tmp_path / "m", **changes)
    with pytest.raises(ModelError, match=message):
        load_model(tmp_path / "m")


def test_paths_that_are_no_models_are_refused(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "file").write_text("x")
    with pytest.raises(NotFoundError, match="no such model"):
        load_model(tmp_path / "nothing")
    for name in ("folder", "file"):
        with pytest.raises(ModelError, match="no zarr.json"):
            load_model(tmp_path / name)


def _chunks(path: Path, array: str) -> list[Path]:
    return sorted(p for p in (path / array / "c").rglob("*") if p.is_file())


def _drop_chunk(path: Path) -> None:
    _chunks(path, "coef")[1].unlink()


def _flip_bit(path: Path) -> None:
    chunk = _chunks(path, "coef")[1]
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 4
    chunk.write_bytes(data)


def _cut_chunk(path: Path) -> None:
    chunk = _chunks(path, "coef")[1]
    os.truncate(chunk, chunk.stat().st_size // 2)


def _empty_chunk(path: Path) -> None:
    os.truncate(_chunks(path, "coef")[1], 0)


def _drop_array(path: Path) -> None:
    shutil.rmtree(path / "coef")


def _break_array_metadata(path: Path) -> None:
    (path / "coef" / "zarr.json").write_text("{")


def _foreign_dtype(path: Path) -> None:
    metadata = json.loads((path / "coef" / "zarr.json").read_text())
    (path / "coef" / "zarr.json").write_text(json.dumps(metadata | {"data_type": "rope"}))


def _break_metadata(path: Path) -> None:
    (path / "zarr.json").write_text((path / "zarr.json").read_text()[:40])


def _break_strings(path: Path) -> None:
    _edit_attrs(path, strings={"classes": [3]})


@every_case(
    ("damage", "message"),
    [
        (_drop_chunk, r"m/coef.: chunk 1 \(entries 42 to 83\) is missing"),
        (_flip_bit, r"m/coef.: chunk 1 \(entries 42 to 83\) is damaged"),
        (_cut_chunk, r"m/coef.: chunk 1 \(entries 42 to 83\) is damaged"),
        (_empty_chunk, r"m/coef.: chunk 1 \(entries 42 to 83\) is damaged"),
        (_drop_array, "coef"),
        (_break_array_metadata, "m/coef"),
        (_foreign_dtype, "m/coef"),
        (_break_metadata, "m/zarr.json: damaged"),
        (_break_strings, "m"),
    ],
)
def test_damage_is_named(tmp_path, toy, monkeypatch, damage, message):
    monkeypatch.setattr(chunks, "CHUNK_BYTES", 1024)
    monkeypatch.setattr(
        Toy,
        "from_state",
        classmethod(
            lambda cls, arrays, attrs: cls({"coef": np.asarray(arrays["coef"]), "classes": arrays["classes"]}, attrs)
        ),
    )
    toy.arrays["coef"] = toy.arrays["coef"][:84]
    save_model(toy, tmp_path / "m")
    assert_same(Toy({k: toy.arrays[k] for k in ("coef", "classes")}, toy.attrs), load_model(tmp_path / "m"))
    damage(tmp_path / "m")
    with pytest.raises(CorruptDataError, match=message) as caught:
        load_model(tmp_path / "m")
    assert "\n" not in str(caught.value)
