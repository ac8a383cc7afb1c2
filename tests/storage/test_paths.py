"""Object stores: paths, models, logs and locks in them; a file system in memory stands for one."""

from __future__ import annotations

import json
import os
import socket
from pathlib import Path

import fsspec
import numpy as np
import pytest
from cases import config, labelled

from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, CorruptDataError, ModelError, StorageError
from streamsvm.models.files import ModelWriter, is_model, load_model, save_model
from streamsvm.runs.records import PIECE, GrowingFile, lines_of, opened_lines, remove_lines
from streamsvm.storage import locks, paths
from streamsvm.storage.atomic import AT, whole_file
from streamsvm.storage.locks import InUse, is_locked, locked, require_lease
from streamsvm.storage.paths import URLPath, kind_at, nearest, place_of, remove_tree, require_place
from streamsvm.train import train_in_memory


def test_a_name_that_is_nearly_another_one_is_a_hint(tmp_path, monkeypatch):
    (tmp_path / "sales.model.zarr").mkdir()
    monkeypatch.chdir(tmp_path)
    for asked in (load_model, Store.open):
        with pytest.raises(FileNotFoundError, match=r"sale.model.zarr.*; did you mean sales.model.zarr\?$"):
            asked("sale.model.zarr")
    assert nearest("other.zarr") == nearest("no/sales.model.zarr") == nearest("s3://sale.model.zarr") == ""


@pytest.fixture
def there():
    place = URLPath("memory://bucket/there")
    yield place
    remove_tree(URLPath("memory://bucket"))


class TestPaths:
    def test_names_are_those_of_pathlib(self):
        here, there = Path("/bucket/a/s.tar.x"), place_of("s3://bucket/a/s.tar.x/")
        assert isinstance(there, URLPath)
        for name in ("name", "stem", "suffix"):
            assert getattr(there, name) == getattr(here, name)
        for act in (
            lambda p: p.parent,
            lambda p: p / "b",
            lambda p: p.with_suffix(".y"),
            lambda p: p.with_name("z"),
        ):
            assert str(act(there)) == f"s3:/{act(here)}"
        assert place_of("file:///a/b") == Path("/a/b")
        assert place_of(there) is there

    def test_a_url_that_pathlib_has_cut_is_refused(self):
        with pytest.raises(ConfigError, match="a URL is given as text"):
            place_of(Path("s3://bucket/m"))

    @pytest.mark.parametrize(
        ("url", "said"), [("foo://a/b", "Protocol not known: foo"), ("gs://a/b", "pip install s3fs, gcsfs")]
    )
    def test_what_is_not_installed_is_said(self, url, said, monkeypatch):
        monkeypatch.setitem(__import__("sys").modules, "gcsfs", None)
        with pytest.raises(ConfigError, match=said):
            URLPath(url).exists()

    def test_files_and_folders(self, there):
        assert (list(there.iterdir()), there.exists(), there.is_dir()) == ([], False, False)
        with pytest.raises(FileNotFoundError):
            there.read_bytes()
        (there / "a-1").write_bytes(b"12345")
        with whole_file(there / "b" / "c") as file:
            file.write(b"678")
        with pytest.raises(ZeroDivisionError), whole_file(there / "d"):
            raise ZeroDivisionError
        assert [p.name for p in there.iterdir()] == ["a-1", "b"]
        assert (there.is_dir(), (there / "a-1").is_file(), (there / "b").is_file()) == (True, True, False)
        assert [p.name for p in there.glob("a-*")] == ["a-1"]
        assert there.read_ranges([(there / "a-1", 1, 3), (there / "b" / "c", 0, 1)]) == [b"23", b"6"]
        (there / "a-1").unlink()
        remove_tree(there)
        assert not there.exists()

    def test_a_service_that_is_away_is_asked_again(self, there, monkeypatch):
        asked = []

        def away(*_):
            asked.append(1)
            raise ConnectionResetError("reset by peer")

        monkeypatch.setattr(paths, "PAUSES_S", (0.0, 0.0))
        monkeypatch.setattr(fsspec.filesystem("memory"), "cat_file", away)
        with pytest.raises(StorageError, match="memory://bucket/there/a cannot be reached: reset by peer"):
            (there / "a").read_bytes()
        assert len(asked) == 3


@pytest.fixture(scope="module")
def model():
    X, y = labelled(2)
    return train_in_memory(Store.from_arrays(X, y), config("cutting-plane"))[0]


class TestModels:
    def test_one_is_there_when_it_is_whole_and_replaced_in_one_step(self, there, model):
        with ModelWriter(there, model.kind) as writer:
            for name, array in model.to_state()[0].items():
                writer.append(name, array)
            assert kind_at(there) is None
            assert not is_model(there)
            with pytest.raises(ModelError, match=r"found no zarr\.json"):
                load_model(there)
            writer.attrs = model.to_state()[1]
        before = load_model(str(there))
        assert kind_at(there) == "a model"
        save_model(model, there)
        for found in (before, load_model(there)):  # who reads the one before goes on
            for name, array in model.to_state()[0].items():
                np.testing.assert_array_equal(np.asarray(found.to_state()[0][name]), array)

    def test_what_writers_left_is_removed_by_the_next(self, there, model):
        for _ in range(3):
            save_model(model, there)
        killed = f"version-{2**22 + 1}-00000000"
        owner = {"process": 2**22 + 1, "host": socket.gethostname()}
        attributes = {"attributes": {"streamsvm_partial": owner}}
        (there / killed / "zarr.json").write_bytes(json.dumps(attributes).encode())
        elsewhere = {"attributes": {"streamsvm_partial": owner | {"host": "elsewhere"}}}
        (there / "version-1-00000000" / "zarr.json").write_bytes(json.dumps(elsewhere).encode())
        save_model(model, there)
        versions = [p.name for p in there.iterdir() if p.name.startswith("version-")]
        assert len(versions) == 3  # this one, the one before, and what another machine may be at
        assert killed not in versions

    def test_an_error_leaves_what_was_there(self, there, model):
        save_model(model, there)
        with pytest.raises(ValueError, match="found rows"), ModelWriter(there, model.kind) as writer:
            [writer.append("a", np.zeros(shape)) for shape in (3, (3, 2))]
        load_model(there)
        assert len([p for p in there.iterdir() if p.name.startswith("version-")]) == 1

    @pytest.mark.parametrize("named", ["../elsewhere", "", 3, "version-1-00000000/.."])
    def test_a_name_that_leads_elsewhere_is_damage(self, tmp_path, model, named):
        save_model(model, tmp_path / "m")
        metadata = json.loads((tmp_path / "m" / "zarr.json").read_text())
        metadata["attributes"][AT] = named
        (tmp_path / "m" / "zarr.json").write_text(json.dumps(metadata))
        with pytest.raises(CorruptDataError, match="names no version"):
            load_model(tmp_path / "m")

    def test_other_things_are_not_replaced(self, there, model):
        (there / "a").write_bytes(b"")
        with pytest.raises(StorageError, match="found a folder of other things"):
            require_place("--model", there, "a model", force=True)


class TestLines:
    def test_a_file_grows_by_pieces(self, there):
        new, log = GrowingFile(there), opened_lines(there, 0.0)
        for number in range(3):
            log({"a": number})
            assert new() == [b'{"a": %d}' % number]
        log({"a": "x" * PIECE})
        log({"b": 1})
        log.close()
        assert len(new()) == 2
        again = opened_lines(there, 60.0)
        again({"c": 1})
        again({"c": 2})
        assert len(new()) == 1  # the other is put a minute later, or at the end
        again.close()
        assert new() == [b'{"c": 2}']
        assert [p.name for p in there.iterdir()] == ["000001", "000002", "000003"]
        assert len(list(lines_of(there))) == 7
        remove_lines(there)
        assert list(lines_of(there)) == []

    def test_a_service_that_is_away_ends_no_run(self, there, monkeypatch):
        log = opened_lines(there, 0.0)
        with monkeypatch.context() as patch:
            patch.setattr(URLPath, "write_bytes", lambda *_: (_ for _ in ()).throw(StorageError("away")))
            log({"a": 1})
        log({"a": 2})
        assert len(list(lines_of(there))) == 2


class TestLocks:
    @pytest.fixture(autouse=True)
    def _quick(self, monkeypatch):
        monkeypatch.setattr(locks, "BEAT_S", 0.02)
        monkeypatch.setattr(locks, "STALE_S", 0.2)

    def test_one_at_a_time(self, there):
        told = []
        with locked(there, told.append):
            assert is_locked(there)
            require_lease(there)
            with pytest.raises(InUse, match=f"process {os.getpid()} on"), locked(there, told.append):
                pytest.fail("held twice")
        assert not is_locked(there)
        assert list(there.iterdir()) == []
        assert len(told) == 1
        assert "waiting up to 0.2 s to see whether it is alive" in told[0]

    @pytest.mark.parametrize("owner", [{"process": 2**22 + 1}, {"host": "elsewhere"}, {}])
    def test_what_a_killed_process_left_is_taken_over(self, there, owner):
        body = {"process": 1, "host": socket.gethostname(), "token": "", "time": 0.0} | owner
        (there / "000004").write_bytes(json.dumps(body).encode() if owner else b"torn")
        with locked(there):
            assert [p.name for p in there.iterdir()] == ["000005"]

    def test_who_was_away_too_long_hears_of_it(self, there):
        with locked(there):
            remove_tree(there)  # as another process does
            with pytest.raises(StorageError, match="was taken over by another process"):
                require_lease(there)

    def test_of_two_that_take_over_at_once_neither_or_one_has_it(self, there, monkeypatch):
        """Another makes its object between our look and ours."""
        made = locks._created

        def late(own, body, tell):
            found = made(own, body, tell)
            (there / "000009").write_bytes(json.dumps({"process": 7, "host": "elsewhere"}).encode())
            return found

        monkeypatch.setattr(locks, "_created", late)
        with pytest.raises(InUse, match="process 7 on elsewhere"), locked(there):
            pytest.fail("held by two")
        assert [p.name for p in there.iterdir()] == ["000009"]

    def test_a_service_without_conditional_writes_is_told(self, there, monkeypatch):
        told, fs = [], fsspec.filesystem("memory")

        def pipe_file(path, value, mode="overwrite", whole=fs.pipe_file):
            whole(path, value)

        monkeypatch.setattr(fs, "pipe_file", pipe_file)
        with locked(there, told.append):
            pass
        assert told == ["memory://bucket: the service has no conditional writes: two runs in it are not kept apart"]
