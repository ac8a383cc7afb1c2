"""Sets of labels as text and as tables, and files that have them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_case import every_case
from hypothesis import given
from hypothesis import strategies as st

from streamsvm import Store
from streamsvm.data.labels import label_sets, set_texts, sort_labels
from streamsvm.errors import ConfigError, DataError
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions

NAMES = st.text("abc 17-", min_size=1).filter(lambda name: name == name.strip())


@given(st.lists(st.sets(NAMES), min_size=1))
def test_text_of_sets_and_back(sets):
    labels, table = label_sets(np.array([",".join(own) for own in sets]))
    assert set(labels.tolist()) == set().union(*sets)
    assert [set(labels[own].tolist()) for own in table] == sets
    again, same = label_sets(set_texts(table, labels), labels)
    np.testing.assert_array_equal(again, labels)
    np.testing.assert_array_equal(same, table)


def test_order_repeats_and_spaces_do_not_count():
    labels, table = label_sets(np.array(["3,1", " 1 ,3,1", "", "10"]))
    assert labels.tolist() == ["1", "3", "10"]
    np.testing.assert_array_equal(table, [[1, 1, 0], [1, 1, 0], [0, 0, 0], [0, 0, 1]])
    assert set_texts(table, labels).tolist() == ["1,3", "1,3", "", "10"]
    assert set_texts(table[:0], labels).tolist() == []


def test_whole_numbers_are_in_their_order_and_all_else_as_text():
    assert sort_labels({"10", "9", "-3"}).tolist() == ["-3", "9", "10"]
    assert sort_labels({"10", "9", "a"}).tolist() == ["10", "9", "a"]


def test_known_labels_come_first():
    labels, table = label_sets(np.array(["c,a", "d"]), np.array(["b", "a"]))
    assert labels.tolist() == ["b", "a", "c", "d"]
    np.testing.assert_array_equal(table, [[0, 1, 1, 0], [0, 0, 0, 1]])


@pytest.mark.parametrize("text", ["1,,3", ",1", "1,", " , "])
def test_a_label_without_a_name_is_one_line(text):
    with pytest.raises(DataError, match="found labels '.*', expected a name before and after each comma"):
        label_sets(np.array(["1", text]))


def labels_of(tmp_path: Path, name: str, text: str, **options: object) -> list[str]:
    (tmp_path / name).write_text(text)
    ingest([tmp_path / name], tmp_path / "s", IngestOptions(**options, force=True))
    return Store.open(str(tmp_path / "s")).y.tolist()


def test_svmlight_with_several_labels_or_none(tmp_path):
    text = "1,3 1:1 2:2\n 2:1.5\n# no row\n\n7 qid:1 1:1\n2:1 # none\nred,a\n"
    assert labels_of(tmp_path, "a.svm", text.replace("qid:1 ", ""), multilabel=True) == [*("1,3", "", "7", "", "red,a")]
    with pytest.raises(DataError, match="qid: is on some lines and not on others"):
        labels_of(tmp_path, "a.svm", text, multilabel=True)
    assert labels_of(tmp_path, "a.svm", "qid:1 1:1\n1,2 qid:1 1:2\n", multilabel=True) == ["", "1,2"]


@pytest.mark.parametrize(
    ("text", "options", "message"),
    [
        (
            "1,3 1:1\n",
            {},
            r"a.svm:1: expected a number as the label; found '1,3'; --multilabel takes several",
        ),
        ("1 1:1\n1,,3 1:1\n", {"multilabel": True}, "a.svm:2: expected a name before and .*; found '1,,3'"),
        ("1 1:1\n1 2\n", {"multilabel": True}, "a.svm:2: expected index:value; found '2'"),
    ],
)
def test_bad_svmlight(tmp_path, text, options, message):
    with pytest.raises(DataError, match=message):
        labels_of(tmp_path, "a.svm", text, **options)


COLUMNS = "x,a,b,c\n1,0,1,1\n2,0,0,0\n3,1,1,1\n"


def test_columns_of_0_and_1_become_the_names_of_those_that_are_1(tmp_path):
    assert labels_of(tmp_path, "t.csv", COLUMNS, label="a,b,c") == ["b,c", "", "a,b,c"]
    assert Store.open(str(tmp_path / "s")).feature_names == ("x",)
    ingest([tmp_path / "t.csv"], tmp_path / "again", IngestOptions(like=tmp_path / "s"))
    assert Store.open(str(tmp_path / "again")).y.tolist() == ["b,c", "", "a,b,c"]
    assert labels_of(tmp_path, "t.csv", COLUMNS, label="c,a") == ["c", "", "c,a"]
    table = pa.table({"x": [1.0, 2.0], "a": [True, False], "b": [1, 1]})
    pq.write_table(table, tmp_path / "t.parquet")
    ingest([tmp_path / "t.parquet"], tmp_path / "p", IngestOptions(label="a,b"))
    assert Store.open(str(tmp_path / "p")).y.tolist() == ["a,b", "b"]


def test_a_column_of_text(tmp_path):
    text = 'x,t\n1,"1,3"\n2,\n3,7\n'
    assert labels_of(tmp_path, "t.csv", text, label="t", multilabel=True) == ["1,3", "", "7"]
    assert labels_of(tmp_path, "t.csv", "x,t\n1,1\n2,\n", multilabel=True) == ["1", ""]
    with pytest.raises(DataError, match="t.csv:3: column 't' has no value; fill it in or remove the row"):
        labels_of(tmp_path, "t.csv", text, label="t")


@every_case(
    ("text", "options", "message"),
    [
        (
            COLUMNS,
            {"label": "a,x"},
            "t.csv:3: column 'x' is 2; expected 1 if the row has this label, else 0",
        ),
        (
            "x,a,b\n1,no,1\n",
            {"label": "a,b"},
            "t.csv: column 'a' holds text; expected 1 if the row has this label",
        ),
        ("x,a,b\n1,,1\n2,1,1\n", {"label": "a,b"}, "t.csv:2: column 'a' has no value"),
        (COLUMNS, {"label": "a,d"}, "t.csv has no column 'd' for the label; it has 'x', 'a', 'b', 'c'"),
        (COLUMNS, {"label": "a,"}, "t.csv has no column '' for the label"),
        (
            'x,t\n1,"a,"\n',
            {"multilabel": True},
            r"t.csv:2: the label \(column 't'\) is 'a,', expected a name before and after each comma",
        ),
    ],
)
def test_bad_tables(tmp_path, text, options, message):
    with pytest.raises(DataError, match=message):
        labels_of(tmp_path, "t.csv", text, **options)


def test_other_formats_have_no_place_for_them(tmp_path):
    np.save(tmp_path / "x.npy", np.ones((2, 2)))
    with pytest.raises(ConfigError, match="--multilabel is for svmlight files and tables; npy has none"):
        ingest([tmp_path / "x.npy"], tmp_path / "s", IngestOptions(multilabel=True))
