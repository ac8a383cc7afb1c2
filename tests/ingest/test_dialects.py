"""What becomes of tables as people have them: the right rows, or one line that says what is wrong."""

from __future__ import annotations

import datetime as dt
import gzip
from functools import partial

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from every_case import every_case

from streamsvm.cli.app import app, exit_status
from streamsvm.data.store import Store
from streamsvm.errors import DataError
from streamsvm.events import Events
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions

ROWS = [("red", 0.5, "no"), ("blue", -1.25, "yes")] * 20
PLAIN = "colour,size,y\n" + "".join(f"{c},{s},{y}\n" for c, s, y in ROWS)
SEMICOLONS = PLAIN.replace(",", ";")
GOOD = {
    "as it should be": PLAIN,
    "byte order mark": "\ufeff" + PLAIN,
    "lines of Windows": PLAIN.replace("\n", "\r\n"),
    "no end of line": PLAIN[:-1],
    "semicolons": SEMICOLONS,
    "decimal commas": SEMICOLONS.replace(".", ","),
    "tabs": PLAIN.replace(",", "\t"),
    "bars": PLAIN.replace(",", "|"),
    "numbers as text": PLAIN.replace("0.5", '"0.5"').replace("-1.25", '"-1.25"'),
    "numbers with spaces": PLAIN.replace("0.5", " 0.5"),
    "numbers with powers": PLAIN.replace("0.5", "5e-1"),
    "empty lines": PLAIN.replace("no\n", "no\n\n"),
    "packed": gzip.compress(PLAIN.encode()),
}
BAD = {
    "nothing": ("", "is empty; expected names of columns, and rows"),
    "blank": ("\n\n", "is empty; expected names of columns, and rows"),
    "names alone": ("colour,size,y\n", "has no samples; expected at least one"),
    "names twice": ("a,a,y\n1,2,0\n", "has two columns named 'a'; expected different names"),
    "one column": ("y\n1\n2\n", "has no feature columns besides 'y'; expected at least one"),
    "infinity": (PLAIN + "red,inf,no\n", ":42: column 'size' is inf; expected a finite number"),
    "too large": (PLAIN + "red,1e400,no\n", ":42: column 'size' is inf; expected a finite number"),
    "too short": (PLAIN + "red,1\n", ":42: CSV parse error: Expected 3 columns, got 2: red,1"),
    "too long": (PLAIN + "red,1,no,7\n", ":42: CSV parse error: Expected 3 columns, got 4: red,1,no,7"),
    "no label": (
        PLAIN + "red,1,\n",
        ":42: the label (column 'y') is missing; every row needs one: fill it in",
    ),
    "cut off": (gzip.compress(PLAIN.encode())[:-9], "is damaged or cut off: Compressed file ended before"),
    "UTF-16": (
        PLAIN.encode("utf-16"),
        "found UTF-16, expected UTF-8; convert it with `iconv -f UTF-16 -t UTF-8`",
    ),
    "UTF-16 without a mark": (
        PLAIN.encode("utf-16-le"),
        "found UTF-16LE, expected UTF-8; convert it with `iconv -f UTF-16LE -t UTF-8`",
    ),
    "UTF-32": (PLAIN.encode("utf-32"), "found UTF-32, expected UTF-8; convert it with `iconv -f UTF-32 -t"),
    "open quote": (
        PLAIN.replace("5,no\n", '5,"no\n', 1),
        ":2: nothing closes the quote before 'no', so that 39 more lines would be part of this value",
    ),
    "open quote, no end of line": (
        PLAIN[:-1].replace("-1.25,yes", '-1.25,"yes', 1),
        ":3: nothing closes the",
    ),
    "Latin-1": (
        PLAIN.replace("red", "café").encode("latin-1"),
        "try `iconv -f LATIN1 -t UTF-8`",
    ),
    "Latin-1 in names": (
        PLAIN.replace("colour", "café").encode("latin-1"),
        ":1: found the byte b'\\xe9', which is",
    ),
}


EURO = "a;b;y\n" + "0,5;1.299;no\n1,25;700;yes\n"
DIALECTS = {  # contents, options, names and rows
    "separator line of Excel": ("sep=;\na;b;y\n1;2;no\n3;4;yes\n", {}, "ab", [[1, 2], [3, 4]]),
    "runs of spaces": ('a   b  y\n 1   2 "n  o" \n3  44\tyes\n', {}, "ab", [[1, 2], [3, 44]]),
    "one space, given": ("a b  y\n1   2 no\n3 4 yes\n", {"delimiter": " "}, "ab", [[1, 2], [3, 4]]),
    "trailing delimiters": ("a,b,y\n1,2,no,\n3,4,yes,\n", {}, "ab", [[1, 2], [3, 4]]),
    "two of them": ("a;b;y\n1;2;no;;\n3;4;yes;;\n", {}, "ab", [[1, 2], [3, 4]]),
    "row names of R": ('"a" "b" "y"\n"1" 1 2 "no"\n"2" 3 4 "yes"\n', {}, "ab", [[1, 2], [3, 4]]),
    "lines before the names": (
        "Report\n\na,b,y\n1,2,no\n3,4,yes\n",
        {"skip_rows": 2},
        "ab",
        [[1, 2], [3, 4]],
    ),
    "comments": (
        "# of 2026\na,b,y\n1,2,no\n# late, one\n3,4,yes\n",
        {"comment": "#"},
        "ab",
        [[1, 2], [3, 4]],
    ),
    "missing values": ("a,b,y\n1,?,no\n-,4,yes\n", {"missing": "?,-"}, "ab", [[1, np.nan], [np.nan, 4]]),
    "decimal commas and thousands": (EURO, {}, "ab", [[0.5, 1299], [1.25, 700]]),
    "marks of their own": ("a;b;y\n0,5;0.25;no\n1,5;1.5;yes\n", {}, "ab", [[0.5, 0.25], [1.5, 1.5]]),
    "decimal commas, quoted": (
        'a,b,y\n"0,5","1 000,5",no\n"1,5",2,yes\n',
        {},
        "ab",
        [[0.5, 1000.5], [1.5, 2]],
    ),
    "thousands, given": (
        'a,b,y\n"1,299.5",1,no\n700,2,yes\n',
        {"thousands": ","},
        "ab",
        [[1299.5, 1], [700, 2]],
    ),
    "apostrophes": ("a;b;y\n1'299.5;1;no\n700;2;yes\n", {"thousands": "'"}, "ab", [[1299.5, 1], [700, 2]]),
    "decimal mark, given": ("a;b;y\n1,299;1;no\n700;2;yes\n", {"decimal": ","}, "ab", [[1.299, 1], [700, 2]]),
    "commas in names": (
        "A (C, x);B (%, x);y\n0,5;1,5;no\n1,5;2;yes\n",
        {},
        ("A (C, x)", "B (%, x)"),
        [[0.5, 1.5], [1.5, 2]],
    ),
    "no names, trailing": (
        "1,2,no,\n3,4,yes,\n",
        {"header": False},
        ("f0", "f1"),
        [[1, 2], [3, 4]],
    ),
}


def put(folder, content):
    path = folder / ("a.csv.gz" if content[:2] == b"\x1f\x8b" else "a.csv")
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def load(folder, content, events=None, **options):
    path = content if hasattr(content, "exists") else put(folder, content)
    ingest([path], folder / "s", IngestOptions(force=True, **options), events or Events())
    return Store.open(folder / "s")


def whole(store):
    return store.read(0, store.n).dense()


@every_case("name", GOOD)
def test_the_same_rows(tmp_path, name):
    store = load(tmp_path, GOOD[name])
    assert store.feature_names == ("colour=red", "colour=blue", "size")
    np.testing.assert_array_equal(whole(store), [[1, 0, 0.5], [0, 1, -1.25]] * 20)
    assert store.labels(0, 2).tolist() == ["no", "yes"]


@every_case("name", BAD)
def test_one_line(tmp_path, name, capsys):
    content, message = BAD[name]
    path = put(tmp_path, content)
    command = ["ingest", str(path), "--store", str(tmp_path / "s")]
    assert exit_status(lambda: app(command, standalone_mode=False)) == 2
    error = capsys.readouterr().err.strip()
    assert error.startswith(f"error: {path}")
    assert message in error
    assert "\n" not in error
    assert not (tmp_path / "s").exists()
    with pytest.raises(DataError):
        load(tmp_path, path)


@every_case("name", DIALECTS)
def test_dialects(tmp_path, name):
    content, options, names, rows = DIALECTS[name]
    store = load(tmp_path, content, **options)
    assert store.feature_names == (tuple(names) if options.get("header", True) else None)
    np.testing.assert_array_equal(whole(store), np.float32(rows))
    assert store.labels(0, 2).tolist()[1] == "yes"


@pytest.mark.parametrize("end", ['"x\ny"\n', '"x\n"', '"x\n"\n\n'])
def test_a_last_value_may_have_lines(tmp_path, end):
    assert len(load(tmp_path, f"a,y\n1,no\n2,{end}")) == 2


def test_an_open_quote_in_a_label_ends_predictions(tmp_path):
    layout = load(tmp_path, PLAIN).layout
    path = put(tmp_path, PLAIN.replace("5,no\n", '5,"no\n', 1))
    with pytest.raises(DataError, match="nothing closes the quote before 'no'"):
        ingest([path], tmp_path / "t", IngestOptions(label="none"), like=layout)


def told_of(folder, content, **options):
    messages = []
    store = load(
        folder,
        content,
        Events(lambda record: messages.append(getattr(record.event, "message", ""))),
        **options,
    )
    return store, "".join(messages)


def test_thousands_that_are_guessed_are_told(tmp_path):
    assert "column 'b' has '.' between thousands, as in '1.299'" in told_of(tmp_path, EURO)[1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("Report\na,b,y\n1,2,x\n3,4,y\n", r":1: found 1 column, and 3 .* add --skip-rows 1$"),
        ("Report\nof 2026\n\na,b,y\n1,2,x\n3,4,y\n", r"add --skip-rows 2$"),
    ],
)
def test_a_title_is_named(tmp_path, content, message):
    with pytest.raises(DataError, match=message):
        load(tmp_path, content)


LATE = {  # what comes after the first MiB, of a column of numbers: its last value, names and last row
    "text": ("SW1A", 10, ("a=0", "a=SW1A"), 1),
    "decimal comma": ('"1,5"', 200_000, ("a",), 1.5),
    "hexadecimal": ("0x1F", 10, ("a=0", "a=0x1F"), 1),
    "fraction": ("0.5", 200_000, ("a",), 0.5),
}


@pytest.mark.parametrize("name", LATE)
def test_types_follow_from_all_rows(tmp_path, name):
    value, distinct, names, last = LATE[name]
    content = "a,b,y\n" + "".join(f"{i % distinct},{i},no\n" for i in range(120_000)) + f"{value},0,yes\n"
    store, messages = told_of(tmp_path, content)
    assert {*names} <= {*store.feature_names}
    assert store.read(120_000, 120_001).dense()[0, store.feature_names.index(names[-1])] == last
    assert ("a.csv:120002: column 'a': expected a number, found" in messages) == (name != "fraction")
    assert ("""--missing '"1,5"' reads it as a missing value""" in messages) == (name == "decimal comma")


def test_a_late_marker_of_missing_values_has_a_remedy(tmp_path):
    content = "a,b,y\n" + "".join(f"{i},{i},no\n" for i in range(120_000)) + "?,0,yes\n"
    with pytest.raises(DataError, match=r"--missing '\?' reads the others as numbers, --hash a=1024"):
        load(tmp_path, content)
    assert np.isnan(load(tmp_path, content, missing="?").read(120_000, 120_001).dense()[0, 0])


def test_quotes_may_come_late(tmp_path):
    rows = [f"{i},no\n" for i in range(150_000)] + [f'{i},"no\n5,yes"\n' for i in range(300_000)]
    store = load(tmp_path, "a,y\n" + "".join(rows))
    assert store.n == 450_000
    assert store.classes.values.tolist() == ["no", "no\n5,yes"]


def test_codes_are_categories_of_numbers_and_text_is_as_written(tmp_path):
    content = "a,b,y\n7,1,no\n007,2,yes\n7.0,3,no\n"
    assert load(tmp_path, content, category="a").feature_names == ("a=7", "b")
    (tmp_path / "new.csv").write_text("a,b\n07,1\n8,1\n")
    ingest([tmp_path / "new.csv"], tmp_path / "new", IngestOptions(like=str(tmp_path / "s")))
    np.testing.assert_array_equal(whole(Store.open(tmp_path / "new"))[:, 0], [1, 0])
    assert load(tmp_path, content, text="a").feature_names == ("a=7", "a=007", "a=7.0", "b")
    assert load(tmp_path, content, text="a", hash="a=4").d == 5
    with pytest.raises(DataError, match="has no column 'c' to read as text; it has 'a', 'b', 'y'"):
        load(tmp_path, content, category="c")


def test_a_file_like_another_is_read_alike(tmp_path):
    """Marks that one file shows are those of the next one, whose numbers alone do not show them."""
    load(tmp_path, EURO)
    (tmp_path / "new.csv").write_text("a;b\n1;1.299\n")
    ingest([tmp_path / "new.csv"], tmp_path / "new", IngestOptions(like=str(tmp_path / "s")))
    np.testing.assert_array_equal(whole(Store.open(tmp_path / "new")), [[1, 1299]])
    (tmp_path / "new.csv").write_text("a,b\n0.5,0.25\n")
    ingest([tmp_path / "new.csv"], tmp_path / "new", IngestOptions(like=str(tmp_path / "s"), force=True))
    np.testing.assert_array_equal(whole(Store.open(tmp_path / "new")), [[0.5, 0.25]])


def test_markers_and_marks_that_were_given_once_are_those_of_the_next_file(tmp_path):
    load(tmp_path, "1,2;5;red;0\n?;1;blue;1\n", delimiter=";", decimal=",", missing="?", header=False)
    (tmp_path / "new.csv").write_text("2,500;?;?;1\n")
    like = {"like": str(tmp_path / "s"), "force": True}
    ingest([tmp_path / "new.csv"], tmp_path / "new", IngestOptions(**like))
    np.testing.assert_array_equal(whole(Store.open(tmp_path / "new")), [[2.5, np.nan, 0, 0]])
    ingest([tmp_path / "new.csv"], tmp_path / "new", IngestOptions(decimal=".", thousands=",", **like))
    np.testing.assert_array_equal(whole(Store.open(tmp_path / "new")), [[2500, np.nan, 0, 0]])


def test_a_model_of_text_files_predicts_tables_of_other_formats(tmp_path, capsys):
    """Whose options nobody gave: how CSV is written says nothing of Parquet."""
    load(tmp_path, "a,b,y\n1,red,0\n?,blue,1\n3,red,0\n4,blue,1\n", missing="?")
    pq.write_table(pa.table({"a": [1.0, None], "b": ["red", "?"]}), tmp_path / "new.parquet")
    run = partial(app, standalone_mode=False)
    run(["fit", "--store", str(tmp_path / "s"), "--model", str(tmp_path / "m"), "--gaps", "mean", "--no-search"])
    capsys.readouterr()
    run(["predict", "--model", str(tmp_path / "m"), str(tmp_path / "new.parquet")])
    assert capsys.readouterr().out == "label\n0\n1\n"


def test_one_row_is_a_store_and_no_model(tmp_path, capsys):
    store = load(tmp_path, "colour,size,y\nred,-0,no\n")
    np.testing.assert_array_equal(whole(store), [[1, 0]])
    command = ["fit", "--store", str(tmp_path / "s"), "--model", str(tmp_path / "m")]
    assert exit_status(lambda: app(command, standalone_mode=False)) == 2
    assert capsys.readouterr().err.strip() == f"error: {tmp_path / 's'} has one class only (no); expected at least two"
    assert not (tmp_path / "m").exists()


def test_lines_inside_values(tmp_path):
    store = load(tmp_path, 'note,size,y\n"a\nb",1,0\n"c, d",2,1\n')
    assert store.feature_names == ("note=a\nb", "note=c, d", "size")
    long = "note,size,y\n" + '"a\nb",1,0\n"c",2,1\n' * 400_000
    assert load(tmp_path, long, memory_limit=64 << 20).n == 800_000  # a value across two blocks


def test_true_and_false_are_1_and_0_and_may_be_missing(tmp_path):
    store = load(tmp_path, "flag,size,y\ntrue,1,0\nFALSE,2,1\n,3,1\n")
    assert store.attrs["columns"][0] == {"name": "flag", "kind": "bool"}
    np.testing.assert_array_equal(whole(store), [[1, 1], [0, 2], [np.nan, 3]])
    (tmp_path / "b.csv").write_text("size,flag\n1,1\n2,0\n")
    ingest([tmp_path / "b.csv"], tmp_path / "b", IngestOptions(like=str(tmp_path / "s")))
    np.testing.assert_array_equal(whole(Store.open(tmp_path / "b")), [[1, 1], [0, 2]])


def test_labels_that_are_true_or_false_are_text(tmp_path):
    assert load(tmp_path, "a,y\n1,true\n2,false\n").classes.values.tolist() == ["false", "true"]


@pytest.mark.parametrize("suffix", ["csv", "parquet"])
def test_times_are_days_since_1970(tmp_path, suffix):
    path = tmp_path / f"a.{suffix}"
    times = np.array(["1970-01-02T12:00", "1969-12-31", "NaT"], "datetime64[s]")
    if suffix == "csv":
        path.write_text("when,y\n1970-01-02 12:00:00,0\n1969-12-31 00:00:00,1\n,1\n")
    else:
        pq.write_table(pa.table({"when": times, "y": [0, 1, 1]}), path)
    store = load(tmp_path, path)
    assert store.attrs["columns"] == [{"name": "when", "kind": "time"}]
    np.testing.assert_array_equal(whole(store), [[1.5], [-1], [np.nan]])
    np.testing.assert_array_equal(load(tmp_path, "day,y\n1970-01-03,0\n1970-02-01,1\n").read(0, 2).X, [[2], [31]])


NOON = dt.datetime(2026, 1, 31, 12)
WITH_ZONES = {  # how they are away from UTC
    "2026-01-31 12:00:00": 0,
    "2026-01-31T12:00:00Z": 0,
    "2026-01-31 12:00:00 UTC": 0,
    "2026-01-31 12:00z": 0,
    "2026-01-31 12:00:00+02": 120,
    "2026-01-31 12:00:00-0530": -330,
    "2026-01-31T12:00:00+05:45": 345,
    "2026-01-31 12:00:00.25+13:00": 780,
    "": 0,
}


@pytest.mark.parametrize("order", [1, -1])
def test_zones_in_one_column_are_those_of_parquet(tmp_path, order):
    texts = [*WITH_ZONES][::order]
    (tmp_path / "a.csv").write_text("when,y\n" + "".join(f"{text},{i % 2}\n" for i, text in enumerate(texts)))
    parts = [dt.timedelta(milliseconds=250 * (".25" in text)) for text in texts]
    times = [
        NOON + part - dt.timedelta(minutes=WITH_ZONES[text]) if text else None
        for text, part in zip(texts, parts, strict=True)
    ]
    written = {"when": pa.array(times, pa.timestamp("us", "UTC")), "y": [i % 2 for i in range(len(texts))]}
    pq.write_table(pa.table(written), tmp_path / "a.parquet")
    of_csv, of_parquet = (whole(load(tmp_path, tmp_path / f"a.{suffix}")) for suffix in ("csv", "parquet"))
    assert of_csv.dtype == np.float64
    np.testing.assert_array_equal(of_csv, of_parquet)


@pytest.mark.parametrize("zone", ["", "Z", "-0530"])
def test_fractions_of_any_length_are_those_of_parquet(tmp_path, zone):
    """Cut after microseconds, as those of parquet in nanoseconds are."""
    digits = ["123456789"[:length] for length in range(1, 10)]
    rows = [f"2026-01-31 12:00:00.{own}{zone},{i % 2}\n" for i, own in enumerate(digits)]
    (tmp_path / "a.csv").write_text("when,y\n" + "".join(rows))
    noon = np.datetime64("2026-01-31T12:00:00", "ns") + np.timedelta64(330 * (zone == "-0530"), "m")
    times = noon + np.array([int(own.ljust(9, "0")) for own in digits], "m8[ns]")
    pq.write_table(pa.table({"when": times, "y": [i % 2 for i in range(9)]}), tmp_path / "a.parquet")
    of_csv, of_parquet = (whole(load(tmp_path, tmp_path / f"a.{suffix}")) for suffix in ("csv", "parquet"))
    assert len(np.unique(of_csv)) == 6
    np.testing.assert_array_equal(of_csv, of_parquet)


def test_labels_and_queries_keep_all_digits(tmp_path):
    store = load(tmp_path, "a,q,y\n1,16777217,0.1\n2,16777219,0.7\n", qid="q")
    assert store.qid.tolist() == [16777217, 16777219]
    assert store.labels(0, 2).tolist() == [0.1, 0.7]


def test_a_delimiter_that_the_first_line_does_not_tell(tmp_path):
    store = load(tmp_path, "a,b;c,d;y\n1;2;0\n", delimiter=";")
    assert store.feature_names == ("a,b", "c,d")


def test_a_text_that_comes_late_is_one_of_all(tmp_path):
    """Rows are written as they are read until a text comes that the first block did not have."""
    rows = [f"{'ab'[i % 2]},{i},0" for i in range(200_000)]
    first, last = (["c,0,0", *rows], [*rows, "c,0,0"])
    early, late = (whole(load(tmp_path, "\n".join(["text,n,y", *own]) + "\n")) for own in (first, last))
    np.testing.assert_array_equal(late[-1], [0, 0, 1, 0])
    np.testing.assert_array_equal(late[:-1], early[1:][:, [1, 2, 0, 3]])


@every_case(
    ("text", "remark"),
    [
        (
            "id,a,y\n" + "".join(f"r{i},{i},0\n" for i in range(50)),
            "column 'id' has 50 different texts in 50 rows, as names do: each became a column of 0 and 1; --hash "
            "id=1024 makes 1024 columns of them, --min-frequency 10 one column of those in fewer than 10 rows, "
            "--ignore id none",
        ),
        (
            "a,b,y\n" + "".join(f'{i},"1,{100 + i}",0\n' for i in range(50)),
            "column 'b' has numbers such as '1,100', which are read as text: each of 50 texts became a column of 0 "
            "and 1; --decimal and --thousands say how they are written, or --text b takes them as categories",
        ),
        (
            "a,b,y\n0,n.a.,0\n" + "".join(f"{i},{i},0\n" for i in range(50)),
            "column 'b' has numbers, but for text such as 'n.a.'",
        ),
        (
            "a,b,y\n" + "".join(f"{i},{1 + i % 28}.{1 + i % 12}.2026 {i % 24}:00,0\n" for i in range(50)),
            "column 'b' has dates such as '1.1.2026 0:00', which are read as text: each of 50 became a column of 0 "
            "and 1; write them as in 2026-01-31 12:00, or leave the column out",
        ),
        (
            "a,b,y\n" + "".join(f"{i},1.2.{i},0\n" for i in range(50)),
            "different texts in 50 rows",
        ),  # versions
        ("a,b,y\n1,1%,0\n2,2.5 %,1\n", "column 'b' has percentages such as '1%', which are read as text"),
        ("a,b,y\n1,$1.50,0\n2,$2,1\n", "column 'b' has amounts such as '$1.50', which are read as text"),
        ("a,b,y\n1,5 kg,0\n2,7 kg,1\n", "column 'b' has amounts such as '5 kg', which are read as text"),
        (
            "a,b,y\n1,12:30,0\n2,7:15,1\n",
            "column 'b' has times of day such as '12:30', which are read as text",
        ),
        *(
            (
                "a,b,y\n" + "".join(f"{i},{text},0\n" for i, text in enumerate(texts)),
                f"column 'b' has dates such as '{texts[0]}', which are read as text",
            )
            for texts in (
                [f"2024-0{month}" for month in range(1, 9)],
                [f"2024-W{week}" for week in range(10, 19)],
                [f"{month} 2024" for month in ("Jan", "Feb", "March", "Apr", "May", "June")],
                [f"{day}-Oct-24" for day in range(10, 19)],
            )
        ),
        ("a,b,y\n1,(5),0\n2,7.5,1\n3,(1),1\n", "column 'b' has negative numbers such as '(5)', which are"),
        (
            "a,b,y\n1,\u22125,0\n2,7,1\n",
            "column 'b' has negative numbers such as '\u22125', which are read as text",
        ),
        (
            "a,b,y\n" + "".join(f"{i},{f'({i})' if i % 9 == 0 else i},0\n" for i in range(50)),
            "column 'b' has negative numbers such as '(0)', which are read as text",
        ),
        ("a,b,y\n1,1_000,0\n2,1D+3,1\n", "column 'b' has numbers of other programs such as '1_000', which"),
        (
            "a,b,y\n1,0x1F,0\n2,0x20,1\n",
            "column 'b' has hexadecimal numbers such as '0x1F', which are read as text",
        ),
    ],
)
def test_texts_that_are_hardly_categories_are_told(tmp_path, text, remark):
    messages = []
    load(tmp_path, text, Events(lambda record: messages.append(getattr(record.event, "message", ""))))
    assert remark in "".join(messages)


@pytest.mark.parametrize("labels", [["0x1F", "0x20"], ["0XA", "-0xb"]])
def test_hexadecimal_labels_are_told(tmp_path, labels):
    message = f"label column 'y' has hexadecimal numbers such as '{labels[0]}', which are read as text: each is a class"
    store, remarks = told_of(tmp_path, "a,y\n" + "".join(f"{i},{text}\n" for i, text in enumerate(labels)))
    assert message in remarks
    assert store.classes.values.tolist() == sorted(labels)
    pq.write_table(pa.table({"a": [1.0, 2.0], "y": labels}), tmp_path / "b.parquet")
    assert message in told_of(tmp_path, tmp_path / "b.parquet")[1]
    for others in (["0x1F", "20"], ["x1", "x2"], ["1", "2"]):
        content = "a,y\n" + "".join(f"{i},{text}\n" for i, text in enumerate(others))
        assert "hexadecimal" not in told_of(tmp_path, content)[1]


def test_a_first_row_that_is_no_header_is_told(tmp_path):
    with pytest.raises(DataError, match="has two columns named 'no'; .* or --no-header if line 1 is a row"):
        load(tmp_path, "5,no,yes,no\n4,yes,no,yes\n")
    heard = []
    (tmp_path / "a.csv").write_text("5,red,yes\n4,blue,no\n")
    ingest([tmp_path / "a.csv"], tmp_path / "t", IngestOptions(), Events(heard.append))
    assert any("line 1 names the columns '5'" in str(one.event) for one in heard)
    heard.clear()
    (tmp_path / "a.csv").write_text("2019,2020,y\n4,7,no\n")
    ingest([tmp_path / "a.csv"], tmp_path / "u", IngestOptions(), Events(heard.append))
    assert not any("line 1" in str(one.event) for one in heard)


def test_columns_without_names_are_shown_by_their_number_and_text(tmp_path):
    from streamsvm.config import build_config
    from streamsvm.events import ignore
    from streamsvm.explain.importances import column_names
    from streamsvm.tables.checks import namer
    from streamsvm.train import train_in_memory

    text = "".join(f"{label},{i},{colour},{i % 3}\n" for i, (colour, _, label) in enumerate(ROWS))
    store = load(tmp_path, text, header=False, label="first")
    expected = ("1", "2=red", "2=blue", "3")
    assert store.feature_names is None
    assert store.shown_names == expected
    assert namer(store)(1) == "2=red"
    model, _ = train_in_memory(store, build_config(("x", {"kernel": {"gamma": 1.0}})), ignore)
    assert column_names(model) == expected
