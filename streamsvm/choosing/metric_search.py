"""Kernel, gamma and C, and a metric from the gradients of what is learned under it (Radhakrishnan et al. 2024).

A track is a kernel and a scaling to begin with. At each step of it, values of gamma and C next to its last ones are
tried; the best of them on held-out rows stays, and its gradients make the metric of the track's next step. Tracks begin
on few rows, the best continue with more, and the last one with all. A metric has to beat the fit without one.

Trials of a search for a metric, their results, and tracks of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, astuple, dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from streamsvm.errors import ConfigError
from streamsvm.options.search import FAILED
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.solvers.in_turn import prefixed, unprefixed

LEAST_ROWS = 1000  # of a phase
TOLD = {  # of a step's fit
    "rows": int,
    "trials": int,
    "kernel": str,
    "gamma": float,
    "C": float,
    "class_weight": str,
    "columns": int,
    "score": float,
    "support": int,
    "seconds": float,
    "scale": str,
}
NUMBERS = ("n", "phase", "steps", "turn", "settled", "failed")  # of a state
MOST_TRACKS = 6  # that take more than one step
USUAL = 2  # steps after the first of a phase, of a track that learns no metric and so soon tries nothing new
SETTLED = 3  # steps of the last phase that were no better: more would not be, either


class Oracle(Protocol):
    """n rows to learn from, in random order, and held-out ones; or several such samples.

    A factor (s, d) or (s, d, r): one of `data.metric.Metric` for each of s samples that share no rows to learn a metric
    from, or for all.
    """

    @property
    def n(self) -> int: ...

    def tried(
        self, rows: int, factor: np.ndarray, trials: Sequence[Trial], start: np.ndarray | None
    ) -> list[TrialResult]:
        """The result of each trial on the first rows. start: of alpha / C, maybe of fewer rows."""

    def refitted(self, rows: int, factor: np.ndarray, trial: Trial, alpha: np.ndarray) -> np.ndarray | None:
        """The factor from the gradients of a solution. None: they are beyond float32."""


@dataclass(frozen=True)
class MetricState:
    """Tracks that are left, and n, the rows of the last phase; the phase, its steps that are done, and whose turn is
    next. `told`: each step's fit, without factor and losses. settled: steps of the last phase since its best. first:
    the best that a track began with, before any metric. plain: fits without one on n rows, once it ended; of these the
    first is what was given. pool: losses (h,) of all trials on n rows, under a metric or not. failed: fits that were
    dropped, as values were beyond float32 or they did not converge."""

    tracks: tuple[Track, ...]
    n: int
    phase: int = 0
    steps: int = 0
    turn: int = 0
    settled: int = 0
    failed: int = 0
    best: FittedTrial | None = None
    first: FittedTrial | None = None
    told: tuple[tuple[Any, ...], ...] = ()
    plain: tuple[FittedTrial, ...] = ()
    pool: tuple[np.ndarray, ...] = ()
    ended: bool = False

    def to_arrays(self) -> dict[str, Any]:
        """All fields as named arrays, for a checkpoint."""
        arrays: dict[str, Any] = {name: getattr(self, name) for name in NUMBERS} | {"ended": self.ended}
        arrays |= {f"told{i}": np.array([str(value) for value in row]) for i, row in enumerate(self.told)}
        arrays |= {f"pool{i}": losses for i, losses in enumerate(self.pool)}
        for name in ("best", "first"):
            fitted = getattr(self, name)
            arrays |= prefixed(f"{name}_", fitted.to_arrays()) if fitted else {}
        items: list[tuple[str, Sequence[Track | FittedTrial]]] = [
            ("track", self.tracks),
            ("plain", self.plain),
        ]
        for name, own in items:
            for i, item in enumerate(own):
                arrays |= prefixed(f"{name}{i}_", item.to_arrays())
        return arrays

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> MetricState:
        numbers = {name: int(arrays.get(name, 0)) for name in NUMBERS}  # 0.2 counted no failed fits
        best, first = (unprefixed(name, arrays) for name in ("best_", "first_"))
        tracks = tuple(Track.from_arrays(found) for found in _numbered("track", arrays))
        plain = tuple(FittedTrial.from_arrays(found) for found in _numbered("plain", arrays))
        rows = (arrays[f"told{i}"].tolist() for i in range(sum(name.startswith("told") for name in arrays)))
        told = tuple(
            tuple(kind(value) for kind, value in zip(TOLD.values(), row, strict=True)) for row in rows
        )
        pool = sum(name.startswith("pool") for name in arrays)
        return cls(
            tracks,
            best=FittedTrial.from_arrays(best) if best else None,
            first=FittedTrial.from_arrays(first) if first else None,
            told=told,
            plain=plain,
            pool=tuple(arrays[f"pool{i}"] for i in range(pool)),
            ended=bool(arrays["ended"]),
            **numbers,
        )


def _numbered(name: str, arrays: Mapping[str, Any]) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    while own := unprefixed(f"{name}{len(found)}_", arrays):
        found.append(own)
    return found


class SearchPhase(NamedTuple):
    """A phase: the rows and steps of each track, and how many of the tracks continue."""

    rows: int
    steps: int
    keep: int


@dataclass(frozen=True)
class MetricSearch:
    """The solver. tracks: to begin with. iterations: steps that a track takes after its first one, at most.

    gamma, C: whether they are searched. given: what is fitted where nothing is chosen, and under which factor, to be
    compared at the end. None: the tracks come from an earlier search, and continue with all rows. affordable: asked at
    a phase's end for how many rows there is time, by the rows and trials of what is to come.
    """

    tracks: tuple[Track, ...]
    iterations: int
    gamma: bool
    C: bool
    given: tuple[Trial, np.ndarray] | None = None
    affordable: Callable[[MetricState, Sequence[tuple[int, int]]], int] | None = None

    def init(self, problem: Oracle) -> MetricState:
        return MetricState(self.tracks, problem.n)

    def stretches(self, n: int, least: int = LEAST_ROWS) -> tuple[SearchPhase, ...]:
        """The phases over n rows: as many steps as metrics, and one more; with all rows two of them, or more.

        least: rows of a phase.
        """
        steps = self.iterations + 1
        if self.given is None:
            return (SearchPhase(n, steps, 1),)
        early = min(6, steps - 2)
        found = zip((8, 4, 2), (early + 2, early + 1, early), (3, 2, 1), strict=True)
        phases = [SearchPhase(min(n, max(least, n // part)), own // 3, keep) for part, own, keep in found]
        if len(self.tracks) > MOST_TRACKS and phases[0].steps > 1:  # a step each is enough to find the worst
            rows, own, keep = phases[0]
            phases[:1] = [SearchPhase(rows, 1, MOST_TRACKS), SearchPhase(rows, own - 1, keep)]
        return *(phase for phase in phases if phase.steps), SearchPhase(n, steps - early, 1)

    def _phases(self, state: MetricState) -> tuple[SearchPhase, ...]:
        """If n has fallen, none has fewer rows than were tried already."""
        return self.stretches(state.n, max(LEAST_ROWS, max((told[0] for told in state.told), default=0)))

    def ahead(self, state: MetricState) -> list[tuple[int, int]]:
        """Rows and trials of the phases to come, at most."""
        begin, left, found = 1 + 2 * self.gamma + 2 * self.C, list(state.tracks), []
        for phase in self._phases(state)[state.phase :]:
            more = [phase.steps - 1 if track.learns else min(phase.steps - 1, USUAL) for track in left]
            found.append((phase.rows, sum(begin + steps * (1 + self.gamma) for steps in more)))
            left = left[: phase.keep]
        return [*found, (state.n, 1 + begin)]

    def next_cost(self, state: MetricState) -> float:
        """What the next step takes, in kernel values of a trial: the squared rows of all that it tries."""
        phases = self._phases(state)
        if state.phase == len(phases):
            return state.n**2 * (1.0 + len(self._near_first(state)))
        is_last, track = state.phase == len(phases) - 1, state.tracks[state.turn]
        return phases[state.phase].rows ** 2 * float(len(self._trials(track, state, is_last=is_last)))

    def total(self, n: int) -> int:
        """Steps, at most."""
        phases, alive, total = self.stretches(n), len(self.tracks), 0
        for phase in phases:
            total, alive = total + phase.steps * alive, min(alive, phase.keep)
        return total

    def step(self, problem: Oracle, state: MetricState) -> MetricState:
        phases = self._phases(state)
        if state.phase == len(phases):
            plain = self._without(problem, state)
            losses = [fitted.losses for fitted in plain if not fitted.has_failed]
            failed = state.failed + len(plain) - len(losses)
            return replace(state, plain=plain, pool=(*state.pool, *losses), failed=failed, ended=True)
        phase, track = phases[state.phase], state.tracks[state.turn]
        trials = self._trials(track, state, is_last=state.phase == len(phases) - 1)
        known = None if track.learns else track.last
        if known is not None and known.rows == phase.rows:  # under the same factor: it would come to the same
            trials = trials[1:]
            if not trials:
                return self._advanced(state, known, phases)
        found = problem.tried(phase.rows, track.factor, trials, track.start)
        state = replace(state, failed=state.failed + sum(each.has_failed for each in found))
        at = int(np.argmax([each.score for each in found]))
        if found[at].has_failed:
            return self._dropped(state, phases)
        is_first = track.last is None and self.given is not None
        learned = track.learns and not is_first
        fitted = FittedTrial(trials[at], phase.rows, track.factor, found[at].losses, learned)
        is_last = state.phase == len(phases) - 1 and state.steps == phase.steps - 1
        own = phase.rows, track.factor, trials[at], found[at].alpha
        factor = problem.refitted(*own) if track.learns and not is_last else track.factor
        if factor is None:
            factor, track = track.factor, replace(track, learns=False)
        if is_first and (state.first is None or fitted.score > state.first.score):
            state = replace(state, first=fitted)
        start, way = found[at].alpha / trials[at].C, track.way_after(trials[at])
        if known is None or known.rows < phase.rows or fitted.score > known.score:
            track = replace(track, trial=trials[at], factor=factor, start=start, way=way, last=fitted)
        else:
            track = replace(track, way=NO_WAY)
        tracks = (*state.tracks[: state.turn], track, *state.tracks[state.turn + 1 :])
        width = factor_width(fitted.factor)
        if phase.rows == state.n:
            losses = [each.losses for each in found if not each.has_failed]
            state = replace(state, pool=(*state.pool, *losses))
        support, seconds = int(np.count_nonzero(found[at].alpha.any(axis=1))), found[at].seconds
        row = (
            phase.rows,
            len(trials),
            *astuple(fitted.trial),
            width,
            fitted.score,
            support,
            seconds,
            track.scale,
        )
        told = (*state.told, row)
        assert track.last is not None  # this step's, or a better one of the same rows
        return self._advanced(replace(state, tracks=tracks, told=told), track.last, phases)

    def _advanced(
        self, state: MetricState, fitted: FittedTrial, phases: tuple[SearchPhase, ...]
    ) -> MetricState:
        """Whose turn is next, after a fit; at the end of a phase, with the tracks that continue."""
        is_last = state.phase == len(phases) - 1
        if is_last:
            better = state.best is None or fitted.score > state.best.score
            best, settled = (fitted, 0) if better else (state.best, state.settled + 1)
            state = replace(state, best=best, settled=settled)
        return self._next_turn(replace(state, turn=state.turn + 1), phases)

    def _dropped(self, state: MetricState, phases: tuple[SearchPhase, ...]) -> MetricState:
        """Without the track whose turn it is: all that it tried has failed."""
        tracks = state.tracks[: state.turn] + state.tracks[state.turn + 1 :]
        state = replace(state, tracks=tracks)
        if tracks:
            return self._next_turn(state, phases)
        return replace(state, phase=len(phases), ended=self.given is None or state.first is None)

    def _next_turn(self, state: MetricState, phases: tuple[SearchPhase, ...]) -> MetricState:
        """After the last track the first one follows, or the next phase."""
        if state.turn < len(state.tracks):
            return state
        is_last = state.phase == len(phases) - 1
        has_settled = is_last and state.settled >= SETTLED * len(state.tracks)
        if state.steps + 1 < phases[state.phase].steps and not has_settled:
            return replace(state, turn=0, steps=state.steps + 1)
        best_first = sorted(state.tracks, key=lambda track: -track.score)
        kept = tuple(best_first[: phases[state.phase].keep])
        ended = is_last and self.given is None
        state = replace(state, tracks=kept, phase=state.phase + 1, steps=0, turn=0, ended=ended)
        if self.affordable is None or state.phase == len(phases):
            return state
        rows = max(phases[state.phase - 1].rows, self.affordable(state, self.ahead(state)))
        return replace(state, n=min(state.n, rows))

    def _trials(self, track: Track, state: MetricState, *, is_last: bool) -> list[Trial]:
        """The neighbours of the last one to try, itself first: both ways at the start of a phase, then one."""
        last, begins = track.trial, state.steps == 0
        is_first = begins and state.phase == 0 and self.given is not None
        gammas = (
            ((2.0, 0.5, 4.0) if is_first else (2.0, 0.5) if begins else (track.way,))
            if self.gamma and not np.isnan(last.gamma) and (begins or track.way != NO_WAY)
            else ()
        )
        Cs = (3.0, 1 / 3)[: 1 if is_last and self.given is not None else 2] if self.C and begins else ()
        near = [replace(last, gamma=last.gamma * factor) for factor in gammas]
        near += [replace(last, C=last.C * factor) for factor in Cs]
        if is_first and gammas and self.C:
            near.append(replace(last, gamma=4 * last.gamma, C=3 * last.C))
        return [last, *near]

    def _without(self, problem: Oracle, state: MetricState) -> tuple[FittedTrial, ...]:
        """The given fit, and the best first fit and its neighbours without a metric, on n rows."""
        assert self.given is not None  # else it has ended
        assert state.first is not None  # of the first step
        tried = [([self.given[0]], self.given[1]), (self._near_first(state), state.first.factor)]
        return tuple(
            FittedTrial(trial, state.n, factor, each.losses)
            for trials, factor in tried
            for trial, each in zip(trials, problem.tried(state.n, factor, trials, None), strict=True)
        )

    def _near_first(self, state: MetricState) -> list[Trial]:
        """The best first trial and its neighbours, except those already tried on n rows."""
        assert self.given is not None
        assert state.first is not None
        last = state.first.trial
        near = [last] if last != self.given[0] else []
        if state.best is not None and state.best.learned:  # else these were its steps
            gammas = (2.0, 0.5) if self.gamma and not np.isnan(last.gamma) else ()
            near += [replace(last, gamma=last.gamma * factor) for factor in gammas]
            near += [replace(last, C=last.C * factor) for factor in (3.0, 1 / 3) if self.C]
        return near

    @staticmethod
    def is_solved(state: MetricState) -> bool:
        return state.ended


def chosen(state: MetricState) -> FittedTrial:
    """The best fit; a fit under a metric must beat those without by more than chance.

    If a search ended before it had compared them, the best of those with the most rows. Raises ConfigError if all
    fits failed.
    """
    compared = [fitted for fitted in state.plain if not fitted.has_failed]
    if not compared:
        fits = [fit for fit in (state.best, *(track.last for track in state.tracks), state.first) if fit]
        if not fits:
            raise ConfigError(
                f"all {state.failed} fits of the search failed, as {FAILED}: scale the features, or take a smaller "
                "gamma, degree or C"
            )
        return max(fits, key=lambda fitted: (fitted.rows, fitted.score))
    plain = max(compared, key=lambda fitted: fitted.score)  # the given one of equals
    if state.best is None or not state.best.learned:
        return max(plain, state.best or plain, key=lambda fitted: fitted.score)
    return state.best if state.best.beats(plain) else plain


def factor_width(factor: np.ndarray) -> int:
    """Columns that a factor keeps."""
    return int(np.count_nonzero(factor.any(axis=0))) if factor.ndim == 2 else factor.shape[2]


def facts(state: MetricState) -> list[dict[str, Any]]:
    """Each step, for a report."""
    return [dict(zip(TOLD, row, strict=True)) for row in state.told]


NO_WAY = 0.0  # neither a larger gamma nor a smaller one helps


@dataclass(frozen=True)
class Trial(SizedInBytes):
    """A trial under a metric. gamma: over the oracle's unit; NaN: as the options say. class_weight: on top of the
    rows' own, "balanced" or none."""

    kernel: str
    gamma: float
    C: float
    class_weight: str = ""

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Trial:
        own = str(arrays["kernel"]), float(arrays["gamma"]), float(arrays["C"])
        return cls(*own, str(arrays["class_weight"]))


class HeldOutLosses:
    """By its losses (h,) of held-out rows. Those of a fit that failed are infinite."""

    losses: np.ndarray

    @property
    def score(self) -> float:
        return 1.0 - float(self.losses.mean())

    @property
    def has_failed(self) -> bool:
        return not np.isfinite(self.losses).all()


@dataclass(frozen=True)
class TrialResult(HeldOutLosses, SizedInBytes):
    """losses (h,): of held-out rows; 1 less their mean is the score. alpha (m, columns). seconds: that it took."""

    losses: np.ndarray
    alpha: np.ndarray
    seconds: float = 0.0

    @classmethod
    def of_all(cls, found: Sequence[TrialResult]) -> TrialResult:
        """Of a trial on several samples, one after the other."""
        losses, alpha = (np.concatenate([getattr(f, name) for f in found]) for name in ("losses", "alpha"))
        return cls(losses, alpha, sum(f.seconds for f in found))


@dataclass(frozen=True)
class FittedTrial(HeldOutLosses):
    """A trial on some rows, under a factor, and its losses (h,). learned: whether gradients made the factor."""

    trial: Trial
    rows: int
    factor: np.ndarray
    losses: np.ndarray
    learned: bool = False

    def beats(self, other: FittedTrial) -> bool:
        """By more than the standard error of the difference, on the same rows."""
        gains = other.losses - self.losses
        return float(gains.mean()) > float(gains.std()) / max(1, len(gains)) ** 0.5

    def to_arrays(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("rows", "factor", "losses", "learned")}
        return asdict(self.trial) | own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> FittedTrial:
        own = int(arrays["rows"]), arrays["factor"], arrays["losses"], bool(arrays["learned"])
        return cls(Trial.from_arrays(arrays), *own)


@dataclass(frozen=True)
class Track:
    """The present point of a track, its factor and alpha / C, and its last fit.

    way: the factor on gamma that is tried next; if it does not help, its inverse comes next, under another metric.
    NO_WAY if both did not. learns: whether its gradients make a metric. scale: what the factor was to begin with, for a
    report.
    """

    trial: Trial
    factor: np.ndarray
    learns: bool = True
    scale: str = ""
    start: np.ndarray | None = None
    way: float = 2.0
    last: FittedTrial | None = None

    @property
    def score(self) -> float:
        return self.last.score if self.last else -np.inf

    def way_after(self, trial: Trial) -> float:
        """The way from the best trial of a step."""
        ratio = trial.gamma / self.trial.gamma
        if ratio > 1 or ratio < 1:
            return 2.0 if ratio > 1 else 0.5
        return 1 / self.way if self.learns else NO_WAY if trial == self.trial else 2.0

    def to_arrays(self) -> dict[str, Any]:
        arrays = asdict(self.trial) | {
            name: getattr(self, name) for name in ("factor", "learns", "scale", "way")
        }
        arrays |= {} if self.start is None else {"start": self.start}
        return arrays | (prefixed("last_", self.last.to_arrays()) if self.last else {})

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Track:
        last = unprefixed("last_", arrays)
        own = bool(arrays["learns"]), str(arrays["scale"]), arrays.get("start"), float(arrays["way"])
        return cls(
            Trial.from_arrays(arrays), arrays["factor"], *own, FittedTrial.from_arrays(last) if last else None
        )
