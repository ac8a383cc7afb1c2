"""`fit`: from flags, file and --set to the configuration; what it prints."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from streamsvm.cli.app import app, exit_status
from streamsvm.config import FitConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter
from streamsvm.errors import ConfigError

ALL = ["solver", "early", "scale", "kernel", "C", "gamma", "metric", "multiclass"]
LEFT_OUT = [("what is left out", {"metric": {"kind": "diagonal"}, "search": {"options": ALL}})]


@pytest.fixture
def store(tmp_path):
    with StoreWriter(tmp_path / "s.zarr", d=2, dtype="float32") as writer:
        writer.append(Rows(np.zeros((4, 2), np.float32)), np.array([0, 1, 0, 1]))
    return tmp_path / "s.zarr"


@pytest.fixture
def calls(monkeypatch):
    """What `train` and `plan` were called with; nothing is trained, and no run has ended."""
    made = []

    def train(store, config, **more):
        made.append(SimpleNamespace(store=store, config=config, **more))
        return {
            "solver": "dcsvm",
            "n": store.n,
            "gap": np.float32(0.5),
            "objective": float("nan"),
            "seconds_by_phase": {"x": 1.0},
            "model": str(more["model_path"]),
            "seconds": 1.0,
            "peak_rss_bytes": 5 << 20,
        }

    def plan(store, config):
        made.append(SimpleNamespace(store=store, config=config, planned=True))
        return {"memory_bytes": 1 << 30}

    def ended(run_dir, model_path, store, config):
        return None

    monkeypatch.setitem(sys.modules, "streamsvm.train", SimpleNamespace(train=train, plan=plan, ended=ended))
    return made


def fit(*args):
    return app(["fit", *map(str, args)], standalone_mode=False)


def test_without_flags_all_is_chosen_or_default(store, calls, tmp_path):
    fit("--store", store, "--model", tmp_path / "m")
    assert calls[0].config == build_config(*LEFT_OUT)
    fit("--store", store, "--model", tmp_path / "m", "--no-search")
    assert calls[1].config == FitConfig()
    assert calls[0].store.n == 4
    assert (calls[0].model_path, calls[0].run_dir, calls[0].resume) == (tmp_path / "m", None, False)


def test_every_flag_reaches_its_option(store, calls, tmp_path):
    flags = (
        "--kernel poly --gamma 0.5 --degree 2 --coef0 1 --C 8 --tol 1e-4 --early --positive 1,3 --scale minmax "
        "--class-weight 1=2,a=0.5 --memory-limit 2GiB --workers 3 --seed 7 --solver dcsvm --task classify"
    )
    fit("--store", store, "--model", tmp_path / "m", *flags.split(), "--run-dir", tmp_path / "r", "--resume")
    config = calls[0].config
    assert config.kernel.model_dump() == {"name": "poly", "gamma": 0.5, "degree": 2, "coef0": 1.0, "nu": 1.5}
    assert (config.C, config.tol, config.dcsvm.early, config.positive) == (8.0, 1e-4, True, ("1", "3"))
    assert (config.scale, config.class_weight) == ("minmax", {"1": 2.0, "a": 0.5})
    assert (config.memory_limit, config.workers, config.seed) == (2 << 30, 3, 7)
    assert (calls[0].run_dir, calls[0].resume) == (tmp_path / "r", True)


def test_set_wins_over_flags_and_flags_over_the_file(store, calls, tmp_path):
    (tmp_path / "c.toml").write_text('C = 2\nseed = 5\n[kernel]\nname = "poly"\ngamma = 3.0\n')
    fit(
        *("--store", store, "--model", tmp_path / "m", "--config", tmp_path / "c.toml"),
        *("--C", 4, "--gamma", "auto", "--set", "C=16", "--set", "dcsvm.children=8"),
    )
    config = calls[0].config
    assert (config.C, config.seed, config.dcsvm.children) == (16.0, 5, 8)
    assert (config.kernel.name, config.kernel.gamma) == ("poly", "auto")


def test_json_is_one_object_and_nothing_else(store, calls, tmp_path, capfd):
    fit("--store", store, "--model", tmp_path / "m", "--json")
    out, err = capfd.readouterr()
    report = json.loads(out, parse_constant=pytest.fail)
    assert err == ""
    assert report["objective"] is None
    assert (report["n"], report["gap"], report["model"]) == (4, 0.5, str(tmp_path / "m"))
    assert report["seconds"] > 0
    assert report["peak_rss_bytes"] > 1 << 20


def test_without_json_a_table_for_people(store, calls, tmp_path, capfd):
    fit("--store", store, "--model", tmp_path / "m")
    out, err = capfd.readouterr()
    assert err == ""
    assert "Trained" in out
    assert "dcsvm" in out
    assert "iB" in out


def test_a_dry_run_plans_and_trains_nothing(store, calls, capfd):
    fit("--store", store, "--dry-run", "--pilot", "0", "--json")
    assert [call.planned for call in calls] == [True]
    assert json.loads(capfd.readouterr().out) == {"memory_bytes": 1 << 30}


def test_facts_of_a_plan_are_words_and_those_that_people_look_for_come_first(store, calls, monkeypatch, capfd):
    facts = {"steps": 3, "cache_bytes": 0, "fits": True, "pilots": [{"n": 1}], "n": 5000}
    facts |= {"chosen": {"kernel": "rbf", "C": 10.0, "score": 0.9}}
    monkeypatch.setattr(sys.modules["streamsvm.train"], "plan", lambda store, config: facts)
    fit("--store", store, "--dry-run", "--pilot", "0")
    lines = [re.split(r"  +", line.strip()) for line in capfd.readouterr().out.splitlines()[1:] if line]
    assert lines == [
        ["rows", "5,000"],
        ["would be chosen", "kernel rbf, C 10"],
        ["fits in the limit", "yes"],
        ["steps", "3"],
    ]


def test_class_weight_that_is_none_is_refused(store, calls):
    with pytest.raises(ConfigError, match=r"^--class-weight: found 'even', expected 'balanced'"):
        fit("--store", store, "--model", "m", "--class-weight", "even")
    with pytest.raises(ConfigError, match=r"^--class-weight: expected"):
        fit("--store", store, "--model", "m", "--class-weight", "1=x")
    assert not Path("m").exists()


@pytest.mark.parametrize("folder", [".", "search", "folds"])
def test_an_interrupted_run_says_how_to_go_on(folder, store, tmp_path, monkeypatch, capfd):
    def train(*args, run_dir, **more):
        (run_dir / folder).mkdir(parents=True)
        (run_dir / folder / "state-000001.npz").touch()
        raise KeyboardInterrupt

    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "streamsvm.train", SimpleNamespace(train=train))
    args = ["fit", "--store", str(store), "--model", str(tmp_path / "m"), "--run-dir", "runs/1"]
    assert exit_status(lambda: app(args, standalone_mode=False)) == 130
    assert capfd.readouterr().err.splitlines() == [
        "to resume from the checkpoint in runs/1, add --resume to the command",
        "interrupted; no half-written files were left",
    ]
