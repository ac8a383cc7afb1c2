"""Who is on the board: every classifier of river's that is fit for streams of numbers, by defaults, and ours alone.

What stands before a model, and which trees an ensemble is made of, is as in river's own benchmarks and documentation.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import river
from river import (
    base,
    drift,
    dummy,
    ensemble,
    facto,
    forest,
    linear_model,
    multiclass,
    naive_bayes,
    neighbors,
    preprocessing,
    tree,
)

from streamsvm.online import BSGDClassifier

OURS = "BSGDClassifier"


@dataclass(frozen=True)
class Model:
    """How a model is made. `make` takes a seed if its class draws numbers."""

    make: Callable[..., base.Classifier]
    is_scaled: bool = False
    is_seeded: bool = False

    def __call__(self, n_classes: int, seed: int) -> base.Classifier:
        """One that has seen nothing; of more than two classes, one that knows two learns each against the rest."""
        model = self.make(seed=seed) if self.is_seeded else self.make()
        if n_classes > 2 and not model._multiclass:
            model = multiclass.OneVsRestClassifier(model)
        return preprocessing.StandardScaler() | model if self.is_scaled else model


def _plain(kind: type[base.Classifier]) -> Model:
    return Model(kind, is_seeded="seed" in inspect.signature(kind).parameters)


def _scaled(kind: type[base.Classifier]) -> Model:
    return Model(kind, is_scaled=True, is_seeded="seed" in inspect.signature(kind).parameters)


def _of(kind: Any, inner: Callable[[], base.Classifier], *, is_seeded: bool = True) -> Model:
    return Model(lambda **seed: kind(inner(), **seed), is_seeded=is_seeded)


def _four() -> list[base.Classifier]:
    scaler = preprocessing.StandardScaler
    return [
        scaler() | linear_model.SoftmaxRegression(),
        naive_bayes.GaussianNB(),
        tree.HoeffdingTreeClassifier(),
        scaler() | neighbors.KNNClassifier(),
    ]


def _retrained() -> base.Classifier:
    return drift.DriftRetrainingClassifier(tree.HoeffdingTreeClassifier(), drift.binary.DDM())


def _stacking(seed: int) -> base.Classifier:
    return ensemble.StackingClassifier(_four(), meta_classifier=forest.ARFClassifier(seed=seed))


_TREE = tree.HoeffdingTreeClassifier
MODELS: dict[str, Model] = {
    OURS: _plain(BSGDClassifier),
    **{
        kind.__name__: _plain(kind)
        for kind in (
            dummy.NoChangeClassifier,
            dummy.PriorClassifier,
            ensemble.SRPClassifier,
            forest.AMFClassifier,
            forest.ARFClassifier,
            naive_bayes.GaussianNB,
            tree.ExtremelyFastDecisionTreeClassifier,
            tree.HoeffdingAdaptiveTreeClassifier,
            tree.HoeffdingTreeClassifier,
            tree.LASTClassifier,
            tree.SGTClassifier,
        )
    },
    **{
        kind.__name__: _scaled(kind)
        for kind in (
            facto.FFMClassifier,
            facto.FMClassifier,
            facto.FwFMClassifier,
            linear_model.ALMAClassifier,
            linear_model.LogisticRegression,
            linear_model.PAClassifier,
            linear_model.Perceptron,
            linear_model.SoftmaxRegression,
            naive_bayes.BernoulliNB,  # a feature is on where it is above its mean
            neighbors.KNNClassifier,
        )
    },
    "AdaBoostClassifier": _of(ensemble.AdaBoostClassifier, _TREE),
    "ADWINBaggingClassifier": _of(ensemble.ADWINBaggingClassifier, _TREE),
    "ADWINBoostingClassifier": _of(ensemble.ADWINBoostingClassifier, _TREE),
    "BaggingClassifier": _of(
        ensemble.BaggingClassifier, lambda: tree.HoeffdingAdaptiveTreeClassifier(bootstrap_sampling=False)
    ),
    "BOLEClassifier": _of(ensemble.BOLEClassifier, _retrained),
    "DriftRetrainingClassifier": Model(_retrained),
    "LeveragingBaggingClassifier": _of(ensemble.LeveragingBaggingClassifier, _TREE),
    "StackingClassifier": Model(_stacking, is_seeded=True),
    "VotingClassifier": Model(lambda: ensemble.VotingClassifier(_four())),
}
LEFT_OUT = {
    "AdPredictor": "looks at which features an event has, not at their values",
    "BanditClassifier": "chooses among models that it is given",
    "ComplementNB": "for counts: features may not be negative",
    "EntropySampler": "asks for some labels alone",
    "HardSamplingClassifier": "changes the shares of classes for a model that it is given",
    "HOFMClassifier": "triples of features: an event a second of covtype's 54",
    "MultinomialNB": "for counts: features may not be negative",
    "OneVsOneClassifier": "makes several classes of a model for two, as OneVsRestClassifier does",
    "OneVsRestClassifier": "stands before those that know two classes",
    "OutputCodeClassifier": "makes several classes of a model for two, as OneVsRestClassifier does",
    "RandomOverSampler": "changes the shares of classes for a model that it is given",
    "RandomSampler": "changes the shares of classes for a model that it is given",
    "RandomUnderSampler": "changes the shares of classes for a model that it is given",
    "SKL2RiverClassifier": "a door for scikit-learn's",
    "SuccessiveHalvingClassifier": "chooses among models that it is given",
    "ZstdClassifier": "for text",
}


def rivers() -> set[str]:
    """The names of all classifiers in river's modules."""
    modules = [import_module(f"river.{found.name}") for found in iter_modules(river.__path__)]
    return {
        name
        for module in modules
        for name, kind in vars(module).items()
        if inspect.isclass(kind) and issubclass(kind, base.Classifier) and _is_for_use(name, module, kind)
    }


def _is_for_use(name: str, module: Any, kind: type[Any]) -> bool:
    is_public = name in getattr(module, "__all__", ())
    return is_public and not inspect.isabstract(kind) and not issubclass(kind, base.Regressor)
