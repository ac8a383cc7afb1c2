"""Configurations that repeat a fit: on the same rows, from a file next to the model, or on other rows."""

from __future__ import annotations

from streamsvm.config import FitConfig, SearchConfig, build_config, repeating
from streamsvm.events import Events, Warned
from streamsvm.fits.base import Learned
from streamsvm.runs.checkpoints import EXECUTION
from streamsvm.storage.atomic import whole_file
from streamsvm.storage.paths import Place

CONFIG_MARK = "# the options"  # a file of these begins with


def write_config(model: Learned, model_path: Place, events: Events) -> str | None:
    """What was chosen, next to the model: a configuration that repeats the fit. Another's file is not replaced."""
    path, mark = model_path.with_suffix(".fit.toml"), f"{CONFIG_MARK} of {model_path.name}:"
    if path.exists() and not path.read_bytes().startswith(mark.encode()):
        events(
            Warned(
                f"{path} belongs to another model and is kept: what was chosen is only in {model_path.name}"
            )
        )
        return None
    values = {name: value for name, value in (model.header.config or {}).items() if name not in EXECUTION}
    text = f"{mark} `streamsvm fit --store STORE --config {path.name}` repeats it\n"
    with whole_file(path) as file:
        file.write((text + repeating(build_config((str(model_path), values)))).encode())
    return str(path)


def as_chosen(config: FitConfig) -> FitConfig:
    """The configuration for fits that repeat the chosen options on other rows."""
    own = {"holdout": 0, "interval": None, "rows": None, "search": SearchConfig(options=())}
    return config.model_copy(update=own)
