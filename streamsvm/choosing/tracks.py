"""Trials of a search for a metric, their results, and tracks of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from streamsvm.parallel.sizes import Weighed
from streamsvm.solvers.in_turn import prefixed, unprefixed

NO_WAY = 0.0  # neither a larger gamma nor a smaller one helps


@dataclass(frozen=True)
class Trial(Weighed):
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


class Judged:
    """By its losses (h,) of held-out rows. Those of a fit that failed are infinite."""

    losses: np.ndarray

    @property
    def score(self) -> float:
        return 1.0 - float(self.losses.mean())

    @property
    def has_failed(self) -> bool:
        return not np.isfinite(self.losses).all()


@dataclass(frozen=True)
class Found(Judged, Weighed):
    """losses (h,): of held-out rows; 1 less their mean is the score. alpha (m, columns). seconds: that it took."""

    losses: np.ndarray
    alpha: np.ndarray
    seconds: float = 0.0

    @classmethod
    def of_all(cls, found: Sequence[Found]) -> Found:
        """Of a trial on several samples, one after the other."""
        losses, alpha = (np.concatenate([getattr(f, name) for f in found]) for name in ("losses", "alpha"))
        return cls(losses, alpha, sum(f.seconds for f in found))


@dataclass(frozen=True)
class Fitted(Judged):
    """A trial on some rows, under a factor, and its losses (h,). learned: whether gradients made the factor."""

    trial: Trial
    rows: int
    factor: np.ndarray
    losses: np.ndarray
    learned: bool = False

    def beats(self, other: Fitted) -> bool:
        """By more than the standard error of the difference, on the same rows."""
        gains = other.losses - self.losses
        return float(gains.mean()) > float(gains.std()) / max(1, len(gains)) ** 0.5

    def to_arrays(self) -> dict[str, Any]:
        own = {name: getattr(self, name) for name in ("rows", "factor", "losses", "learned")}
        return asdict(self.trial) | own

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, Any]) -> Fitted:
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
    last: Fitted | None = None

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
            Trial.from_arrays(arrays), arrays["factor"], *own, Fitted.from_arrays(last) if last else None
        )
