"""Private names of other libraries: each is there, as it is called, and only streamsvm/private knows of them.

A test that fails here says which name of which release is gone; the module beside it is where to mend that.
"""

from __future__ import annotations

import ast
import inspect
from functools import reduce
from importlib import import_module
from importlib.metadata import version
from pathlib import Path

import dask.array as da
import numpy as np
import pytest
import zarr
from every_case import every_case
from scipy import sparse
from zarr.codecs import ShardingCodec
from zarr.storage import MemoryStore

import streamsvm
from streamsvm.private.dask import meta
from streamsvm.private.sklearn import check_sample_weight
from streamsvm.private.zarr import fetch, file_key, first_codec, has_key, is_local

pytestmark = pytest.mark.lowest

ROOT = Path(streamsvm.__file__).parent
SHIMS = "streamsvm/private"
CALLED = [  # library, name, how it is called, from where
    ("zarr", "zarr.core.sync:sync", ["coroutine"], {}, f"{SHIMS}/zarr.py"),
    ("zarr", "zarr.storage:StorePath.get", ["self", "prototype"], {"byte_range": None}, f"{SHIMS}/zarr.py"),
    ("zarr", "zarr.storage:StorePath.exists", ["self"], {}, f"{SHIMS}/zarr.py"),
    (
        "scikit-learn",
        "sklearn.utils.validation:_check_sample_weight",
        ["weight", "X"],
        {},
        f"{SHIMS}/sklearn.py",
    ),
    ("distributed", "distributed:Client._ensure_connected", ["self", 1.0], {}, f"{SHIMS}/distributed.py"),
    ("distributed", "distributed:Client._reconnect", ["self"], {}, f"{SHIMS}/distributed.py"),
    (
        "distributed",
        "distributed:Client._scatter",
        ["self", []],
        {"direct": True, "workers": None, "hash": False},
        f"{SHIMS}/distributed.py",
    ),
    ("distributed", "distributed:Client._gather", ["self", []], {}, f"{SHIMS}/distributed.py"),
    ("distributed", "distributed:Client._run_on_scheduler", ["self", int], {}, f"{SHIMS}/distributed.py"),
    (
        "distributed",
        "distributed:Client._inform_scheduler_of_futures",
        ["self"],
        {},
        f"{SHIMS}/distributed.py",
    ),
    ("distributed", "distributed:Future._exception", ["self"], {}, f"{SHIMS}/distributed.py"),
    (
        "distributed",
        "distributed:Client._run",
        ["self", int],
        {"workers": [], "on_error": "return"},
        f"{SHIMS}/distributed.py",
    ),
    ("numba", "numba.core.dispatcher:Dispatcher", ["function"], {}, f"{SHIMS}/numba.py"),
    ("numba", "numba.np.arrayobj:make_array", ["array_type"], {}, f"{SHIMS}/numba.py"),
    ("numba", "numba.core.cgutils:unpack_tuple", ["builder", "tup", "count"], {}, f"{SHIMS}/numba.py"),
    ("numba", "numba.core.cgutils:get_null_value", ["ltype"], {}, f"{SHIMS}/numba.py"),
    ("numba", "numba.core.caching:IndexDataCacheFile", ["path", "name", "stamp"], {}, f"{SHIMS}/numba.py"),
    ("dask", "dask.array:Array._meta", None, {}, f"{SHIMS}/dask.py"),
    ("scikit-learn", "sklearn.svm:_libsvm.decision_function", None, {}, "tests/private_sklearn.py"),
    ("scikit-learn", "sklearn.svm.tests.test_svm:svm", None, {}, "tests/private_sklearn.py"),
    (
        "scikit-learn",
        "sklearn.utils.multiclass:_ovr_decision_function",
        ["predictions", "confidences", 3],
        {},
        "tests/private_sklearn.py",
    ),
]
PRIVATE_MODULES = ("zarr.core", "sklearn.svm.tests")  # by their own documentation, or no part of the package


@every_case(("library", "name", "args", "options", "shim"), CALLED, ids=[row[1] for row in CALLED])
def test_a_private_name_is_there_and_takes_what_it_is_given(library, name, args, options, shim):
    release, (module, _, path) = f"{library} {version(library)}", name.partition(":")
    try:
        found = reduce(getattr, path.split("."), import_module(module))
    except (ImportError, AttributeError) as error:
        pytest.fail(f"{release} has no {name} any more ({error}); mend {shim}", pytrace=False)
    if args is None:
        return
    try:
        inspect.signature(found).bind(*args, **options)
    except TypeError as error:
        message = f"{release}: {name}{inspect.signature(found)} is called otherwise ({error}); mend {shim}"
        pytest.fail(message, pytrace=False)


def test_the_keys_of_an_array():
    group = zarr.open_group(MemoryStore(), mode="w", zarr_format=3)
    array = group.create_array("a", shape=(8, 3), chunks=(2, 3), shards=(4, 3), dtype="int32")
    array[:4] = 1
    assert file_key(array, 1) == "c/1/0"
    assert [has_key(array, file_key(array, number)) for number in (0, 1)] == [True, False]
    assert has_key(group, "a/zarr.json")
    whole = fetch(array, "c/0/0")
    assert fetch(array, "c/0/0", 20) == whole[-20:]
    assert fetch(array, "c/1/0") is None
    assert isinstance(first_codec(array), ShardingCodec)
    assert not is_local(array)


def test_weights_and_blocks_are_as_the_libraries_say():
    assert check_sample_weight(None, np.zeros(3)).tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="inconsistent|must have|shape"):
        check_sample_weight([1.0, 2.0], np.zeros(3))
    rows = da.from_array(np.eye(3)).map_blocks(sparse.csr_matrix)
    assert sparse.issparse(meta(rows))
    assert not sparse.issparse(meta(da.zeros((3, 3))))


FILES = {path: ast.parse(path.read_text(encoding="utf-8")) for path in sorted(ROOT.rglob("*.py"))}


def _is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def _own_names() -> set[str]:
    """Private names that the package gives itself."""
    nodes = [node for tree in FILES.values() for node in ast.walk(tree)]
    defined = {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)}
    stored = {node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store)}
    return defined | stored | {node.id for node in nodes if isinstance(node, ast.Name)}


def _borrowed(tree: ast.AST, own: set[str]) -> list[str]:
    """Private names in a file that are another's: imported, or an attribute that nothing of ours defines."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom | ast.Import):
            module = getattr(node, "module", None)
            names = [f"{module}.{a.name}" if module else a.name for a in node.names]
            found += [name for name in names if not name.startswith("streamsvm") and _is_borrowed(name)]
        elif isinstance(node, ast.Attribute) and _is_private(node.attr) and node.attr not in own:
            found.append(ast.unparse(node))
    return [name for name in found if name != "os._exit"]  # public: it is in Python's documentation


def _is_borrowed(name: str) -> bool:
    return name.startswith(PRIVATE_MODULES) or any(map(_is_private, name.split(".")))


def test_only_one_place_knows_private_names_of_others():
    own = _own_names()
    others = {path: tree for path, tree in FILES.items() if path.parent.name != "private"}
    found = {str(path.relative_to(ROOT)): _borrowed(tree, own) for path, tree in others.items()}
    assert not {path: names for path, names in found.items() if names}, f"move what wraps them to {SHIMS}"


def test_what_is_borrowed_is_seen():
    code = "from zarr.core.sync import sync\nfrom a import _b\nX._meta\nself._x\nimport c._d, zarr"
    assert sorted(_borrowed(ast.parse(code), {"_x"})) == ["X._meta", "a._b", "c._d", "zarr.core.sync.sync"]
