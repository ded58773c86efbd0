"""How far a view may be trusted, in the package's own words."""

from __future__ import annotations

from collections.abc import Iterable

from learncast.assumptions import Assumption, exact
from learncast.trajectory import FORECAST_CLASSES
from learncast.web.panel import Note, Validity


def validity_of(kind: str, assumptions: Iterable[Assumption] = ()) -> Validity:
    """The class of an answer with what it promises, and each condition as it was measured.

    Parameters
    ----------
    kind : str
        Class of the answer, a key of `learncast.trajectory.FORECAST_CLASSES`. A forecast is outside the theory as soon
        as a binding condition fails; what was measured stays measured.
    assumptions : iterable of Assumption
        As a solution, curriculum or plan carries them.
    """
    measured = tuple(assumptions)
    promised = kind if kind == "measured" or exact(measured) else "outside"
    rows = tuple((a.name.replace("_", " "), float(a.measured), a.allowed, a.holds, _consequence(a)) for a in measured)
    return Validity(promised, FORECAST_CLASSES[promised], rows)


def _consequence(assumption: Assumption) -> str:
    """What the condition asks where it is met, and what follows where it is not."""
    condition = assumption.condition
    return condition.requires if assumption.holds else condition.otherwise


def warnings_of(assumptions: Iterable[Assumption]) -> tuple[Note, ...]:
    """A warning for each binding condition that fails: what was measured, and what follows."""
    return tuple(
        Note(
            f"{a.name.replace('_', ' ')} measures {a.measured:.3g}, more than the {a.allowed:g} allowed: "
            f"{a.condition.otherwise}.",
            "warning",
        )
        for a in assumptions
        if a.condition.binding and not a.holds
    )
