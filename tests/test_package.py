"""What goes with the package: metadata, addresses, files for GitHub, conda and citations, licences of what it needs."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from email import message_from_string
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

import pytest
import yaml
from every_case import every_case
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from streamsvm import __version__

ROOT = Path(__file__).resolve().parents[1]
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PROJECT = PYPROJECT["project"]
HOOK = PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]
CONDA_NAMES = {"dask": "dask-core", "matplotlib": "matplotlib-base"}  # those without what else they bring
TOOLS = {
    "bench",
    "deploy",
    "dev",
    "docs",
    "libsvm",
    "recipes",
    "test",
}  # extras that nobody distributes with it
COPYLEFT = re.compile(r"(?<![\w-])A?GPL|(?<!Lesser )General Public License(?! \(LGPL\))|SSPL|non-?commercial", re.I)
SCHEMAS = {
    "CITATION.cff": "citation-file-format",
    ".github/workflows/tests.yml": "github-workflows",
    ".github/ISSUE_TEMPLATE/bug.yml": "github-issue-forms",
}


def read_yaml(name):
    return yaml.safe_load((ROOT / name).read_text(encoding="utf-8"))


def built(root):
    """The metadata that a build of the project in this folder has."""
    core = pytest.importorskip("hatchling.metadata.core", reason="needs hatchling: pip install hatchling")
    from hatchling.metadata.spec import DEFAULT_METADATA_VERSION, get_core_metadata_constructors
    from hatchling.plugin.manager import PluginManager

    construct = get_core_metadata_constructors()[DEFAULT_METADATA_VERSION]
    return message_from_string(construct(core.ProjectMetadata(str(root), PluginManager())))


@pytest.fixture
def project(tmp_path):
    """What a build needs, in a folder of its own."""
    for name in ("pyproject.toml", "README.md", "LICENSE", ".ci/metadata.py", "streamsvm/_version.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def test_metadata_without_an_address(project):
    metadata = built(project)
    assert (metadata["Version"], metadata["Author"]) == (__version__, "streamsvm developers")
    if not HOOK["repository"]:
        assert metadata.get_all("Project-URL") is None
        assert "](docs/tutorial.md)" in metadata.get_payload()


def test_one_address_is_the_one_of_all_links(project):
    file = project / "pyproject.toml"
    text, count = re.subn(r'(?m)^repository = ".*?"', 'repository = "https://example.org/o/r/"', file.read_text())
    assert count == 1
    file.write_text(text)
    metadata = built(project)
    assert "Source, https://example.org/o/r" in metadata.get_all("Project-URL")
    assert "](https://example.org/o/r/blob/main/docs/tutorial.md)" in metadata.get_payload()
    assert "](https://example.org/o/r/raw/main/docs/pictures/covtype.svg)" in metadata.get_payload()
    assert not re.search(r"\]\((?!https?:|#)", metadata.get_payload())


def test_the_citation_is_of_this_version():
    citation = read_yaml("CITATION.cff")
    assert (citation["version"], citation["license"]) == (__version__, PROJECT["license"])
    assert citation.get("repository-code", "") == HOOK["repository"]


def test_the_conda_recipe_asks_for_what_pyproject_asks():
    recipe = read_yaml("configs/recipe.yaml")
    wanted = [Requirement(text) for text in PROJECT["dependencies"]]
    run = {f"{CONDA_NAMES.get(one.name, one.name)} {one.specifier}" for one in wanted}
    assert set(recipe["requirements"]["run"]) == run | {f"python {PROJECT['requires-python']}"}
    assert recipe["package"]["version"] == __version__
    scripts = [f"{name} = {place}" for name, place in PROJECT["scripts"].items()]
    assert recipe["build"]["python"]["entry_points"] == scripts


def test_the_workflow_tries_the_oldest_and_the_newest_python():
    matrix = read_yaml(".github/workflows/tests.yml")["jobs"]["tests"]["strategy"]["matrix"]
    versions = re.findall(r"Python :: (3\.\d+)", "\n".join(PROJECT["classifiers"]))
    assert matrix["python"] == [versions[0], versions[-1]]
    assert len(matrix["os"]) == 3


@pytest.mark.parametrize("name", SCHEMAS)
def test_files_for_others_have_their_form(name):
    pytest.importorskip("check_jsonschema", reason="needs check-jsonschema: streamsvm[dev]")
    check = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", f"vendor.{SCHEMAS[name]}"]
    done = subprocess.run([*check, str(ROOT / name)], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def needed():
    """What the package and its extras for use bring, by name; None where it is not installed."""
    extras = PROJECT["optional-dependencies"].items()
    more = [text for name, texts in extras if name not in TOOLS for text in texts]
    waiting, found = [*PROJECT["dependencies"], *more], {}
    while waiting:
        asked = Requirement(waiting.pop())
        name = canonicalize_name(asked.name)
        if name in found or name == "streamsvm" or not applies(asked):
            continue
        try:
            found[name] = distribution(name)
        except PackageNotFoundError:
            found[name] = None
            continue
        waiting += found[name].requires or []
    return found


def applies(asked):
    return asked.marker is None or asked.marker.evaluate({"extra": ""})


def licence(one: Distribution) -> str:
    """What its metadata says, the short forms first; a whole text speaks by its first line, else it names others."""
    said = one.metadata
    classified = [text for text in said.get_all("Classifier") or [] if text.startswith("License")]
    return said.get("License-Expression") or "; ".join(classified) or (said.get("License") or "").partition("\n")[0]


def test_licences_allow_to_distribute_it_as_it_is():
    found = {name: licence(one) for name, one in needed().items() if one is not None}
    assert len(found) > 40
    assert not {name: text for name, text in found.items() if not text or COPYLEFT.search(text)}


@every_case(
    ("text", "is_so"),
    [
        ("GPL-3.0-or-later", True),
        ("AGPL-3.0", True),
        ("License :: OSI Approved :: GNU General Public License v3 (GPLv3)", True),
        ("LGPL-2.1-or-later", False),
        ("License :: OSI Approved :: GNU Lesser General Public License v3 (LGPLv3)", False),
        ("BSD-3-Clause AND Zlib", False),
    ],
)
def test_which_licences_are_copyleft(text, is_so):
    assert bool(COPYLEFT.search(text)) is is_so
