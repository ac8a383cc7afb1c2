"""State that is arrays: what a learner keeps, and takes up again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np


class InArrays:
    """Its state is the arrays of these names, changed in place."""

    ARRAYS: ClassVar[tuple[str, ...]]

    def to_state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self.ARRAYS}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Takes up a state that `to_state` gave."""
        for name in self.ARRAYS:
            getattr(self, name)[:] = np.asarray(state[name])
