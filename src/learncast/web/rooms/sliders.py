"""Controls made from the fields of a state, so that a bound is written once."""

from __future__ import annotations

from typing import Any, Literal

import annotated_types

from learncast.web.room import Control, State


def slider(
    state: type[State],
    key: str,
    label: str,
    *,
    step: float,
    unit: str = "1",
    scale: Literal["linear", "log"] = "linear",
    group: str = "",
    tip: str = "",
    when: dict[str, tuple[str, ...]] | None = None,
) -> Control:
    """Make a range from a number's field: its bounds and its default are the field's.

    Parameters
    ----------
    state : type of State
    key : str
        The field.
    label, unit, tip, group : str
        Its words, and the heading that it stands under.
    step : float
        Of a log scale, of the logarithm to base 10.
    scale : {"linear", "log"}
    when : mapping, optional
        Values of other controls for which it is shown.
    """
    field = state.model_fields[key]
    least = next(float(str(m.ge)) for m in field.metadata if isinstance(m, annotated_types.Ge))
    most = next(float(str(m.le)) for m in field.metadata if isinstance(m, annotated_types.Le))
    return Control(
        key, label, "range", field.default, unit, tip, least, most, step, scale=scale, group=group, when=when
    )


def chooser(state: type[State], key: str, label: str, choices: dict[str, str], **words: Any) -> Control:
    """Make a choice among words; `words` are further fields of the control."""
    return Control(key, label, "choice", state.model_fields[key].default, choices=tuple(choices.items()), **words)
