"""`demo` on the command line: where things go and what is said; the job itself is tested beside it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import streamsvm.demo
from streamsvm.cli.app import app, exit_status
from streamsvm.errors import StorageError


@pytest.fixture
def folders(monkeypatch):
    seen = []

    def run_demo(folder, rows, events, *, force):
        seen.append((folder, rows, folder.is_dir()))
        (folder / "model.zarr").mkdir()
        return {"rows": rows, "test_rows": 359, "accuracy": 0.9916, "fit": {"n_support": 1234}}

    monkeypatch.setattr(streamsvm.demo, "run_demo", run_demo)
    return seen


def run(*args):
    return exit_status(lambda: app(["demo", *map(str, args)], standalone_mode=False))


def test_by_default_nothing_is_left(folders, capfd):
    assert run() == 0
    (folder, rows, existed), *others = folders
    assert (rows, existed, others) == (200_000, True, [])
    assert not folder.exists()
    out, err = capfd.readouterr()
    for text in ("200,000 deformed digits", "1,234 support vectors", "99.16% of 359 untouched digits"):
        assert text in out
    assert err == ""


def test_with_a_folder_all_is_kept(folders, tmp_path, capfd):
    assert run("--dir", tmp_path / "a" / "b", "--rows", 5000, "--json") == 0
    assert folders == [(tmp_path / "a" / "b", 5000, True)]
    assert (tmp_path / "a" / "b" / "model.zarr").exists()
    result = json.loads(capfd.readouterr().out)
    assert result["rows"] == 5000
    assert result["seconds"] > 0


def test_a_failure_leaves_no_temporary_folder(monkeypatch, capfd):
    made = []

    def run_demo(folder, rows, events, *, force):
        made.append(folder)
        raise StorageError("disk full")

    monkeypatch.setattr(streamsvm.demo, "run_demo", run_demo)
    assert run() == 2
    assert capfd.readouterr().err == "error: disk full\n"
    assert not Path(made[0]).exists()
