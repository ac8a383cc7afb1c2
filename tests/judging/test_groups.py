"""Rows of a group are together in whatever a fit, a search or probabilities hold out."""

from __future__ import annotations

import numpy as np
import pytest
from cases import config

from streamsvm.choosing import trials as choosing_samples
from streamsvm.choosing.trials import region_samples
from streamsvm.config import validated
from streamsvm.data.metric import Metric
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError
from streamsvm.events import ignore
from streamsvm.fits.prepare import prepare
from streamsvm.judging import probabilities
from streamsvm.parallel.engine import Engine
from streamsvm.search.options import TuneConfig, points
from streamsvm.search.search import tune
from streamsvm.train import plan, train_in_memory

N = 600


def grouped(sizes=(1, 2, 30), seed=0, **options) -> Store:
    """Rows whose label is a matter of their group alone: who knows a group knows its rows."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(N), rng.choice(sizes, N))[:N]
    X = np.column_stack([rng.normal(size=N)[group], rng.normal(size=N)]).astype(np.float32)
    order = rng.permutation(N)
    return Store.from_arrays(X[order], (group % 2)[order], group=group[order], **options)


def require_apart(groups, one, other):
    assert len(one)
    assert len(other)
    assert not set(groups[one]) & set(groups[other])


@pytest.mark.parametrize("rows", [1, 90, 250])
def test_holdout(rows):
    store = grouped()
    kept = prepare(store, config("alfpgm", holdout=rows), Engine(1)).held_out.ids
    require_apart(store.group, kept, np.setdiff1d(np.arange(N), kept))
    assert rows <= len(kept) < rows + 30
    _, told = train_in_memory(store, config("alfpgm", holdout=rows), ignore)
    assert told["expected"]["rows"] == len(kept)


def test_rows_that_tell_of_intervals():
    store = grouped()
    found = prepare(store, config("alfpgm", task="regress", interval=0.9), Engine(1))
    ids = found.original_ids(np.arange(found.store.n))
    require_apart(store.group, ids, np.setdiff1d(np.arange(N), ids))
    assert len(found.held_out.rows) == N - len(ids)


def test_a_group_of_more_than_half_of_the_rows():
    store = Store.from_arrays(np.eye(4), [0, 1, 0, 1], group=["a", "a", "a", "b"])
    for seed in range(5):
        kept = prepare(store, config("alfpgm", holdout=1, seed=seed), Engine(1)).held_out.ids
        assert kept.tolist() == [3]
    with pytest.raises(ConfigError, match="holdout is 2, and 1 rows are in groups of at most 1, which leave half"):
        prepare(store, config("alfpgm", holdout=2), Engine(1))


@pytest.mark.parametrize("n", [N, choosing_samples.FOLDED_ROWS + 1])
def test_samples_that_options_are_chosen_by(n, monkeypatch):
    """By their first column, which is that of their group alone."""
    monkeypatch.setattr(choosing_samples, "FOLDED_ROWS", choosing_samples.FOLDED_ROWS if n == N else 1)
    store = grouped()
    prepared = prepare(store, config("dcsvm", search={"options": ("C",)}), Engine(1))
    samples, _ = choosing_samples.draw_samples(prepared, prepared.scaling, Engine(1))
    assert len(samples) == (choosing_samples.FOLDS if n == N else 1)
    for sample in samples:
        assert not set(sample.rows.X[:, 0]) & set(sample.held_out.X[:, 0])
        assert len(sample.held_out) == N // 5
        assert len(sample.rows) > N // 2


def test_samples_of_regions():
    store = grouped((30,))
    prepared = prepare(store, config("dcsvm", search={"options": ("C",)}), Engine(1))
    centres, metric = prepared.scaling.apply(store.read(0, 3)), Metric(np.array([1.0, 0.0]))
    found = region_samples(prepared, centres, metric, 200, Engine(1), ignore)
    assert len(found) == 3
    for sample in found:
        assert not set(sample.rows.X[:, 0]) & set(sample.held_out.X[:, 0])
        assert (len(sample.held_out), len(sample.rows) > 100) == (40, True)
    assert not region_samples(prepared, centres, metric, 5, Engine(1), ignore)  # all of one group


def test_a_sample_of_one_group_chooses_nothing():
    X = np.random.default_rng(0).normal(size=(100, 2))
    store = Store.from_arrays(X, np.arange(100) % 2, group=np.zeros(100))
    prepared = prepare(store, config("dcsvm", search={"options": ("C",)}), Engine(1))
    assert (
        choosing_samples.draw_samples(prepared, prepared.scaling, Engine(1))
        == "the rows of the sample are of one group"
    )


def test_scores_of_other_groups_are_of_other_folds():
    X, y = np.eye(4), np.arange(4)
    one, same, other, none = (Store.from_arrays(X, y, group=g) for g in ([0, 0, 1, 1], [0, 0, 1, 1], y, None))
    assert one.fingerprint() == same.fingerprint()
    assert len({store.fingerprint() for store in (one, other, none)}) == 3


def require_each_apart(store, told):
    """told: the rows that each fit learned from, and those that it decided."""
    assert len(told) >= 3
    for one, other in told:
        require_apart(store.group, one, other)


def test_probabilities_are_of_models_that_know_no_row_of_the_group():
    store, learned = grouped(), []

    def learn(rows, folder, fits):
        learned.append(rows.ids_in(store, np.arange(rows.n)))
        return [train_in_memory(rows, config("dcsvm"), ignore)[0]]

    options = config("dcsvm", probability={"method": "sigmoid", "folds": 3})
    probabilities.cross_validated(store, options, learn)
    require_each_apart(store, [(ids, np.setdiff1d(np.arange(N), ids)) for ids in learned])


@pytest.mark.parametrize("share", [False, True])
def test_tune_is_not_taken_in(share):
    """Labels are a matter of groups, which nothing tells: rows beside those of their group would seem known."""
    values = {"folds": 3, "share": share, "rows": 400, "grid": {"C": [100.0], "kernel.gamma": [1e4]}}
    options = validated(TuneConfig, ("tune", values))
    whole = grouped((20,))
    X = whole.read(0, N).X[:, :1]
    known, alone = (Store.from_arrays(X, whole.y, group=group) for group in (whole.group, None))
    scores = [tune(s, options, points(options, ("base", {})))["best"]["score"] for s in (known, alone)]
    assert scores[0] < 0.7 < 0.9 < scores[1]


def test_metrics_of_parts_are_refused():
    with pytest.raises(ConfigError, match="dcsvm.part_metric is 1, and the rows that partitions hold out do not"):
        plan(grouped(), config("part metrics"))


CHOSEN = {"search": {"options": ["C", "gamma"], "sample": 200}}


@pytest.mark.parametrize("more", [{}, {"probability": {"method": "sigmoid"}}, {"task": "regress"}])
@pytest.mark.parametrize("count", [1, 2, 3])
def test_few_groups_end_no_search_with_an_option_that_nobody_gave(count, more):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 3)).astype(np.float32)
    y = X[:, 0].astype(float) if "task" in more else (X[:, 0] > 0).astype(int)
    store = Store.from_arrays(X, y, group=np.arange(N) % count)
    if count == 1 and "probability" in more:
        with pytest.raises(ConfigError, match="more than the store's 1 groups"):
            train_in_memory(store, config("dcsvm", **CHOSEN | more), ignore)
        return
    model, report = train_in_memory(store, config("dcsvm", **CHOSEN | more), ignore)
    if count == 1:
        assert report["metric"]["reason"] == "the rows of the sample are of one group"
    else:
        assert report["expected"]["score"] > 0.9
    assert model.n_support


def test_tune_on_two_groups_has_two_folds():
    options = validated(TuneConfig, ("tune", {"grid": {"C": [1.0, 10.0]}}))
    store = Store.from_arrays(
        np.random.default_rng(0).normal(size=(80, 2)), np.arange(80) % 4 // 2, group=np.arange(80) % 2
    )
    found = tune(store, options, points(options, ("base", {})))
    assert len(found["results"][0]["fold_scores"]) == 2
    options = validated(TuneConfig, ("tune", {"grid": {"C": [1.0, 10.0]}, "folds": 3}))
    with pytest.raises(ConfigError, match="tune.folds is 3, more than the store's 2 groups"):
        tune(store, options, points(options, ("base", {})))
