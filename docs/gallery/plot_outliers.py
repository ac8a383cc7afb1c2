"""
Outlier detection
=================

A one-class SVM learns what rows usually look like, without labels. `nu` is the share of training rows that it
leaves outside. Can it recognise a malignant tumour if it has only seen benign ones?
"""

# %%
# Thirty measurements of each cell sample, from the breast cancer data of scikit-learn. 250 benign samples are
# the training data.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.metrics import roc_auc_score

from streamsvm import DCOneClassSVM

X, y = load_breast_cancer(return_X_y=True)
benign, malignant = X[y == 1], X[y == 0]
usual, later = benign[:250], benign[250:]

svm = DCOneClassSVM(nu=0.1, gamma=0.01, scale="standard").fit(usual)
values = {"benign, later ones": svm.decision_function(later), "malignant": svm.decision_function(malignant)}

# %%
# `nu` is a parameter of the fit, so each value needs its own.

shares = np.array([0.02, 0.05, 0.1, 0.2, 0.4])
outside = {"training rows": [], "benign, later ones": [], "malignant": []}
for nu in shares:
    fitted = DCOneClassSVM(nu=nu, gamma=0.01, scale="standard").fit(usual)
    for found, rows in zip(outside.values(), (usual, later, malignant), strict=True):
        found.append(100 * np.mean(fitted.predict(rows) == -1))

# %%
# Rows with a decision value below 0 are outliers.

truth = np.repeat([0, 1], [len(later), len(malignant)])
auc = roc_auc_score(truth, -np.concatenate(list(values.values())))
colours = {"training rows": "C2", "benign, later ones": "C0", "malignant": "C1"}

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
bins = np.histogram_bin_edges(np.concatenate(list(values.values())), 40)
for name, found in values.items():
    left.hist(found, bins, alpha=0.7, color=colours[name], label=name)
left.axvline(0, color="black", linestyle="--", label="threshold")
left.set(xlabel="decision value", ylabel="samples", title=f"nu 10 %: area under the ROC curve {auc:.3f}")
left.legend()
for name, found in outside.items():
    right.plot(100 * shares, found, "o-", color=colours[name], label=name)
right.set(xlabel="nu, %", ylabel="outliers, %", title="Effect of nu")
right.legend(loc="center right", bbox_to_anchor=(1, 0.72))
plt.show()

# %%
# At most the share `nu` of the training rows is outside, and slightly more of later benign samples, because
# there are few rows in thirty dimensions. A large `nu` finds almost all malignant samples, and raises more
# false alarms.
#
# :doc:`/guide/outliers` states the problem and covers streams.
