"""The state of an unfinished run in its folder: written whole or not at all, taken up by the same run only."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError


@dataclass
class Checkpoints:
    """The last state of a run, in the run directory; without one nothing is kept."""

    run_dir: Path | None
    store: Store
    config: FitConfig
    resume: bool

    def save(self, **state: Any) -> None:
        """Keeps named arrays and numbers in place of the state before."""
        if self.run_dir is not None:
            part = self.run_dir / "state.npz.part"
            with part.open("wb") as file:
                np.savez(file, key=self.key(), **state)
            part.replace(self.run_dir / "state.npz")

    def load(self) -> dict[str, np.ndarray] | None:
        """The state to go on from, or None. Raises ConfigError where it is another run's."""
        path = self.run_dir / "state.npz" if self.run_dir else None
        if not self.resume or path is None or not path.exists():
            return None
        with np.load(path, allow_pickle=False) as state:
            if str(state["key"]) != self.key():
                raise ConfigError(
                    f"{path} is the state of another store or configuration; drop --resume to start anew"
                )
            return dict(state)

    def key(self) -> str:
        """What tells a run's data and configuration from others."""
        resolved = self.config.model_copy(update={"memory_limit": None, "workers": None})
        return f"{self.store.fingerprint()} {resolved.model_dump_json()}"
