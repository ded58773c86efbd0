"""The lowest versions that pyproject.toml promises, as constraints for pip: `python tests/packaging/lowest.py`."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[2]
#: Extras of people who work on learncast itself.
TOOLS = ("test", "dev", "docs")


def lowest() -> list[str]:
    """`name==version` for every requirement: the lower bound of a dependency, the pinned version of a test tool."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    extras = project["optional-dependencies"]
    needed = [*project["dependencies"], *(one for name in extras if name not in TOOLS for one in extras[name])]
    bounds = {one[1]: one[2] for text in needed if (one := re.fullmatch(r"([\w-]+)>=([\d.]+)", text))}
    tools = {text.partition(">=")[0] for text in extras["test"]}
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    pins = {name: version for name, _, version in (line.partition("==") for line in lines) if name in tools}
    return [f"{name}=={version}" for name, version in (pins | bounds).items()]


if __name__ == "__main__":
    print("\n".join(lowest()))
