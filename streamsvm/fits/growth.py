"""How the cost of a fit grows with its rows: the solver's answers for extrapolating small fits to large ones."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol

from streamsvm.config import FitConfig


class Measurements(Protocol):
    """What small fits have shown: a `dry_run.Costs`."""

    @property
    def d(self) -> int: ...

    @property
    def columns(self) -> int: ...

    @property
    def compares_rows(self) -> bool: ...

    @property
    def spooled_row_bytes(self) -> float: ...

    @property
    def base_bytes(self) -> int: ...

    @property
    def divided(self) -> int | None: ...

    def grown(self, n: int, what: str) -> float:
        """A count of the small fits at n rows."""

    @property
    def is_spread(self) -> bool: ...

    def is_held(self, n: int) -> bool:
        """Whether n rows stay in memory."""


@dataclass(frozen=True)
class CostGrowth:
    """steepest: largest power of n. spread: phases that the workers of a cluster share, next to `scale`. chooses_rows:
    whether the fit takes as many rows as it has time for."""

    steepest: float = 2.5
    spread: tuple[str, ...] = ()
    chooses_rows: bool = False

    least_rows: ClassVar[int] = 500  # of a small fit

    def is_spread(self, config: FitConfig, problems: int) -> bool:
        """Whether workers share more than reading."""
        return True

    def network_bytes(self, n: int, seen: Measurements) -> float:
        """Bytes between the leading process and the workers: by default the rows, once, as float32."""
        return n * 4.0 * seen.d

    def least_bytes(self, n: int, seen: Measurements) -> int:
        """Of memory, that no limit makes smaller; what else grows with the rows is in the plan."""
        return seen.base_bytes

    def regroups(self, n: int, seen: Measurements, *, on_workers: bool) -> bool:
        """Whether rows are written once more, in this solver's order, which small fits do without."""
        return False

    def scratch_bytes(self, n: int, seen: Measurements, *, on_workers: bool) -> int:
        """Of files with all rows, in this solver's order."""
        return int(seen.spooled_row_bytes * n) if self.regroups(n, seen, on_workers=on_workers) else 0

    def rows_of_pilot(self, n: int, config: FitConfig) -> int:
        """Minimum rows of a small fit that stands for one of n rows."""
        return self.least_rows

    def smaller(self, config: FitConfig, n: int, m: int) -> FitConfig:
        """The configuration for m rows instead of n, with the same division."""
        return config

    def own_fit_s(self, n: int, config: FitConfig, pass_s: float, value_s: float) -> float | None:
        """Seconds of a fit, from those of a pass and of a kernel value; None if trials show how long it takes."""
        return pass_s if self.chooses_rows else None

    def part_rows(self, n: int, config: FitConfig) -> int:
        """Rows of a partition on average, of n rows; all unless a fit solves partitions alone."""
        return n

    def divided(self, n: int, config: FitConfig) -> int | None:
        """Rows beyond which there are more partitions, not larger ones; None unless a fit solves partitions alone."""
        return None
