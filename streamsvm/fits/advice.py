"""Warnings: about a tolerance that was not reached; and, from the first rows of a store, if a fit is likely to learn
little."""

from __future__ import annotations

import numpy as np

from streamsvm.data.layout import Names
from streamsvm.data.moments import moments_of
from streamsvm.data.rows import Rows
from streamsvm.data.scaling import Scaling
from streamsvm.kernels.base import Kernel, Stationary
from streamsvm.parallel.strips import evenly

UNEVEN = 100  # range of the widest column, over that of a quarter of the columns: images reach 20
VANISHED = 1e-3  # largest K of a row with the others of a sample: below it, a fit learns the rows by heart
SAMPLE, FEWEST = 256, 20  # rows
COARSE = 0.01  # of a column's deviation: from such steps of float32 on, different rows may be stored as equal
WHOLE = 2.0**24  # float32 has all whole numbers up to this one
FAR = 1e4  # typical squared norm of rows, over that about their mean: from here on float32 loses accuracy


def unreached(violation: float, tol: float) -> str:
    """The advice for a fit that rounding ended above its tolerance, with products in float32 or float64."""
    return (
        f"rounding ended the fit at a violation of {violation:.2g}, tol is {tol:g}; give a larger tol or a smaller C, "
        "or scale the features"
    )


def advice(kernel: Kernel, scaling: Scaling, first: Rows, names: Names | None) -> str | None:
    """A warning about unscaled features, a kernel that is too narrow, or rows too far from the origin; None if all is
    well."""
    if not isinstance(kernel, Stationary):
        return far_from_origin(kernel, scaling, first)
    unscaled = scaling.kind in ("none", "centre") and uneven_columns(scaling.filled(first), names, kernel.name)
    return unscaled or vanishing_values(kernel, scaling.apply(first))


def uneven_columns(rows: Rows, names: Names | None = None, kernel: str = "rbf") -> str | None:
    """A warning if a few columns dominate all distances."""
    moments = moments_of(rows)
    ranges = moments.high - moments.low
    varied = np.flatnonzero(ranges)
    if len(varied) < 2:
        return None
    narrow = float(np.sort(ranges[varied])[len(varied) // 4])  # of two or three columns the narrowest
    widest = int(np.argmax(ranges))
    if ranges[widest] < UNEVEN * narrow:
        return None
    name = widest if names is None else repr(names[widest])
    return (
        f"column {name} has a range of {ranges[widest]:.3g}, a quarter of the columns one of {narrow:.2g} at most: "
        f"the {kernel} kernel sees only the wide ones. Scale the features (--scale standard; in Python "
        'scale="standard" or StandardScaler)'
    )


def vanishing_values(kernel: Stationary, rows: Rows) -> str | None:
    """A warning if hardly any row is near another one. rows: scaled."""
    if len(rows) < FEWEST:
        return None
    sample = rows.take(evenly(len(rows), SAMPLE))
    K = kernel.block(sample, sample)
    np.fill_diagonal(K, 0.0)
    nearest = float(np.quantile(K.max(axis=1), 0.9))
    if nearest >= VANISHED:
        return None
    return (
        f"nearly all values of the {kernel.name} kernel vanish at gamma {kernel.gamma:.3g} (nine in ten of "
        f"{len(sample)} rows have no other one with K above {nearest:.1g}): scale the features or take a smaller gamma"
    )


def rounded_columns(rows: Rows, names: Names | None = None) -> str | None:
    """A warning if the numbers of a column, as stored, are float32 and too far from zero for its spread."""
    if rows.is_sparse or rows.X.dtype != np.float32 or len(rows) < FEWEST:
        return None
    largest = np.fmax.reduce(np.abs(rows.X), axis=0)  # gaps are NaN
    steps, seen = np.zeros(rows.d), ~np.isnan(largest)
    with np.errstate(divide="ignore", invalid="ignore"):
        steps[seen] = np.spacing(largest[seen]) / np.nanstd(rows.X[:, seen].astype(np.float64), axis=0)
    steps[~np.isfinite(steps)] = 0.0
    whole = largest <= WHOLE
    whole[whole] = np.all((rows.X == np.rint(rows.X))[:, whole] | np.isnan(rows.X[:, whole]), axis=0)
    steps[whole] = 0.0
    worst = int(np.argmax(steps))
    if steps[worst] < COARSE:
        return None
    name = worst if names is None else repr(names[worst])
    return (
        f"column {name} is stored as float32, whose steps at {largest[worst]:.3g} are {steps[worst]:.0%} of the "
        "column's standard deviation: smaller differences are lost. Store it as float64, or less a typical value"
    )


def far_from_origin(kernel: Kernel, scaling: Scaling, first: Rows) -> str | None:
    """A warning if rows are so far from the origin that inner products hardly differ."""
    if len(first) < FEWEST or kernel.row.whole:
        return None
    rows = scaling.apply(first).astype(np.float64)
    mean = np.asarray(rows.X.mean(axis=0)).ravel()
    # |x - m|^2, of sparse rows too
    about = rows.sq_norms - 2.0 * np.asarray(rows.X @ mean).ravel() + mean @ mean
    before, after = float(np.median(rows.sq_norms)), float(np.median(about))
    if after <= 0 or before < FAR * after:
        return None
    return (
        f"rows lie {(before / after) ** 0.5:.3g} times their spread from the origin, where values of the {kernel.name} "
        "kernel hardly differ: accuracy may be lost. Scale the features (--scale standard; in Python "
        'scale="standard" or StandardScaler)'
    )
