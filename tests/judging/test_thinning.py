"""Models with fewer support vectors: what they lose, what they may lose, and the steps against plain NumPy."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import cases
import numpy as np
import pytest
from cases import labelled
from commands import run

from streamsvm import predict
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.events import Events, Warned
from streamsvm.judging import thinning
from streamsvm.judging.thinning import _choices, _order, _solved, thinned
from streamsvm.models.files import load_model, save_model
from streamsvm.parallel.engine import Engine
from streamsvm.tasks.pairs import compact_coefficients, pair_coefficients
from streamsvm.train import train_in_memory

N = 1200
EARLY = {"levels": 1, "part_rows": 300, "early": True}
MODELS: dict[str, Any] = {  # k classes, and options
    "two classes": (2, {}),
    "pairs": (3, {}),
    "rest": (3, {"multiclass": "rest"}),
    "early": (2, {"dcsvm": EARLY | {"bias": True}}),
    "early, pairs": (3, {"dcsvm": EARLY}),
    "early, metrics": (2, {"dcsvm": EARLY | {"part_metric": 1}}),
    "early, neighbours": (2, {"dcsvm": EARLY | {"neighbours": 2}}),
    "several learners": (2, {"solver": "bsgd", "bsgd": {"budget": 60, "epochs": 3, "partitions": 3}}),
    "one learner": (3, {"solver": "bsgd", "bsgd": {"budget": 60, "epochs": 3}}),
    "values": (0, {"task": "regress"}),
    "probable": (2, {"probability": {"method": "sigmoid", "folds": 2}}),
}

rate = thinning._rate


@pytest.fixture(autouse=True)
def rates(monkeypatch):
    """Fewer support vectors predict faster: what clocks say of small models is chance."""
    monkeypatch.setattr(thinning, "_rate", lambda model, rows, engine: 1e6 / thinning._n_support(model))


def rows(k: int, n: int = N) -> Store:
    X, y = labelled(max(k, 2), n)
    return Store.from_arrays(X, y if k else (X[:, 0] + np.sin(2 * X[:, 1])).astype(np.float64))


def fitted(k: int, n: int = N, **options: Any) -> Any:
    return train_in_memory(rows(k, n), cases.build_config(("test", {"C": 2.0, "kernel": {"gamma": 0.5}} | options)))[0]


def fresh(k: int, n: int = 4000) -> Store:
    """Other rows of the same kind."""
    store = rows(k, N + n)
    return store.subset(np.arange(N, N + n))


@pytest.mark.parametrize("name", MODELS)
def test_half_of_the_support_vectors_decide_nearly_as_all(name, tmp_path):
    k, options = MODELS[name]
    model, store = fitted(k, **options), fresh(k)
    n = thinning._n_support(model)
    smaller, report = thinned(model, store, 1e6 / n * 2, 2.0, engine=Engine(2))
    assert smaller.n_support <= n / 2
    assert report["support_vectors"] == smaller.n_support
    assert report["support_vectors_before"] == n
    assert report["points"] <= 2.0
    assert smaller.header.certificate["thinned"] == report
    X = store.read(0, store.n)
    if k:
        y = store.y
        assert np.mean(smaller.predict(X) == y) > np.mean(model.predict(X) == y) - 0.03
    else:
        assert np.var(smaller.predict(X) - model.predict(X)) < 0.03 * np.var(model.predict(X))
    assert all((a is None) == (b is None) for a, b in zip(smaller.answers(X), model.answers(X), strict=True))
    save_model(smaller, tmp_path / "m")
    np.testing.assert_array_equal(load_model(tmp_path / "m").decision_function(X), smaller.decision_function(X))


def test_without_labels_points_are_of_rows_with_another_label():
    model, store = fitted(2), fresh(2)
    smaller, report = thinned(model, store, 1e9, 1.0, by_labels=False, engine=Engine(2), events=Events())
    X = store.read(0, store.n)
    changed = 100 * np.mean(smaller.predict(X) != model.predict(X))
    assert report["points_of"] == "rows"
    assert 0.0 < report["points"] <= 1.0
    assert changed == pytest.approx(report["points"], abs=0.7)


def test_a_fast_model_stays_as_it_is():
    model, store = fitted(2), fresh(2)
    same, report = thinned(model, store, 1.0, engine=Engine(2))
    assert type(same) is type(model)
    assert report["points"] == 0.0
    X = store.read(0, 100)
    np.testing.assert_array_equal(same.decision_function(X), model.decision_function(X))


def test_a_rate_that_the_tolerance_does_not_allow_is_said():
    warnings: list[str] = []
    events = Events(lambda record: warnings.append(record.event.message) if isinstance(record.event, Warned) else None)
    _, report = thinned(fitted(2), fresh(2), 1e9, 0.5, engine=Engine(2), events=events)
    assert report["points"] <= 0.5
    assert report["rows_per_s"] > report["rows_per_s_before"]
    (warning,) = warnings
    assert f"{report['rows_per_s']:,} rows a second, not 1,000,000,000" in warning


def test_what_cannot_be_thinned_is_said():
    linear = fitted(2, solver="cutting-plane", kernel={"name": "linear"})
    committee = fitted(2, dcsvm=EARLY | {"combine": "committee"})
    for model, words in ((linear, "no support vectors"), (committee, "asks all partitions")):
        with pytest.raises(ModelError, match=words):
            thinned(model, fresh(2), 1e9, engine=Engine(2))
    model = fitted(2)
    for rate, tolerance in ((0.0, 0.2), (1e6, -1.0), (float("nan"), 0.2)):
        with pytest.raises(ConfigError, match="budget above 0"):
            thinned(model, fresh(2), rate, tolerance, engine=Engine(2))
    with pytest.raises(DataError, match="has 50 rows, expected 100 or more"):
        thinned(model, fresh(2, 50), 1e6, engine=Engine(2))


def equations(seed: int = 0, s: int = 60, columns: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    X, Z = rng.normal(size=(s, 2)), rng.normal(size=(3 * s, 2))
    B = np.exp(-((Z[:, None] - X) ** 2).sum(axis=2))
    return B.T @ B + 1e-6 * np.eye(s), B.T @ np.sin(Z @ rng.normal(size=(2, columns)))


def test_each_next_support_vector_is_the_best_one():
    G, targets = equations()
    allowed = np.ones(targets.shape, bool)

    def lowered(ids: list[int]) -> float:
        part = targets[ids]
        return float(np.einsum("ic,ic->", part, np.linalg.solve(G[np.ix_(ids, ids)], part)))

    order = _order(G, targets, allowed).tolist()
    assert len(set(order)) == len(order) == round(len(G) * thinning.SHARES[0])
    for m in range(thinning.TAKEN):  # later ones are the best of some candidates
        others = [i for i in range(len(G)) if i not in order[:m]]
        assert lowered(order[: m + 1]) > 0.99 * max(lowered([*order[:m], i]) for i in others)
    assert lowered(order[:20]) > 0.95 * lowered(list(range(len(G))))


def test_coefficients_solve_the_equations_of_each_column():
    G, targets = equations(columns=3)
    rng = np.random.default_rng(1)
    codes = rng.integers(0, 3, len(G))
    allowed = np.stack([codes != 2, codes != 1, codes != 0], axis=1)
    ids = rng.permutation(len(G))[:25]
    b = _solved(G, targets, ids, allowed)
    for c in range(3):
        here = ids[allowed[ids, c]]
        np.testing.assert_allclose(b[allowed[ids, c], c], np.linalg.solve(G[np.ix_(here, here)], targets[here, c]))
    assert not b[~allowed[ids]].any()


def test_compact_coefficients_are_those_of_pairs():
    rng = np.random.default_rng(0)
    for k in (2, 3, 5):
        codes, alpha = rng.integers(0, k, 40), rng.normal(size=(40, k - 1))
        coefficients = pair_coefficients(alpha, codes, k, np.float64)
        np.testing.assert_array_equal(compact_coefficients(coefficients, codes, k), alpha)


def test_rates_are_of_blocks_as_large_as_those_of_predictions(monkeypatch):
    decided, clock = [], iter(range(0, 100, 2))

    class Model:
        def binary_decisions(self, rows: Rows) -> None:
            decided.append(rows.X)

    monkeypatch.setattr(thinning, "time", SimpleNamespace(perf_counter=lambda: next(clock)))
    for n, block in ((100, 300), (500, 500)):
        decided.clear()
        X = np.arange(2.0 * n).reshape(n, 2)
        monkeypatch.setattr(predict, "BLOCK_BYTES", 4 * 2 * 300)
        assert rate(Model(), Rows(X), Engine(1)) == block / 2
        for of_block in decided:
            np.testing.assert_array_equal(of_block, np.resize(X, (block, 2)))


def test_choices_are_within_the_tolerance_and_ever_smaller():
    rng = np.random.default_rng(0)

    def fit(n: int) -> thinning.PartFit:
        losses = np.r_[0.0, np.sort(rng.integers(0, 30, 6))]
        sizes = [thinning.Size(np.empty((m, 1)), loss, loss) for m, loss in zip(range(70, 0, -10), losses, strict=True)]
        terms = thinning.Terms(Rows(np.empty((70, 1))), *np.empty((3, 70)))
        return thinning.PartFit(terms, sizes, n)

    fits = [fit(n) for n in (500, 0, 2000, 1500)]
    values = []
    for sizes in _choices(fits, 1.0, 4.0):
        chosen = [f.sizes[size] for f, size in zip(fits, sizes, strict=True)]
        assert 100 * sum(size.loss for size in chosen) / 4000 < 4.0
        assert sizes[1] == 0  # nothing says what it may lose
        values.append(sum(f.n * len(size.coef) for f, size in zip(fits, chosen, strict=True)))
    assert len(values) > 2
    assert values == sorted(values, reverse=True)


def test_commands_thin_a_model_for_good_or_for_one_prediction(tmp_path, capfd):
    save_model(fitted(2), tmp_path / "m")
    np.savez(tmp_path / "new.npz", X=fresh(2).read(0, 4000).X, y=fresh(2).y)
    store = tmp_path / "new.zarr"
    assert run("ingest", tmp_path / "new.npz", "--store", store) == 0
    of, budget = ("--model", tmp_path / "m", "--store", store), ("--predict-budget", "1e9", "--tolerance", 1)
    assert run("thin", *of, "--out", tmp_path / "fast", *budget) == 0
    told = capfd.readouterr()
    assert "support vectors before" in told.out
    assert "a larger tolerance allows more" in told.err
    fast = load_model(tmp_path / "fast")
    assert fast.header.certificate["thinned"]["points_of"] == "accuracy"
    assert run("thin", *of, "--out", tmp_path / "fast", *budget) == 2  # is there
    assert run("predict", *of, "--out", tmp_path / "p.npy", *budget) == 0
    assert run("predict", *of, "--out", tmp_path / "all.npy") == 0
    changed = np.mean(np.load(tmp_path / "p.npy") != np.load(tmp_path / "all.npy"))
    assert 0 < changed < 0.02
    assert run("report", "--model", tmp_path / "fast", "--out", tmp_path / "card.md") == 0
    assert "It was thinned from" in (tmp_path / "card.md").read_text(encoding="utf-8")
