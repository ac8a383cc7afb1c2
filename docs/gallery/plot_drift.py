"""
A budget on a drifting stream
=============================

`BSGDClassifier` learns event by event, keeps at most `budget` support vectors and tunes itself. This example
changes the rule behind the labels.
"""

# %%
# river's generator Sine: two numbers, and whether the point is below a curve. The rule changes after 1,500
# events: first the labels swap, then the curve changes, then the labels swap again.

from itertools import islice

import matplotlib.pyplot as plt
import numpy as np
from river import linear_model, preprocessing
from river.datasets import synth

from streamsvm.online import BSGDClassifier

EVENTS = 1500


def stream():
    """(features, label) of events: four rules, one after the other."""
    for rule in range(4):
        yield from islice(synth.Sine(classification_function=rule, seed=rule), EVENTS)


# %%
# Each event is predicted first, then learned.

learners = {
    "BSGDClassifier(budget=100)": BSGDClassifier(budget=100),
    "StandardScaler | LogisticRegression": preprocessing.StandardScaler() | linear_model.LogisticRegression(),
}
right = {name: [] for name in learners}
for x, label in stream():
    for name, learner in learners.items():
        right[name].append(learner.predict_one(x) == label)
        learner.learn_one(x, label)

# %%

window = np.ones(200) / 200
figure, axes = plt.subplots(figsize=(9, 3.8), layout="constrained")
for name, hits in right.items():
    share = 100 * np.convolve(hits, window, mode="valid")
    axes.plot(np.arange(len(share)) + len(window), share, label=f"{name}: {100 * np.mean(hits):.1f} %")
for change in (EVENTS, 2 * EVENTS, 3 * EVENTS):
    axes.axvline(change, color="grey", linestyle="--", label="the rule changes" if change == EVENTS else None)
axes.set(xlabel="events", ylabel="accuracy of the last 200, %", title="Predict, then learn")
figure.legend(loc="outside lower center", ncols=3)
plt.show()

# %%
# When errors rise (an alarm), a second learner starts next to the first, and replaces it once it is better (a
# switch).

print(learners["BSGDClassifier(budget=100)"].drifts)

# %%
# Accuracy drops when the rule changes, and recovers within a few hundred events. Logistic regression has a
# linear boundary, and moves it step by step.
#
# :doc:`/guide/stream` does the same on the command line, :doc:`/solvers/bsgd` explains how.
