"""Patterns and folders stand for their files, in the order of their names; folders' names may be columns."""

from __future__ import annotations

import os
import re

import fsspec
import numpy as np
import pytest

from streamsvm.data.layout import Layout
from streamsvm.data.store import Store
from streamsvm.errors import ConfigError, DataError, NotFoundError, StorageError
from streamsvm.ingest.files import ingest
from streamsvm.ingest.inputs import MADE_OF, known_tables, store_of
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.paths import files_of

FILES = {
    "b.csv": (3, 4),
    "a.csv": (1, 2),
    "deep/c.csv": (5,),
    "deep/.d.csv": (9,),
    "_e.csv": (9,),
    "README": (),
}


def text_of(values):
    return "n,y\n" + "".join(f"{value},{value % 2}\n" for value in values)


@pytest.fixture(params=["local", "memory"])
def folder(request, tmp_path):
    """A folder of tables, which is a URL or on this machine."""
    if request.param == "local":
        for name, values in FILES.items():
            path = tmp_path / "data" / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text_of(values))
        yield str(tmp_path / "data")
        return
    fs = fsspec.filesystem("memory")
    fs.pipe({f"/data/{name}": text_of(values).encode() for name, values in FILES.items()})
    yield "memory://data"
    fs.rm("/data", recursive=True)


def rows(sources, place, **options):
    ingest(sources, place, IngestOptions(force=True, **options))
    store = Store.open(place)
    return store.read(0, store.n).dense(), store.feature_names


@pytest.mark.parametrize(
    ("source", "numbers"),
    [
        ("", [1, 2, 3, 4, 5]),
        ("/", [1, 2, 3, 4, 5]),
        ("/*.csv", [9, 1, 2, 3, 4]),
        ("/**/c*.csv", [5]),
        ("/deep", [5]),
    ],
)
def test_sources_are_the_files_that_they_stand_for(folder, tmp_path, source, numbers):
    found, _ = rows([folder + source], tmp_path / "s")
    assert found.ravel().tolist() == numbers


def test_sources_come_in_their_order(folder, tmp_path):
    found, _ = rows([f"{folder}/deep", f"{folder}/b*.csv", f"{folder}/a.csv"], tmp_path / "s")
    assert found.ravel().tolist() == [5, 3, 4, 1, 2]


@pytest.mark.parametrize(
    ("sources", "file"),
    [
        (("/a.csv", "/a.csv"), "/a.csv"),
        (("/*.csv", "/a*.csv"), "/a.csv"),
        (("/deep/c.csv", ""), "/deep/c.csv"),
    ],
)
def test_a_file_is_found_once(folder, sources, file, tmp_path):
    first, second = (folder + source for source in sources)
    message = f"{file} is found twice, by {first!r} and by {second!r}; expected each file once, leave one out"
    like = Layout(1, np.dtype(np.float32), False, {"columns": []})
    for read in (
        lambda sources: ingest(sources, tmp_path / "s"),
        lambda sources: store_of(sources, str(tmp_path / "s"), IngestOptions()),
        lambda sources: known_tables(sources, IngestOptions(), like),
    ):
        with pytest.raises(ConfigError, match=re.escape(message)):
            read([first, second])
    assert not (tmp_path / "s").exists()


def test_links_and_recursive_patterns_find_a_file_once(tmp_path):
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "a.csv").write_text(text_of([1, 2]))
    assert len(files_of([f"{tmp_path}/**/**/*.csv"])) == 1
    (tmp_path / "b.csv").symlink_to("deep/a.csv")
    with pytest.raises(ConfigError, match=r"deep/a\.csv, which is .*/b\.csv, is found twice"):
        files_of([str(tmp_path)])


@pytest.mark.parametrize("source", ["/*.parquet", "/none*/*", "/x/**"])
def test_nothing_is_one_line(folder, source, tmp_path):
    with pytest.raises(NotFoundError, match="no file matches; expected at least one") as error:
        rows([folder + source], tmp_path / "s")
    assert str(error.value).startswith(folder + source)


def test_a_name_with_marks_is_a_file(tmp_path):
    (tmp_path / "a[1].csv").write_text(text_of([1, 2]))
    (tmp_path / "a1.csv").write_text(text_of([1]))
    assert len(rows([tmp_path / "a[1].csv"], tmp_path / "s")[0]) == 2
    assert len(rows([tmp_path / "a[0-9].csv"], tmp_path / "s")[0]) == 1


def test_files_of_different_columns(tmp_path):
    (tmp_path / "a.csv").write_text("n,y\n1,0\n")
    (tmp_path / "b.csv").write_text("n,m,y\n1,2,0\n")
    with pytest.raises(DataError, match=r"b\.csv has an unexpected column 'm'; all sources must have the same"):
        rows([tmp_path / "*.csv"], tmp_path / "s")
    (tmp_path / "b.csv").write_text("m,y\n1,0\n")
    with pytest.raises(DataError, match=r"b\.csv lacks column 'n'; expected 'n'"):
        rows([tmp_path / "*.csv"], tmp_path / "s")
    (tmp_path / "b.svm").write_text("1 1:1\n")
    with pytest.raises(ConfigError, match="different formats"):
        rows([tmp_path], tmp_path / "s")


class TestFolders:
    """What folders' names say."""

    def put(self, root, *folders):
        for i, folder in enumerate(folders):
            (root / folder).mkdir(parents=True)
            (root / folder / "part.csv").write_text(text_of([i]))
        return str(root)

    def test_numbers_and_text_are_columns(self, tmp_path):
        root = self.put(tmp_path / "t", "year=2023/at=a%20b", "year=2024/at=5", "year=__HIVE_DEFAULT_PARTITION__/at=5")
        found, names = rows([root], tmp_path / "s")
        assert names == ("year", "at=a b", "at=5", "n")
        np.testing.assert_array_equal(found, [[2023, 1, 0, 0], [2024, 0, 1, 1], [np.nan, 0, 1, 2]])

    def test_one_folder_of_them_has_the_same_columns(self, tmp_path):
        root = self.put(tmp_path / "t", "year=2023", "year=2024")
        rows([root], tmp_path / "train")
        for source in (f"{root}/year=2024", f"{root}/year=2024/*.csv"):
            found, _ = rows([source], tmp_path / "s", like=str(tmp_path / "train"))
            assert found.tolist() == [[2024, 1]]

    def test_a_file_by_its_name_is_what_is_in_it(self, tmp_path):
        root = self.put(tmp_path / "t", "year=2023")
        assert files_of([f"{root}/year=2023/part.csv"])[0].parts == {}

    def test_what_a_file_has_itself_is_not_said_by_its_folder(self, tmp_path):
        root = self.put(tmp_path / "t", "n=7")
        assert rows([root], tmp_path / "s")[0].tolist() == [[0]]

    def test_labels_may_be_folders(self, tmp_path):
        root = self.put(tmp_path / "t", "kind=cat", "kind=dog")
        rows([root], tmp_path / "s", label="kind")
        assert Store.open(tmp_path / "s").y.tolist() == ["cat", "dog"]

    def test_text_in_place_of_a_number(self, tmp_path):
        root = self.put(tmp_path / "t", "year=2023")
        rows([root], tmp_path / "train")
        (tmp_path / "t/year=2023").rename(tmp_path / "t/year=old")
        with pytest.raises(DataError, match="year=old.*'old'"):
            rows([root], tmp_path / "s", like=str(tmp_path / "train"))


class TestStoreBeside:
    @pytest.mark.parametrize("source", ["data", "data/*.csv", "data/**/*.csv"])
    def test_is_used_again_until_a_file_is_added_or_changed(self, tmp_path, source, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "data").mkdir()
        (tmp_path / "data/a.csv").write_text(text_of([1, 2]))

        def made():
            url, was_there = store_of([source], None, IngestOptions())
            assert url == "data.zarr"
            return Store.open(url).n, was_there

        assert made() == (2, False)
        assert made() == (2, True)
        (tmp_path / "data/b.csv").write_text(text_of([3]))
        assert made() == (3, False)
        (tmp_path / "data/a.csv").write_text(text_of([1]))
        assert made() == (2, False)
        assert made() == (2, True)
        (tmp_path / "data/b.csv").rename(tmp_path / "data/c.csv")
        assert made() == (2, False)
        with pytest.raises(StorageError, match="was not made from"):
            store_of(["data/a.csv"], "data.zarr", IngestOptions())

    def test_made_by_an_earlier_version_is_made_again(self, tmp_path):
        """It kept the names of files alone."""
        (tmp_path / "a.csv").write_text(text_of([1, 2]))
        made_of = {"files": [["a.csv", 0, 0]], "options": {}}
        ingest([tmp_path / "a.csv"], tmp_path / "a.zarr", attrs={MADE_OF: made_of})
        assert store_of([str(tmp_path / "a.csv")], None, IngestOptions()) == (str(tmp_path / "a.zarr"), False)
        assert store_of([str(tmp_path / "a.csv")], None, IngestOptions()) == (str(tmp_path / "a.zarr"), True)

    @pytest.mark.parametrize("source", ["*.csv", "memory://data/*.csv", ".."])
    def test_has_no_place(self, tmp_path, source, monkeypatch):
        (tmp_path / "in").mkdir()
        (tmp_path / "in/a.csv").write_text(text_of([1]))
        monkeypatch.chdir(tmp_path / "in")
        with pytest.raises(
            ConfigError, match="found no folder name for the store of its rows; give a path with --store"
        ):
            store_of([source], None, IngestOptions())
        assert os.listdir() == ["a.csv"]
