"""Statistics stored next to the rows of a store: those of each column, and the distinct labels with their counts."""

from __future__ import annotations

from typing import Any

import numpy as np
import zarr

from streamsvm.data.columns import labels_of, values_of
from streamsvm.data.labels import Classes
from streamsvm.data.moments import Moments
from streamsvm.errors import CorruptDataError
from streamsvm.storage.chunks import CheckedArray, GrowingArray, create_array, whole_metadata

FOLDER = "statistics"
COLUMNS, LABELS = ("min", "max", "mean", "std"), ("labels", "counts")
MISSING = "missing"  # count of missing values, if columns have any


def write_statistics(group: zarr.Group, moments: Moments | None, classes: Classes | None) -> None:
    """Writes statistics of the columns and the classes into the group of a store. None: leaves them out."""
    if moments is None and classes is None:
        return
    folder = group.create_group(FOLDER)
    if moments is not None:
        spread = np.sqrt(moments.m2 / np.maximum(moments.present, 1))
        statistics = dict(zip(COLUMNS, (moments.low, moments.high, moments.mean, spread), strict=True))
        for name, values in (statistics if moments.gaps is None else statistics | {MISSING: moments.gaps}).items():
            array = create_array(folder, name, shape=values.shape, chunks=values.shape, dtype=np.float64)
            array[:] = values
    if classes is not None:
        for name, values in zip(LABELS, (classes.values, classes.counts), strict=True):
            growing = GrowingArray(folder, name, values.dtype, len(values))
            growing.append(values)
            growing.close()


class StoredStatistics:
    """Reads the statistics in the group of a store of n rows; None for those it lacks. Raises CorruptDataError."""

    def __init__(self, group: zarr.Group, n: int) -> None:
        self._folder: Any = group.get(FOLDER)
        self._n = n
        self._name = f"'{FOLDER}' of {group.store_path}"

    def columns(self) -> dict[str, np.ndarray] | None:
        """min, max, mean and std of each feature, (d,) float64 each, and if rows have gaps, their counts `missing`."""
        with whole_metadata(self._name):
            if not self._has(COLUMNS):
                return None
            names = (*COLUMNS, MISSING) if self._has((MISSING,)) else COLUMNS
            return {name: self._array(name).all() for name in names}

    def classes(self) -> Classes | None:
        with whole_metadata(self._name):
            if not self._has(LABELS):
                return None
            values, counts = (values_of(self._array(name)) for name in LABELS)
            if len(values) != len(counts) or counts.sum() != self._n:
                problem = f"array '{FOLDER}/counts' counts {counts.sum()} rows of {len(values)} labels, found {self._n}"
                raise CorruptDataError(f"{problem}; ingest them again")
            return Classes(labels_of(values), counts.astype(np.int64))

    def _has(self, names: tuple[str, ...]) -> bool:
        return self._folder is not None and all(name in self._folder for name in names)

    def _array(self, name: str) -> CheckedArray:
        return CheckedArray(self._folder[name], f"{FOLDER}/{name}")
