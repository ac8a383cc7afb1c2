"""
A regression with intervals
===========================

A number alone does not say how far off it may be. With `interval` a regression keeps some rows out, measures
its errors on them, and gives ends that a new value lies between with a chance of at least that level.
"""

# %%
# A curve with noise, as a stand-in for any measurement.

import matplotlib.pyplot as plt
import numpy as np

from streamsvm import DCSVR

rng = np.random.default_rng(0)
hour = rng.uniform(0, 24, 3000)
load = 50 + 15 * np.sin(hour * np.pi / 12) + 6 * np.cos(hour * np.pi / 4) + rng.normal(0, 4, len(hour))
X, X_test, y, y_test = hour[:1500, None], hour[1500:, None], load[:1500], load[1500:]

svm = DCSVR(interval=0.9, C=10, random_state=0).fit(X, y)

# %%
# `predict_interval` may be asked for other levels, too. How many of the test values are inside?

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
left.set(xlabel="hour of the day", ylabel="load, MW", title="Predictions and their ends")
left.legend()
right.plot(100 * levels, 100 * levels, "--", color="grey", label="what is promised")
right.plot(100 * levels, 100 * np.array(coverage), "o-", label="test values inside")
right.set(xlabel="level asked for, %", ylabel="coverage, %", title="Do they hold?")
right.legend()
plt.show()

# %%
# Coverage keeps to the level, whatever the noise is like. Which rows were kept out is chance, so it may be
# off by a point or two in one fit; and all intervals of a level are equally wide.
#
# :doc:`/guide/regression` says what is promised and what is not.
