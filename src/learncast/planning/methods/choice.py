"""The choice of the ground: the first whose conditions hold, or the one that is named."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import one_of, positive
from learncast.networks import Network
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.methods.ground import GOALS, Ground
from learncast.planning.methods.linear import FlowGround, PooledGround, TwoLayerGround
from learncast.planning.methods.modal import ModeGround
from learncast.planning.methods.responding import ResponseGround, ResponseModeGround
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.task import Task
from learncast.theory.assumptions import require
from learncast.theory.dynamics.learning_problem import checked_learn
from learncast.theory.dynamics.modes import Modes
from learncast.theory.responses.modes import has_one_response
from learncast.theory.responses.response import check_network

#: How a pool of tasks may be learned, in the order in which they are tried.
WAYS = ("auto", "modes", "two-layer", "pooled", "flow", "responses")

#: Share of a product by which it may depend on the order of its factors where they could have one frame.
COMMUTING = 1e-3

#: The weights that learn unless told, by kind of network.
USUAL = {LinearRNN: ("input", "output"), TwoLayer: ("first", "second"), Activated: ("input", "output")}

#: The ground of modes, by kind of network.
MODAL: dict[type, type[ModeGround]] = {LinearRNN: ModeGround, Activated: ResponseModeGround}


def mode_ground(modes: Sequence[Modes], network: Network, learning_rate: float) -> ModeGround:
    """The ground of tasks that have been taken apart already."""
    return MODAL[type(network)](modes, network, learning_rate)


def ground_for(
    tasks: Sequence[Task],
    network: Network,
    *,
    learning_rate: float,
    learn: Sequence[str] | None = None,
    by: str = "auto",
    goal: str | None = None,
    strict: bool = False,
    seed: int = 0,
    trials: int | None = None,
) -> Ground:
    """Choose, once and from measured conditions, how these tasks (the target last) are learned by this network.

    Modes where every task and the start fall apart into one frame; else the exact two-layer flow, where the pooled
    input is white and the start balanced; else descent of the pooled problem, where the recurrence is a number; else
    the integrated flow, which assumes nothing. Nonlinear units go by modes where they share one response.

    Parameters
    ----------
    tasks : sequence of Task
    network : LinearRNN, TwoLayer or Activated
    learning_rate : float
    learn : sequence of str, optional
        Weights that learn; input and output weights (both layers) by default.
    by : {"auto", "modes", "two-layer", "pooled", "flow", "responses"}
        The first of these whose conditions hold, or the one named, whether or not they hold.
    goal : {"modes", "loss"}, optional
        What must be accurate in the end; every mode where there are modes, the loss elsewhere.
    strict : bool
        Raise when a condition fails on the ground that was chosen.
    seed : int
        Of measured responses and of resampled statistics.
    trials : int, optional
        On which responses are measured; a number that is known to be enough by default.

    Returns
    -------
    Ground
        How these tasks are learned by this network when these weights learn.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> ground = lc.planning.ground_for([task], network, learning_rate=1e-3)
    >>> ground.by, ground.trust_of([0]).forecast_class
    ('modes', 'exact')
    """
    rate = positive("learning_rate", learning_rate)
    one_of("by", by, WAYS)
    if goal is not None:
        one_of("goal", goal, GOALS)
    if type(network) not in USUAL:
        raise UnsupportedModel(
            "the network must be a LinearRNN, a TwoLayer or an Activated LinearRNN, got "
            f"{type(network).__name__}. Describe it as learncast.LinearRNN(...) or learncast.TwoLayer(first, "
            "second); for a torch module ask learncast.advise."
        )
    chosen = USUAL[type(network)] if learn is None else tuple(learn)
    fixed = set(chosen) == set(USUAL[type(network)])
    if isinstance(network, Activated):
        found = _responding(tuple(tasks), network, rate, chosen, fixed, by, goal, seed, trials)
    else:
        found = _linear(tuple(tasks), network, rate, chosen, fixed, by, goal, seed)
    if goal == "modes" and found.goal != "modes":
        raise InvalidSpec(
            'goal must be "loss" where tasks have no common modes, got "modes". Leave goal out.', field="goal"
        )
    if strict:
        require(found.assumptions)
    return found


def _linear(
    tasks: tuple[Task, ...],
    network: LinearRNN | TwoLayer,
    rate: float,
    learn: tuple[str, ...],
    fixed: bool,
    by: str,
    goal: str | None,
    seed: int,
) -> Ground:
    modal = fixed and type(network) is LinearRNN
    if by in ("modes", "responses") and not (modal and by == "modes"):
        raise InvalidSpec(
            required=f'by="{by}" needs '
            + ("a LinearRNN of fixed recurrence" if by == "modes" else "an Activated network"),
            got=type(network).__name__ if fixed else f"learn={learn!r}",
            why="other problems do not fall apart into modes"
            if by == "modes"
            else "linear units have no other response",
            remedy='use by="auto", or by="flow"',
        )
    if by in ("two-layer", "pooled") and not fixed:
        raise InvalidSpec(
            f'by="{by}" needs input and output weights that learn, and no others, got learn={learn!r}. Use '
            'by="auto", or by="flow".'
        )
    names = checked_learn(network, learn)
    if by == "modes" or (by == "auto" and modal and _may_have_modes(tasks, cast(LinearRNN, network))):
        modes = ModeGround.of(tasks, cast(LinearRNN, network), rate, goal or "modes", seed)
        if by == "modes" or modes.fits:
            return modes
    if by in ("auto", "two-layer", "pooled") and fixed:
        for kind in (TwoLayerGround, PooledGround):
            if by in ("auto", kind.by):
                ground = kind(tasks, network, rate, names, seed)
                if by != "auto" or ground.fits:
                    return ground
    return FlowGround(tasks, network, rate, names, seed)


def _may_have_modes(tasks: tuple[Task, ...], network: LinearRNN) -> bool:
    """Whether pooled inputs, targets and the start could share one frame; told without looking at every step.

    What is diagonal in one frame commutes. Recorded data and random starts fail that by far, and long trials of them
    need not be written out.
    """
    b = network.scalar_recurrence
    if b is None or not all(task.inputs == network.inputs for task in tasks):
        return True
    start = network.output_weights @ network.input_weights
    for task in tasks:
        cross, power = pooled_statistics(task, b)
        for other in (cross @ cross.T, start.T @ start):
            gap = power @ other
            if np.linalg.norm(gap - gap.T) > COMMUTING * np.linalg.norm(power) * np.linalg.norm(other):
                return False
    return True


def _responding(
    tasks: tuple[Task, ...],
    network: Activated,
    rate: float,
    learn: tuple[str, ...],
    fixed: bool,
    by: str,
    goal: str | None,
    seed: int,
    trials: int | None,
) -> Ground:
    if not fixed or by in ("two-layer", "pooled"):
        raise InvalidSpec(
            required="nonlinear units are told of with a fixed recurrence, through their responses",
            got=f"learn={learn!r}" if not fixed else f'by="{by}"',
            why="no theory tells how a nonlinear network learns its recurrence",
            remedy="leave it out, or rank plans with learncast.advise",
        )
    check_network(network)
    if by in ("auto", "modes") and has_one_response(network):
        modes = ResponseModeGround.of_responses(tasks, network, rate, goal or "modes", seed, trials)
        if by == "modes" or modes.fits:
            return modes
    if by == "modes":
        raise UnsupportedModel(
            f'by="modes" needs ReLU units of one recurrence and one sign, got {network.activation} units '
            'that share no response. Use by="auto".'
        )
    return ResponseGround(tasks, network, rate, seed, trials)
