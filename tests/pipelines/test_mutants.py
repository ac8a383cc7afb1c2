"""The recipe that mutates functions: what it changes, how it finds mutants again, and which ones tests kill."""

from __future__ import annotations

import ast
import importlib
import json
import sys
from pathlib import Path

import pytest

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"
SOURCE = '''
class Sums:
    def of(self, values: list[int], most: int = 3) -> int:
        """The sum of the first ones."""
        total = 0
        for value in values[:most]:
            if value > 1 and most:
                total += value
        if total < 0:
            raise ValueError(f"found {total + 1}")
        return total
'''
TESTS = """
from streamsvm.sums import Sums

def test_sums():
    assert Sums().of([1, 2, 5, 7]) == 7
"""


@pytest.fixture
def recipe(monkeypatch):
    monkeypatch.syspath_prepend(PIPELINES)
    return importlib.import_module("mutants")


@pytest.fixture
def tree(tmp_path):
    files = {"streamsvm/__init__.py": "", "streamsvm/sums.py": SOURCE, "tests/test_sums.py": TESTS}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path


def test_what_is_changed(recipe, tree):
    [function] = recipe.functions_of(tree, ["streamsvm/*.py"])
    assert [(mutant.kind, mutant.source, mutant.becomes) for mutant in function.mutants()] == [
        ("constant", "0", "1"),
        ("slice", "most", "most + 1"),
        ("condition", "value > 1 and most", "not (value > 1 and most)"),
        ("and or", "value > 1 and most", "value > 1 or most"),
        ("comparison", "value > 1", "value <= 1"),
        ("boundary", "value > 1", "value >= 1"),
        ("constant", "1", "2"),
        ("arithmetic", "total += value", "total -= value"),
        ("condition", "total < 0", "not (total < 0)"),
        ("comparison", "total < 0", "total >= 0"),
        ("boundary", "total < 0", "total <= 0"),
        ("constant", "0", "1"),
        ("return", "return total", "return None"),
    ]
    for site in function.sites:
        text = recipe.mutated(SOURCE.encode(), site).decode()
        assert text != SOURCE
        assert len(text.splitlines()) == len(SOURCE.splitlines())
        ast.parse(text)


def test_mutants_are_found_where_functions_have_moved(recipe, tree):
    mutants = [own for f in recipe.functions_of(tree, ["streamsvm/*.py"]) for own in f.mutants()]
    (tree / "streamsvm" / "sums.py").unlink()
    text = SOURCE.replace("Sums", "Total").replace("values", "numbers").replace("total", "found")
    (tree / "streamsvm" / "totals.py").write_text(text + "\n\ndef of():\n    return 0\n", encoding="utf-8")
    there = recipe.functions_of(tree, ["streamsvm/*.py"])
    for mutant in mutants:
        function, site = recipe.found(mutant, there)
        assert (function.file, function.name, site.kind) == ("streamsvm/totals.py", "Total.of", mutant.kind)
        assert site.text == mutant.becomes.replace("total", "found")
    (tree / "streamsvm" / "totals.py").write_text("def of():\n    return 0\n", encoding="utf-8")
    assert recipe.found(mutants[0], recipe.functions_of(tree, ["streamsvm/*.py"])) is None


@pytest.mark.slow  # a process for each mutant
def test_tests_kill_mutants_and_a_run_continues(recipe, tree, monkeypatch, capsys):
    out = tree / "out.json"
    options = ["--tree", tree, "--out", out, "--count", 4, "streamsvm/*.py"]
    for most in (1, 20):
        monkeypatch.setattr(sys, "argv", ["mutants.py", "--most", *map(str, (most, *options))])
        recipe.main()
        last = capsys.readouterr().out.splitlines()[-1]
        assert ("3 not run" in last) == (most == 1)
    survive = {("boundary", "total < 0"), ("constant", "0")}
    for own in json.loads(out.read_text(encoding="utf-8"))["mutants"]:
        if (own["kind"], own["source"]) in survive:
            assert own["outcome"] in ("survived", "killed")  # there are two zeros
        else:
            assert (own["outcome"], own["by"]) == ("killed", "tests/test_sums.py::test_sums")
