"""
Explain one prediction
======================

Which measurements of a row support its prediction, which oppose it, and which training rows does it depend
on? Shapley values of kernel models are exact here: no subsets are sampled.
"""

# %%
# The breast cancer data of scikit-learn, and the test sample of which the model is least certain.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.datasets import load_breast_cancer

from streamsvm import DCSVC, Store
from streamsvm.explain.importances import importances
from streamsvm.explain.rows import deviations, explain_rows

data = load_breast_cancer()
diagnosis, names = data.target_names[data.target], tuple(map(str, data.feature_names))
train = Store.from_arrays(data.data[:400], diagnosis[:400], feature_names=names)
test = Store.from_arrays(data.data[400:], diagnosis[400:], feature_names=names)
svm = DCSVC(C=3, scale="standard").fit(train)

unsure = np.argsort(np.abs(svm.decision_function(test)))[:1]
deviation = deviations(test.read(0, len(test)))
[told] = explain_rows(svm.model_, test, unsure, deviation, shapley=True, support=3)
print(f"{told.answer} by {told.decision:.2f}, above 0: {told.for_class}; the diagnosis was {test.y[told.row]}")

# %%
# Shapley values of the columns add up to the decision value, minus its value without any column.

top = told.order()[:8][::-1]
figure, (left, right) = plt.subplots(1, 2, figsize=(11, 3.8), layout="constrained")
for sign, colour in ((1, "C0"), (-1, "C1")):
    rows = [place for place, column in enumerate(top) if sign * told.shapley[column] > 0]
    label = f"for {told.for_class}" if sign > 0 else "against it"
    left.barh(rows, told.shapley[top[rows]], color=colour, label=label)
left.set_yticks(range(len(top)), [f"{names[column]} = {told.values[column]:.4g}" for column in top])
left.set(xlabel="Shapley value", title="This sample")
left.legend(loc="lower right")

share = importances(svm.model_, test).ordered(8)[::-1]
right.barh(
    [name for name, _ in share],
    [100 * value for _, value in share],
    color="grey",
    label="mean over test samples",
)
right.set(xlabel="importance, %", title="All samples")
right.legend(loc="lower right", bbox_to_anchor=(1, 0.2))
plt.show()

# %%
# The support vectors with the largest weight in this decision are training rows, which you can look up.

for vector in told.weightiest:
    print(
        f"training row {vector.id}, {vector.label}: contribution {vector.contribution:+.2f}, kernel {vector.kernel:.2f}"
    )

# %%
# What matters for one sample need not matter on average.
#
# :doc:`/guide/explain` defines all of these, and shows the same on the command line.
