"""What `fit` makes of the options that are given: all else is chosen, where something can."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from every_case import every_case
from making import write

from streamsvm.config import FitConfig, repeating
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError
from streamsvm.options.layers import read_layer
from streamsvm.search.options import completed
from streamsvm.train import train

ALL = {"solver", "early", "scale", "kernel", "C", "gamma", "metric", "multiclass"}


def of(*, searches: bool = True, **values: Any) -> FitConfig:
    return completed([("flags", values)], searches=searches)


def chosen(config: FitConfig) -> set[str]:
    return set(config.search.options or ())


def test_where_nothing_is_given_all_is_chosen():
    config = completed([])
    assert chosen(config) == ALL
    assert (config.metric.kind, config.metric.is_learned, config.solver) == ("diagonal", True, "dcsvm")
    assert completed([], searches=False) == FitConfig()


@every_case(
    ("values", "given"),
    [
        ({"C": 3.0}, {"C"}),
        ({"scale": "minmax"}, {"scale"}),
        ({"scale": "none"}, {"scale"}),
        ({"kernel": {"name": "matern"}}, {"kernel"}),
        ({"kernel": {"gamma": 2.0}}, {"kernel", "gamma"}),  # a gamma is one of its kernel
        ({"metric": {"kind": "none"}}, {"metric"}),
        ({"dcsvm": {"early": False}}, {"solver", "early"}),
        ({"dcsvm": {"levels": 2}}, {"solver"}),  # which another would not read
        ({"solver": "dcsvm"}, {"solver"}),
        ({"solver": "alfpgm"}, {"solver", "early", "multiclass"}),
        ({"multiclass": "pairs"}, {"multiclass"}),
        ({"task": "regress"}, {"multiclass"}),  # which classes alone have
        ({"solver": "bsgd"}, {"solver", "early", "kernel", "C", "multiclass"}),  # those of exact fits may not suit it
        ({"task": "classify", "seed": 3, "class_weight": "balanced"}, set()),
    ],
)
def test_what_is_given_stays(values, given):
    config = of(**values)
    assert chosen(config) == ALL - given
    plain = of(searches=False, **values)
    dropped = {"search"} if "metric" in given else {"search", "metric"}
    assert config.model_dump(exclude=dropped) == plain.model_dump(exclude=dropped)


def test_of_several_layers_each_gives_something():
    config = completed([("file", {"C": 2.0, "kernel": {"gamma": 1.0}}), ("--C", {"C": 4.0})])
    assert (config.C, chosen(config)) == (4.0, ALL - {"C", "kernel", "gamma"})


def test_a_table_says_itself_what_is_chosen():
    assert chosen(of(search={"options": []})) == set()
    config = of(search={"options": ["C"]}, kernel={"gamma": 1.0})
    assert (chosen(config), config.metric.kind) == ({"C"}, "none")
    assert chosen(of(search={"sample": 500})) == ALL
    balanced = {"scoring": "balanced_accuracy"}
    assert chosen(of(search=balanced)) == ALL | {"class_weight"}
    assert chosen(of(search=balanced, class_weight="balanced")) == ALL


def test_a_metric_that_is_asked_for_brings_its_search_along():
    """As it did before options were chosen."""
    config = of(searches=False, metric={"kind": "diagonal"}, C=3.0)
    assert chosen(config) == {"metric", "kernel", "gamma"}


@pytest.mark.parametrize(
    ("task", "solver", "kernel", "searched"),
    [
        ("classify", "dcsvm", "rbf", True),
        ("regress", "dcsvm", "rbf", True),
        ("ordinal", "cutting-plane", "linear", False),
        ("rank", "cutting-plane", "linear", False),
    ],
)
def test_a_task_picks_a_solver_that_takes_it(task, solver, kernel, searched):
    config = of(task=task)
    assert (config.solver, config.kernel.name, bool(chosen(config))) == (solver, kernel, searched)


def test_a_solver_that_is_given_stays_the_task_s():
    assert of(task="regress", solver="alfpgm").solver == "alfpgm"
    with pytest.raises(ConfigError, match="task is 'ordinal', which only solver cutting-plane supports"):
        of(task="ordinal", solver="admm-hss")


def test_of_a_linear_kernel_neither_metric_nor_gamma_is_chosen():
    config = of(kernel={"name": "linear"})
    assert chosen(config) == ALL - {"kernel", "metric", "gamma"}
    assert config.metric.kind == "none"


@pytest.mark.parametrize("searches", [True, False])
def test_options_that_nobody_reads_are_refused(searches):
    with pytest.raises(ConfigError, match=r"dcsvm\.levels is read by solver dcsvm only, found solver alfpgm"):
        of(searches=searches, solver="alfpgm", dcsvm={"levels": 2})


def test_a_time_budget_is_of_a_search():
    assert of(search={"time_budget": "2m"}).search.time_budget == 120
    with pytest.raises(ConfigError) as error:
        of(searches=False, search={"time_budget": "60s"})
    told = "--no-search excludes search.time_budget, which only a search reads: leave one of them out"
    assert str(error.value) == told


@every_case("budget", ["0", "1s", "-5", "soon", "5 d", "nan", True])
def test_a_time_budget_that_is_none_is_refused(budget):
    with pytest.raises(ConfigError, match=r"^--time-budget: found .*, expected"):
        completed([("--time-budget", {"search": {"time_budget": budget}})])


def test_of_a_model_and_of_what_a_fit_wrote_nothing_is_chosen(tmp_path):
    store = write(tmp_path / "s", Rows(np.eye(40, 3, dtype=np.float32)), np.arange(40) % 2)
    config = of(searches=False, task="classify", C=3.0, kernel={"gamma": 0.5})
    train(store, config, model_path=tmp_path / "m")
    (tmp_path / "m.fit.toml").write_text(repeating(config))
    for name in ("m", "m.fit.toml"):
        repeated = completed([read_layer(tmp_path / name)])
        assert repeated == config, name
