"""What a stream counts between two records of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any


@dataclass
class Recent:
    """Events since the last record of a stream: labels, and seconds that answering and learning took."""

    labels: Counter[str] = field(default_factory=Counter)
    events: int = 0
    seconds: float = 0.0
    slowest_s: float = 0.0

    def add(self, seconds: float, label: Any) -> None:
        self.events += 1
        self.seconds += seconds
        self.slowest_s = max(self.slowest_s, seconds)
        if label is not None:
            self.labels[str(label)] += 1

    def facts(self) -> dict[str, Any]:
        mean = self.seconds / max(self.events, 1)
        return {
            "labels": dict(self.labels),
            "answer_s": round(mean, 7),
            "slowest_s": round(self.slowest_s, 7),
        }
