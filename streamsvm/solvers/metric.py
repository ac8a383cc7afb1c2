"""A metric from the gradients of what is learned under it (Radhakrishnan et al. 2024), with the kernel, gamma and C.

A track is a kernel and a metric to begin with. At each step of it, values of gamma and C next to its last ones are
tried under its metric; the best of them on held-out rows stays, and its gradients make the track's next metric. Tracks
begin on few rows; the best go on with more, and the last one with all. A metric has to beat what does without one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamsvm.parallel.sizes import Weighed
from streamsvm.solvers.in_turn import prefixed, unprefixed

LEAST_ROWS = 1000  # of a phase
NUMBERS = ("phase", "steps", "turn", "settled")  # of a state
SETTLED = 2  # steps of the last phase that were no better: more would not be, either


@dataclass(frozen=True)
class Trial(Weighed):
    """What is tried under a metric. gamma: over the oracle's unit; NaN: as the options say."""

    kernel: str
    gamma: float
    C: float


@dataclass(frozen=True)
class Found(Weighed):
    """losses (h,): of held-out rows; 1 less their mean is the score. alpha (m, columns): the solution."""

    losses: np.ndarray
    alpha: np.ndarray

    @property
    def score(self) -> float:
        return 1.0 - float(self.losses.mean())

    @classmethod
    def of_all(cls, found: Sequence[Found]) -> Found:
        """Of a trial on several samples, one after the other."""
        return cls(*(np.concatenate([getattr(f, name) for f in found]) for name in ("losses", "alpha")))


class Oracle(Protocol):
    """n rows to learn from, in an order by chance, and held-out ones. A factor is one of `data.metric.Metric`."""

    @property
    def n(self) -> int: ...

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[Found]:
        """What each trial comes to on the first rows. start: of alpha / C, of fewer rows maybe."""

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray:
        """The factor that the gradients of a solution make."""


@dataclass(frozen=True)
class Fitted:
    """A trial on some rows, under a factor, and the losses (h,) that it came to."""

    trial: Trial
    rows: int
    factor: np.ndarray
    losses: np.ndarray

    @property
    def score(self) -> float:
        return 1.0 - float(self.losses.mean())

    @property
    def has_metric(self) -> bool:
        return self.factor.ndim == 2 or bool(np.ptp(self.factor))

    def beats(self, other: Fitted) -> bool:
        """By more than the standard error of the difference, which the same rows tell."""
        gains = other.losses - self.losses
        return float(gains.mean()) > float(gains.std()) / max(1, len(gains)) ** 0.5

    def to_arrays(self) -> dict[str, Any]:
        return asdict(self.trial) | {"rows": self.rows, "factor": self.factor, "losses": self.losses}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Fitted:
        trial = Trial(str(arrays["kernel"]), float(arrays["gamma"]), float(arrays["C"]))
        return cls(trial, int(arrays["rows"]), arrays["factor"], arrays["losses"])


@dataclass(frozen=True)
class Track:
    """What is tried next to, under which factor, from which alpha / C; its last fit and its first, without a metric.

    way: the factor on gamma that is tried next; where it does not help, its inverse will be.
    """

    trial: Trial
    factor: np.ndarray
    start: np.ndarray | None = None
    way: float = 2.0
    last: Fitted | None = None
    first: Fitted | None = None

    @property
    def score(self) -> float:
        return self.last.score if self.last else -np.inf

    def to_arrays(self) -> dict[str, Any]:
        arrays = asdict(self.trial) | {"factor": self.factor, "way": self.way}
        arrays |= {} if self.start is None else {"start": self.start}
        for name, fitted in (("last_", self.last), ("first_", self.first)):
            arrays |= prefixed(name, fitted.to_arrays()) if fitted else {}
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Track:
        trial = Trial(str(arrays["kernel"]), float(arrays["gamma"]), float(arrays["C"]))
        last, first = (unprefixed(name, arrays) for name in ("last_", "first_"))
        fits = (Fitted.from_arrays(found) if found else None for found in (last, first))
        return cls(trial, arrays["factor"], arrays.get("start"), float(arrays["way"]), *fits)


@dataclass(frozen=True)
class MetricState:
    """Tracks that are left; the phase, its steps that are done, and whose turn is next. told: each step's fit, but for
    factor and losses. settled: steps of the last phase since its best. plain: fits without a metric, once it ended."""

    tracks: tuple[Track, ...]
    phase: int = 0
    steps: int = 0
    turn: int = 0
    settled: int = 0
    best: Fitted | None = None
    told: tuple[tuple[Any, ...], ...] = ()
    plain: tuple[Fitted, ...] = ()
    ended: bool = False

    def to_arrays(self) -> dict[str, Any]:
        """All of it under names, for a checkpoint."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS} | {"ended": self.ended}
        arrays |= {f"told{i}": np.array([str(value) for value in row]) for i, row in enumerate(self.told)}
        arrays |= prefixed("best_", self.best.to_arrays()) if self.best else {}
        items: list[tuple[str, Sequence[Track | Fitted]]] = [("track", self.tracks), ("plain", self.plain)]
        for name, own in items:
            for i, item in enumerate(own):
                arrays |= prefixed(f"{name}{i}_", item.to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> MetricState:
        numbers = {name: int(arrays[name]) for name in NUMBERS}
        best = unprefixed("best_", arrays)
        tracks = tuple(Track.from_arrays(found) for found in _numbered("track", arrays))
        plain = tuple(Fitted.from_arrays(found) for found in _numbered("plain", arrays))
        rows = (arrays[f"told{i}"].tolist() for i in range(sum(name.startswith("told") for name in arrays)))
        told = tuple((int(r[0]), r[1], *map(float, r[2:4]), int(r[4]), float(r[5])) for r in rows)
        return cls(
            tracks,
            best=Fitted.from_arrays(best) if best else None,
            told=told,
            plain=plain,
            ended=bool(arrays["ended"]),
            **numbers,
        )


def _numbered(name: str, arrays: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while own := unprefixed(f"{name}{len(found)}_", arrays):
        found.append(own)
    return found


class Stretch(NamedTuple):
    """A phase: the rows and steps of each track, and how many of the tracks go on."""

    rows: int
    steps: int
    keep: int


@dataclass(frozen=True)
class MetricSearch:
    """The solver. tracks: to begin with. iterations: most metrics of a track. gamma, C: whether they are searched.

    given: what is fitted where nothing is learned, to be compared at the end. None: the tracks come from a search
    before, and go on with all rows.
    """

    tracks: tuple[Track, ...]
    iterations: int
    gamma: bool
    C: bool
    given: Trial | None = None

    def init(self, problem: Oracle) -> MetricState:
        return MetricState(self.tracks)

    def stretches(self, n: int) -> tuple[Stretch, ...]:
        """The phases over n rows: as many steps as metrics, and one more; with all rows two of them, or more."""
        steps = self.iterations + 1
        if self.given is None:
            return (Stretch(n, steps, 1),)
        early = min(6, steps - 2)
        found = zip((8, 4, 2), (early + 2, early + 1, early), (3, 2, 1), strict=True)
        phases = [Stretch(min(n, max(LEAST_ROWS, n // part)), own // 3, keep) for part, own, keep in found]
        return *(phase for phase in phases if phase.steps), Stretch(n, steps - early, 1)

    def total(self, n: int) -> int:
        """Steps, at most."""
        phases, alive, total = self.stretches(n), len(self.tracks), 0
        for phase in phases:
            total, alive = total + phase.steps * alive, min(alive, phase.keep)
        return total

    def step(self, problem: Oracle, state: MetricState) -> MetricState:
        phases = self.stretches(problem.n)
        if state.phase == len(phases):
            return replace(state, plain=self._without(problem, state), ended=True)
        phase, track = phases[state.phase], state.tracks[state.turn]
        trials = self._trials(track, state, is_last=state.phase == len(phases) - 1)
        found = problem.tried(phase.rows, track.factor, trials, track.start)
        at = int(np.argmax([each.score for each in found]))
        fitted = Fitted(trials[at], phase.rows, track.factor, found[at].losses)
        is_last = state.phase == len(phases) - 1 and state.steps == phase.steps - 1
        own = phase.rows, track.factor, trials[at], found[at].alpha
        factor = track.factor if is_last else problem.refitted(*own)
        start = found[at].alpha / trials[at].C
        ratio = trials[at].gamma / track.trial.gamma
        way = 1 / track.way if ratio == 1 else 2.0 if ratio > 1 else 0.5
        track = Track(trials[at], factor, start, way, fitted, track.first or fitted)
        tracks = (*state.tracks[: state.turn], track, *state.tracks[state.turn + 1 :])
        width = factor_width(fitted.factor)
        told = (*state.told, (phase.rows, *astuple(fitted.trial), width, fitted.score))
        return self._advanced(replace(state, tracks=tracks, told=told), fitted, phases)

    def _advanced(self, state: MetricState, fitted: Fitted, phases: tuple[Stretch, ...]) -> MetricState:
        """Whose turn is next, after a fit; at the end of a phase, with the tracks that go on."""
        is_last = state.phase == len(phases) - 1
        if is_last:
            better = state.best is None or fitted.score > state.best.score
            best, settled = (fitted, 0) if better else (state.best, state.settled + 1)
            state = replace(state, best=best, settled=settled)
        if state.turn + 1 < len(state.tracks):
            return replace(state, turn=state.turn + 1)
        has_settled = is_last and state.settled >= SETTLED * len(state.tracks)
        if state.steps + 1 < phases[state.phase].steps and not has_settled:
            return replace(state, turn=0, steps=state.steps + 1)
        best_first = sorted(state.tracks, key=lambda track: -track.score)
        kept = tuple(best_first[: phases[state.phase].keep])
        ended = is_last and self.given is None
        return replace(state, tracks=kept, phase=state.phase + 1, steps=0, turn=0, ended=ended)

    def _trials(self, track: Track, state: MetricState, *, is_last: bool) -> list[Trial]:
        """What is tried next to the last one, itself first: both ways where a phase begins, then one."""
        last, begins = track.trial, state.steps == 0
        is_first = begins and state.phase == 0 and self.given is not None
        gammas = (
            ((2.0, 0.5, 4.0) if is_first else (2.0, 0.5) if begins else (track.way,)) if self.gamma else ()
        )
        Cs = (3.0, 1 / 3)[: 1 if is_last and self.given is not None else 2] if self.C and begins else ()
        near = [replace(last, gamma=last.gamma * factor) for factor in gammas]
        near += [replace(last, C=last.C * factor) for factor in Cs]
        if is_first and self.gamma and self.C:
            near.append(replace(last, gamma=4 * last.gamma, C=3 * last.C))
        return [last, *near]

    def _without(self, problem: Oracle, state: MetricState) -> tuple[Fitted, ...]:
        """What is given, and what the best track's kernel came to at first, on all rows and without a metric."""
        assert state.best is not None  # the last phase has steps
        assert self.given is not None  # else it has ended
        first = state.tracks[0].first
        same = np.ones(len(state.best.factor))
        trials = [self.given]
        if first is not None and first.trial != self.given:
            trials.append(first.trial)
        found = problem.tried(problem.n, same, trials, None)
        return tuple(
            Fitted(trial, problem.n, same, each.losses) for trial, each in zip(trials, found, strict=True)
        )

    @staticmethod
    def is_solved(state: MetricState) -> bool:
        return state.ended


def chosen(state: MetricState) -> Fitted:
    """The metric's best fit, where it beats those without one; of these the given one, unless another beats it."""
    given, *others = state.plain
    plain = max((given, *others), key=lambda fitted: fitted.score)
    assert state.best is not None  # it has ended
    if state.best.beats(plain):
        return state.best
    return plain if plain.beats(given) else given


def factor_width(factor: np.ndarray) -> int:
    """Columns that a factor keeps."""
    return int(np.count_nonzero(factor)) if factor.ndim == 1 else factor.shape[1]


def facts(state: MetricState) -> list[dict[str, Any]]:
    """Each step, for a report."""
    names = ("rows", "kernel", "gamma", "C", "columns", "score")
    return [dict(zip(names, row, strict=True)) for row in state.told]
