"""Rows written once in the order of their partitions, and each read once: what stands before solving them.

    python pipelines/regroup_table.py --data DIR [--only ITEM[,ITEM...]] [--quick] [--out regroup.md]

Items, and the files they need in --data DIR:
    dense     covtype.csv.gz    copies of covtype, 790 files of 32 MiB, 4,000 partitions at random; 27 GB of disk
    sparse    covtype.csv.gz    an eighth of them, as CSR rows

Seconds are of two threads; what the system has still to write to the disk then is not among them.
"""

from __future__ import annotations

import shutil
import time
from typing import Any

import numpy as np
from bench import Bench, print_tables
from scipy import sparse
from tables import Seconds, Table

from streamsvm import Store
from streamsvm.data.regroup import SPOOL_BYTES, PartitionsOnDisk
from streamsvm.data.rows import Rows
from streamsvm.data.samples import Block
from streamsvm.data.vectors import VectorInMemory
from streamsvm.parallel.engine import Engine

FILES, PARTS, BASE_ROWS, BLOCK_ROWS = 790, 4_000, 200_000, 19_418
LEAST_MB_S = 200


class Copies:
    """Samples of n rows: some rows again and again."""

    def __init__(self, rows: Rows, n: int) -> None:
        self._rows, self.n, self.d = rows, n, rows.d
        self.nbytes, self.is_dense = float(rows.nbytes) * n / len(rows), not rows.is_sparse

    def blocks(self) -> list[Block]:
        step = min(BLOCK_ROWS, len(self._rows))
        return [(start, min(self.n, start + step)) for start in range(0, self.n, step)]

    def read(self, start: int, stop: int) -> Rows:
        first = start % (len(self._rows) - (stop - start) + 1)
        return self._rows.take(slice(first, first + stop - start))

    def take(self, ids: np.ndarray) -> Rows:
        return self._rows.take(ids % len(self._rows))


def dense(bench: Bench) -> list[Table]:
    return [_table(bench, "dense rows", Copies(_rows(bench), _count(bench, FILES)))]


def sparse_rows(bench: Bench) -> list[Table]:
    rows = Rows(sparse.csr_array(_rows(bench).dense()))
    return [_table(bench, "CSR rows", Copies(rows, _count(bench, FILES // 8)))]


def _rows(bench: Bench) -> Rows:
    store = Store.open(bench.stores("covtype")[0])
    return store.read(0, min(store.n, BASE_ROWS)).astype(np.float32)


def _count(bench: Bench, files: int) -> int:
    return 1_000 if bench.sizes.is_quick else files * (SPOOL_BYTES // 216)


def _table(bench: Bench, title: str, samples: Copies) -> Table:
    folder, engine, n_parts = bench.work / "regrouped", Engine(), 40 if bench.sizes.is_quick else PARTS
    parts = np.random.default_rng(0).integers(0, n_parts, samples.n).astype(np.int32)
    shutil.rmtree(folder, ignore_errors=True)
    began = _now()
    groups = PartitionsOnDisk(samples, VectorInMemory(parts), n_parts, folder, engine)
    written = _now()

    def read(part: int) -> int:
        return len(groups.reader.rows(part))

    rows = sum(engine.map(read, range(n_parts), window=16))
    write, read_all = written - began, _now() - written
    files = len(list(folder.iterdir()))
    shutil.rmtree(folder)
    assert rows == samples.n
    rate, cpu_rate = (samples.nbytes / 1e6 / (write + read_all)).tolist()
    record: dict[str, Any] = {"files": files, "partitions": n_parts, "GB": f"{samples.nbytes / 1e9:.1f}"}
    for name, (seconds, cpu_s) in (("write", write), ("read", read_all)):
        record |= {name: Seconds(seconds), f"{name}, CPU": Seconds(cpu_s)}
    record |= {"MB/s, both": f"{rate:.0f}", "MB a CPU second": f"{cpu_rate:.0f}"}
    told = f"{title}: at least {LEAST_MB_S} MB/s ({rate:.0f})"
    checks = [(told, rate >= LEAST_MB_S)] if samples.is_dense else []
    notes = [
        "copies of covtype written once in the order of random partitions, then each partition is read, by two threads",
        "seconds without what the system has still to write to the disk",
    ]
    return Table(f"Regrouping, {title}", [record], notes, checks)


def _now() -> np.ndarray:
    """Seconds by the clock, and of the cores."""
    return np.array([time.perf_counter(), time.process_time()])


ITEMS = {"dense": dense, "sparse": sparse_rows}


if __name__ == "__main__":
    print_tables(__doc__, ITEMS)
