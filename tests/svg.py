"""What people read in a picture."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree


def texts(picture: Path) -> list[str]:
    """Each text of an SVG, which has to be XML."""
    return ["".join(found.itertext()) for found in ElementTree.parse(picture).iter() if "text" in found.tag]
