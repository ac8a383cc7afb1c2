"""What a memory limit allows a fit: rows held or streamed, kernel rows kept, rows of a partition, threads."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from streamsvm.data.samples import SamplesInStore
from streamsvm.errors import MemoryLimitError
from streamsvm.kernels.row_cache import WIDE
from streamsvm.parallel.memory import MiB, free_bytes, process_bytes
from streamsvm.storage.human import human_bytes

TASK_BYTES = 48 * MiB  # a working set's Gram matrix, its tiles and vectors, whatever the partition's size
COPIES = 3  # that a partition takes of its rows
ROW_BYTES = 160  # solver vectors of one row of a partition
LEAST_ROWS = 1024  # rows of a partition below which dividing is pointless
STREAMED_SHARE = 32  # rows of partitions beyond 1 / 32 of the limit are read again, not held


@dataclass(frozen=True)
class MemoryPlan:
    """Bytes: the limit; what the process holds already, vectors of all rows, rows held in memory, kernel rows kept."""

    limit_bytes: int
    process_bytes: int
    vector_bytes: int
    rows_bytes: int
    cache_bytes: int
    in_memory: bool
    threads: int
    max_part_rows: int

    def part_rows(self, copies: int = COPIES) -> int:
        """Maximum rows of a partition that takes so many copies of them."""
        return self.max_part_rows * COPIES // copies

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def plan_memory(
    samples: SamplesInStore,
    columns: int,
    limit_bytes: int | None,
    threads: int,
    *,
    cache_bytes: int,
    on_worker: bool = False,
    parts_alone: bool = False,
) -> MemoryPlan:
    """How a fit stays under the limit (None: 80 % of what is free now). Raises MemoryLimitError.

    columns: coefficients of a row.
    cache_bytes: for kernel rows, less if memory is short.
    on_worker: the limit and threads are those of a cluster's worker, which sees partitions only. parts_alone: the fit
    solves partitions only, for which the data of each row may be in files.
    """
    n, raw, row, rows = samples.n, samples.as_stored, samples.nbytes / samples.n, int(samples.nbytes)
    limit = limit_bytes or free_bytes()
    process = process_bytes()
    in_memory = not on_worker and stay_in_memory(n, row, columns, limit, threads, parts_alone)
    vectors = 0 if on_worker or (parts_alone and not in_memory) else vector_bytes(n, columns)
    free = limit - process - vectors - (int(1.2 * rows) if in_memory else 0)
    per_row = COPIES * row * (1 if not raw else 4) + ROW_BYTES
    least_part = int((TASK_BYTES + LEAST_ROWS * per_row) / 0.8)
    cache = min(cache_bytes, max(free - least_part, 0) // 4) if row >= 4 * WIDE else 0
    free -= cache
    while not on_worker and threads > 1 and 0.8 * free / threads < TASK_BYTES + 4 * LEAST_ROWS * per_row:
        threads -= 1
    max_part_rows = int((0.8 * free / threads - TASK_BYTES) / per_row)
    if max_part_rows < LEAST_ROWS:
        least = process + vectors + least_part
        raise MemoryLimitError(
            f"a memory limit of {human_bytes(limit)} is too small for {n} rows of {samples.store.d} columns: "
            f"give at least {-(-least // MiB)} MiB"
        )
    return MemoryPlan(limit, process, vectors, rows, cache, in_memory, threads, max_part_rows)


def stay_in_memory(
    n: int, row_bytes: float, columns: int, limit_bytes: int, threads: int, parts_alone: bool = False
) -> bool:
    """Whether n rows of these bytes are held, next to what the process holds already and vectors of all rows."""
    if parts_alone and n * row_bytes > limit_bytes / STREAMED_SHARE:
        return False
    tasks = threads * (TASK_BYTES + LEAST_ROWS * 3 * row_bytes)
    return process_bytes() + vector_bytes(n, columns) + 1.5 * n * row_bytes + tasks < 0.7 * limit_bytes


def vector_bytes(n: int, columns: int) -> int:
    """Of labels, partitions, coefficients and gradients of all rows."""
    return n * (32 + 24 * columns)
