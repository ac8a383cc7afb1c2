"""river's habits, and one model through every door."""

from __future__ import annotations

import doctest
import math
import pickle
from datetime import date, datetime, timedelta
from decimal import Decimal
from itertools import islice

import numpy as np
import pandas as pd
import pytest
from every_case import every_case
from hypothesis import given, settings
from hypothesis import strategies as st
from online.rivers import checks_of, failures
from river import compose, datasets, drift, evaluate, feature_extraction, metrics, multiclass, preprocessing, stream
from sklearn.datasets import load_digits

from streamsvm import BudgetedSVC, load_model
from streamsvm.data.rows import Rows
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.metrics import ProbabilityScores
from streamsvm.models.files import save_model
from streamsvm.online import BSGDClassifier
from streamsvm.online.calibration import OnlineCalibration

PLAIN = {"lam": 1e-3, "gamma": "scale"}
MODELS = {
    "default": BSGDClassifier(),
    "plain": BSGDClassifier(**PLAIN, budget=20),
    "gradient": BSGDClassifier(**PLAIN, budget=20, merge=5, strategy="gradient", bias=True),
    "linear": BSGDClassifier(kernel="linear", lam=1e-2, budget=20, strategy="remove"),
    "logistic": BSGDClassifier(**PLAIN, budget=20, loss="logistic"),
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
    ("name", "place"),
    [
        ("default", 0),
        *(pytest.param(name, place, marks=pytest.mark.slow) for place, name in enumerate(MODELS) if place > 0),
        pytest.param("default", None, marks=pytest.mark.slow),
    ],
)
def test_rivers_own_checks(name, place):
    """Each on one of river's data sets, as options and data do not interact; of the default model, each on all."""
    checks = checks_of(MODELS[name], place)
    assert len(checks) > 15
    assert failures(MODELS[name], checks) == []


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
    decisions = [frames.decision_one(x) for x, _ in stream]
    np.testing.assert_allclose(decisions, expected, atol=1e-2 * np.abs(expected).max())
    rows = pd.DataFrame([x for x, _ in stream])
    labels_of = [single.predict_one(x) for x, _ in stream]
    np.testing.assert_array_equal(single.predict_many(rows).tolist(), labels_of)
    p = single.predict_proba_many(rows).to_dict("records")
    for decisions, (x, _) in zip(p, stream, strict=True):
        assert decisions == pytest.approx(single.predict_proba_one(x), abs=1e-4)


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
@pytest.mark.parametrize(
    ("name", "copy"),
    [
        ("default", "saved"),
        ("default", "pickled"),
        ("plain", "saved"),
        ("plain", "pickled"),
        ("logistic", "saved"),
    ],
)
def test_a_saved_learner_goes_on_bit_by_bit(labels, name, copy, tmp_path):
    stream = events(300, labels)
    straight, first = MODELS[name].clone(), MODELS[name].clone()
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
    sparse, full = BSGDClassifier(gamma=0.1, budget=5), BSGDClassifier(gamma=0.1, budget=5)
    full._columns._add_columns(dict.fromkeys("abcdefgh", 0.0), "abcdefgh")
    for x, y in stream:
        sparse.learn_one(x, y)
        full.learn_one({name: x.get(name, 0.0) for name in "abcdefgh"}, y)
    for x, _ in stream:
        np.testing.assert_allclose(sparse.decision_one(x), full.decision_one(x), atol=1e-3 * (1 + len(stream) * 1e4))
        assert np.sign(sparse.decision_one(x)).shape == full.decision_one(x).shape


def learn(model: BSGDClassifier, stream: list) -> None:
    for x, y in stream:
        model.learn_one(x, y)


def told(model: BSGDClassifier) -> tuple:
    """All that a model knows."""
    arrays, attrs = model.to_model().to_state()
    return {name: array.tobytes() for name, array in arrays.items()}, attrs["stream"]


BAD = {
    "nan": ({"a": 1.0, "b": math.nan}, 1, "feature 'b': found nan, expected .*; leave it out"),
    "inf": ({"a": math.inf}, 1, "feature 'a': found inf"),
    "text": ({"w": "high"}, 1, "feature 'w': found 'high', expected a number, as before"),
    "number as text": ({"w": "1.5"}, 1, "feature 'w': found '1.5', expected a number"),
    "true": ({"w": True}, 1, "feature 'w': found True, expected a number, as before"),
    "time": ({"w": datetime(2026, 1, 1)}, 1, "feature 'w': found datetime.*, expected a number, as before"),
    "half a pair": (
        {"a": 1.0, "\ud800": 1.0},
        1,
        "feature '.ud800': found .*, expected text that is Unicode",
    ),
    "text that is half a pair": (
        {"a": 1.0, "c": "\udfff"},
        1,
        "feature 'c': found .*, expected text that is",
    ),
    "a signal": ({"a": Decimal("sNaN")}, 1, "feature 'a': found Decimal"),
    "thousands of digits": ({"a": 10**5000}, 1, "feature 'a': found an int of thousands of digits, expected"),
    "complex": ({"w": np.complex128(1)}, 1, "feature 'w': found .*, expected a number, as before"),
    "label": ({"a": 1.0}, 9, "found label 9, expected one of 0, 1"),
    "label of another kind": (
        {"a": 1.0},
        True,
        "found label True, expected a number, as before: a model holds",
    ),
    "label of a known text": ({"a": 1.0}, "1", "found label '1', expected a number, as before"),
    "label that is a pair": ({"a": 1.0}, (0, 1), "found label .*, expected a boolean, a finite number"),
    "label that is no number": ({"a": 1.0}, math.nan, "found label nan"),
    "label that is missing": (
        {"a": 1.0},
        None,
        "found label None, which is missing; leave out events without",
    ),
    "beyond float32": ({"a": 1e30}, 1, "feature 'a': found 1e[+]30, expected a finite number below 1e[+]18"),
    "beyond floats": ({"a": 10**400}, 1, f"feature 'a': found 1{'0' * 39}, expected"),
}


def test_an_event_without_a_feature_is_one_of_zeros():
    """As for all of river's: TFIDF gives {} for an empty text."""
    model = BSGDClassifier(**PLAIN, budget=5)
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


def test_frames_with_fewer_labels_are_refused():
    X = pd.DataFrame({"a": [1.0, 2.0, 3.0]})
    with pytest.raises(DataError, match="found 2 labels, expected one for each of 3 rows"):
        BSGDClassifier().learn_many(X, pd.Series([0, 1]))


def test_the_example_of_the_class_prints_what_it_says():
    [example] = [test for test in doctest.DocTestFinder().find(BSGDClassifier, globs={}) if test.examples]
    assert doctest.DocTestRunner().run(example).failed == 0


@every_case("case", BAD)
def test_a_bad_event_is_told_and_changes_nothing(case):
    x, y, message = BAD[case]
    model = BSGDClassifier(**PLAIN, budget=5, classes=[0, 1])
    for good, label in events(50, [0, 1]):
        model.learn_one(good, label)
    before = told(model)
    with pytest.raises(DataError, match=message.replace("(", r"\(")):
        model.learn_one(x, y)
    assert told(model) == before


@every_case(
    ("options", "message"),
    [
        ({"budget": 1}, "budget: found 1, expected a number at least 2"),
        ({"budget": 3, "merge": 4}, "merge is 4, expected at most the budget, 3"),
        (
            {"kernel": "poly", "strategy": "sequence"},
            "strategy is 'sequence', and points merge under the rbf kernel only",
        ),
        ({"lam": 0.0}, "lam: found 0.0"),
        ({"max_classes": 1}, "max_classes: found 1, expected a whole number at least 2"),
        ({"strategy": "swap"}, "BSGDClassifier: strategy: found 'swap'"),
        ({"loss": "hinge"}, "loss 'hinge' needs a single learner; give lam and gamma with it"),
        ({"lam": 1e-3, "average": True}, "average needs a single learner; give lam and gamma with it"),
        ({"loss": "squared"}, "BSGDClassifier: loss: found 'squared', expected 'hinge' or 'logistic'"),
    ],
)
def test_bad_options_are_told_when_made(options, message):
    with pytest.raises(ConfigError, match=message):
        BSGDClassifier(**options)


def test_river_counts_the_arrays_as_its_memory_and_nothing_of_the_compiler():
    model = BSGDClassifier()
    for x, y in islice(datasets.Phishing(), 20):
        model.predict_one(x)
        model.learn_one(x, y)
    assert model._raw_memory_usage < 5 << 20  # with the compiler's it would be 14 MiB


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


def progressive(events, model) -> tuple[np.ndarray, np.ndarray, list]:
    """Probabilities (m, k) and codes (m,) of the second half, each told before it is learnt; and the labels."""
    scaler, probabilities = preprocessing.StandardScaler(), []
    for x, y in events:
        scaler.learn_one(x)
        x = scaler.transform_one(x)
        probabilities.append((model.predict_proba_one(x), y))
        model.learn_one(x, y)
    probabilities = probabilities[len(probabilities) // 2 :]
    labels = sorted({y for _, y in probabilities})
    p = np.array([[p.get(label, 1e-12) for label in labels] for p, _ in probabilities])
    return p, np.array([labels.index(y) for _, y in probabilities]), labels


def digits():
    X, y = load_digits(return_X_y=True)
    return stream.iter_array(X, y.tolist())


@pytest.mark.parametrize(
    ("name", "bound"), [("Phishing", 0.05), ("Bananas", 0.05), ("ImageSegments", 0.1), ("digits", 0.1)]
)
def test_probabilities_of_a_stream_are_calibrated(name, bound):
    """Their ECE; and log loss is below that of a sigmoid that knew no more than how often it is right."""
    events = list(islice(digits() if name == "digits" else getattr(datasets, name)(), 3000))
    p, codes, labels = progressive(events, BSGDClassifier())
    scores = ProbabilityScores(len(labels))
    scores.add(codes, p)
    found, wrong = scores.result(), np.mean(np.argmax(p, axis=1) != codes)
    assert found["ece"] <= bound
    entropy = -(wrong * np.log(wrong / (len(labels) - 1)) + (1 - wrong) * np.log(1 - wrong))
    assert found["log_loss"] < entropy


def test_calibration_forgets_its_first_steps():
    """Decisions of thousands at first, as steps of 1 / (lambda t) make them, and then a world of another slope."""
    rng = np.random.default_rng(0)
    calibration = OnlineCalibration()
    for t in range(1, 4001):
        f = rng.normal(size=1)
        y = rng.random() < 1 / (1 + np.exp(-3 * f[0]))
        calibration.learn((f * 1000 / t)[None], np.array([int(y)]))
    shown = np.array([[-0.25], [0.0], [0.25], [0.5]])
    assert calibration(shown)[:, 1] == pytest.approx(1 / (1 + np.exp(-12 * shown[:, 0])), abs=0.08)


def test_calibration_of_many_events_stays_finite():
    """Forgetting multiplies rounding by 1.001 an event: the two halves of the curvature must not grow apart."""
    rng = np.random.default_rng(0)
    F = rng.normal(size=(100_000, 3))
    codes = np.argmax(F + rng.gumbel(size=F.shape), axis=1)
    calibration = OnlineCalibration()
    calibration.learn(F, codes)
    p = np.exp(F) / np.exp(F).sum(axis=1, keepdims=True)
    assert np.abs(calibration(F[-1000:]) - p[-1000:]).mean() < 0.02


@pytest.mark.parametrize("name", ["Phishing", "Bananas", "ImageSegments"])
def test_probabilities_of_a_logistic_loss_are_those_of_its_decisions(name):
    """Log loss is below that of one that knows no more than how often it is right."""
    events_first = list(islice(getattr(datasets, name)(), 3000))
    model = BSGDClassifier(**PLAIN, loss="logistic")
    p, codes, labels = progressive(events_first, model)
    odds = 1 / (1 + np.exp(-model.decision_one(events_first[0][0])))
    expected = odds / odds.sum() if len(odds) > 1 else [1 - odds[0], odds[0]]
    np.testing.assert_allclose(list(model.predict_proba_one(events_first[0][0]).values()), expected)
    scores, wrong = ProbabilityScores(len(labels)), np.mean(np.argmax(p, axis=1) != codes)
    scores.add(codes, p)
    entropy = -(wrong * np.log(wrong / (len(labels) - 1)) + (1 - wrong) * np.log(1 - wrong))
    assert scores.result()["log_loss"] < entropy


@pytest.mark.parametrize("k", [2, 3, 20])
@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_snapshot_has_the_probabilities_of_its_stream(loss, k, tmp_path):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 3)).astype(np.float32)
    y = np.minimum((k * rng.beta(2, 2, 400) + (X[:, 0] > 0)).astype(int), k - 1)
    model = BSGDClassifier(lam=1e-3, gamma=0.5, budget=30, classes=range(k), loss=loss)
    rows = [dict(zip("abc", x, strict=True)) for x in X.tolist()]
    learn(model, list(zip(rows, y.tolist(), strict=True)))
    save_model(model.to_model(), tmp_path / "m")
    saved = load_model(tmp_path / "m")
    p = saved.predict_proba(Rows(X))
    np.testing.assert_allclose([list(model.predict_proba_one(x).values()) for x in rows], p, atol=1e-4)
    assert np.mean(saved.predict(Rows(X)) == [model.predict_one(x) for x in rows]) > 0.99  # float32
    np.testing.assert_array_equal(np.argmax(p, axis=1), saved.predict(Rows(X)))


def test_snapshots_of_before_begin_calibration_anew():
    model = MODELS["plain"].clone()
    for x, y in events(100, LABELS["str"]):
        model.learn_one(x, y)
    saved = model.to_model()
    for name in ("calibration", "gamma", "spread", "limits"):
        del saved.stream[name]
    saved.stream["sigmoid"] = {"slope": 0.03, "curvature": 1e6}
    old = BSGDClassifier.from_model(saved)
    assert old.gamma == pytest.approx(saved.header.kernel.gamma)
    for x, y in events(200, LABELS["str"], seed=1):
        np.testing.assert_array_equal(old.decision_one(x).shape, (3,))
        old.learn_one(x, y)
    assert max(old.predict_proba_one(x).values()) > 0.5


def gamma_of(model: BSGDClassifier) -> float:
    return model.to_model().header.kernel.gamma


def test_gamma_scale_is_one_over_the_variance_of_all_columns():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1024, 3)) * [1, 10, 100] + [0, 1e5, 7]
    model = BSGDClassifier(lam=1e-4, gamma="scale", budget=20)
    for row in X.tolist():
        model.learn_one(dict(zip("abc", row, strict=True)), row[1] > 1e5)
    assert gamma_of(model) == pytest.approx(1 / X.var(axis=0).sum(), rel=1e-6)
    unit = BSGDClassifier(lam=1e-4, gamma="scale", budget=20)  # as TFIDF makes them
    for i in range(64):
        unit.learn_one({f"word {i % 32}": 0.6, f"word {i % 31 + 32}": 0.8}, i % 2)
    assert gamma_of(unit) == pytest.approx(1, rel=0.1)


def test_gamma_auto_is_one_over_the_columns_seen():
    model = BSGDClassifier(lam=1e-4, gamma="auto", budget=20)
    for x, y in events(20, [0, 1]):
        model.learn_one({"w": x["w"]}, y)
    assert gamma_of(model) == 1
    for x, y in events(20, [0, 1]):
        model.learn_one(x, y)
    assert gamma_of(model) == 1 / 4


@pytest.mark.parametrize("kernel", ["rbf", "poly"])
def test_support_vectors_go_on_under_another_gamma(kernel):
    """Values between them are those of the new gamma, or merges would go wrong."""
    model = BSGDClassifier(**PLAIN, kernel=kernel, budget=20)
    for x, y in events(64, [0, 1]):
        model.learn_one({"w": x["w"], "x": 5 * x["x"]}, y)
    learner = model._learner
    learner.set_gamma(0.03)
    X = learner.supports()
    values = learner._values_now()
    expected = learner.kernel.block(X, X)
    np.testing.assert_allclose(np.exp(-values) if kernel == "rbf" else values, expected, rtol=1e-3, atol=1e-3)


def test_a_kernel_without_merges_needs_no_strategy():
    model = BSGDClassifier(kernel="linear", lam=1e-2, budget=10)
    for x, y in events(50, [0, 1]):
        model.learn_one(x, y)
    assert model.n_support <= 10


@pytest.mark.parametrize("labels", LABELS.values(), ids=LABELS)
def test_a_mean_of_steps_decides_through_every_door(labels, tmp_path):
    """predict_one decided by the last w, predict_many and the saved model by the mean."""
    model, frames = (BSGDClassifier(lam=1e-2, gamma=0.3, budget=60, average=True) for _ in range(2))
    stream = events(200, labels)
    for x, y in stream:
        model.learn_one(x, y)
    rows = pd.DataFrame([x for x, _ in stream])
    frames.learn_many(rows, pd.Series([y for _, y in stream]))
    one = np.array([model.decision_one(x) for x, _ in stream])
    saved = model.to_model().decision_function(Rows(rows.to_numpy(np.float32)))
    np.testing.assert_allclose(one, saved.reshape(one.shape), atol=1e-4)
    np.testing.assert_allclose([frames.decision_one(x) for x, _ in stream], one, atol=1e-4)
    assert model.predict_many(rows).tolist() == [model.predict_one(x) for x, _ in stream]
    last = BSGDClassifier(lam=1e-2, gamma=0.3, budget=60)
    for x, y in stream:
        last.learn_one(x, y)
    assert np.abs(np.array([last.decision_one(x) for x, _ in stream]) - one).max() > 0.1


def test_new_features_without_end_are_left_out_with_a_warning():
    model = BSGDClassifier(budget=5, max_features=10)
    stream = [({f"id{i}": 1.0}, i % 2) for i in range(50)]
    with pytest.warns(UserWarning, match="feature 'id10' is left out.*10 columns already") as said:
        learn(model, stream)
    assert len(said) == 1
    assert (len(model.features), model.n_columns) == (10, 10)
    again = BSGDClassifier.from_model(model.to_model())
    again.allow(max_features=11)
    again.learn_one({"new": 1.0}, 0)
    assert again.features[-1] == "new"


@every_case(
    "labels", [["b", "a", "c"], [2, 1, 3.0], [np.int64(4), 2, np.float32(1)], [True, np.bool_(False)]], ids=repr
)
def test_labels_of_a_block_are_those_of_its_events(labels):
    events = [({"a": float(i), "b": float(i % 3)}, labels[i // 2 % len(labels)]) for i in range(40)]
    one, many = BSGDClassifier(), BSGDClassifier()
    for x, y in events:
        one.learn_one(x, y)
    for half in (events[:15], events[15:]):
        many.learn_many(pd.DataFrame([x for x, _ in half]), pd.Series([y for _, y in half], dtype=object))
    assert one.labels == many.labels == [*labels]
    assert [type(label) for label in many.labels] == [type(label) for label in one.labels]
    assert one.predict_proba_one(events[0][0]) == many.predict_proba_one(events[0][0])


def test_a_class_that_is_named_twice_has_its_first_number():
    model = BSGDClassifier(1e-3, 1.0, classes=["a", "b", "a"])
    for i in range(20):
        model.learn_one({"x": float(i % 2)}, "ab"[i % 2])
    assert [model.predict_one({"x": x}) for x in (0.0, 1.0)] == ["a", "b"]


def test_new_labels_without_end_are_an_error():
    model = BSGDClassifier(budget=5, max_classes=3)
    for i in range(3):
        model.learn_one({"a": float(i)}, i)
    before = told(model)
    with pytest.raises(DataError, match="found label 3 in addition to 3 others, expected at most max_classes"):
        model.learn_one({"a": 3.0}, 3)
    with pytest.raises(DataError, match="found label 7 in addition to 3 others"):
        model.learn_many(pd.DataFrame({"a": [1.0, 2.0]}), pd.Series([0, 7]))
    assert told(model) == before


def test_kernel_values_that_vanish_are_said_once():
    rng = np.random.default_rng(0)
    model = BSGDClassifier(lam=1e-4, gamma=0.1, budget=50)
    stream = [({"a": a, "b": b}, a * b > 0) for a, b in (1000 * rng.normal(size=(600, 2))).tolist()]
    with pytest.warns(UserWarning, match="nearly all kernel values vanish: gamma is 0.1") as said:
        learn(model, stream)
    assert len(said) == 1
    measured = BSGDClassifier(lam=1e-4, gamma="scale", budget=50)
    learn(measured, stream)  # and no warning, which would be an error here
    assert sum(measured.predict_one(x) == y for x, y in stream) > 450


def heavy(n: int = 600) -> list[tuple[dict, object]]:
    """Events whose labels overlap."""
    rng = np.random.default_rng(5)
    return [({"a": float(x)}, int(x + rng.normal() > 0)) for x in rng.normal(size=n)]


@pytest.mark.parametrize("average", [False, True])
def test_class_weights_are_those_of_a_batch_through_every_door(average, tmp_path):
    options = {"lam": 1e-2, "gamma": 0.5, "budget": 30, "average": average}
    weighted = BSGDClassifier(**options, classes=[0, 1], class_weight={1.0: 5.0})
    plain = BSGDClassifier(**options, classes=[0, 1])
    for x, y in heavy():
        weighted.learn_one(x, y)
        plain.learn_one(x, y)
    X = np.array([[x["a"]] for x, _ in heavy()], np.float32)
    y = np.array([label for _, label in heavy()])
    batch = BudgetedSVC(**options, class_weight={1: 5.0}).partial_fit(X, y, classes=[0, 1])
    ones = [
        np.mean([model.predict_one({"a": float(a)}) for a in np.linspace(-3, 3, 61)]) for model in (weighted, plain)
    ]
    assert ones[0] > ones[1] + 0.1
    decisions = [weighted.decision_one(x)[0] for x, _ in heavy(50)]
    np.testing.assert_allclose(batch.decision_function(X[:50]), decisions, rtol=1e-4, atol=1e-5)
    framed = BSGDClassifier(**options, classes=[0, 1], class_weight={"1": 5.0})
    framed.learn_many(pd.DataFrame({"a": X[:, 0].astype(float)}), pd.Series(y))
    np.testing.assert_allclose([framed.decision_one(x)[0] for x, _ in heavy(50)], decisions, rtol=1e-4, atol=1e-5)
    save_model(weighted.to_model(), tmp_path / "m")
    again = BSGDClassifier.from_model(load_model(tmp_path / "m"))
    for x, y in heavy(50):
        weighted.learn_one(x, y)
        again.learn_one(x, y)
    assert [again.decision_one(x)[0] for x, _ in heavy(50)] == [weighted.decision_one(x)[0] for x, _ in heavy(50)]
    batch.save(tmp_path / "b")
    assert BSGDClassifier.from_model(load_model(tmp_path / "b")).class_weight == {"0": 1.0, "1": 5.0}


def test_merge_all_holds_through_every_door(tmp_path):
    """Event by event, in blocks, as batches and from a saved model; ten that become one leave room for nine. A model of
    0.2.0, which does not name the option, goes on as it began."""
    options = {"lam": 1e-3, "gamma": 50.0, "budget": 30, "merge": 10}
    one, many, plain = (
        BSGDClassifier(**options, classes=[0, 1], merge_all=all_, loss="hinge") for all_ in (True, True, False)
    )
    for x, y in heavy():
        one.learn_one(x, y)
        plain.learn_one(x, y)
    X, y = np.array([[x["a"]] for x, _ in heavy()], np.float32), np.array([label for _, label in heavy()])
    many.learn_many(pd.DataFrame({"a": X[:, 0].astype(float)}), pd.Series(y))
    batch = BudgetedSVC(**options, merge_all=True).partial_fit(X, y, classes=[0, 1])
    fewer = one.stats.maintenances
    assert many.stats.maintenances == batch.model_.learner().stats().maintenances == fewer
    assert fewer < 0.9 * plain.stats.maintenances

    for learner in (one, plain):
        path = tmp_path / str(learner.merge_all)
        save_model(learner.to_model(), path)
        again = BSGDClassifier.from_model(load_model(path))
        assert again.merge_all == learner.merge_all
        arrays, attrs = learner.to_model().to_state()
        if not learner.merge_all:
            del attrs["options"]["merge_all"]
        before = BSGDClassifier.from_model(type(learner.to_model()).from_state(arrays, attrs))
        for x, y in heavy(100):
            for going in (learner, again, before):
                going.learn_one(x, y)
        assert again.decision_one({"a": 0.1}) == before.decision_one({"a": 0.1}) == learner.decision_one({"a": 0.1})


def rare(n: int) -> list[tuple[dict, str]]:
    """Events of which one in fifty is bad, and looks like some that are not."""
    rng = np.random.default_rng(1)
    bad = rng.random(n) < 0.02
    return [({"a": float(rng.normal(2 * b)), "b": float(rng.normal())}, "bad" if b else "good") for b in bad]


@pytest.mark.parametrize("options", [{}, PLAIN], ids=["default", "plain"])
def test_balanced_weights_find_what_is_rare(options, tmp_path):
    stream, recalls = rare(2000), {}
    for weight in (None, "balanced"):
        model = BSGDClassifier(**options, budget=50, class_weight=weight)
        said = []
        for x, y in stream:
            said.append(model.predict_one(x))
            model.learn_one(x, y)
        recalls[weight] = np.mean([s == "bad" for s, (_, y) in zip(said, stream, strict=True) if y == "bad"])
    assert recalls["balanced"] > recalls[None] + 0.2
    save_model(model.to_model(), tmp_path / "m")
    again = BSGDClassifier.from_model(load_model(tmp_path / "m"))
    assert again.class_weight == "balanced"
    framed = BSGDClassifier(**options, budget=50, class_weight="balanced")
    framed.learn_many(pd.DataFrame([x for x, _ in stream]), pd.Series([y for _, y in stream]))
    assert framed._seen == again._seen == [sum(y == label for _, y in stream) for label in again.labels]


@pytest.mark.parametrize("weight", ["balanced", {"good": 1.0, "bad": 4.0}], ids=["balanced", "given"])
@pytest.mark.parametrize("loss", ["hinge", "logistic", None])
def test_probabilities_are_those_of_the_events_whatever_their_weights(loss, weight, tmp_path):
    options = {} if loss is None else {"lam": 1e-3, "gamma": 0.2, "loss": loss}
    rng = np.random.default_rng(2)
    bad = rng.random(2500) < 0.12
    stream = [{"a": float(rng.normal(1.5 * b)), "b": float(rng.normal())} for b in bad]
    labels = np.where(bad, "bad", "good").tolist()
    model, p = BSGDClassifier(**options, class_weight=weight), []
    for x, y in zip(stream, labels, strict=True):
        p.append(model.predict_proba_one(x).get("bad", 0.0))
        model.learn_one(x, y)
    p, bad = np.clip(p[1000:], 1e-6, 1 - 1e-6), bad[1000:]
    assert p.mean() == pytest.approx(bad.mean(), abs=0.06)  # with the weights in it, 0.25 and more
    rate = bad.mean()
    assert -np.log(np.where(bad, p, 1 - p)).mean() < -(rate * np.log(rate) + (1 - rate) * np.log(1 - rate))
    save_model(model.to_model(), tmp_path / "m")
    loaded, some = load_model(tmp_path / "m"), pd.DataFrame(stream[:100])
    probabilities = model.predict_proba_many(some)[loaded.classes.tolist()]
    np.testing.assert_allclose(loaded.predict_proba(some), probabilities, atol=1e-6)
    assert loaded.predict(some).tolist() == model.predict_many(some).tolist()
    again = BSGDClassifier.from_model(loaded)
    assert again.predict_proba_one(stream[0]) == pytest.approx(model.predict_proba_one(stream[0]), abs=1e-9)


def test_balanced_weights_of_a_fit_do_not_go_on():
    X = np.array([[x["a"]] for x, _ in heavy()], np.float32)
    y = np.array([label for _, label in heavy()])
    fitted = BudgetedSVC(gamma=0.5, budget=10, class_weight="balanced").fit(X, y)
    with pytest.raises(ModelError, match="needs all rows; fit with a weight by label"):
        BSGDClassifier.from_model(fitted.model_)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ({1: 0.0}, "class_weight: .*expected weights above 0"),
        ("even", "class_weight: found 'even', expected a weight for each label, or 'balanced'"),
        ({"b": 2.0}, "class_weight names 'b'; the classes are 0, 1"),
    ],
)
def test_bad_class_weights_are_told_when_made(weights, message):
    with pytest.raises(ConfigError, match=message):
        BSGDClassifier(classes=[0, 1], class_weight=weights)


def tables(n: int) -> list[tuple[dict, bool]]:
    """Texts, times, booleans, numbers, and gaps."""
    rng = np.random.default_rng(0)
    outcomes = []
    for i in range(n):
        when = datetime(2026, 1, 1) + timedelta(hours=int(rng.integers(0, 2000)))
        x = {
            "city": str(rng.choice(["Rome", "Oslo", "Bonn"])),
            "when": when,
            "open": bool(rng.random() < 0.5),
        }
        x["load"] = None if i % 5 == 0 else float(rng.normal())
        outcomes.append((x, (x["city"] == "Oslo") ^ (when.hour < 8)))
    return outcomes


def test_texts_times_and_gaps_are_taken_as_they_come(tmp_path):
    stream = tables(2000)
    model, right = BSGDClassifier(), []
    for x, y in stream:
        right.append(model.predict_one(x) == y)
        model.learn_one(x, y)
    assert np.mean(right[1000:]) > 0.9
    assert {"city=Oslo", "when", "when.hour", "when.weekday", "open", "load"} <= set(model.features)
    frames = BSGDClassifier()
    for start in range(0, 2000, 300):
        part = stream[start : start + 300]
        frames.learn_many(pd.DataFrame([x for x, _ in part]), pd.Series([y for _, y in part]))
    assert frames.features == model.features
    rows = pd.DataFrame([x for x, _ in stream[:100]])
    assert np.mean(frames.predict_many(rows) == [model.predict_one(x) for x, _ in stream[:100]]) > 0.97
    save_model(model.to_model(), tmp_path / "m")
    again = BSGDClassifier.from_model(load_model(tmp_path / "m"))
    x = {"city": "Oslo", "when": date(2026, 2, 1), "load": 0.5}
    np.testing.assert_array_equal(again.decision_one(x), model.decision_one(x))
    again.learn_one({"city": "a new one"}, True)
    assert again.features[-1] == "city=a new one"
    with pytest.raises(DataError, match="feature 'load': found 'much', expected a number, as before"):
        model.learn_one({"load": "much"}, True)
    with pytest.raises(DataError, match="feature 'load': found \\[1\\], expected a number, as before"):
        model.learn_one({"load": [1]}, True)


def test_what_was_used_least_recently_is_known_after_a_restart(tmp_path):
    straight, taken = BSGDClassifier(1e-2, 0.5, budget=8, strategy="lru"), events(120, ["no", "yes"])
    for x, y in taken[:80]:
        straight.learn_one(x, y)
    save_model(straight.to_model(), tmp_path / "m")
    again = BSGDClassifier.from_model(load_model(tmp_path / "m"))
    for x, y in taken[80:]:
        assert again.predict_proba_one(x) == straight.predict_proba_one(x)
        straight.learn_one(x, y)
        again.learn_one(x, y)
