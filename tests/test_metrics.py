"""Metrics against scikit-learn's."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import kendalltau
from sklearn import metrics as twin

from streamsvm.metrics import (
    ProbabilityScores,
    RegressionScores,
    ScoreCounts,
    confusion,
    mean_absolute_error,
    per_class,
    scored,
)
from streamsvm.tasks.scores import ranking

codes = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=60)


@given(codes)
def test_confusion_and_table_are_sklearns(pairs):
    truth, predicted = np.array(pairs).T
    labels = [0, 1, 2, 3]
    counts = confusion(truth, predicted, 4)
    assert np.array_equal(counts, twin.confusion_matrix(truth, predicted, labels=labels))
    expected = twin.precision_recall_fscore_support(truth, predicted, labels=labels, zero_division=0)
    table = per_class(counts, labels)
    for name, values in zip(("precision", "recall", "f1", "support"), expected, strict=True):
        assert [row[name] for row in table] == pytest.approx(values.tolist())
    assert [row["label"] for row in table] == labels


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=2, max_size=60))
def test_auc_is_sklearns_ties_included(pairs):
    positive, scores = np.array([p for p, _ in pairs]), np.array([s for _, s in pairs], float)
    if positive.all() or not positive.any():
        assert scored(positive, scores).roc_auc() is None
    else:
        assert scored(positive, scores).roc_auc() == pytest.approx(twin.roc_auc_score(positive, scores))


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=1, max_size=60))
def test_break_even_is_where_precision_is_recall(pairs):
    positive, scores = np.array([p for p, _ in pairs]), np.array([s for _, s in pairs], float)
    found = scored(positive, scores).break_even()
    if not positive.any():
        assert found is None
        return
    n = positive.sum()
    chances = [
        positive[np.lexsort((order, -scores))][:n].mean()
        for order in np.random.default_rng(0).random((400, len(pairs)))
    ]
    assert found == pytest.approx(np.mean(chances), abs=0.1)


queries = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 1000)), min_size=1, max_size=50)


@given(queries)
def test_ranking_is_sklearns_and_scipys_query_by_query(rows):
    groups, y, order = (np.array(column) for column in zip(*rows, strict=True))
    scores = order + np.arange(len(rows)) / 100  # no ties: those are the libraries' own affair
    found = ranking(y, scores, groups)
    expected: dict[str, list[float]] = {"ndcg": [], "ndcg@3": [], "map": [], "tau": []}
    wrong = pairs = 0
    for q in np.unique(groups):
        own, s = y[groups == q], scores[groups == q]
        relevant = own > y.min()
        for name, k in (("ndcg", None), ("ndcg@3", 3)):
            gains = 2.0**own - 1
            expected[name].append(twin.ndcg_score([gains], [s], k=k) if len(s) > 1 else float(own[0] > 0))
        expected["map"].append(twin.average_precision_score(relevant, s) if relevant.any() else 0.0)
        higher = own[:, None] > own
        wrong += np.sum(higher & (s[:, None] < s))
        pairs += higher.sum()
        if higher.any():
            expected["tau"].append(kendalltau(own, s).statistic)
    assert found["queries"] == len(np.unique(groups))
    for name in ("ndcg", "ndcg@3", "map"):
        assert found[name] == pytest.approx(np.mean(expected[name]))
    assert found["swapped_pairs"] == (pytest.approx(wrong / pairs) if pairs else None)
    assert found["kendall_tau"] == (pytest.approx(np.mean(expected["tau"])) if pairs else None)


def test_scores_that_are_all_equal_swap_half_of_the_pairs():
    found = ranking(np.array([0, 1, 2, 1]), np.zeros(4), np.array([0, 0, 0, 1]))
    assert (found["swapped_pairs"], found["kendall_tau"]) == (0.5, 0.0)


@given(codes)
def test_mean_absolute_error_is_sklearns(pairs):
    truth, predicted = np.array(pairs).T
    expected = twin.mean_absolute_error(truth, predicted)
    assert mean_absolute_error(confusion(truth, predicted, 4)) == pytest.approx(expected)


def slow_reliability(truth: np.ndarray, proba: np.ndarray) -> list[tuple[float, float, int]]:
    """(mean confidence, frequency, rows) of the bins that have rows, row by row."""
    bins: dict[int, list[tuple[float, bool]]] = {}
    for y, p in zip(truth.tolist(), proba.tolist(), strict=True):
        confidence, right = (p[1], y == 1) if len(p) == 2 else (max(p), y == p.index(max(p)))
        bins.setdefault(min(int(confidence * 15), 14), []).append((confidence, right))
    return [
        (np.mean([c for c, _ in rows]), np.mean([r for _, r in rows]), len(rows)) for _, rows in sorted(bins.items())
    ]


@given(st.integers(2, 4), st.integers(1, 200), st.integers(0, 2**32 - 1), st.booleans())
def test_probability_scores_are_sklearns_in_blocks_of_any_size(k, n, seed, sure):
    rng = np.random.default_rng(seed)
    truth, proba = rng.integers(0, k, n), rng.dirichlet(np.full(k, 0.5), n)
    if sure:
        proba[::3] = np.eye(k)[truth[::3]]
    scores = ProbabilityScores(k)
    for block in np.array_split(np.arange(n), 3):
        scores.add(truth[block], proba[block])
    found, labels = scores.result(), list(range(k))
    brier = twin.brier_score_loss(truth, proba, labels=labels, scale_by_half=False)
    assert found["brier"] == pytest.approx(brier)
    assert found["log_loss"] == pytest.approx(twin.log_loss(truth, proba, labels=labels), abs=1e-12)
    expected = slow_reliability(truth, proba)
    bins = [(b["confidence"], b["frequency"], b["count"]) for b in found["reliability"]]
    np.testing.assert_allclose(bins, expected, atol=1e-12)
    ece = sum(count * abs(c - f) for c, f, count in expected) / n
    assert found["ece"] == pytest.approx(ece, abs=1e-12)
    assert all(b["from"] <= b["confidence"] <= b["to"] for b in found["reliability"])


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(-9, 9)), min_size=2, max_size=60), st.integers(1, 60))
def test_errors_are_sklearns_in_blocks_of_any_size(rows, step):
    y, values = np.array(rows).T + [[1e6], [1e6 + 0.25]]
    scores = RegressionScores()
    for start in range(0, len(y), step):
        scores.add(y[start : start + step], values[start : start + step])
    found = scores.result()
    assert found["r2"] == (None if np.ptp(y) == 0 else pytest.approx(twin.r2_score(y, values)))
    assert found["mean_squared_error"] == pytest.approx(twin.mean_squared_error(y, values))
    assert found["root_mean_squared_error"] == pytest.approx(twin.mean_squared_error(y, values) ** 0.5)
    assert found["mean_absolute_error"] == pytest.approx(twin.mean_absolute_error(y, values))


@given(st.lists(st.tuples(st.booleans(), st.integers(-5, 5)), min_size=1, max_size=40), st.integers(3, 12))
def test_curves_are_sklearns_and_thinned_ones_lie_on_them(rows, most):
    positive, scores = (np.array(column) for column in zip(*rows, strict=True))
    found = scored(positive, scores).curves()
    if positive.all() or not positive.any():
        assert found == {}
        return
    fall_out, recall, _ = twin.roc_curve(positive, scores, drop_intermediate=False)
    np.testing.assert_allclose(found["roc"], np.stack([fall_out, recall], axis=1))
    precision, recall, _ = twin.precision_recall_curve(positive, scores)
    np.testing.assert_allclose(found["precision_recall"], np.stack([recall, precision], axis=1)[-2::-1])
    few = scored(positive, scores).curves(most)
    for name, points in few.items():
        assert len(points) <= most
        assert {tuple(point) for point in points} <= {tuple(point) for point in found[name]}
        assert points[-1] == found[name][-1]


def test_thinned_curves_keep_their_shape():
    rng = np.random.default_rng(0)
    positive = rng.random(20_000) < 0.1
    scores = positive + rng.normal(size=20_000)
    roc = np.array(scored(positive, scores).curves()["roc"])
    assert 400 < len(roc) <= 500
    assert np.trapezoid(roc[:, 1], roc[:, 0]) == pytest.approx(scored(positive, scores).roc_auc(), abs=1e-3)


@pytest.mark.parametrize("most", [64, 1000])
def test_many_scores_lose_bits_and_hardly_any_order(most):
    """In whatever blocks they come; with few different ones nothing is lost."""
    rng = np.random.default_rng(0)
    positive = rng.random(5000) < 0.3
    scores = positive + rng.normal(size=5000)
    for own, tolerance in ((scores, 1 / most), (np.round(4 * scores), 1e-12)):
        found, whole = ScoreCounts(most), scored(positive, own).break_even()
        for block in np.array_split(np.arange(5000), 37):
            found.add(positive[block], own[block])
        assert found.roc_auc() == pytest.approx(twin.roc_auc_score(positive, own), abs=tolerance)
        assert found.break_even() == pytest.approx(whole, abs=tolerance)
        assert len(found._scores) <= most
