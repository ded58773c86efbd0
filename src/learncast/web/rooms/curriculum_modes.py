"""Tasks of the curriculum room taken apart into modes, each response measured once."""

from __future__ import annotations

from functools import lru_cache

from learncast.dynamics.modes import Modes, modes_of
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.responses.modes import mode_of_response
from learncast.responses.response import Response, response
from learncast.tasks.families import FAMILIES
from learncast.tasks.task import Task
from learncast.web.rooms.curriculum_state import CurriculumState


def taken_apart(
    state: CurriculumState, network: LinearRNN | Activated, target: Task, values: tuple[float, ...]
) -> tuple[Modes, ...]:
    """Modes of the target, then of the first task with each of the values."""
    if isinstance(network, LinearRNN):
        return tuple(modes_of([target, *(state.task(value) for value in values)], network))
    return tuple(_response_mode(state, network, value) for value in (None, *values))


def _response_mode(state: CurriculumState, network: Activated, value: float | None) -> Modes:
    keywords = tuple(sorted(state.parameters(value).items()))
    found = _measured(state.family, keywords, state.name(value), state.recurrence)
    return mode_of_response(found.moved(network))


@lru_cache(maxsize=256)
def _measured(family: str, keywords: tuple[tuple[str, float | int], ...], name: str, recurrence: float) -> Response:
    """Responses depend on the task and the recurrence alone, so that other sliders move without measuring again."""
    task = FAMILIES[family].build(**dict(keywords), name=name)
    weights = LinearRNN.aligned(recurrence=recurrence, hidden_size=1, task=task)
    return response(task, Activated(weights, "relu"), rng=0)
