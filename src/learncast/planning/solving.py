"""The choice of the exact solution whose conditions a task and a network meet."""

from __future__ import annotations

import numpy as np

from learncast.assumptions import require
from learncast.dynamics.linear_rnn import ModeSolution
from learncast.dynamics.modes import modes
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.solution import Solution
from learncast.dynamics.two_layer import TwoLayerSolution
from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.responses.modes import solve_response
from learncast.responses.response import response
from learncast.tasks.task import Task
from learncast.validation import positive

#: The weights the exact theory lets learn, by kind of network.
LEARNABLE = {LinearRNN: ("input", "output"), TwoLayer: ("first", "second"), Activated: ("input", "output")}


def solve(
    task: Task,
    network: LinearRNN | TwoLayer | Activated,
    *,
    learning_rate: float,
    learn: tuple[str, ...] | None = None,
    strict: bool = True,
    separatrix_tolerance: float | None = None,
    rng: np.random.Generator | int = 0,
    trials: int | None = None,
) -> Solution:
    """Solve the learning of a task exactly.

    A `LinearRNN` is solved mode by mode when it starts on the task's modes. When it does not, but its recurrence is a
    number, its pooled input white and its start balanced, it is a two-layer network and solved as one.

    An `Activated` LinearRNN with one input and a diagonal recurrence is solved through its measured responses: ReLU
    units of one recurrence and sign in closed form, others integrated; its times carry confidence intervals.

    Parameters
    ----------
    task : Task
        What is learned; the loss is half the mean squared error summed over outputs.
    network : LinearRNN, TwoLayer or Activated
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
    rng : numpy.random.Generator or int
        Activated networks: generator or seed of the trials on which responses are measured. The default seed makes the
        answer repeatable.
    trials : int, optional
        Activated networks: trials to draw; by default as many as `learncast.responses.response.response` draws.
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    if isinstance(network, Activated):
        _check_learnable(network, learn)
        return _required(solve_response(response(task, network, rng=rng, trials=trials), learning_rate=rate), strict)
    if not isinstance(network, LinearRNN | TwoLayer):
        raise UnsupportedModel(
            required="the network must be a LinearRNN, a TwoLayer or an Activated LinearRNN",
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


def _check_learnable(network: LinearRNN | TwoLayer | Activated, learn: tuple[str, ...] | None) -> None:
    allowed = LEARNABLE[type(network)]
    if learn is not None and set(learn) != set(allowed):
        raise InvalidSpec(
            required=f"learn must name the {' and '.join(allowed)} weights",
            got=repr(tuple(learn)),
            why="the closed form holds for these two together",
            remedy=f"use learn={allowed}",
        )
