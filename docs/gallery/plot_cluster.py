"""
A store on a cluster: the plan, the fit, the report
===================================================

How long will a fit take, and does it fit in memory? And when it has ended: what took the time? Three commands answer
this on a cluster, here of two workers. With 100,000,000 ``ROWS`` they run unchanged: the store takes 0.8 GB, the fit
minutes.
"""

# %%
# Each row has eight readings of 0 to 255, of which three decide its label. They are written block by block, so that the
# rows need not fit in memory.

import json
import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import zarr

ROWS, COLUMNS, BLOCK, WORKERS = 300_000, 8, 100_000, 2

folder = tempfile.TemporaryDirectory()
here = Path(folder.name)


def write(name, rows, seed):
    group = zarr.create_group(here / name)
    X = group.create_array("X", shape=(rows, COLUMNS), dtype="uint8", chunks=(10_000, COLUMNS))
    y = group.create_array("y", shape=(rows,), dtype="int64", chunks=(BLOCK,))
    rng = np.random.default_rng(seed)
    for start in range(0, rows, BLOCK):
        block = rng.integers(0, 256, (min(BLOCK, rows - start), COLUMNS), dtype="uint8")
        X[start : start + BLOCK] = block
        y[start : start + BLOCK] = np.cos(block[:, :3] * np.pi / 128).sum(axis=1) > 0


write("train.zarr", ROWS, seed=0)
write("test.zarr", 50_000, seed=1)

# %%
# A cluster is a scheduler and its workers. On several machines, run one `dask worker` on each, and put store and
# run directory where all of them can read. The address is in a file.


def dask(*words):
    return subprocess.Popen([sys.executable, "-m", "dask", *words], cwd=here, stderr=subprocess.DEVNULL)


cluster = [dask("scheduler", "--port", "0", "--dashboard-address", ":0", "--scheduler-file", "scheduler.json")]
for _ in range(WORKERS):
    cluster.append(dask("worker", "--scheduler-file", "scheduler.json", "--nthreads", "1", "--no-dashboard"))


def streamsvm(*words):
    """What a command prints, as JSON."""
    command = [sys.executable, "-m", "streamsvm", *words, "--json"]
    return json.loads(subprocess.run(command, cwd=here, check=True, capture_output=True, text=True).stdout)


# %%
# **The plan.** `--dry-run` fits growing samples of the rows for some seconds, and says what the whole fit will take.

fit = ["fit", "--store", "train.zarr", "--early", "--no-search", "--gamma", "2", "--C", "10", "--scale", "minmax"]
fit += ["--memory-limit", "2GiB", "--scheduler", "file:scheduler.json", "--run-dir", "run", "--model", "model.zarr"]
plan = streamsvm(*fit, "--dry-run", "--pilot", "3")
print(f"estimated: {plan['seconds_estimated']:.0f} s, {plan['n_support_estimated']:,} support vectors")
print(f"the memory limit is enough: {plan['fits']}")

# %%
# **The fit.** If it is killed, the same command with `--resume` continues.

fitted = streamsvm(*fit)
scores = streamsvm("evaluate", "--model", "model.zarr", "--store", "test.zarr")
print(f"took: {fitted['seconds']:.0f} s, {fitted['n_support']:,} support vectors, accuracy {scores['accuracy']:.2%}")

# %%
# **The report.** `report` draws a page from the run directory, while the fit runs or later. The plot here shows the
# small fits of the plan, without the start of processes, the estimate that follows from them, and the fit.

subprocess.run([sys.executable, "-m", "streamsvm", "report", "run", "--out", "report.html"], cwd=here, check=True)

pilots = plan["pilots"]
figure, axes = plt.subplots(figsize=(8, 3.6), layout="constrained")
axes.plot([each["n"] for each in pilots], [each["seconds"] for each in pilots], "o-", label="small fits of the plan")
axes.plot(ROWS, plan["seconds_estimated"], "D", label="estimated")
axes.plot(ROWS, fitted["seconds"], "s", label="the fit")
axes.set(xscale="log", yscale="log", xlabel="rows", ylabel="seconds", title="The plan and the fit")
axes.legend()
plt.show()

for process in cluster:
    process.terminate()
    process.wait()
folder.cleanup()

# %%
# 100,000,000 such rows were fitted on two cores within 2 GiB: :doc:`/measured/large`. :doc:`/sizing` says what grows
# with what, :doc:`/guide/cluster` what happens when a worker or the scheduler dies.
