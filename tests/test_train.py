"""The recipe: bad input, events, resuming, and the same model from memory and from disk."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import reference
from making import write
from scipy import sparse
from stepwise import train_by_single_steps

from streamsvm.config import FitConfig, build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, CorruptDataError, DataError, MemoryLimitError
from streamsvm.events import Events, LevelSolved, Progress
from streamsvm.models.files import load_model
from streamsvm.train import plan, train, train_in_memory
from streamsvm.training import dcsvm as recipe
from streamsvm.training import divided

N, D = 900, 5
EARLY = {"early": True, "levels": 2, "early_level": 1}


def data(k: int = 2, layout: str = "dense", seed: int = 0) -> tuple[Rows, np.ndarray]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, D)).astype(np.float32)
    X[rng.random(X.shape) < 0.2] = 0
    y = (X[:, 0] * X[:, 1] > 0).astype(np.int64) + (k - 2) * (X[:, 2] > 0.7)
    return Rows(sparse.csr_array(X) if layout == "csr" else X), y


def store(folder: Path, k: int = 2, layout: str = "dense") -> Store:
    return write(folder / "store", *data(k, layout), step=100, chunk_rows=128)


def config(**values) -> FitConfig:
    """A small problem in two levels of at most 300 rows a part."""
    dcsvm = {"levels": 2, "part_rows": 300} | values.pop("dcsvm", {})
    return build_config(("test", {"C": 5.0, "kernel": {"gamma": 0.5}, "threads": 2, "dcsvm": dcsvm} | values))


def decisions(path: Path, rows: Rows) -> np.ndarray:
    return load_model(path).decision_function(rows)


@pytest.fixture
def from_disk(monkeypatch):
    """Plans that keep the rows of a store out of memory; the list counts the divisions that are spooled."""
    original, spooled, spooled_groups = recipe.plan_memory, [], divided.SpooledGroups
    monkeypatch.setattr(recipe, "plan_memory", lambda *a, **k: replace(original(*a, **k), in_memory=False))
    monkeypatch.setattr(divided, "SpooledGroups", lambda *a: spooled.append(a) or spooled_groups(*a))
    return spooled


class TestBadInput:
    def fails(self, error, match, there: Store, tmp_path: Path, **values) -> None:
        with pytest.raises(error, match=match):
            train(there, config(**values), model_path=tmp_path / "model")
        assert not (tmp_path / "model").exists()
        assert not list(tmp_path.glob("*.part*"))

    def test_one_class(self, tmp_path):
        there = Store.from_arrays(data()[0].X, np.full(N, 7))
        self.fails(DataError, r"one class only \(7\); expected at least two", there, tmp_path)

    def test_no_labels(self, tmp_path):
        self.fails(DataError, "no labels", Store.from_arrays(data()[0].X), tmp_path)

    def test_continuous_labels(self, tmp_path):
        there = Store.from_arrays(data()[0].X, np.random.default_rng(0).random(N))
        self.fails(DataError, "continuous", there, tmp_path)

    @pytest.mark.parametrize("gamma", [0.5, "scale"])
    @pytest.mark.parametrize("layout", ["dense", "csr"])
    @pytest.mark.parametrize("value", [np.nan, np.inf])
    def test_no_finite_number(self, tmp_path, value, layout, gamma):
        X = data()[0].X.copy()
        X[700, 3] = value
        there = write(
            tmp_path / "s", Rows(sparse.csr_array(X) if layout == "csr" else X), data()[1], chunk_rows=128
        )
        match = r"row 700, column 3 \(chunk \d+\) is (nan|inf); expected finite numbers"
        self.fails(DataError, match, there, tmp_path, kernel={"gamma": gamma})

    def test_unknown_positive_label(self, tmp_path):
        match = "--positive 9: no such label; the store has 0, 1"
        self.fails(DataError, match, store(tmp_path), tmp_path, positive=("9",))

    def test_all_labels_positive(self, tmp_path):
        self.fails(DataError, "one class only", store(tmp_path), tmp_path, positive=("0", "1"))

    def test_weight_of_an_unknown_class(self, tmp_path):
        match = "class_weight names '5'; the classes are 0, 1"
        self.fails(ConfigError, match, store(tmp_path), tmp_path, class_weight={"5": 2.0})

    def test_scaling_that_would_fill_a_sparse_store(self, tmp_path):
        self.fails(ConfigError, "use maxabs", store(tmp_path, layout="csr"), tmp_path, scale="standard")

    def test_a_deleted_chunk(self, tmp_path):
        there = store(tmp_path)
        (tmp_path / "store" / "X" / "c" / "3" / "0").unlink()
        self.fails(CorruptDataError, "'?X'?.* 3", Store.open(there.url), tmp_path)

    def test_memory_limit_too_small_says_what_works(self, tmp_path):
        there = store(tmp_path)
        with pytest.raises(
            MemoryLimitError, match=r"a memory limit of 1.0 MiB is too small .* give at least"
        ) as error:
            plan(there, config(memory_limit="1MiB"))
        least = int(re.search(r"at least (\d+) MiB", str(error.value))[1])
        assert plan(there, config(memory_limit=f"{least + 8}MiB"))["max_part_rows"] > 0


class TestEvents:
    def test_a_level_is_one_record(self, tmp_path):
        report = train(store(tmp_path), config(), model_path=tmp_path / "model", run_dir=tmp_path / "run")
        records = [json.loads(line) for line in (tmp_path / "run" / "events.jsonl").read_text().splitlines()]
        levels = [record for record in records if record["event"] == "level"]
        assert [record["level"] for record in levels] == [2, 1]
        for record in levels:
            assert record["parts"] >= 4 ** record["level"] / 2
            assert {"seconds_clustering", "seconds_training", "objective", "n_support"} <= set(record)
        # fewer, larger parts leave less of the coupling out
        bottom, above = (abs(record["objective"] - report["objective"]) for record in levels)
        assert above < bottom
        assert not list((tmp_path / "run").glob("*scratch*"))

    def test_report(self, tmp_path):
        there = store(tmp_path)
        report = train(there, config(), model_path=tmp_path / "model")
        model = load_model(tmp_path / "model")
        assert (report["n"], report["d"], report["n_support"]) == (N, D, model.n_support)
        assert report["gap"] == model.header.certificate["gap"]
        assert 0 <= report["partition_bound"] < 1
        assert {"cluster", "levels", "refine", "top", "save"} <= set(report["seconds_by_phase"])


class Stop(Exception):
    pass


class TestResume:
    @pytest.mark.parametrize("stop_at", [2, 1])
    @pytest.mark.parametrize(
        "options", [{}, {"dcsvm": {"early": True, "early_level": 1}}], ids=["exact", "early"]
    )
    def test_resumed_is_uninterrupted(self, tmp_path, options, stop_at):
        there, chosen = store(tmp_path), config(**options)
        train(there, chosen, model_path=tmp_path / "whole")

        def interrupt(record):
            clustering = isinstance(record.event, Progress) and record.event.phase == f"level {stop_at}"
            if clustering:
                raise Stop

        with pytest.raises(Stop):
            train(
                there, chosen, model_path=tmp_path / "m", run_dir=tmp_path / "run", events=Events(interrupt)
            )
        assert not (tmp_path / "m").exists()
        assert any((tmp_path / "run").glob("state-*.npz")) == (stop_at == 1)
        levels = []
        run = {"model_path": tmp_path / "m", "run_dir": tmp_path / "run"}
        train(there, chosen, **run, resume=True, events=Events(levels.append))
        if stop_at == 1:
            assert 2 not in [event.level for _, event in levels if isinstance(event, LevelSolved)]
        np.testing.assert_array_equal(
            decisions(tmp_path / "m", data()[0]), decisions(tmp_path / "whole", data()[0])
        )

    @pytest.mark.parametrize("early", [{}, {"early": True, "early_level": 1}], ids=["exact", "early"])
    def test_streamed_and_stopped_after_every_step_it_is_the_same(self, tmp_path, early, from_disk):
        """At the whole problem, too, whose rows stay in the same groups."""
        chosen = config(dcsvm=early, checkpoint_every="1 step")
        there = store(tmp_path)
        train(there, chosen, model_path=tmp_path / "whole")
        assert train_by_single_steps(there, chosen, tmp_path / "m", tmp_path / "run") > 10
        rows = data()[0]
        np.testing.assert_array_equal(decisions(tmp_path / "m", rows), decisions(tmp_path / "whole", rows))

    def test_state_of_another_configuration_is_refused(self, tmp_path):
        there = store(tmp_path)
        train(there, config(), model_path=tmp_path / "m", run_dir=tmp_path / "run")
        with pytest.raises(ConfigError, match=r"configuration \(C was 5.0, is 6.0\); drop --resume"):
            train(there, config(C=6.0), model_path=tmp_path / "m", run_dir=tmp_path / "run", resume=True)

    def test_threads_and_memory_may_change(self, tmp_path):
        there = store(tmp_path)
        train(there, config(), model_path=tmp_path / "m", run_dir=tmp_path / "run")
        other = config(threads=1, memory_limit="4GiB")
        train(there, other, model_path=tmp_path / "again", run_dir=tmp_path / "run", resume=True)
        np.testing.assert_array_equal(
            decisions(tmp_path / "again", data()[0]), decisions(tmp_path / "m", data()[0])
        )


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("layout", ["dense", "csr"])
@pytest.mark.parametrize("dcsvm", [{}, EARLY, EARLY | {"combine": "naive"}], ids=["exact", "early", "naive"])
class TestSameModel:
    def test_from_disk_and_from_memory(self, tmp_path, dcsvm, layout, k, from_disk):
        """Spooled parts and streamed products, against everything in memory."""
        streamed, _ = train_in_memory(store(tmp_path, k, layout), config(dcsvm=dcsvm))
        assert len(from_disk) == 2
        rows, y = data(k, layout)
        with pytest.MonkeyPatch.context() as patch:
            original = recipe.plan_memory
            patch.setattr(recipe, "plan_memory", lambda *a, **k: replace(original(*a, **k), in_memory=True))
            held, _ = train_in_memory(Store.from_arrays(rows.X, y), config(dcsvm=dcsvm))
        found, expected = streamed.decision_function(rows), held.decision_function(rows)
        np.testing.assert_allclose(found, expected, atol=5e-3)

    def test_written_part_by_part_and_held_in_memory(self, tmp_path, dcsvm, layout, k):
        there, rows = store(tmp_path, k, layout), data(k, layout)[0]
        train(there, config(dcsvm=dcsvm), model_path=tmp_path / "model")
        held, _ = train_in_memory(there, config(dcsvm=dcsvm))
        np.testing.assert_array_equal(decisions(tmp_path / "model", rows), held.decision_function(rows))


@pytest.mark.parametrize("dcsvm", [{}, EARLY, EARLY | {"combine": "naive"}], ids=["exact", "early", "naive"])
def test_sparse_rows_on_one_thread_and_two(tmp_path, dcsvm):
    there, rows = store(tmp_path, 3, "csr"), data(3, "csr")[0]
    one, _ = train_in_memory(there, config(dcsvm=dcsvm, threads=1))
    two, _ = train_in_memory(there, config(dcsvm=dcsvm, threads=2))
    np.testing.assert_array_equal(one.decision_function(rows), two.decision_function(rows))


class TestWeights:
    def test_class_weights_are_factors_on_C(self):
        rows, y = data()
        weighted, _ = train_in_memory(Store.from_arrays(rows.X, y), config(class_weight={"1": 3.0}))
        weights = np.where(y == 1, 3.0, 1.0)
        sampled, _ = train_in_memory(Store.from_arrays(rows.X, y, sample_weight=weights), config())
        np.testing.assert_array_equal(weighted.decision_function(rows), sampled.decision_function(rows))

    def test_balanced(self):
        rows, y = data(3)
        balanced, _ = train_in_memory(Store.from_arrays(rows.X, y), config(class_weight="balanced"))
        counts = np.bincount(y)
        named = {str(c): N / (3 * counts[c]) for c in range(3)}
        explicit, _ = train_in_memory(Store.from_arrays(rows.X, y), config(class_weight=named))
        np.testing.assert_array_equal(balanced.decision_function(rows), explicit.decision_function(rows))

    def test_positive_labels_against_the_rest(self):
        rows, y = data(3)
        grouped, _ = train_in_memory(Store.from_arrays(rows.X, y), config(positive=("0", "2")))
        binary, _ = train_in_memory(Store.from_arrays(rows.X, (y != 1).astype(int)), config())
        np.testing.assert_array_equal(grouped.decision_function(rows), binary.decision_function(rows))


def test_scale_gamma_is_one_over_d_and_variance():
    rows, y = data()
    _, report = train_in_memory(Store.from_arrays(rows.X, y), config(kernel={"gamma": "scale"}))
    assert report["gamma"] == pytest.approx(1 / (D * rows.X.astype(np.float64).var()), rel=1e-9)


def test_scaled_rows_train_as_if_scaled_before():
    rows, y = data()
    raw = rows.X * [1, 10, 100, 1, 1] + [5, 0, 0, 0, 0]
    scaled = ((raw - raw.min(axis=0)) / np.ptp(raw, axis=0)).astype(np.float32)
    a, _ = train_in_memory(Store.from_arrays(raw, y), config(scale="minmax"))
    b, _ = train_in_memory(Store.from_arrays(scaled, y), config())
    np.testing.assert_allclose(a.decision_function(Rows(raw)), b.decision_function(Rows(scaled)), atol=5e-3)


@pytest.mark.filterwarnings("ignore:nearly all values of the rbf kernel vanish")
def test_rows_so_far_apart_that_no_two_are_alike():
    """Nothing of the kernel lies between parts, nor inside them."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 50)).astype(np.float32) * 10
    found = train_in_memory(Store.from_arrays(X, X[:, 0] > 0), config(kernel={"gamma": 50.0}))[1]
    assert found["partition_bound"] == 0
    assert found["n_support"] == 400


def test_far_from_the_origin_distances_do_not_cancel():
    rows, y = data()
    near, _ = train_in_memory(Store.from_arrays(rows.X.astype(np.float64), y), config())
    far_rows = rows.X.astype(np.float64) + 1e4
    far, _ = train_in_memory(Store.from_arrays(far_rows, y), config())
    np.testing.assert_allclose(far.decision_function(Rows(far_rows)), near.decision_function(rows), atol=0.02)


@pytest.mark.parametrize("solver", ["dcsvm", "admm-hss"])
def test_kernel_values_beyond_float32_are_one_line(tmp_path, solver):
    rows, y = data()
    far = write(tmp_path / "far", Rows(rows.X * np.float32(1e6)), y)
    steep = config(solver=solver, kernel={"name": "poly", "degree": 9, "gamma": 1.0})
    with pytest.raises(ConfigError, match="values of the poly kernel reach .*: scale the features"):
        train_in_memory(far, steep)


def test_the_objective_is_that_of_the_twin():
    rows, y = data()
    model, report = train_in_memory(Store.from_arrays(rows.X, y), config())
    signs = np.where(y == 1, 1.0, -1.0)
    Q = signs[:, None] * reference.kernel_matrix(model.header.kernel, rows.X, rows.X) * signs
    best = reference.dual_objective(Q, reference.solve_dual(Q, np.full(N, 5.0)))
    assert report["objective"] == pytest.approx(best, rel=1e-4)
