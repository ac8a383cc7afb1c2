"""What runs tell for reports: parts, tasks, streams, histograms; and that it agrees with what they came to."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from scipy import sparse

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.samples import splitmix64
from streamsvm.data.store import Store
from streamsvm.events import Events, PartsSolved, TasksRun
from streamsvm.explain.slices import evaluate_by_part, has_parts
from streamsvm.fits.parts import WIDTH, in_plane, sketch
from streamsvm.metrics import scored
from streamsvm.parallel.engine import Engine
from streamsvm.predict import evaluate
from streamsvm.train import train_in_memory


@pytest.fixture(scope="module")
def fitted():
    """A store, an early model of it, and the records of its fit."""
    rng = np.random.default_rng(0)
    X = (rng.normal(size=(1200, 2)) + 8 * rng.integers(3, size=(1200, 1))).astype(np.float32)
    store = Store.from_arrays(X, np.where(np.sin(2 * X).sum(axis=1) > 0, "b", "a"))
    dcsvm = {"early": True, "levels": 1, "part_rows": 500}
    config = build_config(("here", {"C": 1.0, "kernel": {"gamma": 1.0}, "dcsvm": dcsvm}))
    records = []
    model, _ = train_in_memory(store, config, Events(records.append))
    return store, model, records


def told(records, kind):
    return [event for _, event in records if isinstance(event, kind)]


def test_parts_are_told_one_by_one(fitted):
    store, model, records = fitted
    [parts] = told(records, PartsSolved)
    assert sum(parts.rows) == store.n
    assert parts.n_support == np.diff(model.bounds).tolist()
    assert len(parts.places) == len(parts.seconds) == model.n_parts > 1
    assert all(seconds > 0 for seconds in parts.seconds)


def test_tasks_lie_inside_the_run_one_after_the_other_in_a_lane(fitted):
    *_, records = fitted
    tasks = told(records, TasksRun)
    assert "level 1" in {event.phase for event in tasks}
    for event in tasks:
        for lane in {span[0] for span in event.spans}:
            own = np.array(sorted(span[1:] for span in event.spans if span[0] == lane))
            assert (own[:, 0] <= own[:, 1]).all()
            assert (own[1:, 0] >= own[:-1, 1]).all()
            assert 0 <= own.min()
            assert own.max() <= records[-1].t + 1e-3


def test_rows_and_right_answers_of_parts_add_up(fitted):
    store, model, _ = fitted
    assert has_parts(model)
    found = evaluate_by_part(model, store, engine=Engine(1), with_curves=True)
    parts = found.pop("parts")
    assert found == evaluate(model, store, engine=Engine(1), with_curves=True)
    assert sum(parts["rows"]) == store.n
    assert sum(parts["right"]) == pytest.approx(found["accuracy"] * store.n)
    below, above = np.array(found["histogram"]["counts"])
    assert [below.sum(), above.sum()] == [row["support"] for row in found["per_class"]]
    assert found["histogram"]["threshold"] == 0.0


def test_a_histogram_counts_weights_once_and_needs_two_values():
    found = scored(np.array([True, False, True, True]), np.array([0.0, 1.0, 2.0, 2.0])).histogram(2)
    assert found == {"edges": [0.0, 1.0, 2.0], "counts": [[0.0, 1.0], [1.0, 2.0]]}
    assert scored(np.ones(3, bool), np.ones(3)).histogram() == {}


def test_a_sketch_of_sparse_rows_takes_no_memory_for_empty_columns():
    X = sparse.random_array((300, 3_000_000), density=5e-5, format="csr", dtype=np.float32, rng=1)
    splitmix64(np.arange(3), 0)
    tracemalloc.start()
    sketch(Rows(X))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 12 << 20  # a number for each column takes twice as much


def test_the_map_keeps_distances_about():
    rng = np.random.default_rng(0)
    means = 10 * np.outer(np.arange(4), rng.normal(size=300))
    sketches = [sketch(Rows((mean + rng.normal(size=(50, 300))).astype(np.float32))) for mean in means]
    assert {len(centre) for centre in sketches} == {WIDTH}
    places = np.array(in_plane(sketches))
    steps = np.linalg.norm(np.diff(places, axis=0), axis=1)
    assert steps == pytest.approx(np.linalg.norm(means[1]), rel=0.5)
    X = sparse.random_array((60, 500), density=0.1, format="csr", rng=rng)
    np.testing.assert_allclose(sketch(Rows(X)), sketch(Rows(X.toarray())), atol=1e-6)
    assert in_plane(sketches[:1]) == [[0.0, 0.0]]
    exact = np.array(in_plane([np.array([0.0, 0.0]), np.array([3.0, 4.0])]))
    assert np.linalg.norm(exact[0] - exact[1]) == pytest.approx(5.0)
