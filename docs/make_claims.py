"""Write docs/claims.md, the index of theorems, lemmas, assumptions and claims of the papers.

Entries are in docs/claims.toml; the claims of livi2025 have the verdicts of the stored results of learnability.
"""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parent
CRITERIA = DOCS.parent / "src/learncast/papers/learnability/claims.toml"
STATUSES = ("holds", "assumed", "dropped", "defined", "limited", "fails", "undecided")


def entries() -> list[dict[str, Any]]:
    """Entries of all papers, and one for each claim whose test is stored."""
    return [*_file()["entry"], *tested()]


def tested() -> list[dict[str, Any]]:
    """Claims of livi2025 with the verdicts of the stored results."""
    numbers = json.loads((DOCS / "results/learnability-default.json").read_text(encoding="utf-8"))
    texts, found = numbers["figures"]["claims"]["numbers"], []
    criteria = tomllib.loads(CRITERIA.read_text(encoding="utf-8"))
    for claim in criteria["claim"]:
        status, _, rest = texts[claim["name"]].partition(": ")
        one = {"paper": "livi2025", "name": claim["name"], "says": claim["says"], "status": status}
        found.append(one | {"reason": rest.removeprefix(claim["says"]).strip()})
    return found


def missing() -> list[str]:
    """Numbered statements without an entry."""
    known = {(entry["paper"], entry["name"]) for entry in entries()}
    wanted = [(paper, name) for paper, names in _file()["statements"].items() for name in names]
    return [" ".join(pair) for pair in wanted if pair not in known]


def page() -> str:
    """The page in Markdown."""
    lines = [
        "# Every theorem, lemma, assumption and claim of the papers",
        "",
        "`python docs/make_claims.py` writes this page. A test checks that no numbered statement is missing, and that",
        "every function and test exists. *holds*: shown by the tests; *assumed*: measured before every forecast that",
        "needs it; *dropped*: not needed, the general case is computed; *limited*: true within limits that the tests",
        "and the theory pages state; *fails*: a counterexample is tested; *undecided*: not tested.",
        "The [index of equations](equations.md) lists the equations.",
        "",
        "{.stacked}",
        "| paper | statement | says | computed in | verified by | status |",
        "|---|---|---|---|---|---|",
    ]
    for one in _file()["entry"]:
        shown = ", ".join(f"`{name}`" for name in one["verified"])
        cells = (f"`{one['paper']}`", one["name"], one["says"], f"`{one['computed']}`", shown, one["status"])
        lines.append(f"| {' | '.join(cells)} |")
    lines += [
        "",
        "## Claims of `livi2025`, tested on trained networks",
        "",
        "Criteria, seeds and tests were fixed before the run (`src/learncast/papers/learnability/claims.toml`): five",
        "seeds, lags to 32, 32 units, 2,000 updates. `python docs/make_learnability.py` trains the networks,",
        "`learncast reproduce learnability --stored` draws the results immediately, and the preset `night` repeats",
        "the tests for lags to 64 and 128.",
        "",
        "{.stacked}",
        "| claim | says | verdict | numbers (smallest to largest seed) |",
        "|---|---|---|---|",
        *(f"| {one['name']} | {one['says']} | {one['status']} | {one['reason']} |" for one in tested()),
    ]
    return "\n".join(lines) + "\n"


def _file() -> dict[str, Any]:
    return tomllib.loads((DOCS / "claims.toml").read_text(encoding="utf-8"))


if __name__ == "__main__":
    (DOCS / "claims.md").write_text(page(), encoding="utf-8")
