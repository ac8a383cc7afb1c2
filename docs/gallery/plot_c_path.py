"""
Many values of C by one factorisation
=====================================

The best C is only known after trying several. `HSSSVC` compresses the kernel matrix and factorises it once.
Each further C is then one more right-hand side, so a whole path of models costs little more than one.
"""

# %%
# Overlapping classes: a fifth of the labels are wrong, and a large C fits them all the same.

from time import process_time

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import make_classification

from streamsvm import HSSSVC

X, y = make_classification(
    n_samples=5000, n_features=6, n_informative=6, n_redundant=0, flip_y=0.2, class_sep=0.8, random_state=0
)
X, X_test, y, y_test = X[:3000], X[3000:], y[:3000], y[3000:]

# %%
# One value of C, then twelve. The first fit compiles, so it is not timed. The compressed matrix may be off by a
# twentieth (`rtol`): with so many wrong labels a finer one decides no better, and takes longer.

Cs = np.geomspace(0.01, 5, 12).tolist()
HSSSVC(C=1.0, random_state=0).fit(X[:500], y[:500])
seconds = []
for C in (Cs[:1], Cs):
    begin = process_time()
    svm = HSSSVC(C=C, gamma=0.2, iterations=200, rtol=0.05, random_state=0).fit(X, y)
    seconds.append(process_time() - begin)

# %%
# `choose` selects the model of one C for prediction.

train = [100 * svm.choose(C).score(X, y) for C in Cs]
test = [100 * svm.choose(C).score(X_test, y_test) for C in Cs]

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained", width_ratios=(2, 1))
left.semilogx(Cs, train, "o-", label="training rows")
left.semilogx(Cs, test, "o-", label="test rows")
left.set(xlabel="C", ylabel="accuracy, %", title="Twelve models")
left.legend()
right.bar(["1 value of C", "12 values of C"], seconds, label="one fit")
right.set(ylabel="CPU seconds", title="Time of the fit")
right.legend()
plt.show()

# %%
# The curves diverge where C starts to fit wrong labels. Twelve models take less than twice the time of one.
#
# :doc:`/solvers/admm-hss` explains how it works; :doc:`/guide/tune` searches C and gamma by cross-validation,
# on the command line.
