"""Options of budgeted SGD, and counters of a learner's work."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from streamsvm.config import FitConfig
from streamsvm.models.calibration import are_odds
from streamsvm.options.solvers import Strategy
from streamsvm.tasks.base import Loss, Task

LONGEST = {"epsilon": 0.5}  # step, of the targets' spread: values count, of classes signs alone
LONGEST_ODDS = 0.5  # change of a decision that is a logarithm of odds, by a row of typical weight


@dataclass(frozen=True)
class BudgetOptions:
    """lam: lambda; merge: points that become one, M; average: decide by the mean of all w_t, not by the last.

    The mean weighs w_t by t (Lacoste-Julien, Schmidt and Bach 2012). Merges fit the last w, not the mean, so it pays
    only where the budget is rarely full. epsilon, nu: of the losses "epsilon", in units of the targets, and "support".
    longest: step, which t is counted for: from 1 / (lambda longest) on. 0: none is too long.
    """

    lam: float
    budget: int = 500
    merge: int = 3
    strategy: Strategy = "sequence"
    bias: bool = False
    average: bool = False
    loss: Loss = "hinge"
    epsilon: float = 0.0
    nu: float = 0.0
    longest: float = 0.0

    @classmethod
    def of(cls, config: FitConfig, task: Task, n: int, unit: float = 1.0) -> BudgetOptions:
        """lambda is 1 / (n C) unless the options have one, with C = 1 for a task that reads no C. unit: of targets, in
        which lambda and epsilon of the options are."""
        o = config.bsgd
        loss: Loss = o.loss if task.has_probabilities else task.loss
        C = config.C if task.reads_labels else 1.0
        lam = unit * (o.lam if o.lam is not None else 1.0 / (n * C))
        return cls(
            lam,
            o.budget,
            o.merge,
            o.strategy,
            o.bias,
            o.average,
            loss,
            epsilon=config.epsilon / unit,
            nu=task.nu(config) or 0.0,
            longest=LONGEST.get(loss, 0.0),
        )

    def for_odds(self, weight: float) -> BudgetOptions:
        """For all rows of a store, where decisions are to be logarithms of odds; others stay. weight: of a typical row,
        times K(x, x). From a step of 1 / lambda on, heavy rows would still change decisions by several when the last
        rows come."""
        return replace(self, longest=LONGEST_ODDS / weight) if are_odds(self.loss) and weight > 0 else self

    @property
    def first(self) -> float:
        """The step from which on t is counted."""
        return 1 / (self.lam * self.longest) if self.longest else 0.0


@dataclass
class BudgetStats:
    """Counters of a learner's work."""

    steps: int
    supports: int
    maintenances: int
    step_seconds: float  # of the steps one after the other, maintenance in them
    degradation: float  # sum of |w' - w|^2 over maintenances
    mean_gradient_error: float  # |w' - w| / eta_t by step: E-bar of Qaadan and Glasmachers 2018, theorem 1


def together(every: Sequence[BudgetStats]) -> BudgetStats:
    """Counters of several learners, added up."""
    sums = {name: sum(getattr(stats, name) for stats in every) for name in BudgetStats.__dataclass_fields__}
    errors = sum(stats.mean_gradient_error * stats.steps for stats in every)
    return BudgetStats(**sums | {"mean_gradient_error": errors / max(sums["steps"], 1)})
