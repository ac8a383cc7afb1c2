"""The recipe that follows a parameter through the calls, on a package of four files and on this one."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
FILES = {
    "tests/test_imports.py": 'LAYERS = (*("store", "fits"), "train")\n',
    "streamsvm/__init__.py": "",
    "streamsvm/store.py": "class Store:\n    def read(self) -> int:\n        return 0\n\n\ndef check(store): ...\n",
    "streamsvm/fits.py": """
from dataclasses import dataclass
from streamsvm.store import Store, check

@dataclass
class Prepared:
    n: int
    store: Store

def prepare(store: Store) -> Prepared:
    own = store
    check(own)
    return Prepared(1, store=own)
""",
    "streamsvm/train.py": """
from streamsvm.fits import Prepared, prepare
from streamsvm.store import check

def train(store, n):
    prepared = prepare(store)
    print(store, check(n))
    return solve(prepared)

def solve(prepared: Prepared):
    return prepared.store.read()
""",
}


@pytest.fixture
def stops(monkeypatch, capsys):
    """stops(WORD...): the lines that the recipe prints."""
    monkeypatch.syspath_prepend(ROOT / "pipelines")
    recipe = importlib.import_module("stops")

    def said(*words):
        monkeypatch.setattr(sys, "argv", ["stops.py", *map(str, words)])
        recipe.main()
        return capsys.readouterr().out.splitlines()

    return said


def test_every_call_that_passes_it_on_is_a_stop(stops, tmp_path):
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert stops("streamsvm.train:train:store", "--tree", tmp_path, "--list") == [
        "streamsvm/fits.py:12: streamsvm.store.check",
        "streamsvm/fits.py:13: streamsvm.fits.Prepared",
        "streamsvm/train.py:6: streamsvm.fits.prepare",
        "streamsvm/train.py:11: streamsvm.store.Store.read (back up)",
        "streamsvm.train:train:store: 4 stops, 3 places, 1 steps back up",
    ]


@pytest.mark.slow  # all files of the package are read
def test_a_store_is_followed_through_this_package(stops):
    told = stops("streamsvm.train:train:store", "streamsvm.predict:write_predictions:store")
    train, predict = ([int(word) for word in line.split() if word.isdigit()] for line in told)
    assert train[0] > predict[0] > 5
    assert train[1] > predict[1] > 3
