"""The choice of the exact solution whose conditions a task and a network meet."""

from __future__ import annotations

from learncast.assumptions import require
from learncast.dynamics.linear_rnn import ModeSolution
from learncast.dynamics.modes import modes
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.solution import Solution
from learncast.dynamics.two_layer import TwoLayerSolution
from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.task import Task
from learncast.validation import positive

#: The weights the exact theory lets learn, by kind of network.
LEARNABLE = {LinearRNN: ("input", "output"), TwoLayer: ("first", "second")}


def solve(
    task: Task,
    network: LinearRNN | TwoLayer,
    *,
    learning_rate: float,
    learn: tuple[str, ...] | None = None,
    strict: bool = True,
    separatrix_tolerance: float | None = None,
) -> Solution:
    """Solve the learning of a task exactly.

    A `LinearRNN` is solved mode by mode when it starts on the task's modes. When it does not, but its recurrence is a
    number, its pooled input white and its start balanced, it is a two-layer network and solved as one.

    Parameters
    ----------
    task : Task
        What is learned; the loss is half the mean squared error summed over outputs.
    network : LinearRNN or TwoLayer
        The network before training. A recurrence stays fixed.
    learning_rate : float
        Step size of gradient descent; times are counted in its steps.
    learn : tuple of str, optional
        Weights that learn; the closed forms let both layers (input and output weights) learn together.
    strict : bool
        Raise `AssumptionViolated` when a condition of the theory fails. Otherwise solve what the theory sees and
        leave the measured failure in ``solution.assumptions``; the numbers are then approximate.
    separatrix_tolerance : float, optional
        Two-layer networks: relative size below which a start counts as exactly on a separatrix; 0 keeps round-off, as a
        simulation would.
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    if not isinstance(network, LinearRNN | TwoLayer):
        raise UnsupportedModel(
            required="the network must be a LinearRNN or a TwoLayer",
            got=type(network).__name__,
            why="no exact solution is known for other networks here",
            remedy="describe it as learncast.LinearRNN(...) or learncast.TwoLayer(first, second)",
        )
    _check_learnable(network, learn)
    if isinstance(network, TwoLayer):
        return _required(_pooled(task, network, rate, separatrix_tolerance), strict)
    by_modes = ModeSolution(modes(task, network), network, rate)
    if by_modes.holds:
        return by_modes
    as_two_layers = _pooled(task, network, rate, separatrix_tolerance)
    if as_two_layers.holds:
        return as_two_layers
    return _required(by_modes, strict)


def _pooled(
    task: Task, network: LinearRNN | TwoLayer, rate: float, separatrix_tolerance: float | None
) -> TwoLayerSolution:
    return TwoLayerSolution(PooledProblem.of(task, network), network, rate, separatrix_tolerance)


def _required(solution: Solution, strict: bool) -> Solution:
    if strict:
        require(solution.assumptions)
    return solution


def _check_learnable(network: LinearRNN | TwoLayer, learn: tuple[str, ...] | None) -> None:
    allowed = LEARNABLE[type(network)]
    if learn is not None and set(learn) != set(allowed):
        raise InvalidSpec(
            required=f"learn must name the {' and '.join(allowed)} weights",
            got=repr(tuple(learn)),
            why="the closed form holds for these two together",
            remedy=f"use learn={allowed}",
        )
