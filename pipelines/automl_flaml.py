"""DCSVC and DCSVR among the learners that FLAML chooses from, on scikit-learn's digits or diabetes.

    pip install 'flaml[automl]'
    python pipelines/automl_flaml.py [--task classify] [--seconds 20]

`StreamSVM` is a learner with its search space, to be copied; the other one is FLAML's LightGBM. Prints who won, its
options, and the score on a quarter of the rows that neither has seen: accuracy, or R2.
"""

from __future__ import annotations

import argparse
from typing import Any

from flaml import tune
from flaml.automl import AutoML
from flaml.automl.model import SKLearnEstimator
from sklearn.datasets import load_diabetes, load_digits
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import train_test_split

from streamsvm import DCSVC, DCSVR


class StreamSVM(SKLearnEstimator):
    """C, gamma and the scaling are searched, from scikit-learn's defaults on."""

    def __init__(self, task: Any = "binary", **config: Any) -> None:
        super().__init__(task, **config)
        if self._task.is_classification():
            self.estimator_class = DCSVC
            self.params["probability"] = True
        else:
            self.estimator_class = DCSVR

    @classmethod
    def search_space(cls, data_size: tuple[int, ...], task: Any) -> dict[str, Any]:
        return {
            "C": {"domain": tune.loguniform(0.03, 3000), "init_value": 1.0},
            "gamma": {"domain": tune.loguniform(1e-4, 30), "init_value": 1 / data_size[1]},
            "scale": {"domain": tune.choice(["minmax", "standard"]), "init_value": "standard"},
        }


TASKS = {
    "classify": (load_digits, accuracy_score, {"task": "classification", "metric": "accuracy"}),
    "regress": (load_diabetes, r2_score, {"task": "regression", "metric": "r2"}),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, default="classify")
    parser.add_argument("--seconds", type=float, default=20.0, help="for the search")
    given = parser.parse_args()
    load, score, options = TASKS[given.task]
    X, X_test, y, y_test = train_test_split(*load(return_X_y=True), random_state=0)
    search = AutoML(time_budget=given.seconds, estimator_list=["streamsvm", "lgbm"], n_jobs=2, seed=0, verbose=0)
    search.add_learner("streamsvm", StreamSVM)
    search.fit(X, y, **options)
    losses = {name: round(float(loss), 4) for name, loss in search.best_loss_per_estimator.items()}
    print(f"best: {search.best_estimator} {search.best_config}; losses {losses}")
    print(f"score on {len(y_test)} rows: {score(y_test, search.predict(X_test)):.4f}")


if __name__ == "__main__":
    main()
