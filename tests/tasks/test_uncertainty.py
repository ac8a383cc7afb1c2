"""Intervals of scores: by rows those of a plain bootstrap, by groups as wide as the copies in them make them."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import balanced_accuracy_score, mean_squared_error, r2_score, roc_auc_score

from streamsvm.data.store import Store
from streamsvm.tasks import task_of
from streamsvm.tasks.uncertainty import drawn_units

COPIES, DRAWS = 4, 200


def judge(k, costs=None):
    """Answers 1 above 0; of more than two classes the largest value."""
    classes = np.arange(k)
    return SimpleNamespace(
        classes=classes,
        costs=costs,
        intervals=None,
        quantile=None,
        codes_of=lambda values, proba: (values > 0).astype(int) if k == 2 else values.argmax(axis=1),
        encode_labels=lambda y: np.where(np.isin(y, classes), y, -1),
    )


def scored(task, own, y, values, group=None, blocks=3, qid=None, proba=None):
    scores = task_of(task).scores(own, Store.from_arrays(np.zeros((len(y), 1)), y, group=group, qid=qid))
    edges = np.linspace(0, len(y), blocks + 1).astype(int)
    for start, stop in zip(edges, edges[1:], strict=False):
        scores.add(start, stop, values[start:stop], None if proba is None else proba[start:stop])
    return scores.result()


def errors(found):
    return {row["score"]: row["standard_error"] for row in found["intervals"]}


def bootstrap(measure, y, values):
    """The deviation of a score over draws of rows."""
    rng = np.random.default_rng(1)
    draws = (rng.integers(0, len(y), len(y)) for _ in range(DRAWS))
    return np.std([measure(y[ids], values[ids]) for ids in draws])


def two_classes(n=250):
    rng = np.random.default_rng(0)
    y = (rng.random(n) < 0.3).astype(int)
    return y, rng.normal(size=n).round(1) + 1.2 * y - 0.6


def numbers(n=250):
    rng = np.random.default_rng(0)
    y = rng.gamma(2.0, size=n)
    return y, y + rng.normal(size=n) * (0.3 + 0.3 * y)


LABELS = {
    "accuracy": lambda y, v: np.mean((v > 0) == y),
    "balanced_accuracy": lambda y, v: balanced_accuracy_score(y, v > 0),
    "roc_auc": roc_auc_score,
}
NUMBERS = {
    "r2": r2_score,
    "mean_squared_error": mean_squared_error,
    "root_mean_squared_error": lambda y, v: mean_squared_error(y, v) ** 0.5,
    "mean_absolute_error": lambda y, v: np.mean(np.abs(y - v)),
}


@pytest.mark.parametrize(
    ("task", "own", "rows", "measures"),
    [("classify", judge(2), two_classes(), LABELS), ("regress", judge(0), numbers(), NUMBERS)],
)
def test_errors_are_those_of_a_bootstrap_and_groups_of_copies_widen_them(task, own, rows, measures):
    found = errors(scored(task, own, *rows))
    assert found.keys() == measures.keys()
    for name, measure in measures.items():
        assert found[name] == pytest.approx(bootstrap(measure, *rows), rel=0.15), name
    for row in scored(task, own, *rows)["intervals"]:  # whatever share of the rows decides a score
        assert row["high"] - row["low"] == pytest.approx(2 * 1.97 * row["standard_error"], rel=0.05), row["score"]
    copied = [np.tile(column, COPIES) for column in rows]
    group = np.tile([f"g{i}" for i in range(len(rows[0]))], COPIES)
    naive, whole = scored(task, own, *copied), scored(task, own, *copied, group=group)
    assert whole["groups"] == len(rows[0])
    assert "groups" not in naive
    for name in measures:
        assert errors(whole)[name] == pytest.approx(found[name], rel=1e-9)
        assert errors(whole)[name] / errors(naive)[name] == pytest.approx(COPIES**0.5, rel=0.01)
    widths = [{row["score"]: row["high"] - row["low"] for row in one["intervals"]} for one in (whole, naive)]
    for name in measures:
        assert widths[0][name] / widths[1][name] == pytest.approx(COPIES**0.5, rel=0.03)


def test_groups_of_one_row_are_rows_whatever_the_blocks_and_labels_that_are_not_known():
    rng = np.random.default_rng(0)
    y, values = rng.integers(0, 4, 120), rng.normal(size=(120, 3))  # 3 is not known
    own = judge(3, costs=1.0 - np.eye(3))
    plain = scored("classify", own, y, values)
    assert errors(plain).keys() == {"accuracy", "balanced_accuracy", "cost"}
    for blocks in (1, 7):
        grouped = scored("classify", own, y, values, group=rng.permutation(120), blocks=blocks)
        assert errors(grouped) == pytest.approx(errors(plain))
    right = values.argmax(axis=1) == y
    assert errors(plain)["accuracy"] == pytest.approx(np.std(right, ddof=1) / 120**0.5)


def test_no_error_at_all_has_an_interval_and_one_group_has_none():
    y, values = np.array([0, 1] * 10), np.array([-1.0, 1.0] * 10)
    [row, *_] = scored("classify", judge(2), y, values)["intervals"]
    assert (row["value"], row["standard_error"], row["high"]) == (1.0, 0.0, 1.0)
    assert 0.7 < row["low"] < 0.9
    [by_two, *_] = scored("classify", judge(2), y, values, group=np.arange(20) // 10)["intervals"]
    assert by_two["low"] < row["low"]
    assert "intervals" not in scored("classify", judge(2), y, values, group=np.zeros(20))


def test_many_rows_of_a_regression_are_told_by_few_sums(monkeypatch):
    rows = numbers(20_000)
    found = errors(scored("regress", judge(0), *rows))
    monkeypatch.setattr("streamsvm.tasks.uncertainty.MOST_SUMS", 100_000)
    exact = errors(scored("regress", judge(0), *rows))
    assert found == pytest.approx(exact, rel=0.1)
    assert found != exact


@pytest.mark.parametrize("first", [0.0, -1e9])
@pytest.mark.parametrize("group", [None, np.arange(250) % 60])
def test_errors_of_r2_do_not_depend_on_where_labels_are(first, group):
    y, values = numbers()
    at_zero = scored("regress", judge(0), y[1:], values[1:], group=None if group is None else group[1:])
    far = scored("regress", judge(0), y[1:] + 1e8, values[1:] + 1e8, group=None if group is None else group[1:])
    assert errors(far)["r2"] == pytest.approx(errors(at_zero)["r2"], rel=1e-6)
    y, values = (np.append(first, column) for column in (y[1:], values[1:]))  # one far label comes first
    plain = scored("regress", judge(0), y[::-1], values[::-1], group=None if group is None else group[::-1])
    assert errors(scored("regress", judge(0), y, values, group=group))["r2"] == pytest.approx(errors(plain)["r2"])


def queries(n=40):
    """Rows of `n` queries, one to nine each."""
    rng = np.random.default_rng(3)
    qid = np.repeat(np.arange(n), rng.integers(1, 10, n))
    y = rng.integers(0, 4, len(qid))
    return {"y": y, "values": y + 2.0 * rng.normal(size=len(qid)), "qid": qid}


def by_sign():
    """A judge of three labels, whose decision values have their signs."""
    return SimpleNamespace(classes=np.array([*"abc"]), costs=None, codes_of=lambda values, proba: values > 0)


def label_sets(n=250):
    """Four labels, the last of which is rare; the model does not know it."""
    rng = np.random.default_rng(3)
    has = rng.random((n, 4)) < [0.5, 0.3, 0.2, 0.1]
    y = np.array([",".join(np.array([*"abcd"])[own]) for own in has])
    return {"y": y, "values": has[:, :3] - 0.5 + 0.5 * rng.normal(size=(n, 3))}


def three_probabilities(n=250):
    """With labels, 3, of which the model knows nothing."""
    rng = np.random.default_rng(3)
    y, proba = rng.integers(0, 4, n), rng.dirichlet([2.0, 1.0, 1.0], n)
    return {"y": y, "values": proba, "proba": proba}


@pytest.mark.parametrize(
    ("task", "own", "columns", "names"),
    [
        ("rank", judge(4), queries(), {"ndcg", "ndcg@3", "map", "swapped_pairs", "kendall_tau"}),
        (
            "multilabel",
            by_sign(),
            label_sets(),
            {"accuracy", "hamming_loss", "f1_micro", "f1_macro", "f1_samples"},
        ),
        ("classify", judge(3), three_probabilities(), {"brier", "log_loss"}),
    ],
)
def test_errors_of_queries_sets_and_probabilities_are_those_of_a_bootstrap(task, own, columns, names):
    """Of queries that are drawn whole; and groups of copies widen them."""
    units, rng = columns.get("qid", np.arange(len(columns["y"]))), np.random.default_rng(1)
    members = [np.flatnonzero(units == unit) for unit in np.unique(units)]

    def of(places):
        ids = np.concatenate([members[place] for place in places])
        drawn = {name: column[ids] for name, column in columns.items()}
        if "qid" in columns:
            drawn["qid"] = np.repeat(np.arange(len(places)), [len(members[place]) for place in places])
        return scored(task, own, **drawn)

    found = scored(task, own, **columns)
    draws = [of(rng.integers(0, len(members), len(members))) for _ in range(DRAWS)]
    for row in found["intervals"]:
        name = row["score"]
        assert row["value"] == found[name]
        if name in names:
            assert row["standard_error"] == pytest.approx(np.std([one[name] for one in draws]), rel=0.15), name
            assert row["low"] < row["value"] < row["high"] <= (1 if name not in ("brier", "log_loss") else 9)
    assert names <= errors(found).keys()
    copied = {name: np.tile(column, (COPIES, 1)[: 1 if column.ndim == 1 else 2]) for name, column in columns.items()}
    if "qid" in columns:
        copied["qid"] = copied["qid"] + 1000 * np.repeat(np.arange(COPIES), len(units))
    whole = scored(task, own, **copied, group=np.tile(units, COPIES))
    assert whole["groups"] == len(members)
    assert {name: errors(whole)[name] for name in names} == pytest.approx({name: errors(found)[name] for name in names})


def test_many_labels_are_told_by_few_sums(monkeypatch):
    columns, own = label_sets(4000), by_sign()
    exact = errors(scored("multilabel", own, **columns))
    monkeypatch.setattr("streamsvm.tasks.uncertainty.MOST_ENTRIES", 8 * 250)
    for group in (None, np.arange(4000)):
        found = errors(scored("multilabel", own, **columns, group=group))
        assert found == pytest.approx(exact, rel=0.2)
        assert found != exact


def test_what_is_drawn_is_told():
    of_queries = scored("ordinal", judge(2), **queries())
    assert drawn_units(of_queries) == "40 queries"
    assert {"accuracy", "ndcg"} <= errors(of_queries).keys()
    assert drawn_units(scored("rank", judge(4), **queries(), group=queries()["qid"] // 2)) == "20 groups"
    assert drawn_units(scored("classify", judge(2), *two_classes())) == "rows"
    assert "intervals" not in scored("rank", judge(4), **(queries() | {"qid": None}))
