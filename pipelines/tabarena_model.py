"""streamsvm as a model of TabArena: to be entered on its board, or run on local tables (tabarena_table.py).

    from tabarena_model import gen_streamsvm  # with this folder on PYTHONPATH
    experiments = gen_streamsvm.generate_all_bag_experiments(num_random_configs=0, time_limit=3600)

AutoGluon pickles its models, so this is a module that can be imported. Needs `pip install tabarena`.
"""

from __future__ import annotations

import time
from typing import Any

from autogluon.common.features.types import R_CATEGORY, R_FLOAT, R_INT
from autogluon.common.space import Categorical, Real
from autogluon.core.models import AbstractModel
from tabarena.utils.config_utils import ConfigGenerator

from streamsvm import DCSVR, AutoSVC

SHARE = 0.9  # of a time limit: the rest is for the last fit, which may take longer than expected
LEAST_S = 5.0
OF_REGRESSION = dict.fromkeys(("kernel", "C", "gamma", "scale", "metric"), "search")


class StreamSVMModel(AbstractModel):
    """`AutoSVC`, or for numbers `DCSVR`, which choose their options within the time limit; any parameter can be given.

    Data frames are taken as they are, with categories and gaps. Classes get probabilities."""

    ag_key, ag_name, seed_name = "STREAMSVM", "StreamSVM", "random_state"
    _supported_problem_types = ("binary", "multiclass", "regression")
    _default_auxiliary_params_extra = {"valid_raw_types": [R_INT, R_FLOAT, R_CATEGORY]}

    def _fit(
        self,
        X: Any,
        y: Any,
        time_limit: float | None = None,
        num_cpus: int = 1,
        sample_weight: Any = None,
        **_: Any,
    ) -> None:
        began = time.monotonic()
        X = self.preprocess(X, is_train=True)
        options = {"n_jobs": num_cpus, **self._get_model_params()}
        if time_limit is not None:
            options["time_budget"] = max(LEAST_S, SHARE * (time_limit - (time.monotonic() - began)))
        self.model = self._estimator(options).fit(X, y, sample_weight=sample_weight)

    def _estimator(self, options: dict[str, Any]) -> Any:
        if self.problem_type != "regression":
            return AutoSVC(**{"probability": True, **options})
        search = {name: options.pop(name) for name in ("time_budget",) if name in options}
        options.pop("ensemble", None)
        return DCSVR(**{**OF_REGRESSION, "search_params": search, **options})

    @classmethod
    def warmup(cls, **_: Any) -> None:
        """Compiles before anything is timed."""
        import numpy as np

        X = np.random.default_rng(0).normal(size=(300, 4))
        AutoSVC(time_budget=LEAST_S).fit(X, X[:, 0] > 0)


gen_streamsvm = ConfigGenerator(
    model_cls=StreamSVMModel,
    manual_configs=[{"ensemble": 3}],  # the default: as `streamsvm fit --ensemble 3`
    search_space={
        "ensemble": Categorical(1, 3),
        "C": Real(0.1, 1000.0, log=True),
        "scale": Categorical("standard", "quantile", "minmax"),
        "kernel": Categorical("rbf", "matern", "laplacian"),
    },
)
