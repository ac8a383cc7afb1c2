"""`info` and `check` on the command line."""

from __future__ import annotations

import json

import numpy as np
import pytest
import zarr
from commands import run

from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter


@pytest.fixture
def store(tmp_path):
    rng = np.random.default_rng(0)
    with StoreWriter(tmp_path / "s", d=3, dtype="float32", chunk_rows=10) as writer:
        writer.append(Rows(rng.normal(size=(50, 3)).astype(np.float32)), np.repeat(["a", "b"], [20, 30]))
    return tmp_path / "s"


def test_info_as_json_and_for_people(store, capfd):
    assert run("info", store, "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert (found["rows"], found["features"]) == (50, 3)
    assert found["labels"]["classes"] == ["a", "b"]
    assert run("info", store) == 0
    out, err = capfd.readouterr()
    for text in ("features", "float32", "label", "30"):
        assert text in out
    assert err == ""


def test_labels_of_another_program_may_be_booleans(tmp_path, capfd):
    group = zarr.open_group(tmp_path / "s", mode="w")
    group.create_array("X", data=np.ones((4, 2)))
    group.create_array("y", data=np.array([True, False, True, True]))
    assert run("info", tmp_path / "s", "--json") == 0
    labels = json.loads(capfd.readouterr().out)["labels"]
    assert labels == {"dtype": "boolean", "classes": [False, True], "counts": [1, 3]}
    assert run("info", tmp_path / "s") == 0


@pytest.mark.parametrize(
    ("y", "text"),
    [(np.arange(50.0) / 7, "50"), (np.arange(50), "50"), (np.arange(2000) / 7, "2,000"), (None, "rows")],
)
def test_info_of_many_labels_or_none_stays_short(tmp_path, capfd, y, text):
    n = 50 if y is None else len(y)
    with StoreWriter(tmp_path / "many", d=1, dtype="float32") as writer:
        writer.append(Rows(np.ones((n, 1), np.float32)), y)
    assert run("info", tmp_path / "many") == 0
    out = capfd.readouterr().out
    assert text in out
    assert out.count("\n") < 50


def test_foreign_names(tmp_path, capfd):
    group = zarr.create_group(tmp_path / "f", zarr_format=3)
    group.create_array("data", data=np.ones((4, 2)), write_data=True)
    group.create_array("target", data=np.array([0, 1, 0, 1]), write_data=True)
    assert run("info", tmp_path / "f", "--x", "data", "--y", "target", "--json") == 0
    assert json.loads(capfd.readouterr().out)["labels"]["counts"] == [2, 2]
    assert run("info", tmp_path / "f") == 2
    assert "--x" in capfd.readouterr().err


def test_check_says_all_is_in_order_or_what_is_not(store, capfd):
    assert run("check", store, "--json") == 0
    assert json.loads(capfd.readouterr().out)["rows"] == 50
    assert run("check", store) == 0
    assert "all in order" in capfd.readouterr().out
    (store / "X" / "c" / "2" / "0").unlink()
    assert run("check", store) == 2
    out, err = capfd.readouterr()
    assert (out, err.count("\n")) == ("", 1)
    assert "chunk 2" in err


def test_duplicates_are_counted_when_asked_for(store, tmp_path, capfd):
    rows = Store.open(store).read(0, 30)
    with StoreWriter(tmp_path / "t", d=3, dtype="float32") as writer:
        writer.append(rows, np.repeat("a", 30))
    assert run("info", store, "--json") == 0
    assert "duplicates" not in json.loads(capfd.readouterr().out)
    assert run("info", store, "--against", tmp_path / "t", "--json") == 0
    found = json.loads(capfd.readouterr().out)
    assert found["duplicates"] == {"rows": 0, "same_label": 0}
    assert found["against"]["duplicates"] == {"rows": 30, "same_label": 20}
    assert run("info", store, "--duplicates") == 0
    assert "equal to earlier ones" in capfd.readouterr().out
    assert run("info", store, "--against", tmp_path / "t") == 0
    assert f"rows of {tmp_path / 't'} that are in {store}" in " ".join(capfd.readouterr().out.split())
