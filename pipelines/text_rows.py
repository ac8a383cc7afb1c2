"""A generated store of the shape of text: wide, sparse, unit rows, two classes. It is not real text.

    python pipelines/text_rows.py OUT.zarr [--rows 804414] [--seed 0] [--unequal]

By default it has the shape of RCV1: 804,414 rows of 47,236 features, about 0.16 % of them not 0. Words come by Zipf's
law and are weighted by log counts and inverse frequency; labels are the sign of a linear function of 1,000 words, plus
noise (about 5 % of them are on the wrong side). Block i of 10,000 rows is a function of (seed, i) alone, so that a
smaller store is the beginning of a larger one. With --unequal, rows are not of length 1 but lognormal(2.5, 1).
"""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

import numpy as np
from scipy import sparse

from streamsvm.data.rows import Rows
from streamsvm.data.writer import StoreWriter
from streamsvm.parallel.prefetch import ahead

ROWS, FEATURES, WORDS = 804_414, 47_236, 66
BLOCK_ROWS = 10_000
SHARPNESS = 12.0  # of the labels: spread of the true function over that of the noise


@dataclass(frozen=True)
class Text:
    seed: int = 0
    features: int = FEATURES
    is_unequal: bool = False

    @cached_property
    def frequency(self) -> np.ndarray:
        """(features,) chance of each word to be the next one."""
        p = 1.0 / (np.arange(self.features) + 30.0) ** 1.05
        return p / p.sum()

    @cached_property
    def truth(self) -> np.ndarray:
        """(features,) weights of the true function: 1,000 words, frequent ones rather than rare ones."""
        rng = np.random.default_rng([self.seed, 0])
        share = self.frequency**0.7
        w = np.zeros(self.features)
        w[rng.choice(self.features, 1000, replace=False, p=share / share.sum())] = rng.normal(size=1000)
        return w

    @cached_property
    def scale(self) -> tuple[float, float]:
        """Middle and spread of the true function, over the first block."""
        f = self.rows(0) @ self.truth
        return float(np.median(f)), float(f.std())

    def counts(self, block: int) -> sparse.csr_array:
        """(BLOCK_ROWS, features) how often each word is in each row."""
        rng = np.random.default_rng([self.seed, 1, block])
        lengths = np.clip(rng.lognormal(np.log(WORDS), 0.6, BLOCK_ROWS).astype(np.int64), 3, 800)
        indptr = np.append(0, np.cumsum(lengths))
        words = np.searchsorted(np.cumsum(self.frequency), rng.random(indptr[-1])).clip(0, self.features - 1)
        X = sparse.csr_array((np.ones(len(words)), words, indptr), shape=(BLOCK_ROWS, self.features))
        X.sum_duplicates()
        return X

    def rows(self, block: int) -> sparse.csr_array:
        """(BLOCK_ROWS, features) float32, rows of length 1."""
        return self.weighted(self.counts(block))

    def weighted(self, X: sparse.csr_array) -> sparse.csr_array:
        """Counts of words as rows of length 1, in place."""
        rarity = -np.log(np.minimum(self.frequency * WORDS, 0.9))
        X.data = (1 + np.log(X.data)) * rarity[X.indices]
        lengths = np.sqrt(np.add.reduceat(X.data**2, X.indptr[:-1]))
        X.data = (X.data / np.repeat(lengths, np.diff(X.indptr))).astype(np.float32)
        return X

    def block(self, block: int) -> tuple[sparse.csr_array, np.ndarray]:
        """Rows and labels, -1 or +1."""
        X, (middle, spread) = self.rows(block), self.scale
        noise = np.random.default_rng([self.seed, 2, block]).logistic(size=BLOCK_ROWS) / SHARPNESS
        y = np.where((X @ self.truth - middle) / spread + noise > 0, 1, -1)
        if self.is_unequal:
            lengths = np.random.default_rng([self.seed, 3, block]).lognormal(2.5, 1.0, BLOCK_ROWS)
            X.data *= np.repeat(lengths, np.diff(X.indptr)).astype(np.float32)
        return X, y


def write(out: Path, rows: int = ROWS, seed: int = 0, *, is_unequal: bool = False) -> None:
    text = Text(seed, is_unequal=is_unequal)
    text.scale  # noqa: B018 (made before the threads want it)
    attrs = {"generated": "pipelines/text_rows.py, not real text", "seed": seed}
    with StoreWriter(out, d=FEATURES, dtype=np.float32, is_sparse=True, attrs=attrs, overwrite=True) as store:
        blocks = range(-(-rows // BLOCK_ROWS))
        for X, y in ahead(partial(Text.block, text), blocks, threads=2):
            n = min(BLOCK_ROWS, rows - store.n)
            store.append(Rows(X[:n]), y[:n])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path, metavar="OUT.zarr")
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--unequal", action="store_true")
    args = parser.parse_args()
    write(args.out, args.rows, args.seed, is_unequal=args.unequal)


if __name__ == "__main__":
    main()
