"""State that is arrays: what a learner saves and restores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np


def arrays_of(learner: InArrays) -> tuple[np.ndarray, ...]:
    """Its arrays, in order, as compiled code takes them."""
    return tuple(learner.to_state().values())


class InArrays:
    """Its state is the arrays of these names, changed in place."""

    ARRAYS: ClassVar[tuple[str, ...]]

    def to_state(self) -> dict[str, np.ndarray]:
        return {name: getattr(self, name) for name in self.ARRAYS}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Restores a state that `to_state` gave."""
        for name in self.ARRAYS:
            getattr(self, name)[:] = np.asarray(state[name])
