"""
Decision maps of parts
======================

Early prediction asks one part about a row: the one with the nearest centre. In two dimensions the borders of
parts can be seen, and what happens to the border of the classes where it crosses them.
"""

# %%
# Two moons, an exact fit, and early ones of few and of many parts.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_moons

from streamsvm import DCSVC, Store

X, y = make_moons(n_samples=3000, noise=0.2, random_state=0)
options = {"C": 10, "gamma": 2.0, "random_state": 0}
fits = {
    "exact": DCSVC(**options).fit(X, y),
    "early, 4 parts": DCSVC(early=True, levels=1, children=4, **options).fit(X, y),
    "early, 16 parts": DCSVC(early=True, levels=1, children=16, **options).fit(X, y),
}

# %%
# `parts_of` tells which part a row falls into. Borders of parts are white, that of the classes is black.

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
# Where two parts meet, the decision value may jump, and the black line with it: each side knows its own rows
# only. A part whose rows are all of one class says that class everywhere. Parts have few rows here in order
# to be seen; by themselves they have some thousands, and the share of rows near their borders is small.
#
# :doc:`/solvers/dcsvm` tells how parts are made, and what `neighbours` does, by which several parts decide.
