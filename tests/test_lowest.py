"""tests/lowest.txt holds the lowest versions that pyproject.toml allows: `.ci/run` tries them, too.

`python tests/test_lowest.py` prints what it should hold.
"""

from __future__ import annotations

import sys
import tomllib
from pathlib import Path

from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
TOOLS = {"bench", "dev", "docs", "libsvm", "recipes", "test"}  # extras that are not for use


def lowest() -> str:
    """One `name==version` a line, of the package and its extras for use. Raises ValueError where a bound lacks."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"].items()
    wanted = [*project["dependencies"], *(one for name, more in extras if name not in TOOLS for one in more)]
    found = {bound(Requirement(text)) for text in wanted if Requirement(text).name != project["name"]}
    return "".join(f"{line}\n" for line in sorted(found))


def bound(requirement: Requirement) -> str:
    versions = [spec.version for spec in requirement.specifier if spec.operator in (">=", "==", "~=")]
    if len(versions) != 1:
        raise ValueError(f"pyproject.toml: found {requirement}, expected one lower bound, as in name>=1.2")
    return f"{requirement.name}=={versions[0]}"


def test_the_file_holds_what_pyproject_allows():
    file = ROOT / "tests" / "lowest.txt"
    assert file.read_text(encoding="utf-8") == lowest(), f"write what `python {Path(__file__).name}` prints into it"


if __name__ == "__main__":
    sys.stdout.write(lowest())
