"""How the cost of ADMM on a compressed kernel matrix grows with its rows."""

from __future__ import annotations

from streamsvm.fits.growth import Growth, Seen
from streamsvm.hss.tree import SUBTREE_ROWS

STEPS = 50  # of ADMM


class HSSGrowth(Growth):
    """Linear once ranks have settled, which those of small pilots have not."""

    def network_bytes(self, n: int, seen: Seen) -> float:
        """With several subtrees, workers receive a vector of every column in each step, and send one back."""
        steps = STEPS if n > SUBTREE_ROWS else 0
        return super().network_bytes(n, seen) + 16.0 * n * seen.columns * steps
