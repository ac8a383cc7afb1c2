"""Streams that recipes learn event by event: river's own, synthetic ones, and files of the data folder.

A synthetic stream is another one under another seed, and one that drifts does so in the middle of the events asked for.
"""

from __future__ import annotations

import bz2
import csv
import gzip
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from random import Random
from typing import Any

from bench import electricity
from river import datasets, stream
from river.datasets import synth
from sklearn.datasets import load_digits, load_svmlight_file

Event = tuple[dict[str, float], Any]
Events = Iterator[Event]
Source = Callable[[Path, int, int], Events]  # of the data folder, events that will be read, a seed
ELECTRICITY = 45_312  # events of the market


def _digits(data: Path, n: int, seed: int) -> Events:
    X, y = load_digits(return_X_y=True)
    yield from stream.iter_array(X, y.tolist(), [f"p{i}" for i in range(X.shape[1])])


def _electricity(data: Path, n: int, seed: int) -> Events:
    return electricity(data)


def _exchanged(data: Path, n: int, seed: int) -> Events:
    """The electricity market, UP and DOWN exchanged from the middle on."""
    length = min(n, ELECTRICITY)
    for i, (x, y) in enumerate(electricity(data)):
        yield x, y != (i >= length // 2)


def _covtype(data: Path, n: int, seed: int) -> Events:
    with gzip.open(data / "covtype.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            label = row.pop("Cover_Type")
            yield {name: float(value) for name, value in row.items()}, int(label)


def _svmlight(file: str, *, full: bool = True, shuffled: bool = False) -> Source:
    """The rows of a bzip2 svmlight file; full: all features in each event, else those that are not zero."""

    def events(data: Path, n: int, seed: int) -> Events:
        with bz2.open(data / file) as lines:
            X, y = load_svmlight_file(lines)
        order = list(range(len(y)))
        if shuffled:
            Random(0).shuffle(order)
        for i in order:
            row = X[[i]]
            if full:
                yield dict(enumerate(row.toarray()[0].tolist())), int(y[i])
            else:
                yield dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)), int(y[i])

    return events


def _rivers(dataset: type[datasets.base.Dataset]) -> Source:
    """One that river ships."""
    return lambda data, n, seed: iter(dataset())


@dataclass(frozen=True)
class Made:
    """A stream made from a seed."""

    make: Callable[[int], Any]

    def __call__(self, data: Path, n: int, seed: int) -> Events:
        return iter(self.make(seed))


@dataclass(frozen=True)
class Drifting(Made):
    """Another stream takes over in the middle: within this share of the events, or at once."""

    then: Callable[[int], Any]
    share: float = 0.0

    def __call__(self, data: Path, n: int, seed: int) -> Events:
        first, second = self.make(seed), self.then(seed + 1)
        if not self.share:
            return chain(islice(first, n // 2), second)
        width = max(1, int(self.share * n))
        return iter(synth.ConceptDriftStream(first, second, position=n // 2, width=width, seed=seed))


def _agrawal(function: int) -> Callable[[int], Any]:
    return lambda seed: synth.Agrawal(function, seed=seed)


def _sine(function: int) -> Callable[[int], Any]:
    return lambda seed: synth.Sine(function, seed=seed)


def _sea(variant: int = 0) -> Callable[[int], Any]:
    return lambda seed: synth.SEA(variant, noise=0.1, seed=seed)


def _rbf(kind: type[Any], **options: Any) -> Made:
    return Made(lambda seed: kind(seed_model=seed, seed_sample=seed, n_classes=4, **options))


STREAMS: dict[str, Source] = {
    "Phishing": _rivers(datasets.Phishing),
    "Bananas": _rivers(datasets.Bananas),
    "ImageSegments": _rivers(datasets.ImageSegments),
    "Shuttle": _rivers(datasets.Shuttle),
    "electricity": _electricity,
    "covtype-7": _covtype,
    "ijcnn1": _svmlight("ijcnn1.bz2"),
    "SEA": Made(_sea()),
    "Agrawal": Made(_agrawal(0)),
    "RandomRBF": _rbf(synth.RandomRBF),
    "RandomRBFDrift": _rbf(synth.RandomRBFDrift, change_speed=0.5),
    "Hyperplane": Made(lambda seed: synth.Hyperplane(seed=seed)),
    "LED": Made(lambda seed: synth.LED(seed=seed, noise_percentage=0.1)),
    "Waveform": Made(lambda seed: synth.Waveform(seed=seed)),
    "gradual Agrawal": Drifting(_agrawal(0), _agrawal(4), 0.05),
    "gradual Sine": Drifting(_sine(0), _sine(1), 0.05),
    "digits": _digits,
    "w8a": _svmlight("w8a.bz2", shuffled=True),  # the file is sorted by class
}
ABRUPT: dict[str, Source] = {
    "abrupt SEA": Drifting(_sea(0), _sea(2)),
    "abrupt Agrawal": Drifting(_agrawal(0), _agrawal(4)),
    "abrupt Sine": Drifting(_sine(0), _sine(1)),
    "abrupt electricity": _exchanged,
}
TEXT = _svmlight("reuters.bz2", full=False)  # rows of length 1
CALIBRATED = "digits ImageSegments covtype-7 Shuttle Waveform electricity Hyperplane SEA Phishing ijcnn1".split()


def events(name: str, data: Path, n: int, seed: int = 1) -> list[Event]:
    """The first n events of a stream."""
    return list(islice((STREAMS | ABRUPT)[name](data, n, seed), n))
