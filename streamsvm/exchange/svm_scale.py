"""svm-scale's range file: x' = lower + (upper - lower) (x - min) / (max - min), feature by feature.

A line "x", a line "lower upper", and a line "feature min max" for each feature; one whose min is its max becomes 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from streamsvm.data.scaling import Scaling
from streamsvm.errors import DataError

MOST_FEATURES = 1 << 25  # a model has two float64 of each


def range_lines(scaling: Scaling) -> Iterator[str]:
    """Any scaling as a map of [offset, offset + 1 / scale] to [0, 1]."""
    yield "x\n0 1\n"
    for number, (low, scale) in enumerate(zip(scaling.offset.tolist(), scaling.scale.tolist(), strict=True), 1):
        yield f"{number} {low:.17g} {low + (1 / scale if scale else 0):.17g}\n"


def read_range(path: Path) -> Scaling:
    """The scaling that a range file describes; features that it does not name become 0. Raises DataError."""
    with path.open(encoding="utf-8", errors="replace") as file:
        lines = enumerate(file, 1)
        if (first := next(lines, (1, ""))[1].strip()) != "x":
            also = "; labels scaled with -y are not supported" if first == "y" else ""
            raise DataError(f"{path}, line 1: found {first[:40]!r}, expected x, as svm-scale -s writes it{also}")
        number, line = next(lines, (2, ""))
        lower, upper = _numbers(path, number, line, 2)
        ranges = {}
        for number, line in lines:
            if line.strip():
                index, low, high = _numbers(path, number, line, 3)
                if not (index.is_integer() and 1 <= index <= MOST_FEATURES) or high < low:
                    raise DataError(f"{path}, line {number}: expected a feature from 1 to {MOST_FEATURES}, min <= max")
                ranges[int(index) - 1] = (low, high)
    d = max(ranges, default=-1) + 1
    offset, scale = np.zeros(d), np.zeros(d)
    for column, (low, high) in ranges.items():
        if high > low and upper != lower:
            slope = (upper - lower) / (high - low)
            if not 0 < abs(slope) < math.inf:
                raise DataError(f"{path}: the range of feature {column + 1} is too wide or too narrow")
            scale[column], offset[column] = slope, low - lower / slope
    return Scaling("minmax" if offset.any() else "maxabs", offset, scale)


def _numbers(path: Path, number: int, line: str, count: int) -> list[float]:
    try:
        values = [float(word) for word in line.split()]
    except ValueError:
        values = []
    if len(values) != count or not all(map(math.isfinite, values)):
        raise DataError(f"{path}, line {number}: found {line.strip()[:40]!r}, expected {count} numbers")
    return values
