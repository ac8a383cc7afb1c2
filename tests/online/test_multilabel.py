"""Label sets online: river's habits, each label as a learner of it alone, and one model through every door."""

from __future__ import annotations

import json

import numpy as np
import pytest
from every_case import every_case
from label_sets import NAMES, config, rows, texts
from online.rivers import checks_of, failures
from river import datasets
from sklearn import metrics as twin

from streamsvm import Store, load_model
from streamsvm.errors import ConfigError, DataError, ModelError
from streamsvm.exchange.onnx import onnx_model
from streamsvm.models.files import save_model
from streamsvm.online import BSGDClassifier, BSGDMultiLabelClassifier
from streamsvm.online.lines import events
from streamsvm.online.stream import Stream
from streamsvm.train import train_in_memory

MODEL = BSGDMultiLabelClassifier(budget=20)


def some(n: int = 240) -> list[tuple[dict[str, float], dict[str, bool]]]:
    X, Y = rows()
    return [
        (dict(zip("abcde", x.tolist(), strict=True)), dict(zip(NAMES.tolist(), y.tolist(), strict=True)))
        for x, y in zip(X[:n], Y[:n], strict=True)
    ]


class Songs(list):
    """In place of river's `Music`, which has to be fetched."""

    def __init__(self) -> None:
        super().__init__(some())

    def take(self, n: int) -> list:
        return self[:n]


@pytest.fixture(autouse=True)
def _no_download(monkeypatch):
    monkeypatch.setattr(datasets, "Music", Songs)


def test_rivers_own_checks():
    checks = checks_of(MODEL)
    assert len(checks) > 15
    assert failures(MODEL, checks) == []


@pytest.mark.parametrize("loss", ["logistic", "hinge"])
def test_each_label_is_a_learner_of_it_alone(loss):
    """As long as the budget, which labels share, is not full."""
    model, alone = BSGDMultiLabelClassifier(lam=1e-4, loss=loss, gamma=0.2, budget=300), {}
    for x, y in some():
        model.learn_one(x, y)
        for label, has in y.items():
            learner_of_label = alone.setdefault(
                label, BSGDClassifier(lam=1e-4, loss=loss, gamma=0.2, budget=300, classes=[False, True])
            )
            learner_of_label.learn_one(x, has)
    for x, _ in some(30):
        expected = {label: learner_of_label.decision_one(x)[0] for label, learner_of_label in alone.items()}
        assert dict(zip(model.labels, model.decision_one(x), strict=True)) == pytest.approx(expected, abs=1e-4)
        assert model.predict_one(x) == {label: f > 0 for label, f in expected.items()}
        if loss == "logistic":
            for label, p in model.predict_proba_one(x).items():
                assert p[True] == pytest.approx(1 / (1 + np.exp(-expected[label])), abs=1e-4)
                assert sum(p.values()) == 1


def test_labels_come_as_they_come_and_say_nothing_of_others():
    model = BSGDMultiLabelClassifier(gamma=1.0)
    model.learn_one({"a": 1.0}, {})
    assert (model.predict_one({"a": 1.0}), model.n_seen) == ({}, 0)
    for i in range(100):
        model.learn_one({"a": i % 2}, {"odd": i % 2 == 1})
    before = model.decision_one({"a": 1.0})[0]
    for _ in range(20):
        model.learn_one({"a": 1.0}, {"late": True})
    assert model.predict_one({"a": 1.0}) == {"odd": True, "late": True}
    assert model.decision_one({"a": 1.0})[0] == pytest.approx(before * 100 / 120, rel=1e-3)  # it forgets by its steps


def lines(n: int = 240) -> list[str]:
    return [json.dumps(x | {"y": ",".join(label for label, has in y.items() if has)}) for x, y in some(n)]


def answered(state: Stream, text: list[str]) -> list[dict]:
    return [state.answer(line, parse) for _, line, parse in events(text, "json")]


def test_a_stream_goes_on_and_tells_the_scores_of_scikit_learn(tmp_path):
    def make() -> BSGDMultiLabelClassifier:
        return BSGDMultiLabelClassifier(budget=30, classes=NAMES.tolist())

    whole = Stream.open(tmp_path / "w", make, scale=True, label="y")
    expected = answered(whole, lines())
    first = Stream.open(tmp_path / "h", make, scale=True, label="y")
    half = answered(first, lines()[:100])
    first.save()
    second = Stream.open(tmp_path / "h", make, scale=True, label="y")
    half += answered(second, lines()[100:])
    for answer in (*expected, *half):
        del answer["snapshot"]
    assert half == expected
    summary = second.summary()
    assert summary | {"snapshot": 0} == whole.summary()
    told, truth = (
        np.array([[name in answer[field].split(",") for name in NAMES] for answer in expected])
        for field in ("prediction", "label")
    )
    np.testing.assert_array_equal(truth, rows()[1])
    assert summary["accuracy"] == twin.accuracy_score(truth, told)
    assert summary["hamming_loss"] == pytest.approx(twin.hamming_loss(truth, told))
    for average in ("micro", "macro"):
        assert summary[f"f1_{average}"] == pytest.approx(twin.f1_score(truth, told, average=average))
    assert summary["f1_micro"] > 0.75


def test_the_snapshot_is_a_model(tmp_path):
    state = Stream.open(tmp_path / "m", lambda: BSGDMultiLabelClassifier(lam=1e-2), scale=True, label="y")
    answered(state, lines())
    state.save()
    model, (X, _) = load_model(tmp_path / "m"), rows()
    said = [state.judge.predict(state.scaler.transform_one(x)) for x, _ in some()]
    assert model.predict(X).tolist() == [answer["prediction"] for answer in said]
    p = np.array([[answer["probabilities"][name] for name in model.classes] for answer in said])
    np.testing.assert_allclose(model.predict_proba(X), p, atol=1e-5)
    session = pytest.importorskip("onnxruntime").InferenceSession(onnx_model(model).SerializeToString())
    np.testing.assert_allclose(session.run(["probabilities"], {"X": X})[0], model.predict_proba(X), atol=1e-6)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_a_fit_goes_on_as_a_stream(loss, tmp_path):
    X, Y = rows()
    store, fit = Store.from_arrays(X, texts(Y)), config(solver="bsgd", bsgd={"budget": 100, "loss": loss})
    model, _ = train_in_memory(store, fit)
    save_model(model, tmp_path / "m")
    state = Stream.open(tmp_path / "m", BSGDMultiLabelClassifier, scale=False, label="y")
    event = dict(zip(map(str, range(5)), X[0].tolist(), strict=True))
    said = state.judge.predict(event)
    assert said["prediction"] == model.predict(X[:1])[0]
    if loss == "logistic":
        p = dict(zip(NAMES.tolist(), model.predict_proba(X[:1])[0].tolist(), strict=True))
        assert said["probabilities"] == pytest.approx(p, abs=1e-6)
    assert ("probabilities" in said) == (loss == "logistic")
    state.take(event | {"y": "new,2"})
    assert state.learner.labels == [*NAMES, "new"]
    weighed, _ = train_in_memory(store, fit.model_copy(update={"class_weight": "balanced"}))
    with pytest.raises(ModelError, match="thresholds, costs or weights of labels, which a stream cannot continue with"):
        BSGDMultiLabelClassifier.from_model(weighed)


@every_case(
    ("y", "label"),
    [
        ("sky,sea", "sea,sky"),
        (["sky"], "sky"),
        ([], ""),
        ("", ""),
        (7, "7"),
        ({"sea": True, "sky": False}, "sea"),
    ],
)
def test_labels_are_text_a_list_or_an_object(y, label, tmp_path):
    state = Stream.open(tmp_path / "m", BSGDMultiLabelClassifier, scale=True, label="y")
    state.take({"a": 1, "y": {"sea": True, "sky": True}})
    assert state.take({"a": 2, "y": y})["label"] == label
    assert "label" not in state.take({"a": 2})


@pytest.mark.parametrize(
    ("y", "error"),
    [
        (
            True,
            "label 'y': found 'True', expected labels such as 'a,b', a list of them, or an object of labels",
        ),
        ({"a": 1}, "label 'y': found \"{'a': 1}\", expected labels such as"),
        ("a,,b", "found labels 'a,,b', expected a name before and after each comma"),
        ({"a,b": True}, "found label 'a,b', expected a name without commas"),
    ],
)
def test_bad_labels_are_a_line(y, error, tmp_path):
    state = Stream.open(tmp_path / "m", BSGDMultiLabelClassifier, scale=True, label="y")
    assert state.take({"a": 1, "y": y})["error"].startswith(error)
    assert state.learner.n_seen == 0


def test_bad_input_is_one_line():
    model = BSGDMultiLabelClassifier(classes=["sea"])
    with pytest.raises(DataError, match="found label 'sky', expected one of sea"):
        model.learn_one({"a": 1}, {"sky": True})
    with pytest.raises(DataError, match="found labels 'sea', expected a dict of labels, each True or False"):
        model.learn_one({"a": 1}, "sea")
    with pytest.raises(ConfigError, match="max_classes: found 0, expected a whole number at least 1"):
        BSGDMultiLabelClassifier(max_classes=0)
    with pytest.raises(NotImplementedError, match='probabilities are there with loss="logistic" only'):
        BSGDMultiLabelClassifier(loss="hinge").predict_proba_one({"a": 1})
