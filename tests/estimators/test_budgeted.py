"""BudgetedSVC and `fit --solver bsgd`: scikit-learn's habits, partial fits, resuming."""

from __future__ import annotations

import json
import subprocess
import sys
import tracemalloc

import numpy as np
import pytest
from making import write
from scipy import sparse

from streamsvm import BudgetedSVC, Store, load_model
from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, MemoryLimitError
from streamsvm.events import Epoch, Event, Events, Progress, Record
from streamsvm.fits import bsgd as recipe
from streamsvm.train import plan, train, train_in_memory


def data(k: int = 2, n: int = 400) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, 3)).astype(np.float32)
    return X, (X[:, 0] * X[:, 1] > 0).astype(int) + (k - 2) * (X[:, 2] > 0.5)


def config(**options):
    bsgd = {"budget": 25, "epochs": 3} | options.pop("bsgd", {})
    values = {"solver": "bsgd", "kernel": {"gamma": 0.5}, "bsgd": bsgd, "checkpoint_every": "1 step"}
    return build_config(("test", values | options))


class TestPartialFit:
    @pytest.mark.parametrize("k", [2, 3])
    def test_in_any_pieces_it_is_the_same_model(self, k):
        X, y = data(k)
        whole = BudgetedSVC(gamma=0.5, budget=30).partial_fit(X, y, classes=np.arange(k))
        pieces = BudgetedSVC(gamma=0.5, budget=30)
        for start in range(0, 400, 70):
            pieces.partial_fit(X[start : start + 70], y[start : start + 70], classes=np.arange(k))
        expected = whole.decision_function(X)
        np.testing.assert_allclose(pieces.decision_function(X), expected, atol=1e-3 * np.abs(expected).max())

    def test_goes_on_after_fit(self):
        X, y = data()
        estimator = BudgetedSVC(gamma=0.5, budget=30).fit(X[:300], y[:300])
        steps = estimator.model_.learner().t
        assert estimator.partial_fit(X[300:], y[300:]).model_.learner().t == steps + 100

    def test_unknown_labels_and_missing_classes_are_told(self):
        X, y = data()
        estimator = BudgetedSVC(gamma=0.5)
        with pytest.raises(ValueError, match="classes must be passed on the first call"):
            estimator.partial_fit(X, y)
        estimator.partial_fit(X, y, classes=[0, 1])
        before = estimator.decision_function(X)
        with pytest.raises(ValueError, match="found label 7, expected one of 0, 1"):
            estimator.partial_fit(X, np.full(400, 7))
        np.testing.assert_array_equal(estimator.decision_function(X), before)
        with pytest.raises(ValueError, match="in the first call it was"):
            estimator.partial_fit(X, y, classes=[0, 1, 2])

    def test_weights_count(self):
        X, y = data()
        plain = BudgetedSVC(gamma=0.5).partial_fit(X, y, classes=[0, 1])
        heavy = BudgetedSVC(gamma=0.5, class_weight={1: 5.0}).partial_fit(X, y, classes=[0, 1])
        assert np.mean(heavy.predict(X) == 1) > np.mean(plain.predict(X) == 1)


class TestFit:
    @pytest.mark.parametrize("k", [2, 3])
    @pytest.mark.parametrize("bsgd", [{}, {"partitions": 2}], ids=["alone", "together"])
    def test_stopped_and_resumed_is_uninterrupted(self, k, bsgd, tmp_path, monkeypatch):
        """Stopped inside an epoch: a fit of a few windows, which tests/contracts/test_fits.py does not make."""
        monkeypatch.setattr(recipe, "WINDOW_BYTES", 0)
        X, y = data(k, 2500)  # windows of 1024 rows
        store = write(tmp_path / "s", Rows(X), y, chunk_rows=300)
        train(store, config(bsgd=bsgd), model_path=tmp_path / "whole")
        for stop in (2, 5) if bsgd else (4, 8):
            run = tmp_path / f"run{stop}"
            with pytest.raises(KeyboardInterrupt):
                train(store, config(bsgd=bsgd), model_path=run / "m", run_dir=run, events=Events(_Stop(stop)))
            train(store, config(bsgd=bsgd), model_path=run / "m", run_dir=run, resume=True)
            expected, found = (load_model(path).to_state()[0] for path in (tmp_path / "whole", run / "m"))
            for name, array in expected.items():
                if name != "learner_counts":  # one of them is a time
                    np.testing.assert_array_equal(found[name], array)

    def test_learners_side_by_side_learn_as_well(self, tmp_path):
        X, y = data(2, 4000)
        test, labels = data(2, 2000)
        store = write(tmp_path / "s", Rows(X), y, chunk_rows=300)
        right = []
        for partitions in (1, 4):
            model, _ = train_in_memory(store, config(bsgd={"partitions": partitions}))
            right.append(np.mean(model.labels(model.decision_function(Rows(test))) == labels))
        assert right[1] > right[0] - 0.02

    def test_chunks_do_not_change_the_model(self, tmp_path, monkeypatch):
        monkeypatch.setattr(recipe, "WINDOW_BYTES", 0)
        X, y = data(2, 3000)
        stores = [write(tmp_path / str(rows), Rows(X), y, chunk_rows=rows) for rows in (97, 3000)]
        models = [train_in_memory(store, config())[0] for store in stores]
        np.testing.assert_array_equal(models[0].decision_function(Rows(X)), models[1].decision_function(Rows(X)))

    def test_report(self):
        X, y = data()
        events: list[Record[Event]] = []
        model, report = train_in_memory(Store.from_arrays(X, y), config(), Events(events.append))
        epochs = [event for _, event in events if isinstance(event, Epoch)]
        assert report["n_support"] == model.n_support <= 25
        assert report["steps"] == 1200
        assert [epoch.epoch for epoch in epochs] == [1, 2, 3]
        assert 0.5 < report["online_accuracy"] <= 1
        lam, K = 1 / 400, np.exp(-0.5 * ((model.support.X[:, None] - model.support.X) ** 2).sum(axis=2))
        squared = float(model.coef[:, 0] @ K @ model.coef[:, 0])
        loss = epochs[2].loss
        assert report["objective"] == pytest.approx(0.5 * lam * squared + loss, rel=1e-4)

    def test_a_limit_too_small_is_told_before_the_start(self):
        X, y = data()
        with pytest.raises(MemoryLimitError, match="too small for a budget of 25: give at least"):
            train_in_memory(Store.from_arrays(X, y), config(memory_limit="50MiB"))

    def test_plan(self):
        X, y = data()
        assert plan(Store.from_arrays(X, y), config())["kernel_values"] == 400 * 3 * 25

    def test_options_that_do_not_fit_together(self):
        with pytest.raises(ConfigError, match="points merge under the rbf kernel only"):
            config(kernel={"name": "linear"})
        with pytest.raises(ConfigError, match="merge is 30, expected at most the budget, 25"):
            config(bsgd={"merge": 30})


@pytest.mark.slow  # processes of the command
def test_from_the_command_line_and_into_a_stream(tmp_path):
    X, y = data(2, 600)
    write(tmp_path / "s", Rows(X), np.where(y == 1, "up", "down"))
    run = [sys.executable, "-m", "streamsvm"]
    options = [
        "--solver",
        "bsgd",
        "--budget",
        "40",
        "--merge",
        "2",
        "--epochs",
        "2",
        "--gamma",
        "0.5",
        "--json",
    ]
    fit = subprocess.run(
        [*run, "fit", "--no-search", "--store", tmp_path / "s", "--model", tmp_path / "m", *options],
        capture_output=True,
        text=True,
        check=True,
    )
    report = json.loads(fit.stdout)
    assert report["solver"] == "bsgd"
    assert report["n_support"] <= 40
    assert report["gap"] is None
    score = subprocess.run(
        [*run, "evaluate", "--model", tmp_path / "m", "--store", tmp_path / "s", "--json"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(score.stdout)["accuracy"] > 0.8
    event = json.dumps({"0": 1.0, "1": 1.5, "2": 0.0, "y": "up"})
    stream = subprocess.run(
        [*run, "stream", "--model", tmp_path / "m"], input=event, capture_output=True, text=True, check=True
    )
    assert json.loads(stream.stdout)["prediction"] == "up"


class _Stop:
    """Interrupts a run after some progress records of its epochs."""

    def __init__(self, after: int) -> None:
        self.left = after

    def __call__(self, record: Record[Event]) -> None:
        if isinstance(record.event, Progress) and record.event.phase.startswith("epoch"):
            self.left -= 1
            if self.left == 0:
                raise KeyboardInterrupt


def test_a_first_sparse_batch_stays_sparse():
    X = sparse.random_array((2000, 20_000), density=1e-4, rng=np.random.default_rng(0), format="csr")
    y = np.arange(2000) % 2
    dense_bytes = 8 * 2000 * 20_000
    tracemalloc.start()
    svm = BudgetedSVC(budget=5, merge=2).partial_fit(X, y, classes=[0, 1])
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < dense_bytes / 4
    variance = X.power(2).mean() - X.mean() ** 2
    assert svm.model_.header.kernel.gamma == pytest.approx(1 / (20_000 * variance))
