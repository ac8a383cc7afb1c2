"""Options: ranges, unknown names, layers, what `--set` reads."""

from __future__ import annotations

import json
import math
import tomllib

import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from streamsvm.config import (
    MOST_C,
    BSGDConfig,
    CuttingPlaneConfig,
    DCSVMConfig,
    FitConfig,
    KernelConfig,
    ProbabilityConfig,
    build_config,
    load_config,
    option_names,
    repeating,
)
from streamsvm.errors import ConfigError, NotFoundError
from streamsvm.options.base import parse_size
from streamsvm.options.layers import parse_set, read_layer
from streamsvm.options.search import SearchConfig

positive_floats = st.floats(min_value=0, exclude_min=True, allow_infinity=False)
labels = st.text(min_size=1).map(str.strip).filter(bool)
kernels = st.builds(
    KernelConfig,
    name=st.sampled_from(["rbf", "matern", "poly", "linear"]),
    nu=st.sampled_from([0.5, 1.5, 2.5]),
    gamma=positive_floats | st.sampled_from(["scale", "auto"]),
    degree=st.integers(1, 9),
    coef0=st.floats(0, allow_infinity=False),
)
dcsvms = st.builds(
    DCSVMConfig,
    early=st.booleans(),
    levels=st.none() | st.integers(5, 9),
    early_level=st.none() | st.integers(1, 5),
)
configs = st.builds(
    FitConfig,
    kernel=kernels,
    C=st.floats(min_value=0, exclude_min=True, max_value=MOST_C),
    class_weight=st.none() | st.just("balanced") | st.dictionaries(labels, positive_floats, min_size=1),
    positive=st.lists(labels, unique=True).map(tuple),
    memory_limit=st.none() | st.integers(1, 2**60),
    dcsvm=dcsvms,
)


@given(configs)
def test_the_configuration_inside_a_model_is_the_same_configuration(tmp_path_factory, config):
    model = tmp_path_factory.mktemp("models")
    attributes = {"config": config.model_dump(mode="json")}
    (model / "zarr.json").write_text(json.dumps({"attributes": attributes}))
    assert load_config(model) == config


@every_case(
    ("text", "size"),
    [
        ("2GiB", 2 << 30),
        ("500MB", 500_000_000),
        ("1.5 gib", 3 << 29),
        ("64KiB", 1 << 16),
        ("7", 7),
        (4096, 4096),
        ("3b", 3),
    ],
)
def test_sizes_are_bytes(text, size):
    assert parse_size(text) == size


@every_case("text", ["", "GiB", "2 gigs", "-1GB", "2G", True, 1.5, "1e9", None])
def test_other_sizes_are_refused(text):
    with pytest.raises(ValueError, match="2GiB"):
        parse_size(text)


@every_case(
    ("values", "message"),
    [
        ({"dcsvm": {"levls": 3}}, "dcsvm.levls: unknown option; did you mean dcsvm.levels?"),
        ({"gama": 1}, "gama: unknown option; did you mean kernel.gamma?"),
        ({"kernel": {"gamma": -1}}, "kernel.gamma: found -1, expected a number above 0, 'scale' or 'auto'"),
        (
            {"kernel": {"gamma": math.nan}},
            "kernel.gamma: found nan, expected a number above 0, 'scale' or 'auto'",
        ),
        (
            {"kernel": {"gamma": "wide"}},
            "kernel.gamma: found 'wide', expected a number above 0, 'scale' or 'auto'",
        ),
        ({"kernel": {"degree": 0}}, "kernel.degree: found 0, expected a number at least 1"),
        ({"kernel": {"coef0": -1}}, "kernel.coef0: found -1, expected a number at least 0"),
        (
            {"kernel": {"name": "magic"}},
            "kernel.name: found 'magic', expected 'rbf', 'laplacian', 'matern', 'cauchy', 'poly', 'sigmoid' or "
            "'linear'",
        ),
        ({"kernel": {"nu": 1}}, "kernel.nu: found 1, expected 0.5, 1.5 or 2.5"),
        (
            {"kernel": {"name": "sigmoid", "coef0": -1}},
            "kernel.name is 'sigmoid', which need not be positive semidefinite; found solver dcsvm, expected alfpgm, "
            "which terminates with such kernels",
        ),
        ({"kernel": "rbf"}, "kernel: found 'rbf', expected a table of options"),
        ({"C": 0}, "C: found 0, expected a number above 0"),
        ({"C": math.inf}, "C: found inf, expected a finite number"),
        ({"C": 1e31}, "C: found 1e+31, expected a number at most 1e+30"),
        ({"C": True}, "C: found True, expected a number"),
        ({"tol": "small"}, "tol: found 'small', expected a number"),
        ({"seed": -1}, "seed: found -1, expected a number at least 0"),
        (
            {"memory_limit": "lots"},
            "memory_limit: found 'lots', expected a memory size like 2GiB or 500MB, or a number of bytes",
        ),
        ({"class_weight": {"a": 0}}, "class_weight: expected weights above 0"),
        (
            {"class_weight": "equal"},
            "class_weight: found 'equal', expected 'balanced' or a table of label = weight",
        ),
        ({"positive": ["a", "a"]}, "positive: found ['a', 'a'], expected labels, each named once"),
        (
            {"solver": "magic"},
            "solver: found 'magic', expected 'dcsvm', 'bsgd', 'cutting-plane', 'admm-hss' or 'alfpgm'",
        ),
        (
            {"solver": 3},
            "solver: found 3, expected 'dcsvm', 'bsgd', 'cutting-plane', 'admm-hss' or 'alfpgm'",
        ),
        (
            {"solver": ["bsgd"], "probability": {"costs": "0>1=2"}},
            "solver: found ['bsgd'], expected 'dcsvm', 'bsgd', 'cutting-plane', 'admm-hss' or 'alfpgm'",
        ),
        ({"dcsvm": {"levels": 2, "early_level": 3}}, "dcsvm: early_level is 3, expected at most levels, 2"),
        (
            {"dcsvm": {"neighbours": 3, "combine": "naive"}},
            "dcsvm: neighbours is 3, which needs combine nearest and clustering input",
        ),
        (
            {"dcsvm": {"neighbours": 3, "part_metric": 2}},
            "dcsvm: part_metric is 2 and neighbours 3: partitions with different metrics cannot be averaged; "
            "expected one of the two",
        ),
    ],
)
def test_what_is_wrong_is_said_in_one_line(values, message):
    with pytest.raises(ConfigError) as caught:
        build_config(("configs/x.toml", values))
    assert str(caught.value) == f"configs/x.toml: {message}"


def test_a_name_unlike_any_lists_the_known_ones():
    with pytest.raises(ConfigError, match="zzzzzz: unknown option; known are solver, "):
        build_config(("f", {"zzzzzz": 1}))


def test_later_layers_win_and_errors_name_the_layer():
    file = ("f.toml", {"C": 2, "kernel": {"name": "poly", "degree": 5}})
    config = build_config(file, ("--degree", {"kernel": {"degree": 2}}), parse_set("C=0.5"))
    assert (config.kernel.name, config.kernel.degree, config.C) == ("poly", 2, 0.5)
    with pytest.raises(ConfigError, match=r"^--degree: found 0"):
        build_config(file, ("--degree", {"kernel": {"degree": 0}}))
    with pytest.raises(ConfigError, match=r"^--set C=-1: C: found -1"):
        build_config(file, parse_set("C=-1"))


@every_case(
    ("text", "values"),
    [
        ("C=2", {"C": 2}),
        ("dcsvm.early = true", {"dcsvm": {"early": True}}),
        ("kernel.gamma=scale", {"kernel": {"gamma": "scale"}}),
        ("positive=1,2", {"positive": "1,2"}),
        ('class_weight."a.b"=0.5', {"class_weight": {"a.b": 0.5}}),
        ("memory_limit=2GiB", {"memory_limit": "2GiB"}),
        ('positive=a"b\\c\x7f', {"positive": 'a"b\\c\x7f'}),
    ],
)
def test_set_reads_toml_or_text(text, values):
    assert parse_set(text) == (f"--set {text}", values)


@every_case("text", ["C", "=3", "", "a..b=1", "a b=1"])
def test_set_without_a_name_or_value_is_refused(text):
    with pytest.raises(ConfigError, match="expected name=value"):
        parse_set(text)


def test_files_that_are_no_configuration(tmp_path):
    with pytest.raises(NotFoundError, match="no such configuration file"):
        read_layer(tmp_path / "none.toml")
    (tmp_path / "bad.toml").write_text("C = \n")
    with pytest.raises(ConfigError, match=r"bad.toml: not a TOML file: .*line 1"):
        read_layer(tmp_path / "bad.toml")
    with pytest.raises(ConfigError, match="found a folder without a configuration"):
        read_layer(tmp_path)


def test_the_papers_method_sets_what_is_not_given():
    """Of ALFPGM; and the file that repeats the fit has all of it, so the same values follow."""
    given = {"solver": "alfpgm", "tol": 1e-3, "alfpgm": {"method": "paper", "pairs": 500, "subproblem": "pairs"}}
    for values, tol, pairs in ((given | {"alfpgm": {"method": "paper"}}, 1e-3, 50), (given, 1e-3, 500)):
        config = build_config(("given", values))
        assert (config.tol, config.alfpgm.pairs) == (tol, pairs)
        assert (config.alfpgm.min_alpha_opt, config.alfpgm.max_alpha_opt) == (5, 20)
        assert config.alfpgm.candidates is None
        assert not config.alfpgm.shrinking
        assert build_config(("again", tomllib.loads(repeating(config)))) == config
    assert build_config(("given", {"alfpgm": {"method": "paper"}})).tol == 1e-2
    assert build_config(("given", {"alfpgm": {"method": "improved"}})).alfpgm.pairs == 500


def test_all_partners_are_repeated():
    """None, as Python says it, has no place in the file that repeats a fit."""
    for value in (None, "all"):
        config = build_config(("given", {"solver": "alfpgm", "alfpgm": {"min_alpha_check": value}}))
        assert config.alfpgm.candidates is None
        assert build_config(("again", tomllib.loads(repeating(config)))) == config


def test_a_configuration_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        FitConfig().C = 2.0


GROUPS = ("kernel", "dcsvm", "bsgd", "cutting_plane", "admm_hss", "alfpgm", "probability", "metric", "search")


def test_every_option_has_a_description_and_a_default():
    for model in (
        FitConfig,
        KernelConfig,
        DCSVMConfig,
        BSGDConfig,
        CuttingPlaneConfig,
        ProbabilityConfig,
        SearchConfig,
    ):
        model()
        for name, field in model.model_fields.items():
            assert field.description or name in GROUPS
    assert "dcsvm.early_level" in set(option_names())
