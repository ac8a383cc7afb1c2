"""The demo: deforms scikit-learn's digits into many training digits, and tests on digits kept apart."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from streamsvm.config import DCSVMConfig, FitConfig, KernelConfig
from streamsvm.data.rows import Rows
from streamsvm.data.store import Store
from streamsvm.data.writer import StoreWriter
from streamsvm.events import Events, heard, ignore
from streamsvm.storage.paths import require_place

SIDE = 8  # pixels
BLOCK_ROWS = 8192
CONFIG = FitConfig(C=10.0, kernel=KernelConfig(gamma="scale"), dcsvm=DCSVMConfig(early=True))


@dataclass(frozen=True)
class Digits:
    """images (n, 64) uint8 and labels (n,)."""

    images: np.ndarray
    labels: np.ndarray


def load_digits(seed: int = 0, test_fraction: float = 0.2) -> tuple[Digits, Digits]:
    """scikit-learn's 1,797 digits of 8 x 8 pixels, split at random into training and test digits."""
    from sklearn.datasets import load_digits

    images, labels = load_digits(return_X_y=True)
    images = np.rint(images * (255 / 16)).astype(np.uint8)
    order = np.random.default_rng(seed).permutation(len(labels))
    n_test = int(test_fraction * len(labels))
    test, train = order[:n_test], order[n_test:]
    return Digits(images[train], labels[train]), Digits(images[test], labels[test])


def expand(digits: Digits, rows: int, seed: int = 0) -> Iterator[Digits]:
    """`rows` deformed copies of random digits, in blocks. A block depends only on the seed and its number."""
    for number, start in enumerate(range(0, rows, BLOCK_ROWS)):
        rng = np.random.default_rng([seed, number])
        chosen = rng.integers(len(digits.labels), size=min(BLOCK_ROWS, rows - start))
        yield Digits(deform(digits.images[chosen], rng), digits.labels[chosen])


def deform(images: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Images (m, 64) uint8, each rotated, shifted by about a pixel at most, and bent smoothly."""
    m = len(images)
    at = np.arange(SIDE) - (SIDE - 1) / 2
    angle = rng.normal(0, 0.08, (m, 1, 1))  # radians
    shift = rng.normal(0, 0.3, (2, m, 1, 1))  # pixels
    bend = rng.normal(0, 0.25, (2, m, 3, 3)) @ _hats().T
    bend = np.swapaxes(np.swapaxes(bend, 2, 3) @ _hats().T, 2, 3)
    y, x = at[:, None], at[None, :]
    rows = np.cos(angle) * y - np.sin(angle) * x + shift[0] + bend[0]
    columns = np.sin(angle) * y + np.cos(angle) * x + shift[1] + bend[1]
    return _bilinear(images.reshape(m, SIDE, SIDE), rows + (SIDE - 1) / 2, columns + (SIDE - 1) / 2).reshape(m, -1)


def _hats() -> np.ndarray:
    """(8, 3) linear interpolation from three knots across a side to its pixels."""
    at = np.linspace(0, 2, SIDE)[:, None]
    return np.maximum(0, 1 - np.abs(at - np.arange(3)))


def _bilinear(images: np.ndarray, rows: np.ndarray, columns: np.ndarray) -> np.ndarray:
    """Images (m, s, s) sampled at fractional rows and columns (m, s, s); black outside."""
    framed = np.pad(images, ((0, 0), (1, 1), (1, 1)))
    rows, columns = (np.clip(at + 1, 0, SIDE + 1 - 1e-6) for at in (rows, columns))
    i, j = rows.astype(np.intp), columns.astype(np.intp)
    u, v = rows - i, columns - j
    k = np.arange(len(images))[:, None, None]
    top = framed[k, i, j] * (1 - v) + framed[k, i, j + 1] * v
    bottom = framed[k, i + 1, j] * (1 - v) + framed[k, i + 1, j + 1] * v
    return np.rint(top * (1 - u) + bottom * u).astype(np.uint8)


def write_stores(folder: Path, rows: int, seed: int = 0, events: Events = ignore) -> tuple[Store, Store]:
    """Writes the stores `train.zarr`, of `rows` deformed digits, and `test.zarr`, of original ones, into `folder`."""
    train, test = load_digits(seed)
    done = 0
    with StoreWriter(folder / "train.zarr", d=SIDE * SIDE, dtype=np.uint8, overwrite=True) as writer:
        for block in expand(train, rows, seed):
            writer.append(Rows(block.images), block.labels)
            done += len(block.labels)
            events.progress("digits", done, rows)
    with StoreWriter(folder / "test.zarr", d=SIDE * SIDE, dtype=np.uint8, overwrite=True) as writer:
        writer.append(Rows(test.images), test.labels)
    return Store.open(folder / "train.zarr"), Store.open(folder / "test.zarr")


def run_demo(folder: Path, rows: int, events: Events = heard, *, force: bool = False) -> dict[str, Any]:
    """Makes the stores, trains and scores. Returns `rows`, `test_rows`, `accuracy`, and the reports of `fit` and
    `evaluate`.

    Raises StorageError if `folder` has stores or a model with these names, unless `force`.
    """
    from streamsvm.models.files import load_model
    from streamsvm.parallel.engine import Engine
    from streamsvm.predict import evaluate
    from streamsvm.train import train

    for name, kind in (("train", "a store"), ("test", "a store"), ("model", "a model")):
        require_place("--dir", folder / f"{name}.zarr", kind, force=force)
    train_store, test_store = write_stores(folder, rows, events=events)
    report = train(train_store, CONFIG, model_path=folder / "model.zarr", events=events)
    scores = evaluate(load_model(folder / "model.zarr"), test_store, engine=Engine(), events=events)
    return {
        "rows": train_store.n,
        "test_rows": test_store.n,
        "accuracy": scores["accuracy"],
        "fit": report,
        "evaluate": scores,
    }
