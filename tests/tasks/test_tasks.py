"""What is true of every task, and a task that one file brings."""

from __future__ import annotations

import json
import re
from pathlib import Path
from runpy import run_path

import numpy as np
import pytest
from every_case import every_case
from making import write

from streamsvm import Store, load_model, tasks
from streamsvm.cli.app import app, exit_status
from streamsvm.config import FitConfig, build_config, option_field
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, CorruptDataError
from streamsvm.models.files import save_model
from streamsvm.options.base import choices
from streamsvm.tasks import default_task, register, task_names, task_of
from streamsvm.tasks.base import Subproblem
from streamsvm.tasks.classify import Classify
from streamsvm.tasks.pairs import n_columns, signs
from streamsvm.tasks.regress import Regress
from streamsvm.train import train_in_memory


@every_case("name", task_names())
def test_a_task_is_found_by_its_name(name):
    assert task_of(name).name == name
    assert task_of(name) is task_of(name)


def test_unknown_names_are_errors(tmp_path):
    with pytest.raises(
        ConfigError, match="found task 'guess', expected one of classify, multilabel, oneclass, ordinal"
    ):
        task_of("guess")
    with pytest.raises(
        ConfigError,
        match="there: task: found 'guess', expected 'classify', 'multilabel', 'oneclass', 'ordinal'",
    ):
        build_config(("there", {"task": "guess"}))
    with pytest.raises(ConfigError, match="there is a task 'classify' already"):
        register(Classify())


def test_a_model_of_an_unknown_task_is_refused(tmp_path):
    X = np.linspace(-1, 1, 40, dtype=np.float32)[:, None]
    config = build_config(("t", {"solver": "alfpgm", "task": "regress"}))
    save_model(train_in_memory(Store.from_arrays(X, X[:, 0]), config)[0], tmp_path / "m")
    about = tmp_path / "m" / "zarr.json"
    about.write_text(about.read_text().replace('"regress"', '"guess"'))
    with pytest.raises(CorruptDataError, match=re.escape(str(tmp_path / "m")) + ".*found task 'guess'"):
        load_model(tmp_path / "m")


def test_rows_of_queries_are_ranked_by_what_ranks():
    assert default_task("cutting-plane", has_queries=True) == "rank"
    assert default_task("cutting-plane", has_queries=False) == "classify"
    assert default_task("dcsvm", has_queries=True) == "classify"


class AgainstRest(Classify):
    """Each class against the rest, by solvers that otherwise solve pairs: all that this task needs is here."""

    name = "against-rest"
    solvers = ("alfpgm", "dcsvm")
    in_pairs = False

    def n_subproblems(self, k: int) -> int:
        return n_columns(k)

    coefficients = n_subproblems

    def subproblems(self, targets, *, single=False):
        ids = np.arange(len(targets.codes))
        for column, y in enumerate(signs(targets.codes, len(targets.classes)).T):
            yield Subproblem(ids, y, np.full(len(ids), column), number=column)


@pytest.fixture
def against_rest(monkeypatch):
    monkeypatch.setattr(tasks, "_TASKS", dict(tasks._TASKS))
    register(AgainstRest())


def three(n: int = 240) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 2)).astype(np.float32)
    return X, np.array(["low", "mid", "top"])[np.digitize(X[:, 0] + X[:, 1] ** 2, [0, 1])]


def answer(capfd, *args):
    assert exit_status(lambda: app([*map(str, args), "--json"], standalone_mode=False)) == 0
    return json.loads(capfd.readouterr().out)


def test_a_task_of_one_file_is_fitted_scored_resumed_and_exported(against_rest, tmp_path, capfd):
    X, y = three()
    store, model, out, runs = (tmp_path / name for name in ("s.zarr", "m.zarr", "p.csv", "run"))
    write(store, Rows(X), y)
    how = ("--solver", "alfpgm", "--task", "against-rest", "--gamma", 0.5, "--C", 5, "--no-search")
    plan = answer(capfd, "fit", "--store", store, *how, "--dry-run")
    assert plan["problems"] == 3
    report = answer(capfd, "fit", "--store", store, "--model", model, "--run-dir", runs, *how)
    assert report["converged"]
    assert load_model(model).coef.shape[1] == 3
    scored = answer(capfd, "evaluate", "--model", model, "--store", store, "--run-dir", runs)
    assert scored["accuracy"] > 0.9
    answer(capfd, "predict", "--model", model, "--store", store, "--out", out, "--decision")
    header, *lines = out.read_text().split()
    assert header == "label,decision_0,decision_1,decision_2"
    assert np.mean([line.split(",")[0] for line in lines] == y) == scored["accuracy"]
    model.rename(tmp_path / "first.zarr")
    again = answer(capfd, "fit", "--store", store, "--model", model, "--run-dir", runs, "--resume", *how)
    assert again["objective"] == report["objective"]
    assert answer(capfd, "export", "--model", model, "--format", "libsvm", "--out", tmp_path / "m.svm")


def test_a_task_of_one_file_is_listed_and_checked(against_rest):
    option_tables = run_path(str(Path(__file__).parents[2] / "docs" / "tables.py"))["option_tables"]
    assert "`regress`, `against-rest`" in option_tables()
    assert choices(option_field("task").annotation)[-1] == "against-rest"
    with pytest.raises(ConfigError, match="task is 'against-rest', which only solver alfpgm or dcsvm supports"):
        build_config(("t", {"task": "against-rest", "solver": "bsgd"}))
    assert FitConfig(task="against-rest", solver="alfpgm").task == "against-rest"
    with pytest.raises(ConfigError, match="expected"):
        build_config(("t", {"task": "against_rest"}))


class Divided(Regress):
    """Regression by divide and conquer: two variables a row, and no bias."""

    name = "divided"
    solvers = ("dcsvm",)


@pytest.mark.parametrize("streamed", [False, True])
def test_divide_and_conquer_solves_whatever_a_task_is_made_of(monkeypatch, streamed, tmp_path):
    monkeypatch.setattr(tasks, "_TASKS", dict(tasks._TASKS))
    for task in (AgainstRest(), Divided()):
        register(task)
    X, y = three(400)
    if streamed:  # no rows are held, and products come part by part
        monkeypatch.setattr("streamsvm.fits.divided.stay_in_memory", lambda *_: False)
    common = {"kernel": {"gamma": 0.5}, "C": 5.0, "tol": 1e-4}
    levels = {"levels": 1, "part_rows": 150}

    def fitted(labels, task, **more):
        store = write(tmp_path / f"{task}{len(more)}.zarr", Rows(X), labels)
        config = build_config(("t", common | {"task": task, "dcsvm": levels | more}))
        return train_in_memory(store, config)

    model, report = fitted(y, "against-rest")
    assert np.mean(model.predict(X) == y) > 0.9
    values = np.sin(2 * X[:, 0]) + X[:, 1]
    model, report = fitted(values, "divided")
    assert model.coef.shape[1] == 1
    assert report["gap"] < 1e-2 * abs(report["objective"])
    assert np.abs(model.predict(X) - values).mean() < 0.15
    early, report = fitted(values, "divided", early=True)
    assert np.abs(early.predict(X) - values).mean() < 0.15
    assert not report["exact"]
    some = np.where(X[:, 0] > 1, "z", y)  # which not all parts have
    early, _ = fitted(some, "against-rest", early=True)
    assert np.mean(early.predict(X) == some) > 0.9
