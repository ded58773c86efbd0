"""The papers whose equations are implemented, as BibTeX."""

from __future__ import annotations

import re
from importlib.resources import files

_TEXT = files("learncast._core").joinpath("papers.bib").read_text(encoding="utf-8")
BIBTEX = {entry[1]: entry[0] for entry in re.finditer(r"@\w+\{(\w+),.*?^\}", _TEXT, flags=re.DOTALL | re.MULTILINE)}


def bibliography(*keys: str) -> str:
    """Return the BibTeX entries of papers; empty without keys."""
    return "\n\n".join(BIBTEX[key] for key in keys) + "\n" * bool(keys)
