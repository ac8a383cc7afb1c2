"""
Exact against early prediction
==============================

The time of an exact kernel SVM grows faster than its rows. Early prediction divides the rows into parts by
k-means, fits each part alone, and lets the part that a new row falls into decide. How much time does it save,
and what does it cost?
"""

# %%
# Sixty clouds of points, each of one class: what decides about a row are the rows near it, which is what
# parts know.

from time import process_time

import matplotlib.pyplot as plt
from sklearn.datasets import make_blobs

from streamsvm import DCSVC

X, cloud = make_blobs(n_samples=22_000, n_features=8, centers=60, cluster_std=4.0, random_state=0)
y = cloud % 2
X_test, y_test = X[-2000:], y[-2000:]

# %%
# Both fits have the same options; parts of the early one have 1,250 rows each, about. The first fit compiles, and
# is not timed.

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
left.set(xlabel="training rows", ylabel="CPU seconds of the fit", title="What it saves")
right.set(xlabel="training rows", ylabel="test accuracy, %", ylim=(70, 100), title="What it costs")
for axes in (left, right):
    axes.set_xticks(sizes, [f"{n:,}" for n in sizes])
    axes.minorticks_off()
    axes.legend()
plt.show()

# %%
# Lines of different slopes: parts are bounded in size, so that more rows make more parts, not larger ones, and time
# grows as the rows do. The more rows there are, the more is saved; what is lost is about a point of accuracy.
#
# :doc:`/solvers/dcsvm` tells how it works, :doc:`/measured` what it gives on half a million rows and more.
