"""What numba has kept of an earlier run is used where nothing has changed, and only there."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
from pathlib import Path

import numba
import numpy as np
from numba.types import BaseNamedTuple

import streamsvm
from streamsvm.data.rows import Rows
from streamsvm.events import Events
from streamsvm.kernels.distance import RBF
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.parallel.compiling import CompileNotice, compile_notices
from streamsvm.private.numba import borrowed
from streamsvm.solvers.budget.steps import steps

ROOT = Path(streamsvm.__file__).parent
CALLED = "import numba\n\n@numba.njit\ndef called(x):\n    return x + 1.0\n"
CALLS = """import called as module
import numba
from called import called

from streamsvm.private.numba import stale_with

@stale_with(module)
@numba.njit(cache=True)
def calls(x):
    return called(x)

print(calls(1.0), sum(calls.stats.cache_hits.values()))
"""


def answer(folder: Path) -> list[str]:
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder / "cache"), "PYTHONPATH": f"{folder}:{ROOT.parent}"}
    done = subprocess.run([sys.executable, "-c", "import calls"], env=env, capture_output=True, text=True, check=True)
    return done.stdout.split()


def test_a_function_is_compiled_anew_when_what_it_calls_has_changed(tmp_path):
    (tmp_path / "called.py").write_text(CALLED)
    (tmp_path / "calls.py").write_text(CALLS)
    assert answer(tmp_path) == ["2.0", "0"]
    assert answer(tmp_path) == ["2.0", "1"]
    (tmp_path / "called.py").write_text(CALLED.replace("1.0", "10.0"))
    assert answer(tmp_path) == ["11.0", "0"]


def test_a_cache_that_names_a_class_of_an_earlier_version_is_stale(tmp_path):
    """An upgrade leaves caches behind; before, the first call failed."""
    (tmp_path / "called.py").write_text(CALLED)
    (tmp_path / "calls.py").write_text(CALLS)
    assert answer(tmp_path) == ["2.0", "0"]
    for index in (tmp_path / "cache").rglob("calls*.nbi"):
        index.write_bytes(pickle.dumps(numba.__version__) + b"ccalled\nGone\n.")
    assert answer(tmp_path) == ["2.0", "0"]
    assert answer(tmp_path) == ["2.0", "1"]


def test_a_sink_says_once_that_something_is_compiled_and_only_then():
    said: list[str] = []
    with compile_notices(Events(CompileNotice(said.append))):
        twice = numba.njit(lambda x: 2 * x)
        assert (twice(1), twice(1.0), twice(3)) == (2, 2.0, 6)
    assert said == ["compiling kernels for this machine, once; it may take a minute"]
    with compile_notices(Events(CompileNotice(said.append))):
        assert twice(2) == 4
    assert len(said) == 1


def jitted(tree: ast.Module) -> dict[str, str]:
    """Compiled functions of a file, and their decorators."""
    found = {}
    for node in tree.body:
        if isinstance(node, ast.FunctionDef):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if "njit" in decorators:
                found[node.name] = decorators
    return found


def test_who_calls_compiled_functions_of_another_file_says_so():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    all_jitted = {
        ".".join(("streamsvm", *path.relative_to(ROOT).with_suffix("").parts)): jitted(tree)
        for path, tree in trees.items()
    }
    callers = 0
    for path, tree in trees.items():
        cached = {name: text for name, text in jitted(tree).items() if "cache=True" in text}
        froms = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
        others = {
            str(node.module).rpartition(".")[2]
            for node in froms
            for alias in node.names
            if alias.name in all_jitted.get(str(node.module), {})
        }
        for name, text in cached.items():
            assert all(f"{other}" in text for other in others), f"{path}: {name} is not stale_with {others}"
            callers += bool(others)
    assert callers >= 1


def test_compiled_functions_take_few_arguments():
    """A swap of two arrays of one type is silent."""
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text(encoding="utf-8"))
        names = jitted(tree).keys()
        many = [f.name for f in tree.body if getattr(f, "name", "") in names and len(f.args.args) > 7]
        assert not many, f"{path}: more than 7 arguments: {many}"


def test_what_is_kept_of_the_steps_names_no_class_of_ours():
    """numba could not open a cache with a class that a later version has renamed; tuples have no names."""
    learner = BudgetLearner(RBF(1.0), 2, 1, BudgetOptions(1e-2, budget=5))
    learner.learn(Rows(np.zeros((3, 2), np.float32)), np.ones((3, 1)))
    assert steps.signatures
    assert not [arg for kept in steps.signatures for arg in kept if isinstance(arg, BaseNamedTuple)]


def test_borrowed_arrays_are_those_that_were_given():
    @numba.njit
    def add(found):
        a, (b, times) = borrowed(found)
        a += times * b
        return a.sum() + times

    a, b = np.ones(3), np.arange(3.0)
    assert add((a, (b, 2.0))) == 11
    assert a.tolist() == [1, 3, 5]
