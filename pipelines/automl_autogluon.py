"""DCSVC and DCSVR among the models of AutoGluon's tables, on a synthetic table of numbers and text.

    pip install autogluon.tabular
    python pipelines/automl_autogluon.py [--task classify] [--seconds 60]

`StreamSVMModel` fits what AutoGluon gives it: data frames, with categories and gaps. It is to be copied into a module
that can be imported, as AutoGluon pickles its models. The other model is AutoGluon's linear one, or LightGBM where it
is installed. Prints each model's score on rows kept out, and that of the best on rows none has seen: accuracy or R2.
"""

from __future__ import annotations

import argparse
import importlib.util
import tempfile
from typing import Any

import numpy as np
import pandas as pd
from autogluon.common.features.types import R_CATEGORY, R_FLOAT, R_INT
from autogluon.core.models import AbstractModel
from autogluon.tabular import TabularPredictor

from streamsvm import DCSVC, DCSVR

LABEL = "label"


class StreamSVMModel(AbstractModel):
    """`TabularPredictor.fit(hyperparameters={StreamSVMModel: {"C": 10.0}})`, with any option of DCSVC."""

    ag_key, ag_name = "STREAMSVM", "StreamSVM"
    _supported_problem_types = ("binary", "multiclass", "regression")
    _default_auxiliary_params_extra = {"valid_raw_types": [R_INT, R_FLOAT, R_CATEGORY]}

    def _fit(self, X: Any, y: Any, num_cpus: int = 1, sample_weight: Any = None, **_: Any) -> None:
        is_regression = self.problem_type == "regression"
        kind, own = (DCSVR, {}) if is_regression else (DCSVC, {"probability": True})
        svm = kind(**{"scale": "standard", "n_jobs": num_cpus} | own | self._get_model_params())
        self.model = svm.fit(self.preprocess(X, is_train=True), y, sample_weight=sample_weight)


def made_up(task: str, rows: int = 1_500) -> pd.DataFrame:
    """A ring in two columns, moved by a category; some values are missing."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(rows, 2))
    colour = rng.choice(["red", "green", "blue"], rows)
    value = np.hypot(*X.T) + 0.5 * (colour == "red")
    table = pd.DataFrame(X, columns=["a", "b"]).assign(colour=colour)
    table.loc[rng.random(rows) < 0.02, "a"] = np.nan
    return table.assign(**{LABEL: value if task == "regress" else np.where(value > 1.3, "out", "in")})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=("classify", "regress"), default="classify")
    parser.add_argument("--seconds", type=float, default=60.0, help="for the search")
    given = parser.parse_args()
    table = made_up(given.task)
    train, test = table[:1_000], table[1_000:]
    other = "GBM" if importlib.util.find_spec("lightgbm") else "LR"
    models = {StreamSVMModel: [{"C": C} for C in (1.0, 10.0)], other: {}}
    with tempfile.TemporaryDirectory() as folder:
        metric = "r2" if given.task == "regress" else "accuracy"
        predictor = TabularPredictor(label=LABEL, eval_metric=metric, path=folder, verbosity=0)
        predictor.fit(train, hyperparameters=models, time_limit=given.seconds, fit_weighted_ensemble=False)
        board = predictor.leaderboard()
        for name, score in zip(board["model"], board["score_val"], strict=True):
            print(f"{name}: {score:.4f}")
        print(f"score on {len(test)} rows: {predictor.evaluate(test)[metric]:.4f}")


if __name__ == "__main__":
    main()
