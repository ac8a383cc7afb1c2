"""The catalogue of solvers: what its rows promise, and names of earlier versions."""

from __future__ import annotations

import json
import tarfile
from pathlib import Path

import numpy as np
import pytest
from cases import config, labelled
from every_case import every_case

import streamsvm
from streamsvm.config import FitConfig, build_config, load_config
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.fits.base import Fit
from streamsvm.fits.earlier import is_made_by
from streamsvm.options.base import SolverOptions
from streamsvm.options.layers import parse_set
from streamsvm.report.read import read_run
from streamsvm.report.sections import summary
from streamsvm.search.options import TuneConfig, points
from streamsvm.solvers.catalogue import (
    SOLVERS,
    fit_class,
    options_class,
    renamed,
    renamed_option,
    section_of,
    solver_row,
)
from streamsvm.tasks import task_names, task_of
from streamsvm.train import train
from streamsvm.unread import require_read


@every_case("name", SOLVERS)
def test_a_row_says_what_is_there(name):
    row = solver_row(name)
    assert issubclass(fit_class(name), Fit)
    assert issubclass(options_class(name), SolverOptions)
    assert FitConfig.model_fields[section_of(name)].annotation is options_class(name)
    assert set(row.tasks) <= set(task_names())
    assert all(task_of(task).goes_with(name) for task in row.tasks)
    assert set(fit_class(name).growth.spread) <= {
        "cluster",
        "levels",
        "solve",
        "top",
        "planes",
        "compress",
        "factorise",
        "admm",
        "learn",
    }
    for place in row.estimators:
        made = getattr(streamsvm, place.partition(":")[2])
        assert made()._values()["solver"] == name if name != "dcsvm" else made()._config().solver == name


def test_public_estimators_are_those_of_the_rows():
    made = {place.partition(":")[2] for row in SOLVERS.values() for place in row.estimators}
    assert set(streamsvm.__all__) == {
        *made,
        "AutoSVC",
        "Store",
        "audit",
        "graph_of",
        "load_model",
        "recording",
        "__version__",
    }


def test_an_unknown_solver_is_an_error():
    with pytest.raises(ConfigError, match="found solver 'hss', expected one of dcsvm, bsgd, cutting-plane"):
        solver_row("hss")


class TestNamesOfEarlierVersions:
    def test_a_section_is_the_one_of_today(self):
        values = {"solver": "admm-hss", "hss": {"leaf": 64, "rtol": 0.1}}
        today = build_config(("t", values | {"admm_hss": {"rtol": 0.01}}))
        assert (today.admm_hss.leaf, today.admm_hss.rtol) == (64, 0.01)
        assert FitConfig(**values).admm_hss.leaf == 64
        assert renamed(values) == {"solver": "admm-hss", "admm_hss": values["hss"]}
        assert [renamed_option(name) for name in ("hss.leaf", "hss", "C")] == ["admm_hss.leaf", "hss", "C"]

    def test_later_layers_win_under_either_name(self):
        new, old = ({name: {"leaf": leaf}} for name, leaf in (("admm_hss", 16), ("hss", 32)))
        assert build_config(("file", new), ("--set", old)).admm_hss.leaf == 32
        assert build_config(("file", old), ("--set", new)).admm_hss.leaf == 16

    def test_errors_say_where_and_what_it_is_called(self):
        with pytest.raises(ConfigError, match=r"^--set hss.leaf=0: admm_hss.leaf: found 0, expected"):
            build_config(parse_set("hss.leaf=0"))
        layer = parse_set("hss.leaf=8")
        with pytest.raises(ConfigError, match=r"hss.leaf=8: admm_hss.leaf is read by solver admm-hss only"):
            require_read([layer], build_config(layer))

    def test_a_grid_has_either(self):
        options = TuneConfig(grid={"hss.leaf": [8, 16], "hss": {"rtol": [0.1]}})
        [(first, _), _] = points(options, ("base", {"solver": "admm-hss"}))
        assert first == {"admm_hss.leaf": 8, "admm_hss.rtol": 0.1}

    def test_a_model_of_0_1_0_is_repeated(self, tmp_path):
        archive = next((Path(__file__).parents[1] / "kept").glob("*.tar.xz"))
        with tarfile.open(archive) as kept:
            kept.extractall(tmp_path, filter="data")
        about = json.loads((tmp_path / "admm" / "zarr.json").read_text())["attributes"]["config"]
        assert "admm_hss" not in about
        loaded = load_config(tmp_path / "admm")
        assert (loaded.admm_hss.leaf, loaded.admm_hss.polish) == (32, 100)
        assert loaded.admm_hss.model_dump(mode="json") == about["hss"]

    @pytest.mark.filterwarnings("ignore:not converged")  # after three steps
    def test_a_run_goes_on_and_is_shown(self, tmp_path):
        """As a run directory of an earlier version, whose first record and state name the section so."""
        store = Store.from_arrays(*labelled(2, n=120))
        options = config("admm-hss", admm_hss={"leaf": 32, "polish": 0, "iterations": 3}, checkpoint_every="1 step")
        run, model = tmp_path / "run", tmp_path / "model"
        train(store, options, model_path=model, run_dir=run)
        events = run / "events.jsonl"
        events.write_text(events.read_text().replace('"admm_hss"', '"hss"'))
        about = model / "zarr.json"
        about.write_text(about.read_text().replace('"admm_hss"', '"hss"'))
        assert is_made_by(model, store, [options])
        recorded = read_run(run).config
        assert recorded["admm_hss"]["iterations"] == 3
        shown = [row.get("option", "") for part in summary([read_run(run)]) for row in getattr(part, "rows", [])]
        assert "admm_hss.iterations" in shown
        assert not any(option.startswith(("hss.", "dcsvm.")) for option in shown)
        for path in run.glob("state-*.npz"):
            with np.load(path) as kept:
                arrays = dict(kept)
            arrays["identity"] = np.array(str(arrays["identity"]).replace("admm_hss.", "hss."))
            np.savez(path, **arrays)
        train(store, options, model_path=model, run_dir=run, resume=True)

    @pytest.mark.filterwarnings("ignore:not converged")
    def test_options_had_their_defaults_before_they_were_options(self, tmp_path):
        """A model and a checkpoint that do not know cutting_plane.epsilon are of a fit without it, and of no other."""
        store = Store.from_arrays(*labelled(2, n=120))
        options = config("cutting-plane", cutting_plane={"passes": 3}, checkpoint_every="1 step")
        run, model = tmp_path / "run", tmp_path / "model"
        whole = train(store, options, model_path=model, run_dir=run)
        about = model / "zarr.json"
        attributes = json.loads(about.read_text())
        del attributes["attributes"]["config"]["cutting_plane"]["epsilon"]
        about.write_text(json.dumps(attributes))
        for path in run.glob("state-*.npz"):
            with np.load(path) as kept:
                arrays = dict(kept)
            identity = json.loads(str(arrays["identity"]))
            del identity["cutting_plane.epsilon"]
            np.savez(path, **arrays | {"identity": np.array(json.dumps(identity))})
        other = config("cutting-plane", cutting_plane={"passes": 3, "epsilon": 0.1}, checkpoint_every="1 step")
        assert is_made_by(model, store, [options])
        assert not is_made_by(model, store, [other])
        assert train(store, options, model_path=model, run_dir=run, resume=True)["steps"] == whole["steps"]
        with pytest.raises(ConfigError, match=r"cutting_plane.epsilon was None, is 0.1"):
            train(store, other, model_path=tmp_path / "n", run_dir=run, resume=True)
