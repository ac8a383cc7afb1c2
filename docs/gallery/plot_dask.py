"""
A fit on a dask cluster
=======================

If a `distributed.Client` is active, estimators train on its cluster. This plot shows what each worker does
during an early fit.
"""

# %%
# A small cluster inside this process, so that the example runs anywhere. For a real cluster, pass its address
# to `Client`.

import matplotlib.pyplot as plt
import numpy as np
from dask.utils import key_split
from distributed import Client, LocalCluster, get_task_stream
from sklearn.datasets import make_blobs

from streamsvm import DCSVC

X, cloud = make_blobs(n_samples=24_000, n_features=8, centers=60, cluster_std=4.0, random_state=0)
y = cloud % 2
svm = DCSVC(C=3, gamma=0.02, early=True, levels=1, children=12, random_state=0)
size = {"n_workers": 2, "threads_per_worker": 1, "processes": False, "dashboard_address": ":0"}

with LocalCluster(**size) as cluster, Client(cluster), get_task_stream() as stream:
    values = svm.fit(X, y).decision_function(X[:1000])

# %%
# The model is the same as with threads.

svm.set_params(client=False)  # on the threads of this process
print(np.allclose(values, svm.fit(X, y).decision_function(X[:1000])))

# %%
# Tasks are named after what they do. The four longest kinds have colours, the rest are grey.

tasks = [
    (key_split(task["key"]), task["worker"], step["start"], step["stop"] - step["start"])
    for task in stream.data
    for step in task["startstops"]
    if step["action"] == "compute"
]
spent = {}
for name, _, _, seconds in tasks:
    spent[name] = spent.get(name, 0.0) + seconds
longest = sorted(spent, key=spent.get)[:-5:-1]
workers = sorted({worker for _, worker, _, _ in tasks})
first = min(start for _, _, start, _ in tasks)

figure, axes = plt.subplots(figsize=(9, 2.8), layout="constrained")
for name in [*longest, "all others"]:
    for number, worker in enumerate(workers):
        bars = [
            (start - first, seconds)
            for task, where, start, seconds in tasks
            if where == worker and (task if task in longest else "all others") == name
        ]
        colour = f"C{longest.index(name)}" if name in longest else "grey"
        label = f"{name}, {spent[name]:.1f} s" if name in longest else name
        axes.broken_barh(bars, (number - 0.4, 0.8), color=colour, label=None if number else label)
axes.set_yticks(range(len(workers)), [f"worker {number + 1}" for number in range(len(workers))])
axes.set(xlabel="seconds", title="Tasks of each worker")
axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
plt.show()

# %%
# Rows are assigned to partitions and regrouped. Then one task solves each partition (`SeveralParts` solves
# several small ones), without waiting for other tasks: this is why early fits scale.
#
# :doc:`/guide/cluster` explains what else workers do, what happens when one dies, and how to deploy.
