"""The least that an epoch of budgeted SGD can take: reading the rows, and their products with B supports.

python floor.py STORE --budget B

Prints {"read_seconds", "product_seconds"} as JSON: all windows of rows are read by all cores, then multiplied by all
cores, block by block, and both are timed alone.
"""

from __future__ import annotations

import argparse
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from threadpoolctl import threadpool_limits

from streamsvm import Store
from streamsvm.parallel.machine import cores

CORES = cores()
WINDOW = 16_384  # rows that one core reads at once
BLOCK = 512


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("store")
    parser.add_argument("--budget", type=int, required=True)
    args = parser.parse_args()
    store = Store.open(args.store)
    supports = store.read(0, min(args.budget, store.n)).dense().astype(np.float32)

    def read(start: int) -> np.ndarray:
        return store.read(start, min(start + WINDOW, store.n)).dense()

    def multiply(X: np.ndarray) -> None:
        for start in range(0, len(X), BLOCK):
            supports @ X[start : start + BLOCK].T

    seconds = {"read_seconds": 0.0, "product_seconds": 0.0}
    starts = range(0, store.n, WINDOW)
    with threadpool_limits(1), ThreadPoolExecutor(CORES) as pool:
        for first in range(0, len(starts), CORES):
            began = time.perf_counter()
            windows = list(pool.map(read, starts[first : first + CORES]))
            seconds["read_seconds"] += time.perf_counter() - began
            as_float = [X.astype(np.float32) for X in windows]
            began = time.perf_counter()
            list(pool.map(multiply, as_float))
            seconds["product_seconds"] += time.perf_counter() - began
    print(json.dumps(seconds))


if __name__ == "__main__":
    main()
