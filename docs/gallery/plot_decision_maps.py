"""
Decision maps of partitions
===========================

Early prediction uses one partition for each row: the one with the nearest centre. Two dimensions show the
borders of the partitions, and what happens to the decision boundary where it crosses them.
"""

# %%
# Two moons, an exact fit, and early fits with few and with many partitions.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from streamsvm import DCSVC, Store

X, y = make_moons(n_samples=3000, noise=0.2, random_state=0)
options = {"C": 10, "gamma": 2.0, "random_state": 0}
fits = {
    "exact": DCSVC(**options).fit(X, y),
    "early, 4 partitions": DCSVC(early=True, levels=1, children=4, **options).fit(X, y),
    "early, 16 partitions": DCSVC(early=True, levels=1, children=16, **options).fit(X, y),
}

# %%
# `parts_of` returns the partition of each row. Borders of partitions are white, the decision boundary is
# black.

x = np.linspace(-1.8, 2.8, 200)
z = np.linspace(-1.4, 1.9, 150)
grid = np.stack(np.meshgrid(x, z), axis=-1).reshape(-1, 2)
rows = Store.from_arrays(grid).read(0, len(grid))

figure, axes = plt.subplots(1, 3, figsize=(10, 3.2), layout="constrained", sharex=True, sharey=True)
for here, (name, svm) in zip(axes, fits.items(), strict=True):
    values = svm.decision_function(grid).reshape(len(z), len(x))
    part = svm.model_.parts_of(rows).reshape(len(z), len(x))
    shade = here.pcolormesh(x, z, values, cmap="RdBu", vmin=-3, vmax=3, rasterized=True)
    for p in range(1, part.max() + 1):
        here.contour(x, z, part == p, levels=[0.5], colors="white", linewidths=1)
    here.contour(x, z, values, levels=[0], colors="black")
    here.set(title=f"{name}\n{100 * svm.score(X, y):.1f} % of the rows", xlabel="x")
axes[0].set_ylabel("z")
figure.colorbar(shade, ax=axes, label="decision value")
plt.show()

# %%
# At the border of two partitions, the decision value may jump, and the black line with it: each side knows only its
# own rows. A partition with rows of a single class predicts that class everywhere. The partitions here are
# small, so that they can be seen. By default they have some thousands of rows, of which few are near a
# border.
#
# :doc:`/solvers/dcsvm` explains how partitions are made, and `neighbours`, which averages several of them.
