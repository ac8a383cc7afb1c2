"""Fits that are stopped, after each step or halfway, and go on."""

from __future__ import annotations

import warnings
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from streamsvm.config import FitConfig
from streamsvm.data.store import Store
from streamsvm.events import STEPS, Events
from streamsvm.fits.base import Report
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


def killed_and_resumed(store: Store, config: FitConfig, folder: Path) -> tuple[Report, Report]:
    """Reports of a fit in one go, whose model goes to folder / "whole", and of one that was killed after half of its
    steps and went on, to folder / "m". config: keeps a state after `1 step`."""
    told = list[bool]()
    events = Events(lambda record: told.append(isinstance(record.event, STEPS)))
    whole = train(store, config, model_path=folder / "whole", events=events)
    left = sum(told) // 2

    def kill(record: Any) -> None:
        nonlocal left
        left -= isinstance(record.event, STEPS)
        if left == 0:
            raise KeyboardInterrupt

    run: dict[str, Any] = {"model_path": folder / "m", "run_dir": folder / "run"}
    with pytest.raises(KeyboardInterrupt):
        train(store, config, **run, events=Events(kill))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", ".*holds no whole checkpoint")  # half may be the first step of a fold
        return whole, train(store, config, **run, resume=True)
