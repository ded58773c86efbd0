"""The choice of the exact solution whose conditions a task and a network meet."""

from __future__ import annotations

from learncast.assumptions import require
from learncast.dynamics.linear_rnn import ModeSolution
from learncast.dynamics.modes import modes
from learncast.dynamics.solution import Solution
from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.linear_rnn import LinearRNN
from learncast.tasks.task import Task
from learncast.validation import positive

#: The weights the exact theory lets learn.
LEARNABLE = ("input", "output")


def solve(
    task: Task,
    network: LinearRNN,
    *,
    learning_rate: float,
    learn: tuple[str, ...] = LEARNABLE,
    strict: bool = True,
) -> Solution:
    """Solve the learning of a task exactly.

    Parameters
    ----------
    task : Task
        What is learned; the loss is half the mean squared error summed over outputs.
    network : LinearRNN
        The network before training. Its recurrence stays fixed.
    learning_rate : float
        Step size of gradient descent; times are counted in its steps.
    learn : tuple of str
        Weights that learn; the closed form exists for input and output weights together.
    strict : bool
        Raise `AssumptionViolated` when a condition of the theory fails. Otherwise solve what the modes see and
        leave the measured failure in ``solution.assumptions``; the numbers are then approximate.
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    if not isinstance(network, LinearRNN):
        raise UnsupportedModel(
            required="the network must be a LinearRNN",
            got=type(network).__name__,
            why="no exact solution is known for other networks here",
            remedy="describe it as learncast.LinearRNN(input_weights, recurrent_weights, output_weights)",
        )
    if set(learn) != set(LEARNABLE):
        raise InvalidSpec(
            required="learn must name the input and output weights",
            got=repr(tuple(learn)),
            why="the closed form holds for these two together under a fixed recurrence",
            remedy='use learn=("input", "output")',
        )
    solution = ModeSolution(modes(task, network), network, rate)
    if strict:
        require(solution.assumptions)
    return solution
