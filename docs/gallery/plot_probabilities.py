"""
Probabilities that mean what they say
=====================================

A decision value says on which side of the border a row lies and how far; it is no probability. With
`probability` a fit learns a map from one to the other by cross-validation. Does what is said to happen in 80
% of the cases happen that often?
"""

# %%
# Two moons that overlap widely, so that many rows are uncertain.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.datasets import make_moons
from sklearn.metrics import brier_score_loss

from streamsvm import DCSVC

X, y = make_moons(n_samples=12_000, noise=0.5, random_state=0)
X, X_test, y, y_test = X[:3000], X[3000:], y[:3000], y[3000:]

# %%
# For comparison: decision values, squeezed into [0, 1] as if they were the logarithm of odds.

fits = {kind: DCSVC(probability=kind, random_state=0).fit(X, y) for kind in ("sigmoid", "isotonic")}
told = {kind: svm.predict_proba(X_test)[:, 1] for kind, svm in fits.items()}
values = fits["sigmoid"].decision_function(X_test)
told = {"decision value alone": 1 / (1 + np.exp(-values))} | told

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.plot([0, 1], [0, 1], "--", color="grey", label="as it should be")
for name, proba in told.items():
    happened, said = calibration_curve(y_test, proba, n_bins=10, strategy="quantile")
    left.plot(said, happened, "o-", label=name)
left.set(xlabel="probability that was told", ylabel="share of rows of the class", title="Reliability")
left.legend(fontsize="small")
order = np.argsort(values)
for number, (name, proba) in enumerate(told.items()):
    label = f"{name}, Brier score {brier_score_loss(y_test, proba):.3f}"
    right.plot(values[order], proba[order], color=f"C{number}", label=label)
right.set(xlabel="decision value", ylabel="probability that is told", title="The maps")
right.legend(fontsize="small")
plt.show()

# %%
# The nearer to the diagonal, the better. Decision values alone are too careful here: they know nothing of how
# often a row that far from the border is of the class. A sigmoid has two parameters, isotonic steps follow
# any rising curve.
#
# :doc:`/guide/probabilities` tells which to take, and of thresholds and costs; :doc:`/solvers/probabilities`
# how they are computed.
