"""Streams that recipes learn event by event: river's own, made-up ones, and files of the data folder."""

from __future__ import annotations

import bz2
import csv
import gzip
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any

from bench import electricity
from river import datasets, stream
from river.datasets import synth
from sklearn.datasets import load_digits, load_svmlight_file

Event = tuple[dict[str, float], Any]


def _digits(data: Path) -> Iterator[Event]:
    X, y = load_digits(return_X_y=True)
    yield from stream.iter_array(X, y.tolist(), [f"p{i}" for i in range(X.shape[1])])


def _covtype(data: Path) -> Iterator[Event]:
    with gzip.open(data / "covtype.csv.gz", "rt", encoding="utf-8") as file:
        for row in csv.DictReader(file):
            label = row.pop("Cover_Type")
            yield {name: float(value) for name, value in row.items()}, int(label)


def _svmlight(file: str, *, full: bool = True) -> Callable[[Path], Iterator[Event]]:
    """The rows of a bzip2 svmlight file; full: all features in each event, else those that are not zero."""

    def events(data: Path) -> Iterator[Event]:
        with bz2.open(data / file) as lines:
            X, y = load_svmlight_file(lines)
        for i, label in enumerate(y.tolist()):
            row = X[[i]]
            if full:
                yield dict(enumerate(row.toarray()[0].tolist())), int(label)
            else:
                yield dict(zip(row.indices.tolist(), row.data.tolist(), strict=True)), int(label)

    return events


def _shuffled(rows: Iterator[Event]) -> Iterator[Event]:
    every = list(rows)
    Random(0).shuffle(every)
    yield from every


def _made(make: Callable[[], Any]) -> Callable[[Path], Iterator[Event]]:
    return lambda data: iter(make())


def _drifting(first: Any, second: Any) -> Any:
    return synth.ConceptDriftStream(first, second, position=5000, width=500, seed=1)


STREAMS: dict[str, Callable[[Path], Iterator[Event]]] = {
    "Phishing": _made(datasets.Phishing),
    "Bananas": _made(datasets.Bananas),
    "ImageSegments": _made(datasets.ImageSegments),
    "Shuttle": _made(datasets.Shuttle),
    "electricity": electricity,
    "covtype-7": _covtype,
    "ijcnn1": _svmlight("ijcnn1.bz2"),
    "SEA": _made(lambda: synth.SEA(noise=0.1, seed=1)),
    "Agrawal": _made(lambda: synth.Agrawal(seed=1)),
    "RandomRBF": _made(lambda: synth.RandomRBF(seed_model=1, seed_sample=1, n_classes=4)),
    "RandomRBFDrift": _made(
        lambda: synth.RandomRBFDrift(seed_model=1, seed_sample=1, n_classes=4, change_speed=0.5)
    ),
    "Hyperplane": _made(lambda: synth.Hyperplane(seed=1)),
    "LED": _made(lambda: synth.LED(seed=1, noise_percentage=0.1)),
    "Waveform": _made(lambda: synth.Waveform(seed=1)),
    "drift, Agrawal": _made(lambda: _drifting(synth.Agrawal(0, seed=1), synth.Agrawal(4, seed=2))),
    "drift, Sine": _made(lambda: _drifting(synth.Sine(0, seed=1), synth.Sine(1, seed=2))),
    "digits": _digits,
    "w8a": lambda data: _shuffled(_svmlight("w8a.bz2")(data)),  # the file is sorted by class
}
TEXT = _svmlight("reuters.bz2", full=False)  # rows of length 1
CALIBRATED = (
    "digits ImageSegments covtype-7 Shuttle Waveform electricity Hyperplane SEA Phishing ijcnn1".split()
)


def events(name: str, data: Path, n: int) -> list[Event]:
    """The first n events of a stream."""
    return list(islice(STREAMS[name](data), n))
