"""Files that a study names, known by their content."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any


def file_hashes(tables: Any) -> dict[str, str]:
    """Hashes of all files that a study names: other trials under the same name are another study."""
    found: dict[str, str] = {}
    if isinstance(tables, str) and tables.startswith("/") and Path(tables).is_file():
        with Path(tables).open("rb") as file:
            found[tables] = hashlib.file_digest(file, "sha256").hexdigest()
    elif isinstance(tables, Mapping | list):
        for item in tables.values() if isinstance(tables, Mapping) else tables:
            found |= file_hashes(item)
    return found
