"""The options of a compressed matrix, and its size in bytes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.errors import MemoryLimitError
from streamsvm.hss.compress import Tolerances
from streamsvm.hss.tree import ClusterTree
from streamsvm.parallel.machine import MiB, process_bytes
from streamsvm.storage.text import human_bytes


@dataclass(frozen=True)
class HSSOptions:
    """The tolerances (atol over the mean of K's diagonal), rows of a leaf, neighbours of a row, landmarks (0: none).
    single: matrix and factor are float32."""

    tolerances: Tolerances
    leaf_rows: int = 128
    neighbours: int = 32
    landmarks: int = 256
    seed: int = 0
    single: bool = False

    @property
    def dtype(self) -> np.dtype:
        return np.dtype(np.float32 if self.single else np.float64)


def least_bytes(n: int, options: HSSOptions) -> int:
    """Of the diagonal blocks and their factors, neighbours and landmarks, whatever the ranks."""
    leaf = max(1, n // 2 ** ClusterTree.of(n, options.leaf_rows).depth)
    return n * 2 * leaf * options.dtype.itemsize + fixed_bytes(n, options)


def fixed_bytes(n: int, options: HSSOptions) -> int:
    """Of neighbours, and of the features Z of landmarks and W of the inverse."""
    return n * (8 * options.neighbours + 8 * options.landmarks)


class Budget:
    """Bytes that matrix and factor of n rows will take, estimated from the ranks so far. limit_bytes: of this process,
    None: no limit; with of_worker the share of a worker's memory for a subtree."""

    def __init__(self, n: int, options: HSSOptions, limit_bytes: int | None, *, of_worker: bool = False) -> None:
        self._n, self._options, self._limit = n, options, limit_bytes
        self._in_use = 0 if of_worker else process_bytes()
        self._whose = "the workers' memory for each subtree" if of_worker else "a memory limit"
        self._factor = 0.0
        if limit_bytes is not None:
            self._require(least_bytes(n, options), "before the first rank is known")

    def check(self, level: int, nbytes: int, ranks: np.ndarray) -> None:
        """Raises MemoryLimitError if the levels above will not fit at ranks like these."""
        if self._limit is None:
            return
        itemsize, nodes = self._options.dtype.itemsize, len(ranks)
        rank = float(ranks.mean())
        rows = self._n / nodes if self._factor == 0 else 2 * rank
        self._factor += nodes * itemsize * (rows**2 + rows * rank)
        # half as many nodes of 2 r rows on the next level, with B, P, Linv and Q; and half as many again on each other
        above = nodes * itemsize * 9 * rank**2
        when = f"a mean rank of {rank:.0f} and a maximum of {ranks.max()} at level {level}"
        self._require(int(nbytes + self._factor + above + fixed_bytes(self._n, self._options)), when)

    def _require(self, needed: int, when: str) -> None:
        assert self._limit is not None
        total = self._in_use + needed
        if total > self._limit:
            raise MemoryLimitError(
                f"{self._whose} of {human_bytes(self._limit)} is too small for the compressed kernel "
                f"matrix of {self._n} rows ({when}): give about {-(-total // MiB)} MiB, a larger "
                "admm_hss.rtol, a smaller admm_hss.max_rank or admm_hss.storage float32"
            )
