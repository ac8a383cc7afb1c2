"""
Outliers by one class
=====================

A one-class SVM learns what rows are usually like, without labels; `nu` is the share of training rows that it
leaves outside. Can it tell a malignant tumour when it has seen benign ones alone?
"""

# %%
# Thirty measurements of each cell sample, from the breast cancer data of scikit-learn. Learned from are 250
# benign samples.

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
# Rows with a decision value below 0 are outliers.

truth = np.repeat([0, 1], [len(later), len(malignant)])
auc = roc_auc_score(truth, -np.concatenate(list(values.values())))

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
bins = np.linspace(min(map(np.min, values.values())), max(map(np.max, values.values())), 40)
for (name, found), colour in zip(values.items(), ("C0", "C1"), strict=True):
    left.hist(found, bins, alpha=0.7, color=colour, label=f"{name}: {100 * np.mean(found < 0):.0f} % outside")
left.axvline(0, color="black", linestyle="--", label="threshold")
left.set(xlabel="decision value", ylabel="samples", title=f"area under the ROC curve {auc:.3f}")
left.legend()

# %%
# `nu` is kept on rows of the same kind.

shares = [0.02, 0.05, 0.1, 0.2, 0.4]
outside = {"training rows": [], "benign, later ones": [], "malignant": []}
for nu in shares:
    svm = DCOneClassSVM(nu=nu, gamma=0.01, scale="standard").fit(usual)
    for found, rows in zip(outside.values(), (usual, later, malignant), strict=True):
        found.append(100 * np.mean(svm.predict(rows) == -1))
for (name, found), colour in zip(outside.items(), ("C2", "C0", "C1"), strict=True):
    right.plot(100 * np.array(shares), found, "o-", color=colour, label=name)
right.set(xlabel="nu, %", ylabel="outliers, %", title="What nu does")
right.legend()
plt.show()

# %%
# Of the training rows exactly the share `nu` is outside, of later benign samples a little more, as there are
# few rows in thirty dimensions. A large `nu` finds the last malignant samples, and raises more false alarms.
#
# :doc:`/guide/outliers` states the problem and tells of streams.
