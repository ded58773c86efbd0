"""How long learning takes: exactly, and as the paper printed it."""

from __future__ import annotations

from learncast.dynamics import mode_equation
from learncast.dynamics.linear_rnn import ModeSolution
from learncast.dynamics.solution import LearningTime, Solution
from learncast.errors import NotLearned, UnsupportedModel
from learncast.trajectory import Status
from learncast.validation import FloatArray, between


def time_to_learn(solution: Solution, accuracy: float = 0.99, *, strict: bool = False) -> LearningTime:
    """Time until every mode is first within the tolerance band of its optimum.

    Parameters
    ----------
    solution : Solution
        What `learncast.solve` returned.
    accuracy : float
        1 - eps. The band is |u - u*| <= eps |u*|, entered from below or above.
    strict : bool
        Raise on the first mode that is never learned instead of returning infinity with a status.
    """
    times = solution.time_to(accuracy)
    if strict and times.status is not Status.ok:
        mode = next(k for k, status in enumerate(times.mode_status) if status is not Status.ok)
        status = times.mode_status[mode]
        failed = next((a for a in solution.assumptions if not a.holds), None)
        if failed is not None:
            raise failed.violation()
        raise NotLearned(
            required=f"every mode must reach accuracy {accuracy:g}",
            got=f"mode {mode} with {times.mode_flow_steps[mode]:g} flow steps ({status.name})",
            why=status.value,
            remedy="change the start or the task, or pass strict=False to get infinity",
        )
    return times


def printed_time(solution: Solution, accuracy: float = 0.99) -> FloatArray:
    """Flow steps of each mode by the paper's eq. (12), for comparison only.

    It is too short when a mode approaches its optimum from above, and negative inside the band; use
    `time_to_learn` for answers.
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
    return (
        mode_equation.printed_time(m.start, m.weighted_cross, m.weighted_input, 1.0 - accuracy) / solution.learning_rate
    )
