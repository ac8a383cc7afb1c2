"""The scalings that a search begins with."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.data.scaling import Scaling
from streamsvm.errors import DataError
from streamsvm.fits.prepare import Prepared, scaled
from streamsvm.kernels.base import Stationary
from streamsvm.parallel.engine import Engine

FREE = ("none", "centre")  # kinds of scaling that leave room for others
UNEVEN = 3.0  # times that columns are weighted differently by two scalings, to be tried both
HEAVY = 20.0  # standard deviations from the mean to the farthest value, of a column with heavy tails
UNLIKE = 100.0  # times narrower that a column is by its quartiles than by its deviation


@dataclass(frozen=True)
class Start:
    """A scaling to begin with, and its factor (d,) over the one that the sample has."""

    scaling: Scaling
    factor: np.ndarray


def starts_of(prepared: Prepared, engine: Engine) -> tuple[Scaling, dict[str, Start]]:
    """The scaling of the sample, and those that tracks begin with, always including the given one.

    Of dense rows that nobody scaled, and a kernel of distances, the sample has columns of variance 1 about 0, whatever
    their units; a metric over it shows what columns count for. Raises DataError if all rows are the same.
    """
    given, config, moments = prepared.scaling, prepared.config, prepared.moments
    same = np.ones(given.width)
    asks = "scale" in config.search.chosen
    is_settled = (
        given.kind not in FREE or given.metric is not None
    )  # a given metric is one of the rows as they are
    if is_settled or not (asks or config.metric.is_learned):
        return given, {"given": Start(given, same)}
    assert moments is not None  # a search makes the pass
    if np.array_equal(moments.low, moments.high):
        raise DataError(
            f"{prepared.store.url or 'X'}: found the same values in every row, expected rows that differ"
        )
    usual = given
    if not prepared.store.is_sparse:
        usual = scaled(prepared.store, config, "standard", moments, engine)
    if not isinstance(prepared.kernel, Stationary):  # the origin matters, too: the usual one, and no other
        return usual, {"given": Start(usual, same)}
    if prepared.store.is_sparse:
        base, others = usual, ["maxabs"] if asks else []
    else:
        base = usual
        others = ["standard", *(["minmax"] if asks else [])]
        farthest = np.maximum(moments.high - moments.mean, moments.mean - moments.low) * base.scale
        if asks and farthest.max() > HEAVY:
            robust = scaled(prepared.store, config, "robust", moments, engine)
            others.append("robust")
            if _ratio(robust, base).max() > UNLIKE:  # outliers make up the deviations, and hide all else
                base = robust
    starts = {"given": Start(given, _ratio(given, base))}
    for name in others:
        scaling = base if name == base.kind else scaled(prepared.store, config, name, moments, engine)
        factor = _ratio(scaling, base)
        if all(_differs(factor, start.factor) for start in starts.values()):
            starts[name] = Start(scaling, factor)
    return base, starts


def _ratio(scaling: Scaling, base: Scaling) -> np.ndarray:
    """What columns under `base` are multiplied with to be as under another scaling; 0 of constant ones."""
    return np.divide(scaling.scale, base.scale, out=np.zeros_like(base.scale), where=base.scale > 0)


def _differs(one: np.ndarray, other: np.ndarray) -> bool:
    """Whether two factors weigh columns differently."""
    both = (one > 0) & (other > 0)
    if not both.any():
        return False
    ratios = one[both] / other[both]
    return bool(ratios.max() > UNEVEN * ratios.min())
