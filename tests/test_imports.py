"""Imports go one way through the layers of the package, and light modules stay light."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
from making import write

import streamsvm
from streamsvm.data.rows import Rows

ROOT = Path(streamsvm.__file__).parent
LAYERS = (  # folders, and pages at the root, in the order of imports; tables are read long before what they tell of
    "errors _version texts private storage events progress parallel data metrics kernels.table solvers.catalogue "
    "tasks options config unread tables ingest kernels problems hss solvers models runs predict judging fits choosing "
    "train search dry_run explain exchange report estimators online serving demo cli __init__ __main__"
).split()
RANK = {part: rank for rank, part in enumerate(LAYERS)}
FILES = sorted(ROOT.rglob("*.py"))


def module_name(path: Path) -> str:
    return ".".join(("streamsvm", *path.relative_to(ROOT).with_suffix("").parts)).removesuffix(".__init__")


MODULES = {module_name(path) for path in FILES}


def part_of(module: str) -> str:
    return (module.split(".") + ["__init__"])[1]


def rank_of(module: str) -> int:
    """Of its part, its folder, or its own: tables are read long before what they tell of."""
    name = module.removeprefix("streamsvm.")
    return RANK.get(name, RANK.get(name.rpartition(".")[0], RANK[part_of(module)]))


def imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def ours(names: Iterator[str]) -> set[str]:
    """The package's own modules among imported names; `from module import thing` counts as its module."""
    found = {name if name in MODULES else name.rpartition(".")[0] for name in names if name.startswith("streamsvm.")}
    return found & MODULES


def test_imports_go_down_the_layers():
    modules = {module_name(path): path for path in FILES}
    assert {part_of(module) for module in modules} <= set(RANK), "a part has no layer in LAYERS"
    upward = [
        f"{module} (layer {rank_of(module)}) imports {name} (layer {rank_of(name)})"
        for module, path in modules.items()
        if part_of(module) != "__init__"  # its public names are imported when first used
        for name in sorted(ours(imported(ast.parse(path.read_text(encoding="utf-8")))) - {"streamsvm"})
        if rank_of(name) > rank_of(module)
    ]
    assert not upward, "\n".join(upward)


BEHIND = ("dask", "distributed", "zarr") + tuple(  # oracles
    f"streamsvm.{name}" for name in "data kernels models parallel.cluster parallel.engine judging fits choosing".split()
)
ORACLES = tuple(
    f"streamsvm.problems.{path.stem}" for path in (ROOT / "problems").glob("*.py") if path.stem != "products"
)
SOLVERS = sorted((ROOT / "solvers").rglob("*.py"))


def is_protocol(name: str) -> bool:
    module, _, attribute = name.rpartition(".")
    return getattr(getattr(import_module(module), attribute), "_is_protocol", False)


def test_solvers_see_oracles():
    """No Engine, Groups, Kernel, Rows or store, and of problems their protocols alone: design.md promises it."""
    seen = [
        f"{path.name} sees {name}, expected problems alone"
        for path in SOLVERS
        for name in imported(ast.parse(path.read_text(encoding="utf-8")))
        if name.startswith(BEHIND) or (name.startswith(ORACLES) and not is_protocol(name))
    ]
    assert not seen, "\n".join(seen)


def test_modules_do_not_import_each_other_in_circles():
    """Not for types, nor when first used."""
    graph = {}
    for path in FILES:
        graph[module_name(path)] = ours(imported(ast.parse(path.read_text(encoding="utf-8"))))
        graph[module_name(path)] -= {module_name(path), "streamsvm"}
    assert list(TopologicalSorter(graph).static_order())


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*sys.modules)"
    run = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return {name.partition(".")[0] for name in run.stdout.split()}


HEAVY = {
    "numpy",
    "scipy",
    "zarr",
    "numba",
    "dask",
    "distributed",
    "sklearn",
    "pandas",
    "pyarrow",
    "river",
    "onnx",
    "matplotlib",
}


def test_importing_the_package_and_the_command_line_is_light():
    assert not loaded_after("import streamsvm") & (HEAVY | {"pydantic", "typer"})
    assert not loaded_after("import streamsvm.cli.app") & HEAVY


def test_an_option_that_nothing_reads_is_refused_before_anything_is_loaded():
    words = ["fit", "--store", "s.zarr", "--solver", "bsgd", "--set", "dcsvm.part_rows=500"]
    assert not HEAVY & loaded_after(
        "from streamsvm.cli.app import app\n"
        "from streamsvm.errors import ConfigError\n"
        f"try:\n    app({words}, standalone_mode=False)\n"
        "except ConfigError as error:\n    assert 'read by solver dcsvm only' in str(error)"
    )


def test_models_and_predictions_load_without_what_only_others_need():
    heavy = {"sklearn", "pandas", "distributed", "river", "dask_ml", "matplotlib"}
    assert not loaded_after("import streamsvm.models.files, streamsvm.predict, streamsvm.data.store") & heavy


@pytest.mark.slow  # processes that import much
def test_an_estimator_brings_no_pandas_along():
    """Nor explanations, which are asked for later if at all."""
    code = "from streamsvm import DCSVC\nassert 'streamsvm.explain' not in sys.modules"
    assert not loaded_after(code) & {
        "pandas",
        "pyarrow",
        "river",
        "distributed",
        "dask_ml",
        "matplotlib",
    }


@pytest.mark.slow  # processes that import much
def test_data_frames_work_when_pandas_comes_later():
    pytest.importorskip("pandas")
    assert "pandas" in loaded_after(
        "from streamsvm import DCSVC\n"
        "import pandas\n"
        "from sklearn.preprocessing import StandardScaler\n"
        "frame = pandas.DataFrame({'a': [0.0, 1.0, 0.1, 0.9], 'b': [1.0, 2.0, 3.0, 4.0]})\n"
        "assert DCSVC().fit(frame, [0, 1, 0, 1]).feature_names_in_.tolist() == ['a', 'b']\n"
        "scaled = StandardScaler().set_output(transform='pandas').fit_transform(frame)\n"
        "assert isinstance(scaled, pandas.DataFrame)"
    )


def test_a_fit_loads_what_it_needs_only(tmp_path):
    """No rich either: it draws tables and bars for people."""
    X = np.random.default_rng(0).normal(size=(40, 2)).astype(np.float32)
    store = write(tmp_path / "s.zarr", Rows(X), (X[:, 0] > 0).astype(int))
    words = ["fit", "--no-search", "--store", store.url, "--json"]
    loaded = loaded_after(f"from streamsvm.cli.app import app\napp({words}, standalone_mode=False)")
    assert "numba" in loaded
    unused = {"sklearn", "pandas", "pyarrow", "river", "distributed", "dask_ml", "rich", "matplotlib"}
    assert not loaded & (unused | {"torch", "array_api_compat"})


@pytest.mark.slow  # a process that imports much
def test_a_stream_loads_of_river_what_its_learners_are_made_of_only():
    unused = {"sklearn", "pandas", "pyarrow", "distributed", "dask_ml", "rich", "matplotlib"}
    assert not loaded_after("import streamsvm.online.stream") & unused


def test_public_names_are_listed_and_unknown_ones_refused():
    assert {"DCSVC", "Store", "load_model"} <= set(dir(streamsvm))
    assert streamsvm.load_model.__module__ == "streamsvm.models.files"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = streamsvm.nothing
