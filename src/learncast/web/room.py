"""A room of the explorer: a state, and what is shown for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

from learncast.web.panel import View


class State(BaseModel):
    """What a room's controls say: finite numbers within bounds, and nothing else.

    Every field has a bound and a default, which its `Control` repeats.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


@dataclass(frozen=True)
class Control:
    """One control of the page.

    Attributes
    ----------
    key : str
        Field of the state.
    label, unit, help : str
        Its words.
    kind : {"range", "choice", "toggle", "numbers", "hidden"}
        "numbers" is a list that is dragged in a panel; "hidden" is set by clicks.
    default
        What it is at first.
    least, most, step : float, optional
        Of a range; on a log scale `step` is a factor's logarithm to base 10.
    scale : {"linear", "log"}
    choices : tuple of str
        Of a choice, each with its words.
    group : str
        Heading that it stands under.
    when : mapping
        Values of other controls for which it is shown: ``{"family": ("integration",)}``.
    clears : tuple of str
        Fields that mean something else once this one has changed, and become None.
    """

    key: str
    label: str
    kind: Literal["range", "choice", "toggle", "numbers", "hidden"]
    default: Any
    unit: str = "1"
    help: str = ""
    least: float | None = None
    most: float | None = None
    step: float | None = None
    scale: Literal["linear", "log"] = "linear"
    choices: tuple[tuple[str, str], ...] = ()
    group: str = ""
    when: Mapping[str, tuple[str, ...]] | None = None
    clears: tuple[str, ...] = ()


def _never_slow(state: Any) -> bool:
    return False


@dataclass(frozen=True)
class Room:
    """One room.

    Attributes
    ----------
    name, title : str
        In addresses, and for people.
    introduction : str
        What one can see here, in a sentence or two.
    state : type of State
    controls : tuple of Control
        In the order of the page.
    parts : mapping
        From a name to the function that shows this part of a state; the page asks for each as soon as it has changed.
    study : callable
        The study file that reproduces a state, as TOML.
    slow : callable
        Whether a state takes long; such ones wait for each other and hold up no quick one.
    """

    name: str
    title: str
    introduction: str
    state: type[State]
    controls: tuple[Control, ...]
    parts: Mapping[str, Callable[[Any], View]]
    study: Callable[[Any], str]
    slow: Callable[[Any], bool] = _never_slow
