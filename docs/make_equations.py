"""Write docs/equations.md, the index of all equations of the papers and of our own theory of the held-out loss.

Computed equations are read from the docstrings; the others are listed here. A test checks that none is missing.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]

#: Number of numbered equations in each paper, and on our own page theory/generalise.md.
PRINTED = {"braun2022": 15, "curriculum2025": 46, "generalise": 12, "livi2025": 78}
#: Numbers that the paper skips.
SKIPPED = {("livi2025", 74)}
_NETWORK = "not applicable: it defines the network, `learncast.networks.linear_rnn.LinearRNN`"
_CELL = "not applicable: it defines a gate, `learncast.windows.cells`"
_JACOBIAN = "restated in `learncast.windows.transport.derivative.one_step_jacobians`, for all cells"
#: Equations that no function implements directly: where they are restated, or why they do not apply.
SAID = {
    "curriculum2025": {
        **dict.fromkeys((1, 2), "restated in (20), (21)"),
        3: "restated in (22)",
        **dict.fromkeys((5, 6), "restated in (25), (26)"),
        **dict.fromkeys((7, 8), "restated in (35), (36)"),
        **dict.fromkeys((20, 21, 23), _NETWORK),
        22: "not applicable: it defines the loss, of which (4) is the form that is computed",
        24: "restated in (4)",
        **dict.fromkeys((25, 26), "restated in (32): `dynamics.modes.modes_of` takes the singular vectors and checks them"),
        27: "restated in (4): the task is rotated to its modes, not the loss",
        **dict.fromkeys((30, 31), "restated in (28), (29), of which they are the diagonal case"),
        38: "restated in (35), (36), whose sum it is",
        40: "restated in (41), its integral",
        **dict.fromkeys((43,), "restated in (15)"),
        **dict.fromkeys((44, 45), "restated in (46)"),
    },
    "braun2022": {},
    "generalise": {
        7: "not applicable: it needs aligned modes and the population; steps are counted instead, against (7) in a test",
        8: "not applicable: it needs one layer, white inputs and the population; (10) follows from it",
        10: "not applicable: it needs one layer and white inputs; `planning.generalise.transfer.Transfer.worth` inverts (9) instead",
    },
    "livi2025": {
        1: "not applicable: it is one step of `torch.optim.SGD`",
        2: "not applicable: it is one step of the optimiser; its rates are read in (7)",
        4: "restated in (3), split by lag in (12)",
        **dict.fromkeys((5, 6), "restated in (8): the product of base rate and transport factor"),
        **dict.fromkeys((10, 11), "restated in (12), projected on a direction"),
        14: "restated in (15), of which it is the product with (8)",
        16: "not applicable: a model of the statistic; its parameters are estimated in `detection.tail_index`",
        **dict.fromkeys((17, 18), "not applicable: existence constants; the bound is on the wrong side, see theory/livi2025.md"),
        24: "restated in (26), the same up to constants",
        25: "restated in (22), inverted",
        27: "not applicable: it defines the task, `learncast.tasks.multi_lag`",
        **dict.fromkeys((30, 31, 32, 33, 34), "restated in (35), whose derivation they are"),
        **dict.fromkeys((36, 37, 38, 39, 40, 47, 48, 49, 50, 59, 61, 63), _CELL),
        **dict.fromkeys((41, 42, 51, 52, 53), _JACOBIAN),
        44: "restated in (35), for the LSTM's stacked state",
        55: "restated in (35), for the GRU",
        65: "restated in (7): a property of the quotient, tested with it",
        **dict.fromkeys((66, 67, 68, 69, 70, 71), "not applicable: the derivation of (17)"),
        **dict.fromkeys((72, 73), "not applicable: (73) is on the wrong side (0.111 < 0.125), see theory/livi2025.md"),
        75: "restated in (23)",
        **dict.fromkeys((76, 77), "restated in (26)"),
        78: "restated in (22)",
    },
}


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
                        found.append((match[1], f"`{module}.{node.name}`", match[2] or ""))
    return found


def said() -> list[tuple[str, str, str]]:
    """Equations that no function implements directly, with a remark."""
    return [
        (f"{paper} Eq. ({number})", "", text) for paper, texts in SAID.items() for number, text in texts.items()
    ]


def unsaid() -> list[str]:
    """Equations of the papers that are not listed."""
    known = {row[0] for row in (*rows(), *said())}
    every = [f"{paper} Eq. ({n})" for paper, last in PRINTED.items() for n in range(1, last + 1) if (paper, n) not in SKIPPED]
    return [equation for equation in every if equation not in known]


def _order(row: tuple[str, str, str]) -> list[object]:
    return [int(p) if p.isdigit() else p for p in re.split(r"(\d+)", row[0])]


if __name__ == "__main__":
    lines = [
        "# Every equation of the papers",
        "",
        "Every equation is computed, restated in another one, or not applicable. `python docs/make_equations.py` writes this page",
        "from the docstrings. A test checks that it is current, that no equation is missing, and that each computed equation has",
        "a reference test. `proca2025` is known only by its abstract, which has no equations. `generalise` is our own theory of the",
        "[held-out loss](theory/generalise.md). A remark says how the code differs from the paper, how our own equation is verified,",
        "or why an equation is not computed.",
        "",
        "{.stacked}",
        "| equation | computed in | remark |",
        "|---|---|---|",
        *(f"| {equation} | {place} | {remark} |" for equation, place, remark in sorted(rows() + said(), key=_order)),
    ]
    (ROOT / "docs" / "equations.md").write_text("\n".join(lines) + "\n", encoding="utf-8")
