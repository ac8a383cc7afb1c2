"""
Learning to rank
================

A search engine has to order the documents of one query, not to grade them across queries.
`CuttingPlaneRanker` only compares rows of the same query. What does that change?
"""

# %%
# Synthetic queries: within a query, longer documents are better, but broad queries have longer documents and
# lower grades. Ten more columns are noise.

import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import ndcg_score

from streamsvm import CuttingPlaneRanker, CuttingPlaneSVR

QUERIES, DOCUMENTS = 200, 20
rng = np.random.default_rng(0)
query = np.repeat(np.arange(QUERIES), DOCUMENTS)
breadth = rng.normal(size=QUERIES)[query]
quality = rng.normal(size=len(query))
X = np.column_stack([3 * breadth + quality + 0.3 * rng.normal(size=len(query)), rng.normal(size=(len(query), 10))])
y = np.clip(np.round(2 + quality - breadth), 0, 4)
train = query < QUERIES // 2

# %%
# The ranker gets the queries, the regression only the grades.

ranker = CuttingPlaneRanker().fit(X[train], y[train], qid=query[train])
regression = CuttingPlaneSVR().fit(X[train], y[train])
scores = {"ranker": ranker.decision_function(X[~train]), "regression": regression.predict(X[~train])}

# %%

figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.5), layout="constrained")
order = np.argsort(breadth[::DOCUMENTS])
for place, colour in zip((10, 100, 190), ("C0", "C1", "C2"), strict=True):
    rows = query == order[place]
    left.plot(
        X[rows, 0],
        y[rows] + rng.uniform(-0.1, 0.1, DOCUMENTS),
        "o",
        color=colour,
        label=f"query {order[place]}",
    )
left.set(xlabel="length of the document, standardised", ylabel="grade", title="Three queries")
left.legend(loc="lower left")
places = [1, 2, 3, 5, 10, 20]
for name, found in scores.items():
    by_query = y[~train].reshape(-1, DOCUMENTS), found.reshape(-1, DOCUMENTS)
    right.plot(places, [ndcg_score(*by_query, k=k) for k in places], "o-", label=name)
right.set(xlabel="first k documents", ylabel="NDCG at k", title="Test queries", ylim=(0, 1.05))
right.set_xticks(places)
right.legend(loc="lower right")
plt.show()

# %%
# Across all rows, grades fall with length, so the regression puts short documents first, the wrong ones in
# each query. Within a query, which is all that the ranker compares, grades rise with length.
#
# :doc:`/solvers/cutting-plane` explains how pairs are compared without listing them.
