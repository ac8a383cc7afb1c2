"""Features of a stream on one scale, by the mean and deviation of what came so far."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class RunningScaler:
    """Count, mean and variance of each feature so far (Welford, 1962).

    Nothing is forgotten; the scaling of pools, in `data/running.py`, adapts. The numbers are those of river's
    StandardScaler, which loads pandas, scikit-learn and trees: half of the seconds that a stream takes to start.
    """

    moments: dict[str, tuple[int, float, float]] = field(default_factory=dict)  # (count, mean, variance)

    @classmethod
    def from_state(cls, state: Mapping[str, list[float]]) -> RunningScaler:
        return cls({name: (int(count), mean, variance) for name, (count, mean, variance) in state.items()})

    def to_state(self) -> dict[str, list[float]]:
        return {name: [*own] for name, own in self.moments.items()}

    def of(self, name: str) -> tuple[int, float, float]:
        return self.moments.get(name, (0, 0.0, 0.0))

    def learn_one(self, x: Mapping[str, float]) -> None:
        for name, value in x.items():
            count, mean, variance = self.of(name)
            count += 1
            moved = mean + (value - mean) / count
            variance += ((value - mean) * (value - moved) - variance) / count
            self.moments[name] = count, moved, variance

    def transform_one(self, x: Mapping[str, float]) -> dict[str, float]:
        """(value - mean) / deviation; 0 where nothing deviates."""
        return {name: self._scaled(name, value) for name, value in x.items()}

    def _scaled(self, name: str, value: float) -> float:
        _, mean, variance = self.of(name)
        return (value - mean) / variance**0.5 if variance else 0.0
