"""Target-encoded columns: texts as numbers that a fit has learned for them (Micci-Barreca 2001).

A store has a code of each text. A fit (fits/target_encoding.py) learns values for the codes and reads the rows as
`EncodedRows`, each with the values of its fold. A model reads them through `with_values_of_model`, with its values for
new rows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from streamsvm.data.folds import FOLDS_STREAM
from streamsvm.data.layout import Attrs, Layout
from streamsvm.data.rows import Rows
from streamsvm.data.samples import splitmix64
from streamsvm.data.store import Store, StoreView
from streamsvm.errors import DataError, ModelError
from streamsvm.parallel.sizes import SizedInBytes
from streamsvm.tables.schema import Feature, Schema, decode_categories

FOLDS = 5  # as in scikit-learn's TargetEncoder
WHOLE = FOLDS  # the fold of rows that no value is learned from


@dataclass(frozen=True)
class FoldAssignment(SizedInBytes):
    """The fold of each row. group_folds (n,): those of a store with groups, whose rows share one. held_out: rising ids
    of rows not learned from."""

    seed: int
    group_folds: np.ndarray | None
    held_out: np.ndarray

    @classmethod
    def of_store(cls, store: Store, seed: int, held_out: np.ndarray) -> FoldAssignment:
        """Raises DataError if all rows to learn from are of one group."""
        groups = store.connected_groups
        if groups is None:
            return cls(seed, None, held_out)
        order = np.random.default_rng([seed, FOLDS_STREAM]).permutation(int(groups.max()) + 1)
        if np.ptp(np.delete(groups, held_out)) == 0:
            raise DataError(
                f"{store.url or 'the data'} has all rows to learn from in one group, expected two or more with "
                "target-encoded columns: values of a group's texts are learned from the others"
            )
        return cls(seed, (order % FOLDS).astype(np.uint8)[groups], held_out)

    def of(self, ids: np.ndarray) -> np.ndarray:
        """(m,) 0 to 4, or WHOLE, of rows with these ids. Each FOLDS rows of a store have all folds."""
        if self.group_folds is not None:
            folds = self.group_folds[ids].astype(np.int64)
        else:
            folds = ((splitmix64(ids // FOLDS, self.seed) % FOLDS).astype(np.int64) + ids) % FOLDS
        return np.where(np.isin(ids, self.held_out), WHOLE, folds)


class EncodedRows(StoreView):
    """The rows of a store with values instead of codes, see `decode_categories`."""

    def __init__(
        self, store: Store, values: Mapping[int, np.ndarray], assignment: FoldAssignment | None = None
    ) -> None:
        super().__init__(store)
        self._values, self._assignment = values, assignment
        added = sum(column_values.shape[-1] - 1 for column_values in values.values())
        self.n, self.d, self.dtype, self.is_sparse = store.n, store.d + added, store.dtype, store.is_sparse
        self.chunk_rows = store.chunk_rows
        self.nbytes = store.nbytes + store.n * added * (store.dtype.itemsize + 4 * store.is_sparse)

    def read(self, start: int, stop: int) -> Rows:
        return self._valued(self.store.read(start, stop), np.arange(start, stop))

    def take(self, ids: np.ndarray) -> Rows:
        return self._valued(self.store.take(ids), ids)

    def _valued(self, rows: Rows, ids: np.ndarray) -> Rows:
        fold = None if self._assignment is None else self._assignment.of(ids)
        return Rows(decode_categories(rows.X, self._values, fold))


def encoded_features(attrs: Attrs | None) -> dict[int, Feature]:
    """The target-encoded features that attributes of a store or layout describe, by their column of codes."""
    columns = (attrs or {}).get("columns", ())
    if not any("target" in column for column in columns):
        return {}
    return Schema.from_attrs(dict(attrs or {})).coded


def codes_without_values(store: Store) -> dict[int, Feature]:
    """The target-encoded features of a store that have no values yet, by their column of codes."""
    return {column: feature for column, feature in encoded_features(store.table).items() if feature.values is None}


def with_values(
    store: Store,
    values: Mapping[int, np.ndarray],
    classes: tuple[str, ...],
    assignment: FoldAssignment | None = None,
) -> Store:
    """The store with values instead of codes: (categories + 1, outputs) of each column, or for an assignment
    (categories + 1, FOLDS + 1, outputs), of which the last ones are those of all folds."""
    rows = EncodedRows(store, values, assignment)
    if assignment is not None:
        values = {column: of_folds[:, -1] for column, of_folds in values.items()}
    schema = Schema.from_attrs(store.table)
    by_name = {schema.coded[column].name: column_values for column, column_values in values.items()}
    schema.features = [
        replace(f, values=by_name[f.name], classes=classes) if f.name in by_name else f for f in schema.features
    ]
    return store.in_columns(rows, {**store.table, "columns": schema.to_attrs()["columns"]})


def with_values_of_model(store: Store, layout: Layout | None) -> Store:
    """The rows of a store with the values that a model of this layout has for their texts. Raises ModelError."""
    texts = codes_without_values(store)
    if not texts:
        return store
    learned = {feature.name: feature for feature in encoded_features(None if layout is None else layout.attrs).values()}
    for feature in texts.values():
        if feature.name not in learned:
            raise ModelError(
                f"{store.url or 'X'}: column {feature.name!r} holds texts to target-encode, and the model has no "
                "values for them: it was trained on another encoding of the rows"
            )
    values = {}
    for column, feature in texts.items():  # the store may have numbered its texts otherwise
        known = learned[feature.name]
        assert known.values is not None  # of a model
        codes = known.codes([*feature.categories]).astype(np.int64)
        values[column] = known.values[np.append(codes - 1, -1)]
    classes = next(iter(learned.values())).classes
    return with_values(store, values, classes)
