"""Options that nothing would read are refused, by whatever way they come."""

from __future__ import annotations

import numpy as np
import pytest
from every_case import every_case
from making import write

from streamsvm.cli.app import app, exit_status
from streamsvm.config import FitConfig, build_config, option_field, option_names, option_values
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.options.layers import parse_set, read_layer
from streamsvm.search.options import TuneConfig, points
from streamsvm.solvers.catalogue import section_of, solver_names
from streamsvm.unread import require_read


def checked(*sets: str) -> FitConfig:
    layers = [parse_set(text) for text in sets]
    config = build_config(*layers)
    require_read(layers, config)
    return config


@every_case("own", solver_names())
def test_no_solver_takes_the_options_of_another(own):
    section, others = section_of(own), set(solver_names()) - {own}
    assert others < set(option_values("solver"))
    for option in (name for name in option_names() if name.startswith(f"{section}.")):
        value = option_field(option).default
        for solver in others if value is not None else ():
            kernel = "linear" if solver == "cutting-plane" else "rbf"
            layers = [
                ("there", {"solver": solver, "kernel": {"name": kernel}}),
                ("here", {section: {option.partition(".")[2]: value}}),
            ]
            with pytest.raises(ConfigError, match=f"here: {option} is read by"):
                require_read(layers, build_config(*layers))


@every_case(
    ("sets", "option", "found"),
    [
        (["solver=alfpgm", "dcsvm.early=true"], "dcsvm.early is read by solver dcsvm only", "solver alfpgm"),
        (["solver=bsgd", "tol=0.1"], "tol", "solver bsgd"),
        (["solver=bsgd", "cache_size=0"], "cache_size", "solver bsgd"),
        (["solver=bsgd", "bsgd.lam=0.1", "C=3"], "C", "bsgd.lam 0.1"),
        (["kernel.name=linear", "kernel.gamma=2"], "kernel.gamma", "kernel.name linear"),
        (["kernel.degree=2"], "kernel.degree", "kernel.name rbf"),
        (
            ["solver=bsgd", "multiclass=rest"],
            "multiclass is read by solvers dcsvm and alfpgm only",
            "solver bsgd",
        ),
        (
            ["solver=alfpgm", "multiclass=rest", "alfpgm.break_ties=true"],
            "alfpgm.break_ties",
            "multiclass rest",
        ),
        (["dcsvm.combine=naive"], "dcsvm.combine is read by early prediction only", "dcsvm.early false"),
        (["dcsvm.part_metric=2"], "dcsvm.part_metric", "dcsvm.early false"),
        (["dcsvm.early=true", "dcsvm.refine=false"], "dcsvm.refine", "dcsvm.early true"),
        (["solver=alfpgm", "alfpgm.epsilon=0.2"], "alfpgm.epsilon", "task none"),
        (["probability.folds=3"], "probability.folds", "probability none"),
        (
            ["probability.threshold=f1", "holdout=50", "probability.folds=3"],
            "probability.folds is read by a fit with probabilities, or with a threshold without holdout, only",
            "holdout 50",
        ),
    ],
)
def test_the_option_is_named_with_what_decides(sets, option, found):
    with pytest.raises(ConfigError) as error:
        checked(*sets)
    assert option in str(error.value)
    assert f"found {found}; leave it out" in str(error.value)


def test_options_that_are_read_pass():
    checked("dcsvm.early=true", "dcsvm.combine=naive", "C=3", "tol=0.1", "cache_size=0")
    checked("solver=bsgd", "bsgd.lam=0.1", "kernel.name=poly", "kernel.degree=2", "bsgd.strategy=remove")
    checked("solver=alfpgm", "task=regress", "alfpgm.epsilon=0.2")
    checked("probability.threshold=f1", "probability.folds=3")
    checked("probability.threshold=f1", "probability.method=sigmoid", "holdout=50", "probability.folds=3")


def run(*args):
    return exit_status(lambda: app([*map(str, args)], standalone_mode=False))


@pytest.fixture
def store(tmp_path):
    X = np.random.default_rng(0).normal(size=(60, 3)).astype(np.float32)
    return write(tmp_path / "data.zarr", Rows(X), (X[:, 0] > 0).astype(int)).url


def test_fit_says_so_before_it_makes_anything(store, tmp_path, capsys):
    assert run("fit", "--store", store, "--solver", "alfpgm", "--early", "--run-dir", tmp_path / "run") == 2
    told = capsys.readouterr().err
    assert "--early: dcsvm.early is read by solver dcsvm only, found solver alfpgm; leave it out" in told
    assert [path.name for path in tmp_path.iterdir()] == ["data.zarr"]


def test_a_model_is_repeated_as_it_is_but_not_by_another_solver(store, tmp_path):
    model = tmp_path / "m"
    assert run("fit", "--no-search", "--store", store, "--model", model, "--early") == 0
    assert run("fit", "--store", store, "--model", tmp_path / "again", "--config", model) == 0
    layer = read_layer(model)
    with pytest.raises(ConfigError, match=r"m: dcsvm\.early is read by solver dcsvm only"):
        require_read([layer], build_config(layer, ("--solver", {"solver": "alfpgm"})))


class TestGrids:
    def test_points_that_differ_in_what_they_do_not_read_are_one(self):
        options = TuneConfig(grid={"kernel.name": ["linear", "rbf"], "kernel.gamma": [0.1, 1.0], "C": [1, 2]})
        found = [tuple(point.values()) for point, _ in points(options)]
        both = [("rbf", gamma, C) for gamma in (0.1, 1.0) for C in (1.0, 2.0)]
        assert found == [("linear", None, 1.0), ("linear", None, 2.0), *both]

    def test_an_option_that_no_point_reads_is_refused(self):
        with pytest.raises(ConfigError, match=r"tune\.grid: bsgd\.budget is read by solver bsgd only"):
            points(TuneConfig(grid={"bsgd.budget": [10, 20]}))
        with pytest.raises(ConfigError, match=r"base: bsgd\.budget is read by solver bsgd only"):
            points(TuneConfig(grid={"C": [1]}), ("base", {"bsgd": {"budget": 10}}))
