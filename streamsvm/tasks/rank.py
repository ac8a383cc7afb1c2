"""Ranking rows within a query: one score for all rows, of which only the order within queries counts."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.tasks.base import Targets, Task, TaskOptions
from streamsvm.tasks.classify import coded
from streamsvm.tasks.scores import DecisionRule, OrderScores


class Rank(Task):
    name = "rank"
    scoring = "ndcg"
    compares_rows = True
    needs_queries = True
    answer = "score"
    libsvm_type = "epsilon_svr"

    def targets(self, store: Store, config: TaskOptions) -> Targets:
        targets = coded(store, config.positive)
        if store.qid is None:
            raise DataError(
                f"{store.url or 'the data'} has no qid, which task rank needs; expected a column of query ids "
                "(ingest --qid), or task ordinal to rank all rows together"
            )
        return replace(targets, groups=np.unique(store.qid, return_inverse=True)[1])

    def scores(self, judge: DecisionRule, store: Store, *, with_curves: bool = False) -> OrderScores:
        return OrderScores(store)

    def facts(self, targets: Targets) -> dict[str, int]:
        assert targets.groups is not None  # those of `targets`
        grades = np.unique(np.stack([targets.groups, targets.codes]), axis=1)[0]
        one_grade = np.bincount(grades) == 1
        return {"queries": len(one_grade), "queries_of_one_grade": int(one_grade.sum())}
