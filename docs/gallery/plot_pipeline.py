"""
A river pipeline
================

`BSGDClassifier` follows river's interface: it works in river's pipelines, after its transformers, and with
its metrics. Here it classifies pieces of images, one after the other.
"""

# %%
# The data are river's: 2,310 pieces of outdoor images, of seven kinds, each described by 18 numbers. One
# pipeline sees all of them, one does not see where in the image the piece was. The tree and naive Bayes are
# river's.

import matplotlib.pyplot as plt
from river import compose, datasets, evaluate, metrics, naive_bayes, preprocessing, tree

from streamsvm.online import BSGDClassifier

place = compose.Discard("region-centroid-col", "region-centroid-row")
pipelines = {
    "BSGDClassifier": BSGDClassifier(budget=200),
    "Discard(place) | BSGDClassifier": place | BSGDClassifier(budget=200),
    "HoeffdingTreeClassifier": tree.HoeffdingTreeClassifier(),
    "StandardScaler | GaussianNB": preprocessing.StandardScaler() | naive_bayes.GaussianNB(),
}

# %%
# `iter_progressive_val_score` predicts each event, then lets the pipeline learn it.

figure, axes = plt.subplots(figsize=(8, 3.8), layout="constrained")
for name, pipeline in pipelines.items():
    steps = evaluate.iter_progressive_val_score(datasets.ImageSegments(), pipeline, metrics.Accuracy(), step=50)
    points = [(step["Step"], 100 * step["Accuracy"].get()) for step in steps]
    axes.plot(*zip(*points, strict=True), label=f"{name}: {points[-1][1]:.1f} %")
axes.set(xlabel="events", ylabel="accuracy so far, %", title="Accuracy on pieces of images")
axes.legend()
plt.show()

# %%
# The pipeline is a river model like any other: it predicts probabilities, and it can be cloned.

x, label = next(iter(datasets.ImageSegments()))
proba = pipelines["Discard(place) | BSGDClassifier"].predict_proba_one(x)
print(label, {name: round(value, 3) for name, value in sorted(proba.items(), key=lambda item: -item[1])[:3]})

# %%
# `BSGDClassifier` needs no scaler, and no option except the budget: it standardises columns as they arrive,
# and tunes gamma and lambda.
#
# :doc:`/guide/stream` has more, and :doc:`/solvers/bsgd` explains how it works.
