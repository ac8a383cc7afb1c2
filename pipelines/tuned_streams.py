"""BSGDClassifier() alone, which tunes itself: accuracy of streams, recovery from drift, and events per second.

    python pipelines/tuned_streams.py --data DIR [--only alone,drift,speed,ask] [--quick] [--out tuned.md]

alone: accuracy of 10,000 events of 18 streams, each predicted, then learned, without a scaler in front; and of the
whole electricity stream. The mean of six of river's streams stands below.

drift: six streams whose rule changes in the middle of 10,000 events. From the change on, errors beyond those of a
fresh learner of the same kind that starts there; next to river's ARFClassifier.

speed: events per second of ijcnn1 (22 features) at B = 500, behind 4,000 events: predict_one and learn_one of each;
learn_many in blocks of 1,000. By tenths of the rest: the median tenth, the fastest and the slowest. A tenth in which a
second pool of learners follows a suspected drift costs up to twice as much.

ask: events whose label is asked for, by the share that `stream --ask` asks, and the accuracy of all.

Needs covtype.csv.gz, electricity.csv.gz, ijcnn1.bz2 and w8a.bz2 in --data.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from bench import Bench, print_tables
from prequential import prequential
from river import base, forest
from streams import ABRUPT, ELECTRICITY, STREAMS, Event, events
from tables import Share, Table

from streamsvm.online import BSGDClassifier
from streamsvm.online.scores import ClassScores

SIX = ("Phishing", "Bananas", "ImageSegments", "SEA", "Agrawal", "RandomRBFDrift")
CHANGING = ("gradual Agrawal", "gradual Sine", *ABRUPT)
WARM, BLOCK, TENTHS = 4_000, 1_000, 10
SHARES = (0.05, 0.1, 0.2, 0.5, 1.0)


def alone(bench: Bench) -> list[Table]:
    n = 100 if bench.sizes.is_quick else 10_000
    found = {name: _accuracy(BSGDClassifier(), events(name, bench.data, n)) for name in STREAMS}
    six = float(np.mean([found[name] for name in SIX]))
    whole = _accuracy(BSGDClassifier(), events("electricity", bench.data, 100 * n if n == 100 else ELECTRICITY))
    rows = [{"stream": name, "accuracy": Share(value)} for name, value in found.items()]
    rows += [
        {"stream": f"mean of {len(found)}", "accuracy": Share(float(np.mean(list(found.values()))))},
        {"stream": f"mean of {', '.join(SIX)}", "accuracy": Share(six)},
        {"stream": "electricity, whole", "accuracy": Share(whole)},
    ]
    checks = [("six streams: 82 %", six >= 0.82), ("electricity, whole: 91 %", whole >= 0.91)]
    return [Table("BSGDClassifier() alone", rows, checks=checks)]


def drift(bench: Bench) -> list[Table]:
    n = 200 if bench.sizes.is_quick else 10_000
    kinds = {
        "BSGDClassifier()": BSGDClassifier,
        "ARFClassifier(seed=1)": lambda: forest.ARFClassifier(seed=1),
    }
    rows, lost = [], dict.fromkeys(kinds, 0)
    for name in CHANGING:
        stream, row = events(name, bench.data, n), {"stream": name}
        for title, make in kinds.items():
            beyond = errors_after(make(), make(), stream)
            row[title] = beyond
            lost[title] += beyond
        rows.append(row)
    ours, theirs = lost.values()
    checks = [("at most half of ARF's", ours <= theirs / 2)]
    return [
        Table(
            "Errors beyond a fresh learner's, from the change on",
            [*rows, {"stream": "sum"} | lost],
            checks=checks,
        )
    ]


def errors_after(model: base.Classifier, fresh: base.Classifier, stream: Sequence[Event]) -> int:
    """Errors of the second half beyond those of a learner that begins with it."""
    middle = len(stream) // 2
    whole = prequential(model, stream, labels_only=True).right[middle:]
    return int(np.sum(~whole) - np.sum(~prequential(fresh, stream[middle:], labels_only=True).right))


def speed(bench: Bench) -> list[Table]:
    stream = events("ijcnn1", bench.data, 500 if bench.sizes.is_quick else 49_990)
    warm, block = (100, 40) if bench.sizes.is_quick else (WARM, BLOCK)
    one, many = BSGDClassifier(), BSGDClassifier()
    X, y = pd.DataFrame([x for x, _ in stream]), pd.Series([label for _, label in stream])
    for x, label in stream[:warm]:
        one.predict_one(x)
        one.learn_one(x, label)
    many.learn_many(X[:warm], y[:warm])
    single, blocks = [], []
    for part in np.array_split(np.arange(warm, len(stream)), TENTHS):
        start, stop = part[0], part[-1] + 1
        began = time.perf_counter()
        for x, label in stream[start:stop]:
            one.predict_one(x)
            one.learn_one(x, label)
        single.append(len(part) / (time.perf_counter() - began))
        began = time.perf_counter()
        for at in range(start, stop, block):
            many.learn_many(X[at : min(at + block, stop)], y[at : min(at + block, stop)])
        blocks.append(len(part) / (time.perf_counter() - began))
    rows = [_rates("predict_one and learn_one", single), _rates("learn_many", blocks)]
    checks = [
        ("50,000 events/s, the median tenth", bool(np.median(single) >= 50_000)),
        ("150,000 rows/s, the median tenth", bool(np.median(blocks) >= 150_000)),
    ]
    return [Table("Events per second, d = 22, B = 500", rows, checks=checks)]


def ask(bench: Bench) -> list[Table]:
    n = 200 if bench.sizes.is_quick else 10_000
    rows = []
    for name in ("electricity", "Agrawal", "covtype-7", "ijcnn1"):
        stream, row = events(name, bench.data, n), {"stream": name}
        for share in SHARES:
            asked, accuracy = _asking(stream, share)
            row[f"{share:.0%}"] = f"{Share(accuracy)} ({asked / len(stream):.1%})"
        rows.append(row)
    return [Table("Accuracy by the share of labels asked for (and the share that was)", rows)]


def _asking(stream: Sequence[Event], share: float) -> tuple[int, float]:
    """Labels learned, and the accuracy of all events, where labels come only for the events that are asked for."""
    learner = BSGDClassifier()
    judge = ClassScores(learner)
    asked = right = 0
    for x, y in stream:
        right += learner.predict_one(x) == y
        if judge.is_worth(learner.predict_proba_one(x), share):
            learner.learn_one(x, y)
            asked += 1
    return asked, right / len(stream)


def _accuracy(model: base.Classifier, stream: Sequence[Event]) -> float:
    return float(np.mean(prequential(model, stream, labels_only=True).right))


def _rates(title: str, rates: Sequence[float]) -> dict[str, Any]:
    return {
        "what": title,
        "events/s": f"{np.median(rates):,.0f}",
        "fastest": f"{max(rates):,.0f}",
        "slowest": f"{min(rates):,.0f}",
    }


ITEMS = {"alone": alone, "drift": drift, "speed": speed, "ask": ask}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
