"""What an ingest is told to do."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from streamsvm.errors import ConfigError

FORMATS = ("svmlight", "csv", "tsv", "parquet", "npy", "npz", "idx")


@dataclass(frozen=True)
class IngestOptions:
    """Options of `ingest`; None means decided from the data.

    format: one of FORMATS; by suffix and first bytes where None.
    label: the label column of a table: its name, `first`, `last`, a position from 0, or `none`; the last where None
        (with `like`, the column that was the label there, if the table has it).
    header: whether a CSV or TSV table starts with a line of names.
    labels: a file with one label per row (idx, npy or text), for npy and idx sources.
    qid: the query id column of a table; svmlight has `qid:`.
    dense: True or False forces a dense or a CSR store.
    dtype: uint8, float32 or float64; float32 where None, uint8 for sources that hold bytes.
    split: the fraction of rows for the store, the rest goes to `test_store`; rows are shuffled.
    like: a store whose columns, categories, width and layout are taken over.
    memory_limit: bytes for everything in flight.
    force: stores that are there already are replaced, each in one step when the new one is whole.
    """

    format: str | None = None
    label: str | None = None
    header: bool = True
    labels: str | None = None
    qid: str | None = None
    dense: bool | None = None
    dtype: str | None = None
    rows_per_chunk: int | None = None
    split: float | None = None
    test_store: str | None = None
    shuffle: bool = False
    seed: int = 0
    like: str | None = None
    memory_limit: int = 512 << 20
    force: bool = False

    def __post_init__(self) -> None:
        if self.format is not None and self.format not in FORMATS:
            raise ConfigError(f"format is {self.format!r}; expected one of {', '.join(FORMATS)}")
        if self.dtype not in (None, "uint8", "float32", "float64"):
            raise ConfigError(f"dtype is {self.dtype!r}; expected uint8, float32 or float64")
        if (self.split is None) != (self.test_store is None):
            raise ConfigError(
                "--split and --test-store go together: a fraction, and a store for the other rows"
            )
        if self.split is not None and not 0 < self.split < 1:
            raise ConfigError(f"split is {self.split}; expected a fraction between 0 and 1")
        if self.rows_per_chunk is not None and self.rows_per_chunk < 1:
            raise ConfigError(f"rows per chunk is {self.rows_per_chunk}; expected at least 1")
        if self.memory_limit < 32 << 20:
            raise ConfigError(f"memory limit is {self.memory_limit} bytes; ingest needs at least 32 MiB")

    @property
    def block_bytes(self) -> int:
        """How much of a source is read at a time: 2 MiB is fastest, larger blocks leave the cache."""
        return int(np.clip(self.memory_limit // 256, 1 << 18, 2 << 20))

    def feature_dtype(self, source: np.dtype | None = None) -> np.dtype:
        """The dtype features are stored in, when the source holds `source`."""
        if self.dtype is not None:
            return np.dtype(self.dtype)
        return np.dtype(np.uint8 if source == np.uint8 else np.float32)
