"""
A metric learned on a noisy table
=================================

A kernel of distances treats all columns alike, so noisy columns hide those that matter. A metric learned from
the data weights columns by their importance, and drops the others.
"""

# %%
# The label depends on two columns, and on both together. All others are noise, in growing numbers. Both fits
# choose gamma and C from the training rows.

import matplotlib.pyplot as plt
import numpy as np

from streamsvm import DCSVC

rng = np.random.default_rng(0)
X = rng.normal(size=(2000, 34))
y = np.where(X[:, 0] * X[:, 1] > 0, "same sign", "other sign")

noise = [0, 8, 32]
options = {"gamma": "search", "C": "search", "search_params": {"trials": 8}, "random_state": 0}
fits = {"gamma and C": DCSVC(**options), "gamma, C and a metric": DCSVC(metric="search", **options)}
accuracy = {name: [] for name in fits}
for columns in noise:
    rows = X[:, : 2 + columns]
    for name, svm in fits.items():
        svm.fit(rows[:1000], y[:1000])
        accuracy[name].append(100 * svm.score(rows[1000:], y[1000:]))

# %%
# `feature_importances_` are the weights of the metric, scaled to add up to 1. These are from the last fit, on
# 34 columns.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for name, values in accuracy.items():
    left.plot(noise, values, "o-", label=f"{name} chosen")
left.set(xlabel="columns of noise", ylabel="test accuracy, %", title="Accuracy with columns of noise")
left.legend()
right.bar(range(34), fits["gamma, C and a metric"].feature_importances_, label="weight in the metric")
right.set(xlabel="column", ylabel="share of all weights", title="Weights of the columns")
right.legend()
plt.show()

# %%
# Without a metric, each column of noise costs accuracy. With it, almost none does, because nearly all the
# weight is on the first two columns.
#
# :doc:`/guide/metric` explains how it is learned and when it helps.
