"""Names of columns: from files and stores of others into stores."""

from __future__ import annotations

import pickle

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import zarr
from every_case import every_case
from making import samples, write
from pairwise import pairwise

from streamsvm.data.layout import listed
from streamsvm.data.store import Store
from streamsvm.errors import CorruptDataError, DataError, ModelError
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.models.columns import NamedColumns

TABLE = "size,colour,n\u00e4me,y\n1,red,5,a\n2,blue,6,b\n3,red,7,a\n4,blue,8,b\n"
NAMES = ("size", "colour=red", "colour=blue", "n\u00e4me")


def load(folder, text: str, name: str = "a.csv", **options: object) -> Store:
    (folder / name).write_text(text, encoding="utf-8")
    ingest([folder / name], folder / f"{name}.store", IngestOptions(**options))  # type: ignore[arg-type]
    return Store.open(folder / f"{name}.store")


def test_a_header_names_columns_and_the_values_of_text(tmp_path):
    store = load(tmp_path, TABLE)
    assert store.feature_names == NAMES
    assert store.subset(np.array([1, 3])).feature_names == NAMES
    assert pickle.loads(pickle.dumps(store)).feature_names == NAMES
    assert load(tmp_path, "\ufeff" + TABLE, "bom.csv").feature_names == NAMES
    assert load(tmp_path, TABLE.replace(",", "\t"), "a.tsv").feature_names == NAMES


def test_parquet_names_columns(tmp_path):
    table = pa.table({"b": [1.0, 2.0], "a": [3, 4], "y": ["up", "down"]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    ingest([tmp_path / "a.parquet"], tmp_path / "s")
    assert Store.open(tmp_path / "s").feature_names == ("b", "a")
    twice = pa.Table.from_arrays([pa.array([1.0, 2.0])] * 3, names=["a", "a", "y"])
    pa.parquet.write_table(twice, tmp_path / "twice.parquet")
    with pytest.raises(DataError, match="two columns named 'a'"):
        ingest([tmp_path / "twice.parquet"], tmp_path / "t")


def test_both_stores_of_a_split_have_the_names_and_codes_of_all_rows(tmp_path):
    train = load(tmp_path, TABLE, split=0.5, test_store=str(tmp_path / "test"))
    test = Store.open(tmp_path / "test")
    assert test.feature_names == train.feature_names
    assert set(test.feature_names) == set(NAMES)
    assert test.attrs["columns"] == train.attrs["columns"]


def test_like_puts_columns_and_texts_into_their_order(tmp_path):
    load(tmp_path, TABLE)
    other = "y,colour,n\u00e4me,size\nb,blue,6,2\na,green,5,1\n"
    store = load(tmp_path, other, "b.csv", like=str(tmp_path / "a.csv.store"))
    assert store.feature_names == NAMES
    np.testing.assert_array_equal(store.read(0, 2).X, [[2, 0, 1, 6], [1, 0, 0, 5]])


def test_what_has_no_names(tmp_path):
    assert load(tmp_path, "+1 1:2 2:3\n-1 1:1\n", "a.svm").feature_names is None
    assert load(tmp_path, "1,2,a\n3,4,b\n", "bare.csv", header=False).feature_names is None
    assert write(tmp_path / "s", samples(9, 3)).feature_names is None
    assert Store.from_arrays(np.ones((2, 2))).feature_names is None


def foreign(folder, *, index: str = "gene", nullable: bool = False, layout: str = "X", csr: bool = False) -> Store:
    """A store as anndata writes it."""
    group, X = zarr.create_group(folder), np.arange(6, dtype=np.float32).reshape(2, 3) + 1
    if csr:
        place = group.create_group(layout)
        whole = {"data": X.ravel(), "indices": np.tile(np.arange(3), 2), "indptr": np.array([0, 3, 6])}
        for name, values in whole.items():
            place.create_array(name, data=values)
        place.attrs.update({"encoding-type": "csr_matrix", "encoding-version": "0.1.0", "shape": [2, 3]})
    else:
        group.create_array(layout, data=X)
    var = group.require_group("raw/var" if layout.startswith("raw") else "var")
    var.attrs["_index"] = index
    names, place = np.array(["TP53", "MYC", "ACTB"], dtype=np.dtypes.StringDType()), var
    if nullable:
        place, index = var.create_group(index), "values"
    place.create_array(index, data=names)
    return Store.open(folder, x=layout)


@pytest.mark.parametrize(
    ("layout", "nullable", "csr"), pairwise(["X", "layers/counts", "raw/X"], [False, True], [False, True])
)
def test_anndata_names_columns_by_var(tmp_path, layout, nullable, csr):
    store = foreign(tmp_path / "s", layout=layout, nullable=nullable, csr=csr)
    assert store.feature_names == ("TP53", "MYC", "ACTB")
    assert pickle.loads(pickle.dumps(store)).feature_names == store.feature_names


def test_names_of_other_columns_are_none(tmp_path):
    assert foreign(tmp_path / "a", layout="obsm/pca").feature_names is None
    group = zarr.create_group(tmp_path / "b")
    group.create_array("X", data=np.ones((2, 3)))
    group.create_group("var").attrs["_index"] = "nowhere"
    assert Store.open(tmp_path / "b").feature_names is None


@every_case(
    "columns",
    [None, 5, "ab", [1, 2], [{}], [{"name": "a", "categories": 3}], [{"name": "a", "hash": "x"}], {"a": 1}],
)
def test_damaged_names_are_one_clear_error(tmp_path, columns):
    with pytest.raises(CorruptDataError, match="damaged metadata"):
        _ = write(tmp_path / "s", samples(9, 3), attrs={"columns": columns}).feature_names


def test_names_of_fewer_columns_are_none(tmp_path):
    assert write(tmp_path / "s", samples(9, 3), attrs={"columns": [{"name": "a"}]}).feature_names is None
    many = {"columns": [{"name": "a", "hash": 10**12}]}
    assert write(tmp_path / "t", samples(9, 3), attrs=many).feature_names is None


@every_case("found", [None, 5, "", [1, 2], {"a": 1}])
def test_attributes_that_mean_something_else_to_others_are_no_names(tmp_path, found):
    group = zarr.create_group(tmp_path / "s")
    array = group.create_array("X", data=np.ones((2, 3)))
    array.attrs["_ARRAY_DIMENSIONS"] = found
    group.create_group("var").attrs["_index"] = found
    assert Store.open(tmp_path / "s").feature_names is None


@pytest.mark.parametrize("zarr_format", [2, 3])
@pytest.mark.parametrize(("names", "expected"), [(["b", "a", "long"], ("b", "a", "long")), ([3, 1, 2], None)])
def test_xarray_names_columns_by_a_coordinate_of_text(tmp_path, names, expected, zarr_format):
    xr = pytest.importorskip("xarray")
    bands = np.array(names, dtype=object if expected else int)
    data = xr.Dataset({"v": (("row", "band"), np.ones((4, 3)))}, coords={"band": bands})
    data.to_zarr(tmp_path / "s", zarr_format=zarr_format, write_empty_chunks=True, consolidated=False)
    assert Store.open(tmp_path / "s", x="v").feature_names == expected


class Model(NamedColumns):
    def __init__(self, names, d: int, by_name: bool = False) -> None:
        self.names, self._d, self.by_name = names, d, by_name

    @property
    def d(self):
        return self._d

    @property
    def feature_names(self):
        return self.names


def rows(*names: str, d: int = 0) -> Store:
    return Store.from_arrays(np.ones((1, d or len(names))), feature_names=names or None)


@every_case(
    ("found", "expected"),
    [
        (rows("b", "a"), r"X: column 0: found 'b', expected 'a' \(the same columns in another order\)"),
        (rows("a", "c"), "X: column 1: found 'c', expected 'b'; give it"),
        (rows("a"), "X has 1 columns, the model was trained on 2: column 1: found none, expected 'b'"),
        (
            rows("a", "b", "c"),
            "X has 3 columns, the model was trained on 2: column 2: found 'c', expected none",
        ),
        (rows(d=3), "X has 3 columns, the model was trained on 2"),
    ],
)
def test_the_first_difference_is_named(found, expected):
    with pytest.raises(ModelError, match=expected):
        Model(("a", "b"), 2).columns_in(found)


def test_names_on_one_side_cannot_be_compared():
    assert Model(("a", "b"), 2).columns_in(rows("a", "b")) == (None, None)
    assert Model(None, 2).columns_in(rows("a", "b")) == (None, None)
    columns, message = Model(("a", "b"), 2).columns_in(rows(d=2))
    assert columns is None
    assert message == "X has no column names; assuming the model's: 'a', 'b'"


class TestByName:
    """As of streams, whose models may have room for features to come."""

    def test_in_any_order(self):
        columns, message = Model(("c", "a", "b"), 4, by_name=True).columns_in(rows("a", "b", "c"))
        assert (columns.tolist(), message) == ([2, 0, 1], None)
        np.testing.assert_array_equal(
            Store.from_arrays(np.array([[1.0, 2.0, 3.0]])).read(0, 1).arranged(columns, 4).X, [[3, 1, 2, 0]]
        )
        assert Model(("c", "a"), 2, by_name=True).columns_in(rows("c", "a")) == (None, None)

    def test_features_that_are_numbers_are_those_columns(self):
        names = tuple(sorted(map(str, range(12))))
        columns, message = Model(names, 12, by_name=True).columns_in(rows(d=12))
        assert (columns.tolist(), message) == ([int(name) for name in names], None)

    def test_without_names_in_the_order_of_appearance_and_told(self):
        columns, message = Model(("c", "a"), 4, by_name=True).columns_in(rows(d=2))
        assert columns.tolist() == [0, 1]
        assert "assuming the model's: 'c', 'a'" in message

    @pytest.mark.parametrize(
        ("found", "expected"),
        [
            (rows("a", "b"), "X has no column 'c'"),
            (rows("a", "b", "c", "d"), "X: column 3 is 'd', not a feature"),
            (rows("a", "b", "c", "a"), "X: column 0 is 'a', twice"),
            (rows(d=2), "X has 2 columns, the model was trained on 3"),
        ],
    )
    def test_others_are_refused(self, found, expected):
        with pytest.raises(ModelError, match=expected):
            Model(("c", "a", "b"), 4, by_name=True).columns_in(found)


def test_long_lists_are_cut():
    assert listed(["a", "b"]) == "'a', 'b'"
    assert listed([*"abcdefg"], 3) == "'a', 'b', 'c' and 4 more"
    assert listed([*"abc"], 3, of=1003) == "'a', 'b', 'c' and 1,000 more"


def test_a_model_says_how_many_columns_it_takes():
    with pytest.raises(TypeError, match="abstract"):
        NamedColumns()
