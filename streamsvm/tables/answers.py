"""Answers as columns and data frames of pandas, polars or Arrow."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import DTypeLike


def library_of(X: Any) -> str:
    """The package that X is of, such as "pandas"."""
    return type(X).__module__.partition(".")[0]


def index_of(X: Any) -> Any:
    """The index of a data frame of pandas; None for anything else."""
    return X.index if library_of(X) == "pandas" else None


def as_series(
    library: str,
    values: Sequence[Any] | np.ndarray,
    *,
    name: str = "",
    index: Any = None,
    dtype: DTypeLike | None = None,
) -> Any:
    """Values (n,) as a column. index and dtype are those of pandas; Arrow's arrays have no name."""
    if library == "pandas":
        import pandas as pd

        return pd.Series(values, index=index, name=name or None, dtype=dtype)
    if library == "polars":
        import polars as pl

        texts = isinstance(values, np.ndarray) and values.dtype.kind in "OU"
        return pl.Series(name, values.tolist() if texts else values)  # type: ignore[union-attr]
    import pyarrow as pa

    return pa.array(values)


def as_frame(library: str, values: np.ndarray, names: Sequence[Any], *, index: Any = None) -> Any:
    """Values (n, names) as a data frame, with pandas' index. Names of other libraries are text."""
    if library == "pandas":
        import pandas as pd

        return pd.DataFrame(values, index=index, columns=list(names))
    columns = {str(name): column for name, column in zip(names, values.T, strict=True)}
    if library == "polars":
        import polars as pl

        return pl.DataFrame(columns)
    import pyarrow as pa

    return pa.table(columns)
