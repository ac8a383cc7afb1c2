"""Progress of a fit in Python: `verbose` of the estimators."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from streamsvm.events import Sink
from streamsvm.progress.lines import ClusterLines, MinuteLines, Say, StepLines

EVERY_S = 5.0  # between lines of progress if stderr is not a terminal but a notebook or a log


@contextmanager
def shown(verbose: int, name: str) -> Iterator[list[Sink]]:
    """Sinks that write to stderr. verbose 0: none. 1: progress, as bars on a terminal, else as lines, and the cluster
    that computes. Above 1: also a line for each step of the solver. The last line reports the time of the fit of
    `name`."""
    if verbose <= 0:
        yield []
        return
    began = time.perf_counter()
    with _sinks(verbose) as sinks:
        yield sinks
    _say(f"{name}: fitted in {time.perf_counter() - began:.1f} s")


@contextmanager
def _sinks(verbose: int) -> Iterator[list[Sink]]:
    if not sys.stderr.isatty():
        yield [MinuteLines(_say, EVERY_S), ClusterLines(_say), *_steps(verbose, _say)]
        return
    from streamsvm.progress.bars import Bars

    with Bars() as bars:
        yield [bars, ClusterLines(bars.say), *_steps(verbose, bars.say)]


def _steps(verbose: int, say: Say) -> list[Sink]:
    return [StepLines(say)] if verbose > 1 else []


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")
