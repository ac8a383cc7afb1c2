"""What is made of decision values: probabilities, and a threshold, or what errors cost."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from streamsvm.options.base import Options, Whole
from streamsvm.options.costs import CostsText
from streamsvm.options.wish import WishText

Calibrator = Literal["sigmoid", "isotonic"]


class ProbabilityConfig(Options):
    """What is made of decision values of rows that the model of them was not trained on: probabilities (see
    `calibration`), and a threshold (see `training.thresholds`)."""

    method: Annotated[
        Calibrator | None,
        Field(description="How decision values become probabilities; else there are none"),
    ] = None
    folds: Annotated[
        Whole, Field(ge=2, description="Parts of the rows, each predicted by a fit on the others")
    ] = 5
    threshold: Annotated[
        WishText,
        Field(
            description="What the threshold of two classes is chosen for, on rows of holdout or folds: f1, "
            "balanced_accuracy, precision=0.9 (the most recall there) or recall=0.9; else it is 0"
        ),
    ] = None

    costs: Annotated[
        CostsText,
        Field(
            description="What errors cost, as yes>no=5,no>yes=2 (yes>no: no where yes is true), else 1: of "
            "probabilities, the label with the least expected cost is predicted"
        ),
    ] = None

    @model_validator(mode="after")
    def _one_decides(self) -> ProbabilityConfig:
        if self.costs is not None and self.threshold is not None:
            raise ValueError("threshold and costs each decide between labels: leave one out")
        return self

    @property
    def is_asked(self) -> bool:
        return self.method is not None or self.threshold is not None

    def __str__(self) -> str:
        return self.method or "none"
