"""How DC-SVM grows with its rows: they are divided, regrouped by partition, and a level at a time is solved."""

from __future__ import annotations

from streamsvm.config import FitConfig
from streamsvm.fits.growth import Growth, Seen
from streamsvm.fits.memory_plan import vector_bytes
from streamsvm.solvers.dcsvm import default_levels
from streamsvm.tasks import task_for

LEAST_PART_ROWS = {True: 128, False: 512}  # average of a pilot's partitions, early or not


class DividedGrowth(Growth):
    """Rows in as many partitions as all rows have: partitions of the same regions, with fewer rows."""

    def network_bytes(self, n: int, seen: Seen) -> float:
        """The solutions of partitions and, for rounds of the top, the products of all rows. The other data of each row
        goes through files."""
        support = seen.grown(n, "n_support") * (4 * seen.d + 12 + 8 * seen.columns)
        return support + 8 * seen.grown(n, "rows_of_rounds")

    def least_bytes(self, n: int, seen: Seen) -> int:
        """Of an exact fit vectors of all rows, and the model's support vectors twice over: gathered, then whole."""
        if seen.divided:
            return seen.base_bytes
        support = int(2 * seen.grown(n, "n_support") * seen.spooled_row_bytes)
        return seen.base_bytes + vector_bytes(n, seen.columns) + support

    def regroups(self, n: int, seen: Seen, *, on_workers: bool) -> bool:
        """In the order of their partitions: for workers, or if memory does not hold them."""
        return on_workers or not seen.is_held(n)

    def rows_of_pilot(self, n: int, config: FitConfig) -> int:
        levels = parts_levels(n, config)
        parts_rows = LEAST_PART_ROWS[config.dcsvm.early] * config.dcsvm.children**levels
        return max(self.least_rows, parts_rows if levels else 0)

    def smaller(self, config: FitConfig, n: int, m: int) -> FitConfig:
        options, levels = config.dcsvm, parts_levels(n, config)
        if levels == 0:
            return config
        part_rows = max(2, (options.part_rows or 2 * n // options.children**levels) * m // n)
        same = {"levels": levels, "part_rows": part_rows if options.early else options.part_rows}
        return config.model_copy(update={"dcsvm": options.model_copy(update=same)})

    def part_rows(self, n: int, config: FitConfig) -> int:
        options = config.dcsvm
        return n // options.children ** parts_levels(n, config) if options.early else n

    def divided(self, n: int, config: FitConfig) -> int | None:
        return n if config.dcsvm.early and parts_levels(n, config) else None


def parts_levels(n: int, config: FitConfig) -> int:
    """Levels of partitions of a fit of n rows; 0 for a single partition.

    The number of variables, not of rows, limits a partition. nu is about the share of support vectors: a small nu
    allows larger partitions, which take no longer then, and divide fewer of the clouds whose edges they describe.
    """
    options, task = config.dcsvm, task_for(config)
    nu = task.nu(config)
    share = 1.0 if nu is None else min(1.0, 2 * nu)
    return options.levels or default_levels(
        max(1, round(n * task.variables * share)), options.children, early=options.early
    )
