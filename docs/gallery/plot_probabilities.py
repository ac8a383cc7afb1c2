"""
Calibrated probabilities
========================

The sign of a decision value is the predicted class, its size the distance to the boundary. It is not a
probability. With `probability`, a fit learns a mapping from one to the other by cross-validation. Do events
with a predicted probability of 80 % happen in 80 % of the cases?
"""

# %%
# Two moons with a large overlap, so that many rows are uncertain.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.calibration import calibration_curve
from sklearn.datasets import make_moons
from sklearn.metrics import brier_score_loss

from streamsvm import DCSVC

X, y = make_moons(n_samples=12_000, noise=0.5, random_state=0)
X, X_test, y, y_test = X[:3000], X[3000:], y[:3000], y[3000:]

# %%
# For comparison: the logistic function of the decision values, as if these were log-odds.

fits = {kind: DCSVC(probability=kind, random_state=0).fit(X, y) for kind in ("sigmoid", "isotonic")}
told = {kind: svm.predict_proba(X_test)[:, 1] for kind, svm in fits.items()}
values = fits["sigmoid"].decision_function(X_test)
told = {"decision value alone": 1 / (1 + np.exp(-values))} | told

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.8), layout="constrained")
left.plot([0, 1], [0, 1], "--", color="grey", label="perfect calibration")
for name, proba in told.items():
    happened, said = calibration_curve(y_test, proba, n_bins=10, strategy="quantile")
    left.plot(said, happened, "o-", label=name)
left.set(xlabel="predicted probability", ylabel="observed frequency", title="Reliability")
left.legend(fontsize="small")
order = np.argsort(values)
for number, (name, proba) in enumerate(told.items()):
    label = f"{name}, Brier score {brier_score_loss(y_test, proba):.3f}"
    right.plot(values[order], proba[order], color=f"C{number}", label=label)
right.set(xlabel="decision value", ylabel="predicted probability", title="Mappings")
right.legend(fontsize="small")
plt.show()

# %%
# The closer to the diagonal, the better. Decision values alone are underconfident here: they do not reflect
# how often rows at that distance from the boundary belong to the class. A sigmoid has two parameters.
# Isotonic steps follow any rising curve.
#
# :doc:`/guide/probabilities` explains which to use, thresholds and costs, and :doc:`/solvers/probabilities`
# how they are computed.
