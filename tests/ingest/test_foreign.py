"""Files of formats that ingest does not read: one line that names the format and what to do."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import subprocess
import zipfile

import numpy as np
import pytest
from every_case import every_case

from streamsvm.errors import DataError
from streamsvm.ingest.files import ingest
from streamsvm.ingest.options import IngestOptions
from streamsvm.ingest.streams import detect_format


def zipped(name: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr(name, "a,y\n1,2\n")
    return out.getvalue()


FILES = {  # contents, and what is said
    "a.xlsx": (b"PK\x03\x04junk", "an Excel workbook"),
    "workbook": (zipped("xl/workbook.xml"), "an Excel workbook"),
    "old.xls": (b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "an Excel workbook"),
    "named.csv": (zipped("[Content_Types].xml"), "an Excel workbook"),
    "a.csv.zip": (zipped("a.csv"), "a zip archive, .*unpack it"),
    "a.ods": (zipped("mimetype"), "an OpenDocument table"),
    "cells.h5ad": (b"\x89HDF\r\n\x1a\n", "HDF5, .*write_zarr"),
    "a.json": (b'[{"a":1}]', "JSON, .*pandas.read_json"),
    "lines": (b'{"a": 1, "y": 2}\n', "JSON, .*JSON lines"),
    "a.arff": (b"% Iris\n@RELATION iris\n", "ARFF, .*loadarff"),
    "data.arff.gz": (gzip.compress(b"@relation r\n"), "ARFF"),
    "old.feather1": (b"FEA1\0\0", "Feather of version 1"),
    "model.pkl": (pickle.dumps([1]), "a pickle, which is never loaded"),
    "a.dta": (b"\x72\x01", "a Stata file"),
    "page": (b"<!doctype html>", "XML or HTML"),
    "climate": (b"CDF\x01\0", "NetCDF, .*to_zarr"),
    "sky": (b"SIMPLE  =                    T", "FITS"),
    "photo": (b"\x89PNG\r\n\x1a\n", "an image"),
    "a.csv.Z": (b"\x1f\x9d\x90", "a packed file of another kind than gzip"),
    "a.rtf": (b"{\\rtf1 a}", "an RTF document"),
    "sas": (b"\0" * 12 + b"\xc2\xea\x81\x60", "a SAS file"),
    "a.csv.zst": (b"\x28\xb5\x2f\xfd\0", "Zstandard"),
}


@every_case("name", FILES)
def test_the_format_is_named(tmp_path, name):
    content, message = FILES[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(DataError, match=f"{name}: found {message}") as error:
        ingest([tmp_path / name], tmp_path / "s")
    assert "\n" not in str(error.value)
    assert not (tmp_path / "s").exists()


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_a_pipe_is_one_line(tmp_path):
    os.mkfifo(tmp_path / "p")
    with subprocess.Popen(["sh", "-c", f"echo a,y > {tmp_path / 'p'}"]):
        with pytest.raises(DataError, match="p: found a pipe, which is read once only; give its rows as stdin"):
            ingest([tmp_path / "p"], tmp_path / "s", IngestOptions(format="csv"))


def test_arrays_need_no_name(tmp_path):
    with (tmp_path / "arrays").open("wb") as file:
        np.savez(file, X=np.ones((2, 2)), y=[0, 1])
    assert detect_format(str(tmp_path / "arrays")) == "npz"
