"""An audit names what a model holds, and refuses what no model holds; a load never runs what was put there."""

from __future__ import annotations

import json
import os
import pickle

import numpy as np
import pytest
from commands import run
from sklearn.datasets import load_iris

from streamsvm import DCSVC, audit, load_model
from streamsvm.errors import CorruptDataError, ModelError, NotFoundError
from streamsvm.storage.paths import URLPath, remove_tree


@pytest.fixture(scope="module")
def fitted():
    X, y = load_iris(return_X_y=True)
    return DCSVC().fit(X, y)


@pytest.fixture
def model(fitted, tmp_path):
    fitted.save(tmp_path / "m")
    return tmp_path / "m"


def test_all_of_a_model_is_told(model):
    report = audit(model)
    assert (report["kind"], report["version"]) == ("kernel", 1)
    arrays = {one["array"]: one for one in report["arrays"]}
    loaded = load_model(model)
    assert arrays["classes"]["shape"] == list(loaded.classes.shape)
    assert {"bytes", "crc32c"} <= set(arrays["alpha"]["codecs"])
    assert report["files"] == sum(path.is_file() for path in model.rglob("*"))
    assert report["bytes"] == sum(
        np.dtype(one["dtype"]).itemsize * np.prod(one["shape"], dtype=int) for one in report["arrays"]
    )


def test_the_command(model, capfd):
    assert run("check", "--model", model, "--json") == 0
    assert json.loads(capfd.readouterr().out) == audit(model)
    assert run("check", "--model", model) == 0
    assert "nothing that is run" in capfd.readouterr().out
    assert run("check", model, "--model", model) == 2
    assert "expected one of them" in capfd.readouterr().err


def edit(path, change):
    said = json.loads(path.read_text())
    change(said)
    path.write_text(json.dumps(said))


def pickled(model):
    (model / "model.pkl").write_bytes(pickle.dumps(print))


def linked(model):
    os.symlink("/etc/hostname", model / "alpha" / "c" / "link")


def objects(model):
    edit(model / "alpha" / "zarr.json", lambda said: said.update(data_type={"name": "object"}))


def unpickling(model):
    edit(model / "alpha" / "zarr.json", lambda said: said["codecs"].append({"name": "numcodecs.pickle"}))


def other_kind(model):
    edit(model / "zarr.json", lambda said: said["attributes"].update(kind="os:system"))


def chunk_of_no_array(model):
    (model / "more" / "c").mkdir(parents=True)
    (model / "more" / "c" / "0").write_bytes(b"")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (pickled, "model.pkl: found a file that does not belong"),
        (linked, "found a link"),
        (objects, "expected numbers"),
        (unpickling, "found the codec 'numcodecs.pickle'"),
        (other_kind, "kind 'os:system'"),
        (chunk_of_no_array, "more/c/0: found a file that does not belong"),
    ],
)
def test_what_no_model_holds_is_refused(model, change, said):
    change(model)
    with pytest.raises(ModelError, match=said):
        audit(model)


def test_every_byte_is_read(model):
    chunk = next((model / "alpha" / "c").rglob("0"))
    chunk = chunk if chunk.is_file() else next(path for path in chunk.rglob("*") if path.is_file())
    data = bytearray(chunk.read_bytes())
    data[len(data) // 2] ^= 1
    chunk.write_bytes(data)
    with pytest.raises(CorruptDataError, match="alpha"):
        audit(model)
    (model / "alpha" / "zarr.json").write_text("{}")
    with pytest.raises(CorruptDataError, match=r"alpha/zarr\.json: damaged"):
        audit(model)
    with pytest.raises(NotFoundError):
        audit(model / "none")


def test_in_an_object_store(fitted, model):
    place = "memory://audited/m"
    fitted.save(place)
    assert audit(place)["arrays"] == audit(model)["arrays"]
    remove_tree(URLPath("memory://audited"))
