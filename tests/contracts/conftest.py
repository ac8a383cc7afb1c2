"""Fixtures that contracts share."""

from __future__ import annotations

import pytest
from cases import labelled
from making import write

from streamsvm.data.rows import Rows


@pytest.fixture(scope="module")
def store(tmp_path_factory) -> str:
    """A small store of two classes, for the command."""
    X, y = labelled(2, n=300)
    return write(tmp_path_factory.mktemp("toy") / "s.zarr", Rows(X), y, step=100, chunk_rows=100).url
