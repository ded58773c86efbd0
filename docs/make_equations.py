"""Write docs/equations.md, the index of implemented equations, from the docstrings."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]


def rows() -> list[tuple[str, str, str]]:
    """Equation, place and remark of every `Implements:` line."""
    found = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        module = ".".join(path.relative_to(ROOT / "src").with_suffix("").parts)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef):
                for line in (ast.get_docstring(node) or "").splitlines():
                    match = re.match(r"^\s*Implements: (\w+ (?:Eq\. \([\w.]+\)|Thm\. [\w.]+))(?:, (.+))?$", line)
                    if match:
                        found.append((match[1], f"{module}.{node.name}", match[2] or ""))
    return sorted(found, key=lambda row: [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", row[0])])


if __name__ == "__main__":
    lines = [
        "# Equations and where they are computed",
        "",
        "Made from the docstrings by `python docs/make_equations.py`; a test checks that it is current and that each",
        "equation has a reference test.",
        "",
        "| equation | computed in | how it differs from the print |",
        "|---|---|---|",
        *(f"| {equation} | `{place}` | {remark} |" for equation, place, remark in rows()),
    ]
    (ROOT / "docs" / "equations.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
