"""One learner of BSGDClassifier's, which tunes nothing, over eighteen streams: its probabilities, and its gamma.

    python pipelines/stream_table.py --data DIR [--only probabilities,gamma,reading] [--quick] [--out streams.md]

It is BSGDClassifier(lam=1e-4, gamma="scale"); if one of the two is not given, several learners are pooled, which
river_board.py measures.

probabilities: ten streams, 5,000 events behind river's StandardScaler, each predicted, then learned; scores of the
second half, next to river's LogisticRegression, or SoftmaxRegression for several classes. ece, the expected calibration
error, has 15 bins, as in `streamsvm evaluate`. Log loss may exceed river's by what accuracy explains: by how much more
one has that knows no more than how often each is right.

gamma: accuracy of 10,000 events, each before it is learned, by gamma 0.1, "auto" (1 / columns seen) and "scale"
(1 / sum of the columns' variances), behind the scaler and raw; and the best of six gammas times four lambdas behind the
scaler. And text: rows of Reuters, each of length 1, as TFIDF makes them.

reading: JSON lines of 20 numbers from a file to checked rows of a learner, which learns nothing.

Needs covtype.csv.gz, electricity.csv.gz, ijcnn1.bz2, w8a.bz2 and reuters.bz2 in --data; other streams are river's,
scikit-learn's and synthetic ones.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Sequence
from itertools import islice, product
from pathlib import Path
from typing import Any

import numpy as np
from bench import Bench, print_tables
from prequential import prequential
from river import base, linear_model, preprocessing
from streams import CALIBRATED, STREAMS, TEXT, Event, events
from tables import Share, Table

from streamsvm.metrics import ProbabilityScores
from streamsvm.online import BSGDClassifier
from streamsvm.online.lines import Lines
from streamsvm.online.lines import events as events_in
from streamsvm.online.stream import features_of

GAMMAS = (0.1, "auto", "scale")
GRID = tuple(product(("auto", 0.01, 0.1, 0.3, 1.0, 3.0), (1e-2, 1e-3, 1e-4, 1e-5)))
BOUNDS = {2: 0.05, 3: 0.10}  # of ece: two classes, several


def probabilities(bench: Bench) -> list[Table]:
    rows, checks = [], []
    for name in CALIBRATED:
        stream = scaled(events(name, bench.data, 300 if bench.sizes.is_quick else 5_000))  # two classes
        labels = sorted({y for _, y in stream}, key=str)
        k = len(labels)
        peer = linear_model.LogisticRegression() if k == 2 else linear_model.SoftmaxRegression()
        ours = scores(plain(), stream, labels)
        # river's LogisticRegression knows but True and False
        theirs = scores(peer, [(x, y == labels[1]) for x, y in stream] if k == 2 else stream, labels)
        explained = max(0.0, entropy(ours["accuracy"], k) - entropy(theirs["accuracy"], k))
        allowed = theirs["log loss"] + explained
        rows.append(
            {"stream": name, "classes": k}
            | ours
            | {f"river: {title}": value for title, value in theirs.items()}
            | {"allowed": f"{allowed:.3f}"}
        )
        bound = BOUNDS[min(k, 3)]
        checks.append((f"{name}: ece {ours['ece']:.3f}, at most {bound}", ours["ece"] <= bound))
        checks.append((f"{name}: log loss {ours['log loss']:.3f}, at most {allowed:.3f}", ours["log loss"] <= allowed))
    notes = [
        "BSGDClassifier(lam=1e-4, gamma='scale') behind river's StandardScaler: 5,000 events, each predicted, then "
        "learned; scores of the second half",
        "river: LogisticRegression, of several classes SoftmaxRegression; ece: expected calibration error, 15 bins",
        "allowed: river's log loss, and what the lower accuracy explains",
    ]
    return [Table("Probabilities", [_read(row) for row in rows], notes, checks)]


def gamma(bench: Bench) -> list[Table]:
    n, grid = (100, GRID[:2]) if bench.sizes.is_quick else (10_000, GRID)
    rows, regrets = [], {g: list[float]() for g in GAMMAS}
    for name in STREAMS:
        raw = events(name, bench.data, n)
        stream = scaled(raw)
        found = {g: accuracy(plain(g), stream) for g in GAMMAS}
        tried = {point: accuracy(plain(*point), stream) for point in grid}
        best = max(tried, key=tried.__getitem__)
        for g in GAMMAS:
            regrets[g].append(100 * (tried[best] - found[g]))
        row: dict[str, Any] = {"stream": name} | {str(g): Share(value) for g, value in found.items()}
        row |= {f"best of {len(grid)}": Share(tried[best]), "at": f"gamma {best[0]}, lambda {best[1]:g}"}
        rows.append(row | {f"raw: {g}": Share(accuracy(plain(g), raw)) for g in GAMMAS})
    summary = [
        {"gamma": str(g), "mean regret, points": f"{np.mean(r):.2f}", "largest": f"{max(r):.1f}"}
        for g, r in regrets.items()
    ]
    rows.append({"stream": "**mean**"} | _means(rows))
    notes = [
        "accuracy of 10,000 events by gamma: auto is 1 / columns seen, scale 1 / sum of the columns' variances; behind "
        "river's StandardScaler, and raw",
        "best: of six gammas times four lambdas behind the scaler",
    ]
    text = list(islice(TEXT(bench.data, 4_000, 1), 100 if bench.sizes.is_quick else 4_000))
    return [
        Table("Gamma", rows, notes),
        Table("Regret", summary, ["points of accuracy below the best of the grid, over the streams"]),
        Table("Text", [_of_text(g, text) for g in (*GAMMAS, 1.0)], ["Reuters, rows of length 1"]),
    ]


def _means(rows: Sequence[dict[str, Any]]) -> dict[str, Share]:
    shares = [name for name, value in rows[0].items() if isinstance(value, Share)]
    return {name: Share(np.mean([row[name] for row in rows])) for name in shares}


def plain(gamma: float | str = "scale", lam: float = 1e-4) -> BSGDClassifier:
    return BSGDClassifier(lam=lam, gamma=gamma)


def scaled(stream: Iterable[Event]) -> list[Event]:
    scaler, out = preprocessing.StandardScaler(), []
    for x, y in stream:
        scaler.learn_one(x)
        out.append((scaler.transform_one(x), y))
    return out


def accuracy(model: base.Classifier, stream: Sequence[Event]) -> float:
    return float(np.mean(prequential(model, stream, labels_only=True).right))


def scores(model: base.Classifier, stream: Sequence[Event], labels: list[Any]) -> dict[str, float]:
    """Of the second half. False and True are the first and second label."""
    p = np.full((len(stream), len(labels)), 1e-12)
    codes = {label: code for code, label in enumerate(labels)}
    if isinstance(model, linear_model.LogisticRegression):
        codes = {False: 0, True: 1}
    truth = np.array([codes[y] for _, y in stream])
    for row, (x, y) in zip(p, stream, strict=True):
        for label, value in model.predict_proba_one(x).items():
            row[codes[label]] = max(value, 1e-12)
        model.learn_one(x, y)
    half = len(stream) // 2
    p, truth = p[half:] / p[half:].sum(axis=1, keepdims=True), truth[half:]
    sums = ProbabilityScores(len(labels))
    sums.add(truth, p)
    found = sums.result()
    return {
        "accuracy": float(np.mean(np.argmax(p, axis=1) == truth)),
        "confidence": float(p.max(axis=1).mean()),
        "ece": found["ece"],
        "log loss": found["log_loss"],
    }


def reading(bench: Bench) -> list[Table]:
    n, path = 200 if bench.sizes.is_quick else 100_000, bench.work / "events.jsonl"
    X = np.random.default_rng(0).normal(size=(n, 20)).round(4).tolist()
    events_of = ({f"f{i}": value for i, value in enumerate(x)} | {"y": int(x[0] > 0)} for x in X)
    path.write_text("".join(json.dumps(event) + "\n" for event in events_of))
    rates = [_events_read(path, n) for _ in range(5)]
    return [
        Table(
            "Events read and checked",
            [
                {
                    "events": n,
                    "columns": 20,
                    "events per CPU second": f"{np.median(rates):,.0f}",
                    "slowest": f"{min(rates):,.0f}",
                    "fastest": f"{max(rates):,.0f}",
                }
            ],
        )
    ]


def _events_read(path: Path, n: int, warm: int = 100) -> float:
    """Events per CPU second, of n, behind some that are learned."""
    learner, descriptor = plain("scale"), os.open(path, os.O_RDONLY)
    try:
        found = events_in(Lines(descriptor, lambda: None), "json")
        for _, line, parse in islice(found, warm):
            learner.learn_one(*features_of(parse(line), "y"))
        began = time.thread_time()
        for _, line, parse in found:
            x, y = features_of(parse(line), "y")
            learner.check(x, y)
            learner.row_of(x)
        return (n - warm) / (time.thread_time() - began)
    finally:
        os.close(descriptor)


def entropy(right: float, k: int) -> float:
    """Log loss of one who is right so often, says so, and leaves the rest to the other classes evenly."""
    wrong = 1 - right
    return -sum(p * math.log(p / ways) for p, ways in ((right, 1), (wrong, k - 1)) if p > 0)


def _of_text(g: float | str, stream: Sequence[Event]) -> dict[str, Any]:
    found = prequential(plain(g), stream, labels_only=True)
    pairs = list(zip(found.labels, found.truth, strict=True))
    positive = max(y for _, y in stream)
    hits = sum(told == y == positive for told, y in pairs)
    asked = sum((told == positive) + (y == positive) for told, y in pairs)
    return {
        "gamma": str(g),
        "accuracy": Share(np.mean(found.right)),
        "F1": f"{100 * 2 * hits / max(asked, 1):.1f}",
    }


def _read(row: dict[str, Any]) -> dict[str, Any]:
    return {
        name: Share(value) if "accuracy" in name else f"{value:.3f}" if isinstance(value, float) else value
        for name, value in row.items()
    }


if __name__ == "__main__":
    print_tables(__doc__, {"probabilities": probabilities, "gamma": gamma, "reading": reading})
