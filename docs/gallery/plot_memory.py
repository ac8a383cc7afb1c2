"""
A store larger than its memory
==============================

`--memory-limit` bounds the whole process, including Python and its libraries. Here a process with a limit of
500 MiB trains on 610 MiB of rows. The plot shows its memory.
"""

# %%
# 800,000 rows of 200 numbers, written block by block as a zarr group. `streamsvm ingest` makes such stores
# from files.

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter, sleep

import matplotlib.pyplot as plt
import numpy as np
import psutil
import zarr

ROWS, COLUMNS, BLOCK, MIB = 800_000, 200, 50_000, 2**20

folder = tempfile.TemporaryDirectory()
store = Path(folder.name) / "rows.zarr"
group = zarr.create_group(store)
X = group.create_array("X", shape=(ROWS, COLUMNS), dtype="float32", chunks=(10_000, COLUMNS), compressors=None)
y = group.create_array("y", shape=(ROWS,), dtype="int64", chunks=(ROWS,))
rng, labels = np.random.default_rng(0), np.empty(ROWS, np.int64)
for start in range(0, ROWS, BLOCK):
    rows = rng.standard_normal((BLOCK, COLUMNS), dtype="float32")
    X[start : start + BLOCK] = rows
    labels[start : start + BLOCK] = rows[:, :20].sum(axis=1) > 0
y[:] = labels

# %%
# A kernel SVM with a budget of 100 support vectors makes one pass over them, in a separate process, whose
# memory is read every 50 ms.

LIMIT = 500
options = [
    "--solver",
    "bsgd",
    "--budget",
    "100",
    "--gamma",
    "0.005",
    "--no-search",
    "--memory-limit",
    f"{LIMIT}MiB",
    "--json",
]
command = [sys.executable, "-m", "streamsvm", "fit", "--store", str(store), *options]
begin, seconds, resident = perf_counter(), [], []
with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
    watched = psutil.Process(process.pid)
    while process.poll() is None:
        seconds.append(perf_counter() - begin)
        resident.append(watched.memory_info().rss / MIB)
        sleep(0.05)
    report = json.load(process.stdout)
folder.cleanup()
print(f"{report['n']:,} rows, {report['n_support']} support vectors, {report['peak_rss_bytes'] / MIB:.0f} MiB at most")

# %%

figure, axes = plt.subplots(figsize=(8, 3.5), layout="constrained")
axes.fill_between(seconds, resident, alpha=0.3, color="C0")
axes.plot(seconds, resident, color="C0", label="memory of the process")
axes.axhline(LIMIT, color="C3", linestyle="--", label="memory limit")
axes.axhline(4 * ROWS * COLUMNS / MIB, color="grey", linestyle=":", label="size of the rows")
axes.set(
    xlabel="seconds",
    ylabel="resident memory, MiB",
    ylim=(0, 700),
    title="One pass over data beyond the limit",
)
axes.legend(loc="lower center")
plt.show()

# %%
# The steep rise at the beginning is Python and its libraries. After that, blocks of rows come and go, and
# memory stays constant for any number of rows.
#
# If a limit is too small, the error names the smallest one that works. :doc:`/sizing` explains how much is
# needed, and :doc:`/guide/fit` what else a limit does.
