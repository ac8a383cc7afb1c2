"""Formulas as MathML: browsers show them without a script, so without the internet."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.errors import ExtensionError

DIGITS = re.compile(r"(\\[dt]?frac) *(\d) *(\w)|(\\sqrt) *(\d)")  # for TeX an argument is one digit, not a number
TAG = re.compile(r"\s*\\tag\{([^}]*)\}")


def mathml(tex: str, *, as_block: bool = False) -> str:
    """A formula in TeX as MathML; a \\tag, which MathML lacks, stands after it. Raises ExtensionError."""
    try:
        found = str(tex2mathml(DIGITS.sub(_braced, TAG.sub("", tex)), as_block=as_block))
    except (MathError, IndexError) as error:
        raise ExtensionError(f"found the formula {tex!r}, which docutils cannot convert: {error}") from None
    tag = TAG.search(tex)
    return f'{found}<span class="tag">({escape(tag[1])})</span>' if tag else found


def _braced(match: re.Match[str]) -> str:
    return "".join(text if text[0] == "\\" else f"{{{text}}}" for text in match.groups() if text)


def visit_inline(self: Any, node: nodes.math) -> None:
    self.body.append(mathml(node.astext()))
    raise nodes.SkipNode


def visit_block(self: Any, node: nodes.math_block) -> None:
    self.body.append(f'<div class="formula">{mathml(node.astext(), as_block=True)}</div>\n')
    raise nodes.SkipNode


def setup(app: Any) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", inline_renderers=(visit_inline, None), block_renderers=(visit_block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
