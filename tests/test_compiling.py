"""What numba has kept of an earlier run is used where nothing has changed, and only there."""

from __future__ import annotations

import ast
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import numba
import numpy as np
import pytest
from llvmlite import ir
from numba.core.registry import cpu_target
from numba.types import BaseNamedTuple

import streamsvm
from streamsvm.data.rows import Rows
from streamsvm.events import Events
from streamsvm.kernels.distance import RBF
from streamsvm.models.learner import BudgetLearner, BudgetOptions
from streamsvm.parallel.compiling import CompileNotice, compile_notices
from streamsvm.private import numba as private_numba
from streamsvm.private.numba import _ContentLocator, borrowed
from streamsvm.solvers import descent
from streamsvm.solvers.budget.steps import steps

ROOT = Path(streamsvm.__file__).parent
CALLED = """from streamsvm.private.numba import njit_inner

@njit_inner()
def called(x):
    return x + 1.0
"""
CALLS = """import called as module
from called import called

from streamsvm.private.numba import njit

@njit(cache=True, uses=(module,))
def calls(x):
    return called(x)

print(calls(1.0), sum(calls.stats.cache_hits.values()))
"""


def write(folder: Path, called: str = CALLED) -> Path:
    folder.mkdir(exist_ok=True)
    (folder / "called.py").write_text(called)
    (folder / "calls.py").write_text(CALLS)
    return folder


NOWHERE = ("NUMBA_CACHE_DIR", "HOME", "XDG_CACHE_HOME", "LOCALAPPDATA", "IPYTHONDIR")
SAYS_WHERE = "import calls; from streamsvm.private.numba import cache_folder; print(cache_folder())"


def answer(folder: Path, does: str = "import calls", **variables: str) -> list[str]:
    """What a new process prints that imports `calls` of this folder: the answer, and whether it came from the cache."""
    env = os.environ | {"NUMBA_CACHE_DIR": str(folder.parent / "cache"), "PYTHONPATH": f"{folder}:{ROOT.parent}"}
    command = [sys.executable, "-c", does]
    return subprocess.run(command, env=env | variables, capture_output=True, text=True, check=True).stdout.split()


def test_environments_share_what_is_the_same_and_compile_what_has_changed(tmp_path):
    one, other = write(tmp_path / "one"), write(tmp_path / "other")
    assert answer(one) == ["2.0", "0"]
    assert answer(other) == ["2.0", "1"]
    write(other, CALLED.replace("1.0", "10.0"))
    assert answer(other) == ["11.0", "0"]
    assert answer(one) == ["2.0", "1"]


def test_by_default_compiled_code_is_in_the_users_cache(tmp_path):
    home = dict.fromkeys(("HOME", "XDG_CACHE_HOME", "LOCALAPPDATA"), str(tmp_path / "home"))
    assert answer(write(tmp_path / "one"), NUMBA_CACHE_DIR="", **home) == ["2.0", "0"]
    assert list((tmp_path / "home").rglob("calls*.nbi"))


def test_where_nothing_can_be_written_each_process_compiles(tmp_path):
    folder, file = write(tmp_path / "one"), tmp_path / "file"
    file.write_text("")  # nobody, not even root, can make a folder in it
    (folder / "__pycache__").write_text("")
    assert answer(folder, SAYS_WHERE, **dict.fromkeys(NOWHERE, str(file / "a"))) == ["2.0", "0", "None"]


def test_where_compiled_code_is_kept_is_what_numba_found(tmp_path):
    folder, file = write(tmp_path / "one"), tmp_path / "file"
    file.write_text("")
    next_to_it = str(folder / "__pycache__")
    assert answer(folder, SAYS_WHERE, **dict.fromkeys(NOWHERE, str(file / "a"))) == ["2.0", "0", next_to_it]
    assert answer(folder, SAYS_WHERE, **dict.fromkeys(NOWHERE, str(file / "a"))) == ["2.0", "1", next_to_it]


def test_code_of_versions_that_nobody_uses_is_deleted(monkeypatch, tmp_path):
    monkeypatch.setattr(private_numba, "_users_folder", lambda: tmp_path)

    def kept(name: str, last_used_s: float) -> Path:
        (folder := tmp_path / name).mkdir()
        os.utime(folder, (last_used_s, last_used_s))
        return folder

    now = time.time()
    unused, used = kept(f"{__name__}-old", now - 100 * 24 * 3600), kept(f"{__name__}-new", now - 24 * 3600)
    of_another = kept("another-old", 0.0)
    locator = _ContentLocator(write, ())
    assert locator.from_function(write, __file__) is locator
    locator.ensure_cache_path()
    assert sorted(tmp_path.iterdir()) == sorted([used, of_another, Path(locator.get_cache_path())])
    assert not unused.exists()
    os.utime(locator.get_cache_path(), (0, 0))
    locator.from_function(write, __file__)
    assert os.stat(locator.get_cache_path()).st_mtime > now - 60


def test_a_cache_that_names_a_class_of_an_earlier_version_is_stale(tmp_path):
    """An upgrade leaves caches behind; before, the first call failed."""
    folder = write(tmp_path / "one")
    assert answer(folder) == ["2.0", "0"]
    for index in (tmp_path / "cache").rglob("calls*.nbi"):
        index.write_bytes(pickle.dumps(numba.__version__) + b"ccalled\nGone\n.")
    assert answer(folder) == ["2.0", "0"]


def test_what_only_compiled_code_calls_says_so():
    with pytest.raises(TypeError, match="_partner is for compiled callers only"):
        descent._partner()


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


def test_all_code_depends_on_the_file_of_intrinsics(monkeypatch):
    files: list[str] = []
    monkeypatch.setattr(private_numba, "_digest", lambda file: files.append(file) or b"")
    _ContentLocator(descent._partner.py_func, ())
    assert files == [descent.__file__, private_numba.__file__]


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
            assert all(f"{other}" in text for other in others), f"{path}: {name} does not say that it uses {others}"
            callers += bool(others)
    assert callers >= 1


def called_from_python(tree: ast.AST) -> set[str]:
    """Names that a file refers to outside its compiled functions."""
    found, nodes = set(), [tree]
    while nodes:
        node = nodes.pop()
        if isinstance(node, ast.FunctionDef) and "njit" in " ".join(map(ast.unparse, node.decorator_list)):
            continue
        found |= {node.id} if isinstance(node, ast.Name) else {node.attr} if isinstance(node, ast.Attribute) else set()
        nodes += ast.iter_child_nodes(node)
    return found


def imported(tree: ast.AST) -> set[tuple[str, str]]:
    """The last names of modules, and what a file imports from them."""
    froms = [node for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)]
    return {(str(node.module).rpartition(".")[2], alias.name) for node in froms for alias in node.names}


def test_what_only_compiled_code_calls_has_no_wrapper_for_python():
    trees = {path: ast.parse(path.read_text(encoding="utf-8")) for path in ROOT.rglob("*.py")}
    called = {path: called_from_python(tree) for path, tree in trees.items()}
    froms = {path: imported(tree) for path, tree in trees.items()}
    for path, tree in trees.items():
        for name in (name for name, text in jitted(tree).items() if text.startswith("njit(")):
            wanted = {(path.stem, name), (path.parent.name, path.stem)}
            users = [path, *(other for other in trees if wanted & froms[other])]
            assert any(name in called[user] for user in users), f"{path}: {name}: expected njit_inner"


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


def test_borrowed_arrays_have_nothing_to_count():
    """Not even a count that finds no counter: finding that out is a call, and an event would make hundreds."""
    context = cpu_target.target_context.subtarget(enable_nrt=True)  # a copy: all that is compiled later copies theirs
    kind = numba.typeof((np.ones(3), (np.ones((2, 1)), 2.0)))

    def counters(kind):
        function = ir.Function(ir.Module(), ir.FunctionType(ir.VoidType(), []), "any")
        value = ir.Constant(context.get_value_type(kind), ir.Undefined)
        return len(context.nrt.get_meminfos(ir.IRBuilder(function.append_basic_block()), kind, value))

    assert counters(kind) == 2
    assert counters(private_numba._uncounted_type(kind)) == 0
