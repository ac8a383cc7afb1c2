"""The documentation site: `sphinx-build -W docs site`."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from streamsvm import __version__

sys.path.insert(0, str(Path(__file__).parent))
from tables import command_sections, kernel_table, option_tables, solver_table

project = "streamsvm"
author = "The streamsvm developers"
copyright = "2026, The streamsvm developers"
release = version = __version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx.ext.mathjax",
    "sphinx_copybutton",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery"]  # scripts, of which sphinx-gallery makes the pages in examples/
myst_enable_extensions = ["amsmath", "colon_fence", "dollarmath"]
myst_heading_anchors = 3
default_role = "code"
autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = True
napoleon_google_docstring = False
napoleon_use_ivar = True
napoleon_use_param = False  # parameters that share a text stand together, not each with a copy of it

html_theme = "furo"
html_title = "streamsvm"
html_theme_options = {"navigation_with_keys": True}
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


def fill(app, docname, source) -> None:
    for mark, make in GENERATED.items():
        if mark in source[0]:
            source[0] = source[0].replace(mark, make())


def escape(app, what, name, obj, options, lines) -> None:
    """Docstrings are plain text: |a| is a length and classes_ a name, no markup."""
    lines[:] = [re.sub(r"(?<!\\)(\||(?<=\w)_(?!\w))", r"\\\1", line) for line in lines]


def setup(app) -> None:
    app.connect("autodoc-process-docstring", escape, priority=600)  # after napoleon
    app.connect("source-read", fill)
