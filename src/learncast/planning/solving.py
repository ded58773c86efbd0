"""How one task is learned: the solution on the ground whose conditions hold, and when it is learned."""

from __future__ import annotations

from learncast._core.errors import NotLearned
from learncast.networks import Network
from learncast.planning.methods.choice import ground_for
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.dynamics.solution import LearningTime, Solution


def solve(
    task: Task,
    network: Network,
    *,
    learning_rate: float,
    learn: tuple[str, ...] | None = None,
    by: str = "auto",
    strict: bool = True,
    tolerance: float = 1e-11,
    separatrix_tolerance: float | None = None,
    seed: int = 0,
    trials: int | None = None,
) -> Solution:
    """Solve the learning of a task: exactly where the theory holds, integrated where it does not.

    A `LinearRNN` is solved mode by mode when it starts on the task's modes. When it does not, but its recurrence is a
    number, its pooled input white and its start balanced, it is a two-layer network and solved as one. Anything else
    linear is integrated.

    An `Activated` LinearRNN with one input and a diagonal recurrence is solved through its measured responses: ReLU
    units of one recurrence and sign in closed form, others integrated; its times carry confidence intervals.

    Parameters
    ----------
    task : Task
        What is learned; the loss is half the mean squared error summed over outputs.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    learning_rate : float
        Step size of gradient descent; times are counted in its steps.
    learn : tuple of str, optional
        Weights that learn; input and output weights (both layers) by default.
    by : {"auto", "modes", "two-layer", "pooled", "flow", "responses"}
        The first of these whose conditions hold, or the one named.
    strict : bool
        Raise `AssumptionViolated` when a condition of the theory fails. Otherwise solve what the theory sees and
        leave the measured failure in ``solution.assumptions``; the numbers are then approximate.
    tolerance : float
        Error allowed per step where the flow is integrated.
    separatrix_tolerance : float, optional
        Two-layer networks: relative size below which a start counts as exactly on a separatrix; 0 keeps round-off, as a
        simulation would.
    seed : int
        Of the trials on which responses are measured.
    trials : int, optional
        Activated networks: trials to draw; by default as many as `learncast.theory.responses.response.response` draws.

    Returns
    -------
    Solution
        Learning as a function of time.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.solve(task, network, learning_rate=1e-3)
    >>> solution
    <ModeSolution of 'integration' at learning rate 0.001: 1 mode, exact>
    >>> solution.time_to(0.99).descent_steps
    331.0
    """
    ground = ground_for(
        [task], network, learning_rate=learning_rate, learn=learn, by=by, strict=strict, seed=seed, trials=trials
    )
    return ground.solution(tolerance=tolerance, separatrix_tolerance=separatrix_tolerance)


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

    Returns
    -------
    LearningTime
        Steps of the flow and of descent, and a status, for every mode and for all of them.

    Raises
    ------
    NotLearned
        If `strict` is set and a mode is never learned.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> lc.time_to_learn(lc.solve(task, network, learning_rate=1e-3), 0.99)
    <LearningTime to 0.99: 329.985 flow steps, 331 descent steps, ok>
    """
    times = solution.time_to(accuracy)
    if strict and times.status is not Status.ok:
        mode = next(k for k, status in enumerate(times.mode_status) if status is not Status.ok)
        status = times.mode_status[mode]
        failed = next((a for a in solution.assumptions if not a.holds), None)
        if failed is not None:
            raise failed.violation()
        raise NotLearned(
            f"every mode must reach accuracy {accuracy:g}, got mode {mode} with "
            f"{times.mode_flow_steps[mode]:g} flow steps ({status.name}). Change the start or the task, or "
            "pass strict=False to get infinity."
        )
    return times
