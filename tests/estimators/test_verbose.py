"""What a fit in Python says while it runs: warnings, progress by `verbose`, scikit-learn's callbacks."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
import warnings

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.model_selection import GridSearchCV

from streamsvm import ALFPGMSVC, ALFPGMSVR, DCSVC, HSSSVC, BudgetedSVC, CuttingPlaneRanker, CuttingPlaneSVC
from streamsvm.config import build_config
from streamsvm.data.store import Store
from streamsvm.events import ignore
from streamsvm.progress import lines
from streamsvm.train import train, train_in_memory

ESTIMATORS = {
    DCSVC: "round",
    ALFPGMSVC: "round",
    ALFPGMSVR: "round",
    HSSSVC: "step",
    CuttingPlaneSVC: "step",
    CuttingPlaneRanker: "step",
    BudgetedSVC: "epoch",
}


def data(n=120):
    X = np.random.default_rng(0).normal(size=(n, 3))
    return X, (X[:, 0] * X[:, 1] > 0).astype(int)


@pytest.mark.parametrize("estimator", ESTIMATORS)
class TestVerbose:
    def test_silent_unless_asked(self, estimator, capfd):
        estimator().fit(*data())
        assert capfd.readouterr() == ("", "")

    def test_progress_in_lines(self, estimator, capfd, monkeypatch):
        monkeypatch.setattr(lines, "EVERY_S", 0.0)
        estimator(verbose=1).fit(*data())
        out, said = capfd.readouterr()
        assert not out
        assert re.search(r"^\S.*  [\d,.]+(/\d+|%)?  0:00:\d\d$", said, re.M)
        assert said.splitlines()[-1].startswith(f"{estimator.__name__}: fitted in ")

    def test_each_step(self, estimator, capfd):
        estimator(verbose=2).fit(*data())
        assert f"{ESTIMATORS[estimator]} 1" in capfd.readouterr().err

    def test_it_is_a_parameter_like_others(self, estimator):
        asked = clone(estimator().set_params(verbose=0))
        assert asked.get_params()["verbose"] == 0
        again = pickle.loads(pickle.dumps(asked.fit(*data())))
        assert again.verbose == 0
        np.testing.assert_array_equal(again.predict(data()[0]), asked.predict(data()[0]))


def test_bars_where_stderr_is_a_terminal(capfd, monkeypatch):
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True)
    DCSVC(verbose=1).fit(*data())
    assert "DCSVC: fitted in" in capfd.readouterr().err


def few_passes(**more):
    options = {"solver": "cutting-plane", "kernel": {"name": "linear"}, "cutting_plane": {"passes": 2}}
    return build_config(("test", options | more))


class TestWarnings:
    """They reach whoever calls from Python without events of their own, and tell the line that did."""

    def test_of_train(self, tmp_path):
        store = Store.from_arrays(*data())
        for call in (
            lambda: train(store, few_passes(), model_path=tmp_path / "m"),
            lambda: train_in_memory(store, few_passes()),
        ):
            with pytest.warns(ConvergenceWarning, match="stopped after 2 passes") as caught:
                call()
            assert [warning.filename for warning in caught] == [__file__]

    def test_each_time_anew(self):
        X, y = data()
        store = Store.from_arrays(X * [1, 1, 1e4], y)
        for _ in range(2):
            with pytest.warns(UserWarning, match="column 2 has a range of"):
                train_in_memory(store, build_config(("test", {})))

    def test_who_listens_is_told_and_nobody_else(self):
        with warnings.catch_warnings(record=True) as caught:
            train_in_memory(Store.from_arrays(*data()), few_passes(), ignore)
        assert not caught

    def test_of_estimators(self):
        with pytest.warns(ConvergenceWarning, match="stopped after 1 passes") as caught:
            CuttingPlaneSVC(max_passes=1).fit(*data())
        assert caught[0].filename == __file__
        with pytest.warns(UserWarning, match="one partition: solved exactly") as caught:
            DCSVC(early=True, levels=None, C=2).fit(*data())
        assert caught[0].filename == __file__

    @pytest.mark.slow  # processes of the command
    def test_of_the_command_line_are_lines_of_its_own(self, tmp_path):
        X, y = data()
        np.savetxt(tmp_path / "d.csv", np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
        streamsvm = [sys.executable, "-m", "streamsvm"]
        ingest = [*streamsvm, "ingest", "d.csv", "--label", "y", "--store", "d"]
        subprocess.run(ingest, cwd=tmp_path, check=True, capture_output=True)
        fit = [*streamsvm, "fit", "--store", "d", "--solver", "cutting-plane", "--kernel", "linear"]
        found = subprocess.run(
            [*fit, "--no-search", "--set", "cutting_plane.passes=2", "--model", "m"],
            cwd=tmp_path,
            check=True,
            capture_output=True,
            text=True,
        )
        assert found.stderr.count("stopped after 2 passes") == 1
        assert "ConvergenceWarning" not in found.stderr


class Recorder:
    """A callback of scikit-learn's protocol."""

    def __init__(self):
        self.heard = []

    def setup(self, estimator, context):
        self.heard.append("setup")

    def on_fit_task_begin(self, estimator, context):
        self.heard.append(f"begin {context.task_name}")

    def on_fit_task_end(self, estimator, context):
        self.heard.append(f"end {context.task_name}")

    def teardown(self, estimator, context):
        self.heard.append("teardown")


class TestCallbacks:
    pytestmark = pytest.mark.skipif(not hasattr(DCSVC(), "set_callbacks"), reason="scikit-learn before 1.9")

    @pytest.mark.parametrize("estimator", ESTIMATORS)
    def test_steps_are_tasks_of_the_fit(self, estimator):
        heard = Recorder()
        estimator().set_callbacks(heard).fit(*data())
        step = ESTIMATORS[estimator]
        assert heard.heard[:2] == ["setup", "begin fit"]
        assert heard.heard[-2:] == ["end fit", "teardown"]
        assert heard.heard.count(f"begin {step}") == heard.heard.count(f"end {step}") >= 1

    def test_a_fit_that_fails_is_torn_down(self):
        heard = Recorder()
        svm = DCSVC(memory_limit="1MiB").set_callbacks(heard)
        with pytest.raises(MemoryError):
            svm.fit(*data())
        assert heard.heard[-1] == "teardown"

    def test_inside_a_search(self):
        from sklearn.callback import ProgressBar

        search = GridSearchCV(DCSVC(), {"C": [1, 10]}, cv=2).set_callbacks(ProgressBar())
        assert search.fit(*data()).best_params_["C"] in (1, 10)

    def test_what_has_callbacks_is_pickled_and_cloned(self):
        heard = Recorder()
        svm = DCSVC().set_callbacks(heard).fit(*data())
        assert not hasattr(svm, "_callback_fit_ctx")
        pickle.loads(pickle.dumps(svm)).predict(data()[0])
        before = len(heard.heard)
        clone(svm).fit(*data())
        assert len(heard.heard) > before
