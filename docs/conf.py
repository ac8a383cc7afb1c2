"""The documentation site: `sphinx-build -W docs site`."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

from streamsvm import __version__

sys.path.insert(0, str(Path(__file__).parent))
from members import Members
from tables import command_sections, kernel_table, option_tables, solver_table

PYPROJECT = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))

project = "streamsvm"
author = "The streamsvm developers"
copyright = "2026, The streamsvm developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "sphinx.ext.napoleon",
    "sphinx.ext.viewcode",
    "accessible",
    "mathml",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
smartquotes_action = "qe"  # not the dashes of --early
default_role = "py:obj"  # a link where the name is one of Python's, else code
templates_path = ["templates"]
exclude_patterns = [
    "gallery",
    "templates",
]  # of the scripts in gallery, sphinx-gallery makes pages in examples/
autosummary_context = {"own": Members()}
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_custom_sections = [("Attributes", "params_style")]
napoleon_use_param = False
# Plain lists of the names that docstrings link to: the build needs no internet.
intersphinx_mapping = {
    "dask": ("https://docs.dask.org/en/stable", "inventories/dask.txt"),
    "distributed": ("https://distributed.dask.org/en/stable", "inventories/distributed.txt"),
    "numpy": ("https://numpy.org/doc/stable", "inventories/numpy.txt"),
    "river": ("https://riverml.xyz/latest", "inventories/river.txt"),
    "sklearn": ("https://scikit-learn.org/stable", "inventories/sklearn.txt"),
}

html_theme = "furo"
html_title = f"streamsvm {version}"
html_static_path = ["static"]
html_css_files = ["site.css"]
html_theme_options = {"navigation_with_keys": True}
if REPOSITORY := PYPROJECT["tool"]["hatch"]["metadata"]["hooks"]["custom"]["repository"]:
    html_theme_options |= {
        "source_repository": REPOSITORY,
        "source_branch": "main",
        "source_directory": "docs/",
    }
html_show_sourcelink = False

# Names of functions, not functions, which would differ from build to build and have all pages read anew.
sphinx_gallery_conf = {
    "examples_dirs": "gallery",
    "gallery_dirs": "examples",
    "backreferences_dir": "examples/backreferences",  # of `.. minigallery:: streamsvm.DCSVC`
    "doc_module": ("streamsvm",),
    "within_subsection_order": "pictures.order",
    "reset_modules": ("matplotlib", "pictures.style"),
    "image_srcset": ["2x"],
    "write_computation_times": False,  # a page; the build prints them in any case
    "show_signature": False,
    "jupyterlite": None,
}

# What pages leave open, made from the code that it describes.
GENERATED = {
    "<!-- commands -->": command_sections,
    "<!-- options -->": option_tables,
    "<!-- kernels -->": kernel_table,
    "<!-- solvers -->": solver_table,
}


# In a narrow cell of a table a unit stays with its number.
UNIT = re.compile(r"(?<=\d) (?=(?:s|ms|%|MiB|MB|GB|MB/s)(?: |$))")
ROW = re.compile(r"^\|.*\|$", re.M)


def unbroken(app, docname, source) -> None:
    source[0] = ROW.sub(lambda row: UNIT.sub("\u00a0", row[0]), source[0])


def fill(app, docname, source) -> None:
    for mark, make in GENERATED.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, make())


def escape(app, what, name, obj, options, lines) -> None:
    """Docstrings are plain text: |a| is a length and classes_ a name, no markup. Lines in TeX stay as they are."""
    marks, is_tex = re.compile(r"(?<!\\)(\||(?<=\w)_(?!\w))"), re.compile(r"\\[a-z:,]")
    lines[:] = [line if is_tex.search(line) else marks.sub(r"\\\1", line) for line in lines]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", escape, priority=600)  # after napoleon
    app.connect("source-read", fill)
    app.connect("source-read", unbroken)
