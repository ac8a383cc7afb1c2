"""
A budget on a drifting stream
=============================

`BSGDClassifier` learns event by event, with at most `budget` support vectors and no option to be set. What
does it do when the rule behind the labels changes?
"""

# %%
# river's generator Sine: two numbers, and whether the point is below a curve. The rule changes after 1,500
# events: the same curve with the labels exchanged, then another curve, then that one exchanged.

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
# Each event is predicted, then learned.

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
# Where errors rise (an alarm), a second learner begins beside the first, and takes over when it is better (a
# switch).

print(learners["BSGDClassifier(budget=100)"].drifts)

# %%
# Accuracy falls when the rule changes, and comes back within some hundred events. The logistic regression has
# a straight border only, and has to move it step by step.
#
# :doc:`/guide/stream` does the same on the command line, :doc:`/solvers/bsgd` tells how.
