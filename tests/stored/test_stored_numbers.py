"""Commands and figures give the numbers that were stored before the types and names of the package were revised."""

from __future__ import annotations

import importlib.util
import json
import math
import re
import sys
from pathlib import Path

import pytest

HERE = Path(__file__).parent
_spec = importlib.util.spec_from_file_location("stored_numbers_collect", HERE / "collect.py")
assert _spec is not None
assert _spec.loader is not None
collect = importlib.util.module_from_spec(_spec)
sys.modules[_spec.name] = collect  # a dataclass looks for its module here
_spec.loader.exec_module(collect)

#: Stored key -> key of today, or None if it was removed on purpose. A key is one name ("flow_steps") or several joined
#: by "/" ("direct/total"), with "*" for the position in a list ("candidates/*/why"). It applies wherever it occurs, and
#: the longest matching key is used. "case name: key" restricts it to one case, "command: key" to those of a command.
RENAMED: dict[str, str | None] = {
    "by": "method",
    "goal": None,
    "why/printed_speedup_steps": "why/paper_speedup_steps",
    # The study now gives the same goal as a share of the explainable variance.
    "forecast sequential digits: accuracy": None,
    "plan sequential digits: accuracy": None,
    "plan sequential digits: best/stages/*/accuracy": None,
    "plan sequential digits: alternatives/*/plan": None,
    "sweep: summary": None,
    "check: integrated_flow_steps": None,
    "check: exact_descent_steps": None,
    "plan: flow": "best_by_flow",
}

#: Stored text -> text of today, for statuses, names of methods and the like.
RENAMED_VALUES: dict[str, str] = {}

#: Relative tolerance: allows another order of additions, but no other formula.
TOLERANCE = 1e-9
#: Networks trained in torch in single precision, or for thousands of steps: round-off grows along the run.
TRAINED_TOLERANCE = 1e-6
#: The best stops by the flow: at a minimum, round-off of the total moves the stop by its root.
BEST_STOP, BEST_STOP_TOLERANCE = re.compile(r"(best_by_)?flow/stages/\d+/flow_steps"), 1e-6
#: Numbers as small as this are round-off of zero (losses that vanish at the end of the flow).
ZERO = 1e-12


def stored() -> dict[str, dict[str, collect.Value]]:
    """Numbers of every case."""
    found = {}
    for path in sorted((HERE / "numbers").glob("*.json")):
        found |= json.loads(path.read_text(encoding="utf-8"))
    return found


STORED = stored()


def renamed(path: str, case: collect.Case) -> str | None:
    """Where the number of a stored path stands today; None if it was removed."""
    parts = path.split("/")
    k = 0
    today: list[str] = []
    while k < len(parts):
        length, new = _longest_rename(parts[k:], case)
        if length == 0:
            today.append(parts[k])
            k += 1
        elif new is None:
            return None
        else:
            positions = iter([part for part in parts[k : k + length] if part.isdecimal()])
            today += [next(positions) if part == "*" else part for part in new.split("/")]
            k += length
    return "/".join(today)


def _longest_rename(parts: list[str], case: collect.Case) -> tuple[int, str | None]:
    """How many leading parts are replaced, and by what; none if no key fits."""
    for length in range(len(parts), 0, -1):
        key = "/".join("*" if part.isdecimal() else part for part in parts[:length])
        for scope in (f"{case.name}: ", f"{case.group}: ", ""):
            if scope + key in RENAMED:
                return length, RENAMED[scope + key]
    return 0, None


def differs(old: collect.Value, new: collect.Value, tolerance: float) -> bool:
    """Whether two values differ by more than round-off; numbers that are not finite are text."""
    if isinstance(old, bool) or isinstance(new, bool) or old is None or new is None:
        return old is not new
    if isinstance(old, str) or isinstance(new, str):
        return RENAMED_VALUES.get(old, old) != new if isinstance(old, str) else True
    return not math.isclose(old, new, rel_tol=tolerance, abs_tol=ZERO)


def differences(case: collect.Case) -> list[str]:
    """Every stored value that today's code does not give."""
    tolerance = TRAINED_TOLERANCE if case.torch else TOLERANCE
    today = case.numbers()
    lines = []
    for path, old in STORED[case.name].items():
        new_path = renamed(path, case)
        if new_path is None:
            continue
        if new_path not in today:
            lines.append(f"{path}: {old!r} is missing, expected at {new_path}")
        elif differs(old, today[new_path], BEST_STOP_TOLERANCE if BEST_STOP.fullmatch(path) else tolerance):
            lines.append(f"{path}: {old!r} became {today[new_path]!r}")
    return lines


def parameters() -> list[object]:
    marks = {"slow": pytest.mark.slow, "torch": pytest.mark.torch}
    return [
        pytest.param(case, id=case.name, marks=[mark for name, mark in marks.items() if getattr(case, name)])
        for case in collect.cases()
    ]


@pytest.mark.parametrize("case", parameters())
def test_numbers_are_those_stored(case):
    found = differences(case)
    assert not found, "\n".join([*found[:40], f"... {len(found)} in all"])


def test_every_case_is_stored_once():
    names = [case.name for case in collect.cases()]
    assert len(set(names)) == len(names)
    assert set(names) == STORED.keys()


def test_renamed_keys_are_found_at_any_depth_and_in_their_case_only(monkeypatch):
    table = {"flow_steps": "flow", "candidates/*/why": "reasons/*", "phase: values": None, "direct/total": "total"}
    monkeypatch.setattr(sys.modules[__name__], "RENAMED", table)
    plan, phase = (collect.Case("one", group, ()) for group in ("plan", "phase"))
    assert renamed("direct/flow_steps", plan) == "direct/flow"
    assert renamed("candidates/12/why/flow_steps", plan) == "reasons/12/flow"
    assert renamed("direct/total", plan) == "total"
    assert renamed("values/3", plan) == "values/3"
    assert renamed("values/3", phase) is None


@pytest.mark.parametrize(
    ("old", "new", "different"),
    [
        (1.0, 1.0 + 1e-12, False),
        (1.0, 1.0 + 1e-8, True),
        (3e-16, -1e-15, False),
        (331, 332, True),
        (331, 331.0, False),
        ("inf", "inf", False),
        ("nan", 3.0, True),
        (True, 1, True),
        (None, 0, True),
        ("ok", "never", True),
    ],
)
def test_values_differ_beyond_round_off_only(old, new, different):
    assert differs(old, new, TOLERANCE) is different
