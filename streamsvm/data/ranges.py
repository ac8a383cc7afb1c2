"""Which rows are read together."""

from __future__ import annotations

from streamsvm.data.sources import default_chunk_rows

MANY_BLOCKS, LARGE_BYTES = 256, 32 << 20  # more blocks are larger ones, as each is a task


def usual_rows(n: int, chunk_rows: int, row_bytes: float, float_bytes: float) -> int:
    """Rows of a block: a chunk, or small chunks together. float_bytes: those of a row as it is computed with."""
    return max(
        chunk_rows, default_chunk_rows(row_bytes), min(n // MANY_BLOCKS, int(LARGE_BYTES / float_bytes))
    )


def row_ranges(n: int, chunk_rows: int, limit: int) -> list[tuple[int, int]]:
    """Half-open ranges that cover 0..n in order, of at most `limit` rows, on chunk borders where possible."""
    if limit >= chunk_rows:
        edges = list(range(0, n, limit // chunk_rows * chunk_rows))
    else:
        parts = -(-chunk_rows // limit)
        step = -(-chunk_rows // parts)
        chunks = range(0, n, chunk_rows)
        edges = [e for c in chunks for e in range(c, min(c + chunk_rows, n), step)]
    bounds = [*edges, n]
    return list(zip(bounds, bounds[1:], strict=False))
