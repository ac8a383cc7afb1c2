"""A fit as many processes that take one step each."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.runs.checkpoints import Checkpoints
from streamsvm.train import train


def train_by_single_steps(store: Store, config: FitConfig, model: Path, run_dir: Path) -> int:
    """Stops after every step, and goes on from its state; how many times. config: keeps a state after `1 step`."""
    offer, runs = Checkpoints.offer, 0

    def stop(*args: Any, **options: Any) -> None:
        offer(*args, **options)
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Checkpoints, "offer", stop)
        while not model.exists():
            with suppress(KeyboardInterrupt):
                train(store, config, model_path=model, run_dir=run_dir, resume=runs > 0)
            runs += 1
    return runs
