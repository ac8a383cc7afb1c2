"""DC-SVM: the exact result does not depend on how it was reached; early models by their definition."""

from __future__ import annotations

from functools import cache
from itertools import combinations

import numpy as np
import pytest
import reference
from sklearn.svm import SVC

from streamsvm.config import build_config
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.events import Events, Warned
from streamsvm.kernels.distance import RBF
from streamsvm.models import KernelModel, LocalModel
from streamsvm.solvers.dcsvm import PART_ROWS, default_levels
from streamsvm.train import train_in_memory

N = 700
WAYS = {
    "no levels": {"levels": None},
    "one level": {"levels": 1},
    "two levels": {"levels": 2},
    "three children": {"levels": 2, "children": 3},
    "kernel k-means": {"levels": 2, "clustering": "kernel"},
    "not adaptive": {"levels": 2, "adaptive": False},
    "not refined": {"levels": 2, "refine": False},
    "tiny parts": {"levels": 1, "part_rows": 40},
    "small sample": {"levels": 2, "sample": 20},
}


@cache
def data(k: int = 2) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, size=(N, 2)).astype(np.float32)
    y = (np.floor(X[:, 0]) + np.floor(X[:, 1])).astype(np.int64) % k
    flipped = rng.random(N) < 0.05
    return X, np.where(flipped, rng.integers(0, k, N), y)


def fit(k=2, seed=0, **dcsvm):
    X, y = data(k)
    values = {
        "C": 10.0,
        "kernel": {"gamma": 2.0},
        "threads": 2,
        "seed": seed,
        "dcsvm": {"part_rows": 200} | dcsvm,
    }
    return train_in_memory(Store.from_arrays(X, y), build_config(("test", values)))


@cache
def twin_objective(k: int) -> float:
    """The sum over pairs of classes of their optimal dual objectives."""
    X, y = data(k)
    total = 0.0
    for i, j in combinations(range(k), 2):
        ids = np.flatnonzero((y == i) | (y == j))
        signs = np.where(y[ids] == j, 1.0, -1.0)
        Q = signs[:, None] * reference.kernel_matrix(RBF(2.0), X[ids], X[ids]) * signs
        total += reference.dual_objective(Q, reference.solve_dual(Q, np.full(len(ids), 10.0)))
    return total


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("way", WAYS)
def test_exact_is_the_twins_optimum_whichever_way(way, k):
    model, report = fit(k, **WAYS[way])
    assert isinstance(model, KernelModel)
    assert report["objective"] == pytest.approx(twin_objective(k), rel=1e-4)
    assert 0 <= report["gap"] <= 1e-3 * 10.0 * N * (k - 1)


@pytest.mark.parametrize("seed", [1, 2])
def test_exact_does_not_depend_on_the_seed(seed):
    assert fit(levels=2, seed=seed)[1]["objective"] == pytest.approx(twin_objective(2), rel=1e-4)


def test_same_predictions_as_svc_with_a_bias_nearly():
    """An rbf kernel can express a constant: LIBSVM's other problem gives nearly the same labels."""
    X, y = data(3)
    model, _ = fit(3)
    ours, theirs = model.predict(Rows(X)), SVC(C=10.0, gamma=2.0).fit(X, y).predict(X)
    assert np.mean(ours == theirs) > 0.99


@cache
def early_model(combine: str) -> LocalModel:
    return fit(early=True, levels=1, combine=combine)[0]


class TestEarly:
    def parts_and_alpha(self, model: LocalModel) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """(part of each training row, its label's sign, the twin's alpha of each part's own problem)."""
        X, y = data()
        parts, signs, alpha = model.partition.assign(Rows(X)), np.where(y == 1, 1.0, -1.0), np.zeros(N)
        for part in np.unique(parts):
            ids = np.flatnonzero(parts == part)
            K = reference.kernel_matrix(model.header.kernel, X[ids], X[ids])
            alpha[ids] = reference.solve_dual(signs[ids, None] * K * signs[ids], np.full(len(ids), 10.0))
        return parts, signs, alpha

    def test_nearest_is_equation_11(self):
        model, X = early_model("nearest"), data()[0]
        new = Rows(np.random.default_rng(9).uniform(-2, 2, (300, 2)).astype(np.float32))
        parts, signs, alpha = self.parts_and_alpha(model)
        assert len(np.unique(parts)) >= 4
        K = reference.kernel_matrix(model.header.kernel, new.X, X)
        expected = reference.early_decisions(K, signs, alpha, parts, model.partition.assign(new))
        np.testing.assert_allclose(model.decision_function(new), expected, atol=2e-2)
        assert not np.allclose(reference.naive_decisions(K, signs, alpha), expected, atol=2e-2)

    def test_neighbours_decide_by_their_mean(self):
        model, X = fit(early=True, levels=1, neighbours=3)[0], data()[0]
        new = Rows(np.random.default_rng(9).uniform(-2, 2, (300, 2)).astype(np.float32))
        parts, signs, alpha = self.parts_and_alpha(model)
        K = reference.kernel_matrix(model.header.kernel, new.X, X)
        chosen = model.partition.nearest(new, 3)
        each = [reference.early_decisions(K, signs, alpha, parts, part) for part in chosen.T]
        np.testing.assert_allclose(model.decision_function(new), np.mean(each, axis=0), atol=2e-2)
        assert not np.allclose(each[0], each[1], atol=2e-2)

    def test_naive_is_equation_10(self):
        model, X = early_model("naive"), data()[0]
        new = Rows(np.random.default_rng(9).uniform(-2, 2, (300, 2)).astype(np.float32))
        _, signs, alpha = self.parts_and_alpha(model)
        K = reference.kernel_matrix(model.header.kernel, new.X, X)
        np.testing.assert_allclose(model.decision_function(new), reference.naive_decisions(K, signs, alpha), atol=5e-2)

    def test_committee_weights_parts_by_their_certainty(self):
        model, X = early_model("committee"), data()[0]
        new = Rows(np.random.default_rng(9).uniform(-2, 2, (300, 2)).astype(np.float32))
        parts, signs, alpha = self.parts_and_alpha(model)
        K = reference.kernel_matrix(model.header.kernel, new.X, X)
        K_train = reference.kernel_matrix(model.header.kernel, X, X)
        alpha[alpha < 1e-6] = 0
        expected = reference.committee_decisions(K, K_train, np.ones(300), signs, alpha, parts, 1e-2)
        decisions = model.decision_function(new)
        assert np.corrcoef(decisions, expected)[0, 1] > 0.99
        assert np.mean(np.sign(decisions) == np.sign(expected)) > 0.97

    def test_a_part_of_one_class_predicts_it(self):
        rng = np.random.default_rng(0)
        X = np.concatenate([rng.normal(size=(200, 2)), rng.normal(size=(200, 2)) + 50]).astype(np.float32)
        y = np.repeat(["near", "far"], 200)
        values = {"kernel": {"gamma": 1.0}, "dcsvm": {"early": True, "levels": 1, "children": 2}}
        model, report = train_in_memory(Store.from_arrays(X, y), build_config(("test", values)))
        assert report["n_parts"] == 2
        np.testing.assert_array_equal(model.predict(Rows(X)), y)
        assert model.predict(Rows(np.array([[70.0, 70.0], [-30.0, 0.0]], np.float32))).tolist() == [
            "far",
            "near",
        ]

    @pytest.mark.parametrize("k", [2, 3])
    @pytest.mark.parametrize("combine", ["nearest", "naive", "committee"])
    def test_scores_close_to_exact(self, combine, k):
        X, y = data(k)
        model, _ = fit(k, early=True, levels=1, combine=combine)
        exact, _ = fit(k)
        lost = np.mean(exact.predict(Rows(X)) == y) - np.mean(model.predict(Rows(X)) == y)
        assert lost < (0.03 if combine == "nearest" else 0.15)


@pytest.mark.parametrize(("n", "levels"), [(100, 0), (PART_ROWS, 0), (4 * PART_ROWS, 1), (64 * PART_ROWS, 3)])
def test_levels_follow_from_n(n, levels):
    assert default_levels(n, 4, early=True) == levels


def test_a_kernel_that_clustering_widened_is_told():
    """A Gaussian so narrow that every far row would be nearest to the most diffuse centre (`fit_centres`)."""
    X, y = data()
    heard = []
    values = {"kernel": {"gamma": 2000.0}, "dcsvm": {"levels": 1, "children": 8, "clustering": "kernel"}}
    events = Events(lambda record: heard.append(record.event))
    _, report = train_in_memory(Store.from_arrays(X, y), build_config(("test", values)), events)
    low, high = report["clustering_gamma"]
    assert low < 2000 >= high
    (warning,) = (event.message for event in heard if isinstance(event, Warned))
    assert "gamma 2000 is too large to divide the rows evenly: level 1 was divided with gamma" in warning
    assert f"gamma {low:g} " in warning


@pytest.mark.parametrize(("clustering", "gammas"), [("input", None), ("kernel", [0.5, 0.5])])
def test_a_kernel_that_clustering_kept_is_not(clustering, gammas):
    X, y = data()
    values = {"kernel": {"gamma": 0.5}, "dcsvm": {"levels": 1, "children": 8, "clustering": clustering}}
    _, report = train_in_memory(Store.from_arrays(X, y), build_config(("test", values)))
    assert report.get("clustering_gamma") == gammas
