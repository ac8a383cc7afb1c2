"""The recipe that compares fits before and after a change: it finds equal ones equal, and names those that differ."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import numpy as np
import pytest

PIPELINES = Path(__file__).resolve().parents[2] / "pipelines"


@pytest.fixture(scope="module")
def recipe():
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(PIPELINES)
        return importlib.import_module("same_decisions")


@pytest.fixture
def run(recipe, monkeypatch, capsys):
    """run(WORD...): the exit status, and what is printed."""

    def ran(*words):
        monkeypatch.setattr(sys, "argv", ["same_decisions.py", *map(str, words)])
        with pytest.raises(SystemExit) as ended:
            recipe.main()
        return ended.value.code, capsys.readouterr().out

    return ran


def test_there_are_fifty_fits_of_every_estimator(recipe):
    import streamsvm
    from streamsvm import online

    assert len(recipe.CASES) == 50
    code = Path(recipe.__file__).read_text(encoding="utf-8")
    kinds = {name for name in (*streamsvm.__all__, *online.__all__) if name.endswith(("SVC", "SVR", "SVM"))}
    kinds |= {"CuttingPlaneRanker", *(learner.__name__ for learner in online.LEARNERS.values())}
    assert [kind for kind in sorted(kinds) if f'"{kind}"' not in code] == []


def test_equal_fits_are_equal_and_others_are_named(run, tmp_path):
    before = tmp_path / "before.npz"
    assert run("--only", "queries", "--out", before) == (0, "")
    assert run("--only", "queries", "--against", before) == (0, "1 of 1 equal\n")
    with np.load(before) as file:
        arrays = dict(file)
    arrays["planes, queries: decision_function"][3] += 1e-12
    np.savez(before, **arrays)
    status, said = run("--only", "queries", "--against", before)
    assert status == 1
    assert "planes, queries: decision_function by 1e-12" in said
    assert said.endswith("0 of 1 equal\n")


def test_a_fit_that_fails_is_not_equal(recipe, run, monkeypatch, tmp_path):
    def failing():
        raise ValueError("no rows")

    monkeypatch.setitem(recipe.CASES, "graph", failing)
    status, said = run("--only", "graph", "--out", tmp_path / "some.npz")
    assert (status, said) == (1, "")
