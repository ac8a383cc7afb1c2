"""How stores and models look in a console and in a notebook."""

from __future__ import annotations

from abc import abstractmethod
from html import escape


class Shown:
    """A repr in one line, and a small table in notebooks, of what `facts` says."""

    @abstractmethod
    def facts(self) -> dict[str, str]:
        """What matters, by name, in words."""

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(self.facts().values())})"

    def _repr_html_(self) -> str:
        cells = "".join(
            f'<tr><th style="text-align: left">{escape(name)}</th><td style="text-align: left">{escape(text)}</td></tr>'
            for name, text in self.facts().items()
        )
        return f"<table><caption>{type(self).__name__}</caption>{cells}</table>"
