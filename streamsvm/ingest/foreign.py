"""Formats of files that ingest does not read, known by their first bytes or names, and what to do with each."""

from __future__ import annotations

import re
from pathlib import PurePosixPath

_PANDAS = "write it as CSV or parquet, for example by pandas.{0}(...).to_parquet(...)"
_UNPACK = "unpack it, and give the files inside"
EXCEL = "an Excel workbook", "save the sheet as CSV, or write it by pandas.read_excel(...).to_parquet(...)"
SHEETS = "an OpenDocument table", "save the sheet as CSV"
ZIP = "a zip archive", _UNPACK
HDF5 = (
    "HDF5",
    "write .h5ad by anndata.read_h5ad(...).write_zarr(...) and give that as --store, other files as npy or parquet",
)
JSON = ("JSON", f"{_PANDAS.format('read_json')}; `streamsvm stream` learns from JSON lines")
ARFF = "ARFF", "write it as CSV or parquet, for example by pandas.DataFrame(scipy.io.arff.loadarff(...)[0])"
PICKLE = "a pickle, which is never loaded because it runs code", "write it as npy, CSV or parquet"
XML = "XML or HTML", "write its table as CSV"
STATA, SPSS = ("a Stata file", _PANDAS.format("read_stata")), ("an SPSS file", _PANDAS.format("read_spss"))
ORC, AVRO = ("ORC", _PANDAS.format("read_orc")), ("Avro", "write it as parquet")
SAS, MATLAB = ("a SAS file", _PANDAS.format("read_sas")), ("a MATLAB file", "write its array as npy")
FEATHER = "Feather of version 1", "write it again as Feather of version 2 or parquet"
R_DATA = "data of R", "write it as CSV or parquet, for example by arrow::write_parquet"
TAR, ZSTANDARD, SEVEN = ("a tar archive", _UNPACK), ("Zstandard", "unpack it by `zstd -d`"), ("7z", _UNPACK)
PDF, RTF = (("a PDF document", "write its table as CSV"), ("an RTF document", "save its table as plain text, CSV"))
NETCDF = ("NetCDF", "write it as zarr, for example by xarray.open_dataset(...).to_zarr(...), and give that as --store")
FITS = ("FITS", "write its table as parquet, for example by astropy.table.Table.read(...).to_pandas().to_parquet(...)")
IMAGE = "an image", "write the pixels of all images as one array, npy or zarr, with a row for each"
RAR, PACKED = (("a rar archive", _UNPACK), ("a packed file of another kind than gzip, bzip2 and xz", "unpack it"))

_BINARY = (  # first bytes of formats that no text file begins with
    (re.compile(rb"\x89HDF\r\n\x1a\n"), HDF5),
    (re.compile(rb"\xd0\xcf\x11\xe0"), EXCEL),
    (re.compile(rb"PK(\x03\x04|\x05\x06)"), ZIP),
    (re.compile(rb"\x80[\x02-\x05]"), PICKLE),
    (re.compile(rb"ORC[\x00-\x1f]"), ORC),
    (re.compile(rb"Obj\x01"), AVRO),
    (re.compile(rb"FEA1"), FEATHER),
    (re.compile(rb"RD[XA][23]\n|X\n\x00\x00"), R_DATA),
    (re.compile(rb"\x28\xb5\x2f\xfd"), ZSTANDARD),
    (re.compile(rb"7z\xbc\xaf\x27\x1c"), SEVEN),
    (re.compile(rb"%PDF-"), PDF),
    (re.compile(rb"MATLAB 5\.0"), MATLAB),
    (re.compile(rb"\$FL[23]"), SPSS),
    (re.compile(rb"\0{12}\xc2\xea\x81\x60"), SAS),
    (re.compile(rb"CDF[\x01\x02\x05]"), NETCDF),
    (re.compile(rb"SIMPLE  ="), FITS),
    (re.compile(rb"\x89PNG\r\n|\xff\xd8\xff|GIF8|II\*\0|MM\0\*"), IMAGE),
    (re.compile(rb"Rar!\x1a\x07"), RAR),
    (re.compile(rb"\x1f\x9d|\x04\x22\x4d\x18"), PACKED),
    (re.compile(rb".{257}ustar", re.DOTALL), TAR),
)
_TEXT = (
    (re.compile(rb"\s*<stata_dta>"), STATA),
    (re.compile(rb"\s*<"), XML),
    (re.compile(rb"\{\\rtf"), RTF),
    (re.compile(rb"\s*(\{|\[\s*[\[{\"\]])"), JSON),
    (re.compile(rb"(\s*%[^\n]*\n)*\s*@relation", re.IGNORECASE), ARFF),
)
_SUFFIXES = {
    **dict.fromkeys((".xlsx", ".xlsm", ".xls", ".xlsb"), EXCEL),
    **dict.fromkeys((".h5", ".h5ad", ".hdf5", ".hdf", ".loom"), HDF5),
    **dict.fromkeys((".json", ".jsonl", ".ndjson"), JSON),
    **dict.fromkeys((".pkl", ".pickle", ".joblib"), PICKLE),
    **dict.fromkeys((".rds", ".rda", ".rdata"), R_DATA),
    **dict.fromkeys((".sas7bdat", ".xpt"), SAS),
    **dict.fromkeys((".html", ".xml"), XML),
    **dict.fromkeys((".tar", ".tgz"), TAR),
    ".zip": ZIP,
    ".ods": SHEETS,
    ".arff": ARFF,
    ".orc": ORC,
    ".avro": AVRO,
    ".dta": STATA,
    ".sav": SPSS,
    ".mat": MATLAB,
    ".zst": ZSTANDARD,
    ".7z": SEVEN,
    ".pdf": PDF,
    ".rtf": RTF,
    ".rar": RAR,
    **dict.fromkeys((".nc", ".nc4"), NETCDF),
    **dict.fromkeys((".z", ".lz4", ".sz", ".br"), PACKED),
    **dict.fromkeys((".png", ".jpg", ".jpeg", ".gif", ".tif", ".tiff"), IMAGE),
}


def binary_of(path: str, head: bytes) -> str | None:
    """A message that names the binary format of a file with these first bytes, if ingest does not read it, and the
    remedy."""
    kind = next((what for pattern, what in _BINARY if pattern.match(head)), None)
    if kind is ZIP:
        kind = _in_zip(head, _SUFFIXES.get(PurePosixPath(path).suffix.lower(), ZIP))
    return kind and _message(*kind)


def foreign_of(path: str, head: bytes) -> str | None:
    """A message that names the format of a file that ingest does not read, by its first bytes or name, and the
    remedy."""
    by_name = _SUFFIXES.get(PurePosixPath(path).suffix.lower())
    by_text = next((what for pattern, what in _TEXT if pattern.match(head)), by_name)
    return binary_of(path, head) or (by_text and _message(*by_text))


def _in_zip(head: bytes, by_name: tuple[str, str]) -> tuple[str, str]:
    """The format of a zip archive by the name of its first file: many formats are zip archives."""
    name = head[30 : 30 + int.from_bytes(head[26:28], "little")]
    if name.startswith((b"[Content_Types]", b"xl/", b"_rels/", b"docProps/")):
        return EXCEL
    return SHEETS if name == b"mimetype" else by_name


def _message(what: str, remedy: str) -> str:
    return f"found {what}, which ingest does not read; {remedy}"
