"""
Exact against early prediction
==============================

The time of an exact kernel SVM grows faster than the number of rows. Early prediction clusters the rows by
k-means, trains one SVM per cluster, and predicts a new row with the SVM of its nearest cluster. How much time
does that save, and how much accuracy does it lose?
"""

# %%
# Sixty clouds of points, each of one class: the label of a row depends on the rows near it, which are in its
# cluster.

from time import process_time

import matplotlib.pyplot as plt
from sklearn.datasets import make_blobs

from streamsvm import DCSVC

X, cloud = make_blobs(n_samples=22_000, n_features=8, centers=60, cluster_std=4.0, random_state=0)
y = cloud % 2
X_test, y_test = X[-2000:], y[-2000:]

# %%
# Both fits have the same options. The clusters of the early fit have about 1,250 rows each. The first fit
# compiles, so it is not timed.

options = {"C": 3, "gamma": 0.02, "random_state": 0}
sizes = [2500, 5000, 10_000, 20_000]
seconds, accuracy = {"exact": [], "early": []}, {"exact": [], "early": []}
DCSVC(early=True, levels=1, **options).fit(X[:2000], y[:2000])
for n in sizes:
    fits = {
        "exact": DCSVC(**options),
        "early": DCSVC(early=True, levels=1, children=n // 1250, **options),
    }
    for name, svm in fits.items():
        begin = process_time()
        svm.fit(X[:n], y[:n])
        seconds[name].append(process_time() - begin)
        accuracy[name].append(100 * svm.score(X_test, y_test))

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
for name in fits:
    left.loglog(sizes, seconds[name], "o-", label=name)
    right.semilogx(sizes, accuracy[name], "o-", label=name)
left.set(xlabel="training rows", ylabel="CPU seconds of the fit", title="Time")
right.set(xlabel="training rows", ylabel="test accuracy, %", ylim=(70, 100), title="Accuracy")
for axes in (left, right):
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.minorticks_off()
    axes.legend()
plt.show()

# %%
# The slopes differ: the size of a cluster is bounded, so more rows make more clusters, not larger ones, and
# time grows in proportion to the rows. The larger the data, the larger the saving, for about a point of
# accuracy.
#
# :doc:`/solvers/dcsvm` explains how it works, :doc:`/measured/index` has results on half a million rows and more.
