"""Layers of options: their origin (a TOML file, a model, `--set`), and their nested values."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from streamsvm.errors import ConfigError, NotFoundError
from streamsvm.storage.paths import Place, place_of
from streamsvm.storage.text import toml_string

Values = Mapping[str, Any]  # nested values of options
Layer = tuple[str, Values]


class Resolved(dict[str, Any]):
    """Every option of a model, given or default."""


def merged(*layers: Layer) -> dict[str, Any]:
    """The nested values of all layers, later ones winning."""
    nested: dict[str, Any] = {}
    for _, values in layers:
        nested = _merge(nested, values)
    return nested


def _merge(old: Values, new: Values) -> dict[str, Any]:
    """`new` over `old`, tables key by key."""
    merged = dict(old)
    for key, value in new.items():
        both_tables = isinstance(old.get(key), Mapping) and isinstance(value, Mapping)
        merged[key] = _merge(old[key], value) if both_tables else value
    return merged


def read_layer(path: str | Place) -> Layer:
    """(origin, values) of a TOML file, or of the resolved configuration inside a model."""
    path = place_of(path)
    if path.is_dir():
        return str(path), _model_config(path)
    try:
        return str(path), tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise NotFoundError(f"{path}: no such configuration file") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ConfigError(f"{path}: not a TOML file: {error}") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


GONE = (("bsgd", "rounds"),)  # options of models of earlier versions


def parse_set(text: str) -> Layer:
    """The layer of `--set name=value`: the value is TOML (0.5, true, [1, 2]), anything else a string."""
    name, equals, value = text.partition("=")
    for toml in (text, f"{name} = {toml_string(value.strip())}") if equals else ():
        with suppress(tomllib.TOMLDecodeError):
            return f"--set {text}", tomllib.loads(toml)
    raise ConfigError(f"--set {text}: expected name=value, for example --set dcsvm.levels=3")


def _model_config(path: Place) -> Values:
    try:
        config = json.loads((path / "zarr.json").read_text(encoding="utf-8"))["attributes"]["config"]
    except (OSError, ValueError, KeyError, TypeError):
        config = None
    if not isinstance(config, dict):
        raise ConfigError(f"{path}: found a folder without a configuration, expected a TOML file or a model")
    for section, member in GONE:
        if isinstance(config.get(section), dict):
            config[section].pop(member, None)
    return Resolved(config | {"search": {"options": []}})  # its options are chosen already
