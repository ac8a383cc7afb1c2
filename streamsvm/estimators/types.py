"""Types of the parameters of estimators, made of those of options: type checkers and editors know the values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypeAlias

from numpy.random import RandomState as NumpyRandomState

from streamsvm.kernels.table import DefiniteKernel
from streamsvm.options.base import Scale
from streamsvm.options.probability import Calibrator
from streamsvm.options.search import MetricKind

Search = Literal["search"]
Searched = float | Search
SearchedGamma = float | Literal["scale", "auto", "search"]
SearchedKernel = Literal[DefiniteKernel, Search]
SearchedMetric = Literal[MetricKind, Search]
SearchedScale = Literal[Scale, Search]
Gamma = float | Literal["scale", "auto"]
Balanced = Mapping[Any, float] | Literal["balanced"] | None
ClassWeight = Balanced | Search
Probability = bool | Calibrator
MultiClass = Literal["ovo", "ovr"]
Options = dict[str, Any] | None
Costs = Mapping[tuple[object, object], float] | None
RandomState = int | NumpyRandomState | None
Columns = str | Sequence[str] | None
TargetEncode = str | Sequence[str] | Mapping[str, object] | None
Client: TypeAlias = Any  # distributed.Client, False or None
Data: TypeAlias = Any  # rows, labels or weights of any kind that `estimators.inputs` takes
