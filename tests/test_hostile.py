"""Files of people who mean harm: every reader gives an answer or one clear error, in bounded memory and time.

No reader runs code from a file. States of runs are in test_checkpoints.py.
"""

from __future__ import annotations

import ast
import json
import shutil
import time
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cases import config
from hypothesis import given, settings
from hypothesis import strategies as st
from making import samples, write

import streamsvm
from streamsvm.config import build_config, load_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import StreamSVMError
from streamsvm.models.files import load_model
from streamsvm.parallel.engine import Engine
from streamsvm.tables.checks import check
from streamsvm.train import train

SECONDS = 20.0
MORE_BYTES = 1 << 30  # that a reader may take
HOSTILE: list[Any] = [
    None,
    True,
    -1,
    0,
    10**30,
    1e308,
    "",
    "../../../etc/passwd",
    "/etc/passwd",
    "__import__('os').system('touch harm')",
    "\u0000",
    [],
    {},
    [[[[[[]]]]]],
    [10**12, 4],
    [-5],
    "float64",
    "|O",
    "complex128",
]


MODELS = ["dcsvm", "dcsvm early", "bsgd", "cutting-plane", "admm-hss"]  # one of each kind
PROBABLE = {"dcsvm": "sigmoid", "dcsvm early": "isotonic", "cutting-plane": "isotonic"}


def rows() -> Rows:
    return samples(40, 3)


@pytest.fixture(scope="module")
def originals(tmp_path_factory):
    """A dense store, a sparse one, and a model of each kind."""
    folder = tmp_path_factory.mktemp("originals")
    y = np.arange(40) % 2
    for name, is_sparse in (("dense", False), ("csr", True)):
        write(folder / name, samples(40, 3, is_sparse=is_sparse), y, step=20, chunk_rows=10)
    for name in MODELS:
        probability = {"method": PROBABLE.get(name), "folds": 2}
        kernel = {} if name == "cutting-plane" else {"kernel": {"gamma": 1e-4}}
        fit = config(name, probability=probability, **kernel)
        train(Store.open(str(folder / "dense")), fit, model_path=folder / name)
    return folder


def use(path: Path) -> None:
    if path.name in ("dense", "csr"):
        store = Store.open(str(path))
        check(store, Engine(1))
        store.read(0, min(store.n, 5))
    else:
        model = load_model(path)
        model.predict(rows())


@given(st.data())
@settings(max_examples=4 * settings.default.max_examples, derandomize=True)
@pytest.mark.slow  # copies of whole folders
def test_changed_stores_and_models(originals, data):
    name = data.draw(st.sampled_from(["dense", "csr", *MODELS]))
    path = data.draw(st.sampled_from(sorted(p for p in (originals / name).rglob("*") if p.is_file())))
    whole = path.read_bytes()
    if path.name == "zarr.json" and data.draw(st.booleans()):
        changed = json.dumps(_changed(json.loads(whole), data)).encode()
    else:
        changed = _mutated(whole, data)
    with _holding(path, changed), _bounded():
        try:
            use(originals / name)
        except StreamSVMError as error:
            assert len(str(error).splitlines()) == 1  # noqa: PT017  for any error that may come


@given(st.data())
@settings(max_examples=3 * settings.default.max_examples, derandomize=True)
def test_changed_configurations(tmp_path_factory, data):
    path = tmp_path_factory.getbasetemp() / "changed.toml"
    text = b'C = 10\n[kernel]\ngamma = "scale"\n[dcsvm]\nearly = true\nlevels = 3\n[bsgd]\nlam = 1e-3\n'
    path.write_bytes(_mutated(text, data))
    try:
        load_config(path)
    except StreamSVMError:
        return


@pytest.mark.parametrize("text", ["a = " + "[" * 100_000, "[" * 50_000 + "a" + "]" * 50_000, "a" * 1_000_000])
def test_nested_and_long_configurations(tmp_path, text):
    (tmp_path / "c.toml").write_text(text)
    with pytest.raises(StreamSVMError):
        load_config(tmp_path / "c.toml")


@pytest.mark.parametrize("name", ["dense", "dcsvm"])
def test_deeply_nested_metadata(originals, tmp_path, name):
    shutil.copytree(originals / name, tmp_path / name)
    (tmp_path / name / "zarr.json").write_text("[" * 200_000)
    with pytest.raises(StreamSVMError):
        use(tmp_path / name)


def test_links_out_of_a_model_are_not_followed_by_what_replaces_it(originals, tmp_path):
    """A model that links to other folders is replaced without their harm."""
    other = tmp_path / "other"
    other.mkdir()
    (other / "kept").write_text("")
    shutil.copytree(originals / "dcsvm", tmp_path / "m")
    (tmp_path / "m" / "link").symlink_to(other)
    train(Store.open(str(originals / "dense")), build_config(), model_path=tmp_path / "m")
    assert (other / "kept").exists()


def test_nothing_reads_pickles_or_runs_text():
    forbidden, found = {"pickle", "marshal", "shelve", "dill", "eval", "exec", "compile"}, []
    for path in Path(streamsvm.__file__).parent.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            names += [node.func.id] if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) else []
            found += [(path.name, name) for name in names if name.partition(".")[0] in forbidden]
            if isinstance(node, ast.keyword) and node.arg == "allow_pickle":
                assert isinstance(node.value, ast.Constant), path
                assert node.value.value is False, path
    assert found == []


def _mutated(raw: bytes, data: Any) -> bytes:
    mutated = bytearray(raw)
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, max(0, len(mutated) - 1)))
        mutated[at : at + data.draw(st.integers(0, 8))] = data.draw(st.binary(max_size=8))
    return bytes(mutated)


def _changed(value: Any, data: Any) -> Any:
    """A JSON value with one of its parts replaced by something hostile, or gone."""
    if isinstance(value, dict) and value and data.draw(st.integers(0, 9)):
        key = data.draw(st.sampled_from(sorted(value)))
        if not data.draw(st.integers(0, 4)):
            return {k: v for k, v in value.items() if k != key}
        return value | {key: _changed(value[key], data)}
    if isinstance(value, list) and value and data.draw(st.integers(0, 4)):
        at = data.draw(st.integers(0, len(value) - 1))
        return [*value[:at], _changed(value[at], data), *value[at + 1 :]]
    return data.draw(st.sampled_from(HOSTILE))


@contextmanager
def _holding(path: Path, changed: bytes) -> Iterator[None]:
    """The file holds other bytes for a while."""
    whole = path.read_bytes()
    path.write_bytes(changed)
    try:
        yield
    finally:
        path.write_bytes(whole)


@contextmanager
def _bounded() -> Iterator[None]:
    """CPU seconds and bytes allocated stay below what a reader may take, whatever else the machine does."""
    began = time.process_time()
    tracemalloc.start()
    try:
        yield
        most = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert time.process_time() - began < SECONDS
    assert most < MORE_BYTES
