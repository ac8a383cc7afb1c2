"""
A metric learned on a noisy table
=================================

A kernel of distances treats all columns alike, so columns of noise hide those that matter. A metric that is
learned from the data weighs columns by what they tell, and leaves out the others.
"""

# %%
# The label depends on two columns, and on both together. All others are noise, more and more of them. Both
# fits choose gamma and C by themselves, from the training rows.

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
# `feature_importances_` are the weights of the metric, made to add up to 1: here those of the last fit, on 34
# columns.

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for name, values in accuracy.items():
    left.plot(noise, values, "o-", label=f"{name} chosen")
left.set(xlabel="columns of noise", ylabel="test accuracy, %", title="Two columns that matter, and noise")
left.legend()
right.bar(range(34), fits["gamma, C and a metric"].feature_importances_, label="weight in the metric")
right.set(xlabel="column", ylabel="share of all weights", title="What each column counts for")
right.legend()
plt.show()

# %%
# Without a metric each column of noise costs accuracy; with it hardly any does, as nearly all the weight is
# on the first two columns.
#
# :doc:`/guide/metric` tells how it is learned and when it helps.
