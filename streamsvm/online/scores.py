"""The answers of a stream to events, and scores of these answers, made before the events were learned: by task."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Mapping
from typing import Any, ClassVar, TypeAlias

import numpy as np

from streamsvm.data.labels import FALSE, TRUE, label_sets, one_spelling, set_texts
from streamsvm.errors import DataError
from streamsvm.metrics import ScoreCounts, of_sets
from streamsvm.online import BSGDClassifier, BSGDMultiLabelClassifier, BSGDOneClass, BSGDRegressor
from streamsvm.online.kinds import Features, State, shown
from streamsvm.online.lines import Field
from streamsvm.tasks.oneclass import INLIER, OUTLIER

Answer: TypeAlias = dict[str, Any]  # to an event: JSON
Answers: TypeAlias = tuple[list[Any], np.ndarray, np.ndarray | None]  # labels, decision values, probabilities

PLACES = 2000  # of scores: how finely a ROC area distinguishes them
ASKED = 100  # events over which the share of requested labels is averaged
NOT_SAVED = ("learner", "learnt", "asks")  # attributes that are no part of the state
STEP = 0.01  # of the threshold


class StreamScores(ABC):
    """Answers events, then learns them, and scores the answers. Snapshots hold its state: a few numbers."""

    task: ClassVar[str]

    def __init__(self, learner: Any, state: State | None = None) -> None:
        self.learner, self.learnt = learner, 0
        vars(self).update(state or {})

    def label_in(self, field: Field) -> object:
        """The label that a field of a CSV row is."""
        return str(field)

    @abstractmethod
    def label(self, name: str, y: object) -> Any:
        """The label as it is learned, or None. Raises DataError for one of field `name` that cannot be."""

    def answer(self, x: Features, y: Any) -> Answer:
        """The answer to an event, which is then learned if it has a label."""
        answer = self.predict(x)
        return answer if y is None else answer | self.learn(x, y, answer["prediction"])

    @abstractmethod
    def predict(self, x: Features) -> Answer:
        """The answer to an event before it is learned."""

    def learn(self, x: Features, y: Any, prediction: Any) -> Answer:
        """Learns an event, and returns the rest of its answer. prediction: that of `predict`, which is scored."""
        self.learner.learn_one(x, y)
        self.learnt += 1
        return {"label": self._scored(y, prediction)}

    @abstractmethod
    def _scored(self, y: Any, prediction: Any) -> Any:
        """Scores a prediction; returns the label as answers have it."""

    @abstractmethod
    def answers(self, decisions: np.ndarray) -> Answers:
        """Three answers to decisions (m, columns): m labels or values (None before anything is known), their decision
        values, (m,) or (m, labels), and for classes the probabilities (m, labels) in the learner's order."""

    @abstractmethod
    def scores(self) -> dict[str, float | None]:
        """Scores of answers made before their events were learned; a progress bar shows the first one."""

    def to_state(self) -> dict[str, object]:
        return {name: value for name, value in vars(self).items() if name not in NOT_SAVED}

    def right(self) -> int | None:
        """Correct predictions; None if there are no classes."""
        return getattr(self, "n_right", None)


class ClassScores(StreamScores):
    """accuracy: the share of events whose label is predicted."""

    task = "classify"
    learner: BSGDClassifier
    asks: float | None = None  # share of the events whose labels may be requested

    def __init__(self, learner: BSGDClassifier, state: State | None = None) -> None:
        self.n_right = 0
        self.threshold = 1.0  # of probabilities below which labels are requested
        self.spent = 0.0  # running share of requested labels
        super().__init__(learner, state)

    def is_worth(self, probabilities: Mapping[Hashable, float], share: float) -> bool:
        """Whether to ask for the label of an event, if only this share of labels can be paid for: the least sure
        events. The threshold falls when it asks and rises when it does not, so that it asks as often as it may, however
        sure the learner has become (as in Zliobaite, Bifet, Pfahringer and Holmes 2014)."""
        is_unsure = len(probabilities) < 2 or max(probabilities.values()) < self.threshold
        asks = is_unsure and self.spent < share
        self.threshold = min(self.threshold * (1 + STEP * (share - is_unsure)), 1.0)
        self.spent += (asks - self.spent) / ASKED
        return asks

    def label_in(self, field: Field) -> object:
        return field.as_label(next(iter(self.learner.labels), None))

    def label(self, name: str, y: object) -> Any:
        """A label that a model can keep; whole numbers become integers, as pandas writes 1.0 for 1 if some are
        missing."""
        if isinstance(y, float) and y.is_integer():
            y = int(y)
        if y is not None and not isinstance(y, bool | int | str):
            raise DataError(f"label {name!r}: found {y!r}, expected a boolean, an integer or a text")
        if isinstance(y, int) and not -(1 << 63) <= y < 1 << 63:
            raise DataError(f"label {name!r}: found {str(y)[:40]}, expected an integer of 64 bits")
        if isinstance(y, bool | str) and (text := one_spelling(str(y))) in (FALSE, TRUE):
            y = next((label for label in self.learner.labels if one_spelling(str(label)) == text), y)
        return y

    def predict(self, x: Features) -> Answer:
        prediction = self.learner.predict_one(x)
        probabilities = self.learner.predict_proba_one(x)
        answer = {"prediction": prediction, "probabilities": _by_text(probabilities)}
        if self.asks is not None:
            answer["ask"] = self.is_worth(probabilities, self.asks)
        return answer

    def _scored(self, y: Any, prediction: Any) -> Any:
        self.n_right += prediction == y
        return y

    def answers(self, decisions: np.ndarray) -> Answers:
        scores = decisions[:, 0] if decisions.shape[1] == 1 else decisions
        return self.learner.labels_of(decisions), scores, self.learner.probabilities_of(decisions)

    def scores(self) -> dict[str, float | None]:
        return {"accuracy": self.n_right / self.learnt if self.learnt else None}


class LabelSetScores(StreamScores):
    """Scores of `evaluate`, over the labels that each event states. accuracy: the share of events whose stated labels
    are all predicted right."""

    task = "multilabel"
    learner: BSGDMultiLabelClassifier

    def __init__(self, learner: BSGDMultiLabelClassifier, state: State | None = None) -> None:
        self.n_right = 0
        # by label: events about it, hits, those that have it, answers that do
        self.counts: dict[str, list[int]] = {}
        super().__init__(learner, state)

    def label(self, name: str, y: Any) -> dict[Any, bool] | None:
        """Labels as text `sea,sky` or a list, which lacks all others, or an object of labels that are true or false."""
        if y is None:
            return None
        by_text = {str(label): label for label in self.learner.labels}
        if isinstance(y, Mapping) and all(isinstance(has, bool) for has in y.values()):
            return {by_text.get(label, label): has for label, has in y.items()}
        names = y if isinstance(y, list) else [y]
        if not all(map(_is_label_name, names)):
            raise DataError(
                f"label {name!r}: found {str(y)[:40]!r}, expected labels such as 'a,b', a list of them, or an object "
                "of labels that are true or false"
            )
        has = label_sets(np.array([",".join(map(str, names))]))[0].tolist()
        return {by_text.get(label, label): label in has for label in dict.fromkeys([*by_text, *has])}

    def predict(self, x: Features) -> Answer:
        decisions = self.learner.decision_one(x)[None]
        [prediction], _, p = self.answers(decisions)
        if p is None:
            return {"prediction": prediction}
        by_label = dict(zip(self.learner.labels, p[0].tolist(), strict=True))
        return {"prediction": prediction, "probabilities": _by_text(by_label)}

    def _scored(self, y: Mapping[Any, bool], prediction: Any) -> Any:
        predicted = set(prediction.split(","))
        wrong = 0
        for label, has in y.items():
            is_predicted = str(label) in predicted
            counts = self.counts.setdefault(str(label), [0, 0, 0, 0])
            for place, is_counted in enumerate((True, has and is_predicted, has, is_predicted)):
                counts[place] += is_counted
            wrong += has != is_predicted
        self.n_right += not wrong
        return ",".join(str(label) for label, has in y.items() if has)

    def answers(self, decisions: np.ndarray) -> Answers:
        names = np.array(list(map(str, self.learner.labels)), str)
        return set_texts(decisions > 0, names).tolist(), decisions, self.learner.probabilities_of(decisions)

    def scores(self) -> dict[str, float | None]:
        if not self.learnt or not self.counts:
            return dict.fromkeys(("accuracy", "hamming_loss", "f1_micro", "f1_macro"))
        about, hits, true, predicted = np.array(list(self.counts.values())).T
        return {"accuracy": self.n_right / self.learnt, **of_sets(hits, true, predicted, about.sum())}


class ValueScores(StreamScores):
    """mean_absolute_error and r2, from sums; the targets' about their running mean (Welford 1962). The first event,
    before which nothing is known, gets no answer and does not count."""

    task = "regress"
    learner: BSGDRegressor

    def __init__(self, learner: BSGDRegressor, state: State | None = None) -> None:
        self.judged, self.mean, self.spread, self.absolute, self.squares = 0, 0.0, 0.0, 0.0, 0.0
        super().__init__(learner, state)

    def label_in(self, field: Field) -> object:
        return field.as_kind("number")

    def label(self, name: str, y: object) -> Any:
        if y is not None and (isinstance(y, bool | str) or not isinstance(y, int | float)):
            raise DataError(f"label {name!r}: found {y!r}, expected a number")
        return y

    def predict(self, x: Features) -> Answer:
        return {"prediction": self.learner.predict_one(x) if self.learner.n_seen else None}

    def _scored(self, y: Any, prediction: Any) -> Any:
        if prediction is not None:
            self.judged += 1
            deviation, error = y - self.mean, prediction - y
            self.mean += deviation / self.judged
            self.spread += deviation * (y - self.mean)
            self.absolute += abs(error)
            self.squares += error * error
        return y

    def answers(self, decisions: np.ndarray) -> Answers:
        values = decisions[:, 0]
        return values.tolist() if self.learner.n_seen else [None] * len(values), values, None

    def scores(self) -> dict[str, float | None]:
        if not self.judged:
            return {"mean_absolute_error": None, "r2": None}
        r2 = 1 - self.squares / self.spread if self.spread > 0 else None
        return {"mean_absolute_error": self.absolute / self.judged, "r2": r2}


class OutlierScores(StreamScores):
    """outliers: the share of events outside before they were learned. roc_auc: of their scores, if there are two
    labels: outliers are those of -1 if the other is 1, else of the rarer one, as in `evaluate`. Scores are counted by
    label in places of s / (1 + |s|)."""

    task = "oneclass"
    learner: BSGDOneClass

    def __init__(self, learner: BSGDOneClass, state: State | None = None) -> None:
        self.n_outside = 0
        self.counts: dict[str, dict[str, int]] = {}  # by a label's text and a place
        super().__init__(learner, state)

    def label_in(self, field: Field) -> object:
        return field.as_label(None)

    def label(self, name: str, y: object) -> Any:
        if y is not None and (
            not isinstance(y, bool | int | float | str) or (isinstance(y, float) and not math.isfinite(y))
        ):
            raise DataError(f"label {name!r}: found {shown(y)}, expected a boolean, a finite number or a text")
        return int(y) if isinstance(y, float) and y.is_integer() else y

    def answer(self, x: Features, y: Any) -> Answer:
        answer = self.predict(x)
        learned = self.learn(x, y, answer["score"])
        return answer if y is None else answer | learned

    def predict(self, x: Features) -> Answer:
        score = self.learner.score_one(x)
        return {"prediction": OUTLIER if score > 0 else INLIER, "score": score}

    def learn(self, x: Features, y: Any, prediction: Any) -> Answer:
        """prediction: the score. An event is learned without a label, too."""
        self.learner.learn_one(x)
        self.learnt += 1
        return {"label": self._scored(y, prediction)}

    def _scored(self, y: Any, prediction: Any) -> Any:
        self.n_outside += prediction > 0
        if y is not None and len(self.counts) < 3:  # with a third label there are not two, and counting stops
            counts, place = self.counts.setdefault(str(y), {}), str(_place(prediction))
            counts[place] = counts.get(place, 0) + 1
        return y

    def answers(self, decisions: np.ndarray) -> Answers:
        scores = self.learner.scores_of(decisions[:, 0])
        return np.where(scores > 0, OUTLIER, INLIER).tolist(), scores, None

    def scores(self) -> dict[str, float | None]:
        share = self.n_outside / self.learnt if self.learnt else None
        return {"outliers": share} | ({"roc_auc": self._roc_auc()} if self.counts else {})

    def _roc_auc(self) -> float | None:
        if len(self.counts) != 2:
            return None
        sizes = {label: sum(counts.values()) for label, counts in self.counts.items()}
        signs = {str(OUTLIER), str(INLIER)} == set(sizes)
        outlier = str(OUTLIER) if signs else min(sorted(sizes), key=sizes.__getitem__)
        curve = ScoreCounts()
        for label, counts in self.counts.items():
            places = np.repeat([int(place) for place in counts], list(counts.values()))
            curve.add(np.full(len(places), label == outlier), places.astype(np.float64))
        return curve.roc_auc()


def _is_label_name(value: object) -> bool:
    return isinstance(value, int | str) and not isinstance(value, bool) and "\0" not in str(value)


def _place(score: float) -> int:
    return round(PLACES * score / (1 + abs(score)))


def _by_text(probabilities: Mapping[Hashable, float]) -> dict[str, float]:
    return {str(label): round(p, 6) for label, p in probabilities.items()}


JUDGES: dict[str, type[StreamScores]] = {
    judge.task: judge for judge in (ClassScores, LabelSetScores, ValueScores, OutlierScores)
}


def scores_of(task: str, stream: State) -> dict[str, float | None]:
    """The scores of a stream, from what its model has saved of it; empty if it had no judge."""
    if not stream.get("judge"):
        return {}
    judge = JUDGES[task](None, stream["judge"])
    judge.learnt = stream["counts"]["learnt"]
    return judge.scores()
