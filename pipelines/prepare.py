"""What the recipes need of a store: its rows as plain arrays, or a larger or smaller store made from it; and events.

python prepare.py arrays STORE OUT.npz CONFIG.toml [--rows N] [--like STORE]
python prepare.py copies STORE OUT --rows N
python prepare.py events DIR OUT --rows N
"""

from __future__ import annotations

import argparse
import bz2
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from sklearn.datasets import load_svmlight_file

from streamsvm import Store
from streamsvm.config import load_config
from streamsvm.data.labels import encode
from streamsvm.data.rows import Rows
from streamsvm.data.statistics import merge, moments_of
from streamsvm.data.writer import StoreWriter

NOISE = 1e-3  # standard deviation over a feature's range


def arrays(args: argparse.Namespace) -> None:
    """Writes the first rows as X, scaled and float32 (uint8 where raw bytes), and y in -1, +1."""
    store, config = Store.open(args.store), load_config(args.config)
    n = min(args.rows or store.n, store.n)
    X, y = store.read(0, n).dense(), store.y[:n]
    if config.scale == "minmax":
        X = _minmax(X, Store.open(args.like or args.store))
    positive = encode(y, np.array([0, 1]), config.positive) == 1 if config.positive else y == y.max()
    np.savez(args.out, X=X, y=np.where(positive, 1, -1))


def _minmax(X: np.ndarray, store: Store) -> np.ndarray:
    found = store.statistics
    assert found is not None, "ingest keeps statistics"
    span = found["max"] - found["min"]
    return ((X - found["min"]) / np.where(span > 0, span, 1)).astype(np.float32)


def copies(args: argparse.Namespace) -> None:
    """Writes N rows: the store once, then again and again with noise on its features of more than two values."""
    store = Store.open(args.store)
    found = store.statistics
    assert found is not None, "ingest keeps statistics"
    spread = np.where(found["max"] - found["min"] > 1, NOISE * (found["max"] - found["min"]), 0)
    y, blocks = store.y, store.blocks()
    with StoreWriter(args.out, d=store.d, dtype=store.dtype, attrs={"copies_of": Path(args.store).name}) as out:
        while out.n < args.rows:
            number, (start, stop) = out.n // store.n, blocks[_block(blocks, out.n % store.n)]
            X = store.read(start, min(stop, start + args.rows - out.n)).dense()
            if number > 0:
                rng = np.random.default_rng([number, start])
                X = (X + spread * rng.standard_normal(X.shape, np.float32)).astype(store.dtype)
            moments = moments_of(Rows(X))
            out.statistics = merge(out.statistics, moments) if out.statistics else moments
            out.append(Rows(X), y[start : start + len(X)])


def _block(blocks: list[tuple[int, int]], row: int) -> int:
    return next(i for i, (start, stop) in enumerate(blocks) if start <= row < stop)


def events(args: argparse.Namespace) -> None:
    """Writes the rows of ijcnn1.bz2 and ijcnn1.t.bz2 as events of a stream, shuffled again each time round."""
    rows, labels = [], []
    for name in ("ijcnn1.bz2", "ijcnn1.t.bz2"):
        with bz2.open(Path(args.folder) / name) as file:
            X, y = load_svmlight_file(file, n_features=22)
        rows.append(X.toarray())
        labels.append(y > 0)
    X, y = np.concatenate(rows), np.concatenate(labels)
    names = [f"x{j}" for j in range(X.shape[1])]
    with Path(args.out).open("w", encoding="utf-8") as out:
        for i in _order(len(X), args.rows):
            event = {"x": dict(zip(names, X[i].tolist(), strict=True)), "y": bool(y[i])}
            out.write(json.dumps(event) + "\n")


def _order(rows: int, n: int) -> Iterator[int]:
    for start in range(0, n, rows):
        yield from np.random.default_rng(start).permutation(rows)[: n - start].tolist()


def main(words: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("arrays")
    one.add_argument("store")
    one.add_argument("out")
    one.add_argument("config")
    one.add_argument("--rows", type=int)
    one.add_argument("--like")
    one.set_defaults(run=arrays)
    other = commands.add_parser("copies")
    other.add_argument("store")
    other.add_argument("out")
    other.add_argument("--rows", type=int, required=True)
    other.set_defaults(run=copies)
    third = commands.add_parser("events")
    third.add_argument("folder")
    third.add_argument("out")
    third.add_argument("--rows", type=int, required=True)
    third.set_defaults(run=events)
    args = parser.parse_args(words)
    args.run(args)


if __name__ == "__main__":
    main()
