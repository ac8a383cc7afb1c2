"""What hatchling asks for beside pyproject.toml: addresses, and the README with links that work anywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from hatchling.metadata.plugin.interface import MetadataHookInterface

LINK = re.compile(r"(!?)(\[[^\]]*\])\((?!https?:|#)([^)]+)\)")


class Metadata(MetadataHookInterface):
    """Everything follows from one address, `repository` in pyproject.toml; while it is empty links stay as they are."""

    def update(self, metadata: dict[str, Any]) -> None:
        repository = self.config["repository"].rstrip("/")
        readme = (Path(self.root) / "README.md").read_text(encoding="utf-8")
        metadata["readme"] = {"content-type": "text/markdown", "text": with_links(readme, repository)}
        metadata["urls"] = urls(repository)


def urls(repository: str) -> dict[str, str]:
    if not repository:
        return {}
    return {
        "Source": repository,
        "Documentation": f"{repository}/blob/main/docs/index.md",
        "Changelog": f"{repository}/blob/main/docs/changelog.md",
        "Issues": f"{repository}/issues",
    }


def with_links(text: str, repository: str) -> str:
    """Links to files of the repository as addresses of them, and of pictures as addresses of the files themselves."""

    def linked(link: re.Match[str]) -> str:
        return f"{link[1]}{link[2]}({repository}/{'raw' if link[1] else 'blob'}/main/{link[3]})"

    return LINK.sub(linked, text) if repository else text
