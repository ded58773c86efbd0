"""Print the release notes of a version, the section of CHANGELOG.md: python .github/release_notes.py 0.2.0.

Fails if a file states another version, or if the section has no date.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]
#: Files that state the version, and how.
STATED = {
    "pyproject.toml": r'^version = "([^"]+)"',
    "src/learncast/__init__.py": r'^__version__ = "([^"]+)"',
    "CITATION.cff": r"^version: (\S+)",
}


def stated() -> dict[str, str]:
    """Version that each file states."""
    found = {}
    for name, pattern in STATED.items():
        match = re.search(pattern, (ROOT / name).read_text(encoding="utf-8"), re.MULTILINE)
        found[name] = match[1] if match else "none"
    return found


def notes(version: str) -> str:
    """Section of the changelog."""
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = rf"^## {re.escape(version)} \((\d{{4}}-\d\d-\d\d)\)\n"
    section = re.search(rf"{heading}(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL)
    if section is None:
        raise SystemExit(f"CHANGELOG.md has no section '## {version} (YYYY-MM-DD)'.")
    return section[2].strip()


if __name__ == "__main__":
    wrong = {name: one for name, one in stated().items() if one != sys.argv[1]}
    if wrong:
        raise SystemExit(f"These files do not state version {sys.argv[1]}: {wrong}.")
    print(notes(sys.argv[1]))
