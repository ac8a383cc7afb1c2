"""
A regression with intervals
===========================

A prediction alone does not show its uncertainty. With `interval`, a regression holds some rows out, measures
its errors on them, and predicts an interval that contains a new value with at least the given probability.
"""

# %%
# A noisy synthetic curve.

import matplotlib.pyplot as plt
import numpy as np

from streamsvm import DCSVR

rng = np.random.default_rng(0)
hour = rng.uniform(0, 24, 3000)
load = 50 + 15 * np.sin(hour * np.pi / 12) + 6 * np.cos(hour * np.pi / 4) + rng.normal(0, 4, len(hour))
X, X_test, y, y_test = hour[:1500, None], hour[1500:, None], load[:1500], load[1500:]

svm = DCSVR(interval=0.9, C=10, random_state=0).fit(X, y)

# %%
# `predict_interval` takes other levels, too. How many of the test values are inside?

levels = np.array([0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.99])
coverage = []
for level in levels:
    low, high = svm.predict_interval(X_test, level=level).T
    coverage.append(np.mean((low <= y_test) & (y_test <= high)))

# %%

grid = np.linspace(0, 24, 200)[:, None]
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", width_ratios=(3, 2))
left.plot(X_test[:500], y_test[:500], ".", color="grey", markersize=3, label="test rows")
left.plot(grid, svm.predict(grid), color="C1", label="prediction")
left.fill_between(grid[:, 0], *svm.predict_interval(grid).T, color="C1", alpha=0.25, label="90 % interval")
left.set(xlabel="hour of the day", ylabel="load, MW", title="Predictions and intervals")
left.legend()
right.plot(100 * levels, 100 * levels, "--", color="grey", label="nominal level")
right.plot(100 * levels, 100 * np.array(coverage), "o-", label="test values inside")
right.set(xlabel="level, %", ylabel="coverage, %", title="Coverage")
right.legend()
plt.show()

# %%
# Coverage matches the level for any kind of noise. The held-out rows are random, so a single fit may be off
# by a point or two. All intervals of a level have the same width.
#
# :doc:`/guide/regression` explains what is guaranteed and what is not.
