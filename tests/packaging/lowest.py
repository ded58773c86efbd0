"""The lowest versions that pyproject.toml promises, as constraints for pip: `python tests/packaging/lowest.py`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


def lowest() -> list[str]:
    """`name==version` for every requirement with a lower bound; what only tests need stays as it is."""
    project = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]
    extras = {name: given for name, given in project["optional-dependencies"].items() if name not in ("dev", "docs")}
    listed = [*project["dependencies"], *(one for given in extras.values() for one in given)]
    bounds = {one[1]: one[2] for text in listed if (one := re.fullmatch(r"([\w-]+)>=([\d.]+)", text))}
    return [f"{name}=={version}" for name, version in bounds.items()]


if __name__ == "__main__":
    print("\n".join(lowest()))
