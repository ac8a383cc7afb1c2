"""Where models and stores go: next to the store where no place is given, and never over another in silence."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pytest
from commands import run
from every_case import every_case
from making import write

from streamsvm import load_model
from streamsvm.cli.options import default_model
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import StorageError
from streamsvm.models.files import is_model

TABLE = "a,b,label\n" + "".join(f"{i % 7},{i % 3},{i % 2}\n" for i in range(40))


@pytest.fixture
def store(tmp_path):
    X = np.random.default_rng(0).normal(size=(120, 3)).astype(np.float32)
    return write(tmp_path / "data.zarr", Rows(X), (X[:, 0] > 0).astype(int)).url


@pytest.fixture
def table(tmp_path):
    (tmp_path / "t.csv").write_text(TABLE)
    return tmp_path / "t.csv"


@every_case(
    ("store", "model"),
    [
        ("data.zarr", "data.model.zarr"),
        ("data.zarr/", "data.model.zarr"),
        ("data", "data.model.zarr"),
        ("a/data.tar.x", "a/data.tar.model.zarr"),
        ("file:///a/data.zarr", "/a/data.model.zarr"),
        ("s3://bucket/a/data.zarr/", "s3://bucket/a/data.model.zarr"),
        ("memory://data.zarr", "memory://data.model.zarr"),
    ],
)
def test_a_model_goes_next_to_its_store(store, model):
    assert str(default_model(store)) == model


def test_a_store_may_be_the_folder_at_hand(store, monkeypatch, tmp_path):
    monkeypatch.chdir(store)
    assert default_model(".") == tmp_path / "data.model.zarr"


def test_fit_with_a_store_alone_says_where_the_model_is_and_what_comes_next(store, tmp_path, capfd):
    model = tmp_path / "data.model.zarr"
    assert run("fit", "--no-search", "--store", store) == 0
    assert f"next: streamsvm evaluate --model {model} --store TEST_STORE" in capfd.readouterr().out
    assert run("evaluate", "--model", model, "--store", store) == 0
    capfd.readouterr()
    assert run("fit", "--no-search", "--store", store, "--force", "--json") == 0
    assert json.loads(capfd.readouterr().out)["model"] == str(model)


@pytest.mark.parametrize("command", ["fit", "tune", "calibrate", "import"])
def test_a_model_is_replaced_by_force_alone(command, store, tmp_path, capfd):
    model, other = tmp_path / "m.zarr", tmp_path / "other.zarr"
    (tmp_path / "c.toml").write_text("[tune.grid]\nC = [1.0, 2.0]\n")
    assert run("fit", "--no-search", "--store", store, "--model", other, "--gamma", 1) == 0
    assert run("export", "--model", other, "--format", "libsvm", "--out", tmp_path / "svm") == 0
    shutil.copytree(other, model)
    words = {
        "fit": ("--store", store, "--model", model, "--gamma", 2),
        "tune": ("--store", store, "--config", tmp_path / "c.toml", "--model", model),
        "calibrate": ("--store", store, "--model", other, "--out", model),
        "import": (tmp_path / "svm", "--model", model),
    }[command]
    before = (model / "zarr.json").read_bytes()
    capfd.readouterr()
    assert run(command, *words) == 2
    option = "--out" if command == "calibrate" else "--model"
    assert capfd.readouterr().err == (
        f"error: {option} {model}: found a model; --force replaces it, or take another {option}\n"
    )
    assert (model / "zarr.json").read_bytes() == before
    assert run(command, *words, "--force") == 0
    assert (model / "zarr.json").read_bytes() != before
    assert load_model(model)


def test_calibrating_in_place_takes_no_force(store, tmp_path):
    assert run("fit", "--no-search", "--store", store, "--gamma", 1) == 0
    assert run("calibrate", "--model", tmp_path / "data.model.zarr", "--store", store) == 0


@pytest.mark.parametrize(
    ("make", "found"),
    [
        (lambda path: path.write_text("mine"), "a file"),
        (lambda path: (path / "mine").mkdir(parents=True), "a folder of other things"),
        (lambda path: path.symlink_to("nowhere"), "a link that leads nowhere"),
        (lambda path: write(path, Rows(np.zeros((2, 1), np.float32)), np.arange(2)), "a store"),
    ],
    ids=["file", "folder", "link", "store"],
)
def test_what_is_no_model_is_never_replaced(make, found, store, tmp_path, capfd):
    path = tmp_path / "m.zarr"
    make(path)
    assert run("fit", "--store", store, "--model", path, "--force") == 2
    assert f"--model {path}: found {found}, expected nothing or a model" in capfd.readouterr().err
    assert not is_model(path)


def test_a_place_that_cannot_be_written_is_told_before_the_work(store, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("os.access", lambda *args: False)
    assert run("fit", "--store", store, "--model", tmp_path / "not" / "yet" / "m") == 2
    assert f"{tmp_path} cannot be written to" in capfd.readouterr().err


def test_a_run_that_goes_on_may_replace_its_own_model_only(store, tmp_path, capfd):
    own = ("fit", "--no-search", "--store", store, "--gamma", 1, "--run-dir", tmp_path / "run", "--resume")
    assert run("fit", "--no-search", "--store", store, "--gamma", 1, "--run-dir", tmp_path / "run") == 0
    (tmp_path / "run" / "result.json").unlink()  # as after a kill between the model and the end of the run
    assert run(*own) == 0
    assert run(*own, "--memory-limit", "8GiB") == 0
    assert run("fit", "--no-search", "--store", store, "--gamma", 3, "--force") == 0
    assert run(*own) == 2
    assert "found a model; --force replaces it" in capfd.readouterr().err


@pytest.mark.parametrize(
    "words", [("--no-search",), ("--trials", 1), ("--no-search", "--solver", "bsgd", "--seed", 3)], ids=str
)
def test_a_run_that_has_ended_has_nothing_to_resume(words, store, tmp_path, capfd):
    folder = tmp_path / "run"
    fit = ("fit", *words, "--store", store, "--model", tmp_path / "m.zarr", "--run-dir", folder)
    assert run(*fit, "--json") == 0
    result = json.loads(capfd.readouterr().out)
    before = {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()}
    for more in ([], ["--memory-limit", "8GiB"], ["--checkpoint-every", 5]):
        assert run(*fit, "--resume", *more) == 0
        assert capfd.readouterr().out == (
            f"the run in {folder} has ended, and {tmp_path / 'm.zarr'} is its model: nothing is left to resume\n"
        )
    assert run(*fit, "--resume", "--json") == 0
    again = json.loads(capfd.readouterr().out)
    assert {name: again[name] for name in result} == result
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    assert run(*fit, "--resume", "--C", 7, "--scale", "maxabs") == 2
    error = capfd.readouterr().err
    assert "has ended, with other options (C was 1.0, is 7.0" in error
    assert "scale was none, is maxabs" in error
    assert {path: path.stat().st_mtime_ns for path in tmp_path.rglob("*") if path.is_file()} == before
    assert run(*fit, "--resume", "--force") == 0
    assert "nothing is left" not in capfd.readouterr().out


def test_a_resumed_run_shows_the_commands_and_options_of_both(store, tmp_path, capfd, monkeypatch):
    folder = tmp_path / "run"
    fit = ["fit", "--no-search", "--store", store, "--C", "3", "--run-dir", str(folder)]
    for more in ([], ["--resume", "--memory-limit", "8GiB"]):
        monkeypatch.setattr("sys.argv", ["streamsvm", *map(str, fit), *more])
        assert run(*fit, *more) == 0
        (folder / "result.json").unlink()
    capfd.readouterr()
    assert run("top", folder, "--once") == 0
    told = capfd.readouterr().out
    assert run("report", folder, "--out", tmp_path / "r.md") == 0
    page = (tmp_path / "r.md").read_text()
    for text in (told.replace("\n", ""), page):
        assert text.count("streamsvm fit --no-search") == 2
        assert text.count("--resume --memory-limit 8GiB") == 1
    assert "C 3" in told
    assert "before it was resumed" in page
    assert "8.0 GiB" in page


def test_a_search_that_goes_on_may_replace_its_own_model(store, tmp_path):
    (tmp_path / "c.toml").write_text("[tune.grid]\nC = [1.0, 2.0]\n")
    words = ("tune", "--store", store, "--config", tmp_path / "c.toml", "--model", tmp_path / "m.zarr")
    assert run(*words, "--run-dir", tmp_path / "run") == 0
    assert run(*words, "--run-dir", tmp_path / "run", "--resume") == 0


def test_a_table_does_not_take_the_place_of_a_folder(store, tmp_path, capfd):
    (tmp_path / "c.toml").write_text("[tune.grid]\nC = [1.0, 2.0]\n")
    assert run("tune", "--store", store, "--config", tmp_path / "c.toml", "--out", store) == 2
    assert f"--out {store}: found a folder" in capfd.readouterr().err


def test_an_ingest_replaces_stores_by_force_alone(table, tmp_path, capfd):
    new, test = tmp_path / "new.zarr", tmp_path / "test.zarr"
    words = ("ingest", table, "--store", new, "--split", 0.5, "--test-store", test)
    assert run(*words) == 0
    for name in ("--store", "--test-store"):
        capfd.readouterr()
        assert run(*words) == 2
        where = new if name == "--store" else test
        assert capfd.readouterr().err.startswith(f"error: {name} {where}: found a store; --force replaces it")
        shutil.rmtree(new, ignore_errors=True)
    assert run(*words, "--seed", 1, "--force") == 0
    assert Store.open(new).n == Store.open(test).n == 20


def test_a_forced_ingest_that_fails_keeps_the_old_store(table, tmp_path, capfd):
    assert run("ingest", table, "--store", tmp_path / "s.zarr") == 0
    table.write_text(TABLE + "1,2\n")
    assert run("ingest", table, "--store", tmp_path / "s.zarr", "--force") == 2
    assert Store.open(tmp_path / "s.zarr").n == 40
    assert sorted(path.name for path in tmp_path.iterdir()) == ["s.zarr", "t.csv"]


def test_a_forced_ingest_replaces_stores_only(table, tmp_path, capfd):
    (tmp_path / "s.zarr" / "mine").mkdir(parents=True)
    assert run("ingest", table, "--store", tmp_path / "s.zarr", "--force") == 2
    assert "found a folder of other things, expected nothing or a store" in capfd.readouterr().err
    assert (tmp_path / "s.zarr" / "mine").is_dir()


def test_the_same_rule_elsewhere_than_on_disk(table, capfd):
    words = ("ingest", table, "--store", "memory://places/s.zarr")
    assert run(*words) == 0
    assert run(*words) == 2
    assert "--store memory://places/s.zarr: found a store; --force replaces it" in capfd.readouterr().err
    table.write_text(TABLE + "1,2,1\n")
    assert run(*words, "--force") == 0
    assert Store.open("memory://places/s.zarr").n == 41
    folder = ("ingest", table, "--store", "memory://places", "--force")
    assert run(*folder) == 2
    assert "memory://places: found a folder of other things" in capfd.readouterr().err


def test_a_demo_replaces_what_it_finds_by_force_alone(table, tmp_path, capfd):
    assert run("ingest", table, "--store", tmp_path / "train.zarr") == 0
    assert run("demo", "--rows", 1000, "--dir", tmp_path) == 2
    assert f"--dir {tmp_path / 'train.zarr'}: found a store; --force replaces it" in capfd.readouterr().err
    assert run("demo", "--rows", 1000, "--dir", tmp_path, "--force") == 0
    assert Store.open(tmp_path / "train.zarr").n == 1000


def test_from_python_a_model_replaces_a_model_and_nothing_else(tmp_path):
    from streamsvm import DCSVC

    X = np.random.default_rng(0).normal(size=(60, 2))
    svm = DCSVC().fit(X, X[:, 0] > 0)
    svm.save(tmp_path / "m")
    svm.save(tmp_path / "m")
    (tmp_path / "folder").mkdir()
    with pytest.raises(StorageError, match="already exists"):
        svm.save(tmp_path / "folder")
