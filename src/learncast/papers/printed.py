"""Formulas as a paper printed them, beside which ours are exact."""

from __future__ import annotations

from learncast.dynamics import mode_equation
from learncast.dynamics.linear_rnn import ModeSolution
from learncast.dynamics.solution import Solution
from learncast.errors import UnsupportedModel
from learncast.validation import FloatArray, between


def printed_time(solution: Solution, accuracy: float = 0.99) -> FloatArray:
    """Flow steps of each mode by eq. (12) of curriculum2025, for comparison only.

    It is too short when a mode approaches its optimum from above, and negative inside the band; use
    `learncast.time_to_learn` for answers.
    """
    if not isinstance(solution, ModeSolution):
        raise UnsupportedModel(
            required="the printed formula needs a solution made of modes",
            got=type(solution).__name__,
            why="eq. (12) is about one mode of a linear RNN",
            remedy="use time_to_learn",
        )
    between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
    m = solution.modes
    told = mode_equation.printed_time(m.start, m.weighted_cross, m.weighted_input, 1.0 - accuracy)
    return told / solution.learning_rate
