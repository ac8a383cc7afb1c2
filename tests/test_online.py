"""river's habits, and one model through every door."""

from __future__ import annotations

import doctest
import math
import pickle

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from river import compose, datasets, drift, evaluate, feature_extraction, metrics, multiclass, preprocessing
from river.checks import yield_checks

from streamsvm import BudgetedSVC, load_model
from streamsvm.errors import ConfigError, DataError
from streamsvm.online import BSGDClassifier
from streamsvm.persist import save_model

MODELS = {
    "default": BSGDClassifier(lam=1e-3, budget=20),
    "gradient": BSGDClassifier(lam=1e-3, budget=20, merge=5, strategy="gradient", bias=True),
    "linear": BSGDClassifier(kernel="linear", lam=1e-2, budget=20, strategy="remove"),
    "poly": BSGDClassifier(kernel="poly", degree=2, coef0=1.0, lam=1e-1, budget=20, strategy="project"),
}
LABELS = {"bool": [False, True], "int": [7, -1, 0], "str": ["a", "b", "c"]}


def events(n: int, labels: list, seed: int = 0) -> list[tuple[dict, object]]:
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    codes = (X[:, 0] * X[:, 1] > 0).astype(int) + (len(labels) > 2) * (X[:, 2] > 0.8)
    names = ["w", "x", "y", "z"]
    return [(dict(zip(names, map(float, x), strict=True)), labels[c]) for x, c in zip(X, codes, strict=True)]


@pytest.mark.parametrize(
    ("name", "check"),
    [
        pytest.param(
            name,
            check,
            id=f"{name}-{check.__name__}-{number}",
            marks=[pytest.mark.slow]
            * (name != "default" and check.__name__ == "check_bounded_memory_growth"),
        )
        for name, model in MODELS.items()
        for number, check in enumerate(yield_checks(model))
    ],
)
def test_rivers_own_checks(name, check):
    check(MODELS[name].clone())


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("name", MODELS)
def test_probabilities_agree_with_the_decision(name, labels):
    model = MODELS[name].clone()
    assert model.predict_one({"w": 1.0}) is None
    for x, y in events(300, labels):
        model.learn_one(x, y)
        label, p = model.predict_one(x), model.predict_proba_one(x)
        assert max(p, key=p.get) == label or math.isclose(p[label], max(p.values()))
        assert math.isclose(sum(p.values()), 1)
        assert type(label) is type(y)
    assert set(p) == set(labels)


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("name", MODELS)
def test_events_one_by_one_and_in_frames_give_the_same_model(name, labels):
    stream = events(400, labels)
    single, frames = MODELS[name].clone(), MODELS[name].clone()
    for x, y in stream:
        single.predict_one(x)
        single.learn_one(x, y)
    for start in range(0, 400, 33):
        part = stream[start : start + 33]
        frames.learn_many(pd.DataFrame([x for x, _ in part]), pd.Series([y for _, y in part]))
    expected = [single.decision_one(x) for x, _ in stream]
    found = [frames.decision_one(x) for x, _ in stream]
    np.testing.assert_allclose(found, expected, atol=1e-2 * np.abs(expected).max())
    rows = pd.DataFrame([x for x, _ in stream])
    labels_of = [single.predict_one(x) for x, _ in stream]
    np.testing.assert_array_equal(single.predict_many(rows).tolist(), labels_of)
    p = single.predict_proba_many(rows).to_dict("records")
    for found, (x, _) in zip(p, stream, strict=True):
        assert found == pytest.approx(single.predict_proba_one(x), abs=1e-4)


def test_the_same_rows_through_partial_fit_give_the_same_model():
    stream = events(500, [0, 1])
    X, y = np.array([list(x.values()) for x, _ in stream]), np.array([y for _, y in stream])
    online = BSGDClassifier(lam=1e-3, gamma=0.5, budget=40, classes=[0, 1])
    for x, label in stream:
        online.learn_one(x, label)
    batch = BudgetedSVC(lam=1e-3, gamma=0.5, budget=40)
    for start in range(0, 500, 120):
        batch.partial_fit(X[start : start + 120], y[start : start + 120], classes=[0, 1])
    expected = [online.decision_one(x)[0] for x, _ in stream]
    np.testing.assert_allclose(batch.decision_function(X), expected, atol=1e-3 * np.abs(expected).max())


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
@pytest.mark.parametrize("copy", ["saved", "pickled"])
def test_a_saved_learner_goes_on_bit_by_bit(labels, copy, tmp_path):
    stream = events(300, labels)
    straight, first = MODELS["default"].clone(), MODELS["default"].clone()
    for x, y in stream:
        straight.learn_one(x, y)
    for x, y in stream[:150]:
        first.learn_one(x, y)
    if copy == "saved":
        save_model(first.to_model(), tmp_path / "model")
        second = BSGDClassifier.from_model(load_model(tmp_path / "model"))
    else:
        second = pickle.loads(pickle.dumps(first))
    for x, y in stream[150:]:
        second.learn_one(x, y)
    for x, _ in stream:
        np.testing.assert_array_equal(second.decision_one(x), straight.decision_one(x))
        assert second.predict_proba_one(x) == straight.predict_proba_one(x)


@settings(max_examples=30)
@given(
    st.lists(
        st.tuples(
            st.dictionaries(st.sampled_from("abcdefgh"), st.floats(-5, 5, width=32), min_size=1, max_size=8),
            st.integers(0, 2),
        ),
        min_size=1,
        max_size=40,
    )
)
def test_features_that_are_absent_are_zero(stream):
    sparse, full = BSGDClassifier(budget=5), BSGDClassifier(budget=5)
    full._take_up("abcdefgh")
    for x, y in stream:
        sparse.learn_one(x, y)
        full.learn_one({name: x.get(name, 0.0) for name in "abcdefgh"}, y)
    for x, _ in stream:
        np.testing.assert_allclose(
            sparse.decision_one(x), full.decision_one(x), atol=1e-3 * (1 + len(stream) * 1e4)
        )
        assert np.sign(sparse.decision_one(x)).shape == full.decision_one(x).shape


def told(model: BSGDClassifier) -> tuple:
    """All that a model knows."""
    arrays, attrs = model.to_model().to_state()
    return {name: array.tobytes() for name, array in arrays.items()}, attrs["stream"]


BAD = {
    "nan": ({"a": 1.0, "b": math.nan}, 1, "feature 'b': found nan, expected a finite number"),
    "inf": ({"a": math.inf}, 1, "feature 'a': found inf"),
    "text": ({"a": "high"}, 1, "feature 'a': found 'high', expected a number"),
    "number as text": ({"a": "1.5"}, 1, "feature 'a': found '1.5', expected a number"),
    "none": ({"a": None}, 1, "feature 'a': found None"),
    "label": ({"a": 1.0}, 9, "found label 9, expected one of 0, 1"),
    "label that is no number": ({"a": 1.0}, math.nan, "found label nan"),
    "beyond floats": ({"a": 10**400}, 1, f"feature 'a': found 1{'0' * 39}, expected"),
}


def test_an_event_without_a_feature_is_one_of_zeros():
    """As for all of river's: TFIDF gives {} for an empty text."""
    model = BSGDClassifier(lam=1e-3, budget=5)
    model.learn_one({}, 0)
    for x, y in events(50, [0, 1]):
        model.learn_one(x, y)
    zeros = dict.fromkeys(model.features, 0.0)
    np.testing.assert_array_equal(model.decision_one({}), model.decision_one(zeros))
    model.learn_one({}, 1)
    assert model.n_seen == 52
    text = feature_extraction.TFIDF() | BSGDClassifier()
    for document, y in (("good good", 1), ("", 0), ("!!!", 0), ("bad", 0)):
        text.predict_one(document)
        text.learn_one(document, y)


def test_frames_that_mix_booleans_with_numbers_are_learnt_as_their_rows():
    rng = np.random.default_rng(0)
    X = pd.DataFrame({"a": rng.normal(size=60), "flag": rng.random(60) > 0.5, "n": rng.integers(0, 5, 60)})
    y = pd.Series((X["a"] > 0) ^ X["flag"])
    many, one = BSGDClassifier(lam=1e-3, budget=20), BSGDClassifier(lam=1e-3, budget=20)
    many.learn_many(X, y)
    for row, label in zip(X.to_dict(orient="records"), y.tolist(), strict=True):
        one.learn_one(row, label)
    assert many.predict_many(X).tolist() == [one.predict_one(row) for row in X.to_dict(orient="records")]
    assert len(many.predict_proba_many(X)) == 60


def test_frames_with_fewer_labels_or_gaps_are_refused():
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="found 2 labels, expected one for each of 3 rows"):
        BSGDClassifier().learn_many(X, pd.Series([0, 1]))
    gaps = pd.DataFrame({"a": pd.array([1, None, 3], dtype="Int64")})
    with pytest.raises(DataError, match="row 1, feature 'a': found nan, expected a number"):
        BSGDClassifier().learn_many(gaps, pd.Series([0, 1, 0]))


def test_the_example_of_the_class_prints_what_it_says():
    [example] = [test for test in doctest.DocTestFinder().find(BSGDClassifier, globs={}) if test.examples]
    assert doctest.DocTestRunner().run(example).failed == 0


@pytest.mark.parametrize("case", BAD)
def test_a_bad_event_is_told_and_changes_nothing(case):
    x, y, message = BAD[case]
    model = BSGDClassifier(lam=1e-3, budget=5, classes=[0, 1])
    for good, label in events(50, [0, 1]):
        model.learn_one(good, label)
    before = told(model)
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        model.learn_one(x, y)
    assert told(model) == before


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"budget": 1}, "bsgd.budget: found 1, expected a number at least 2"),
        ({"budget": 3, "merge": 4}, "merge is 4, expected at most the budget, 3"),
        ({"kernel": "poly"}, "points merge under the rbf kernel only"),
        ({"lam": 0.0}, "bsgd.lam: found 0.0"),
        ({"strategy": "swap"}, "bsgd.strategy: found 'swap'"),
    ],
)
def test_bad_options_are_told_when_made(options, message):
    with pytest.raises(ConfigError, match=message):
        BSGDClassifier(**options)


def test_works_in_rivers_pipelines():
    scaled = preprocessing.StandardScaler() | BSGDClassifier(lam=1e-3, gamma=0.1, budget=100)
    score = evaluate.progressive_val_score(datasets.Phishing(), scaled, metrics.Accuracy())
    assert score.get() > 0.85
    rest = compose.Select("w", "x", "y") | multiclass.OneVsRestClassifier(BSGDClassifier(lam=1e-3, budget=30))
    adwin, right = drift.ADWIN(), 0
    for x, y in events(400, LABELS["str"]):
        hit = rest.predict_one(x) == y
        adwin.update(hit)
        right += hit
        rest.learn_one(x, y)
    assert right > 200
