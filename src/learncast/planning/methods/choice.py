"""The choice of a method: the first whose conditions hold, or the one that is named."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import one_of
from learncast.networks import Network
from learncast.networks.activated import Activated
from learncast.networks.deep import Deep, Linear
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.methods.linear import FlowMethod, PooledMethod
from learncast.planning.methods.method import LIMIT, Method
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.methods.optimizers import OptimizerMethod
from learncast.planning.methods.responses import ResponseMethod, ResponseModeMethod
from learncast.planning.methods.two_layer import TwoLayerMethod
from learncast.procedure.training import OPTIMIZERS, Training
from learncast.tasks.geometry import pooled_statistics
from learncast.tasks.task import Task
from learncast.theory.assumptions import require
from learncast.theory.dynamics.learning_problem import checked_learn, learned_weights
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.responses.modes import has_one_response, modes_of_responses
from learncast.theory.responses.response import check_network

#: Names of all methods.
METHODS = ("modes", "two-layer", "pooled", "deep", "flow", "responses")
#: Relative size of a commutator below which matrices may share a frame.
COMMUTING = 1e-3


def default_learn(network: object) -> tuple[str, ...]:
    """Names of the weights of a network that learn by default."""
    if isinstance(network, Activated):
        return ("input", "output")
    if not isinstance(network, LinearRNN | TwoLayer | Deep):
        raise UnsupportedModel(
            f"network must be a LinearRNN, TwoLayer, Deep or Activated, got {type(network).__name__}. For a torch "
            "module use learncast.advise.",
            field="network",
        )
    return learned_weights(network, None)


def method_for(
    tasks: Sequence[Task],
    network: Network,
    training: Training | float,
    *,
    method: str = "auto",
    strict: bool = False,
    seed: int = 0,
    trials: int | None = None,
    optimizers: bool = False,
) -> Method:
    """Choose how these tasks (the target last) are learned by this network, from measured conditions.

    1. ``modes``: every task and the start decompose into common modes (closed form);
    2. ``two-layer``: the pooled input is white and the start balanced (exact flow);
    3. ``pooled``: the recurrence is scalar and fixed (descent counted on pooled statistics);
    4. ``flow``: any linear network and any weights that learn (integrated flow);
    5. ``deep``: ``pooled`` for a network of any number of layers, all of which learn (closed form on modes);
    6. ``responses``: nonlinear units with fixed recurrence, through their measured responses.

    Parameters
    ----------
    tasks : sequence of Task
    network : LinearRNN, TwoLayer, Deep or Activated
    training : Training or float
        Settings, or the learning rate.
    method : {"auto", "modes", "two-layer", "pooled", "deep", "flow", "responses"}
        The first whose conditions hold, or the one named, whether or not they hold.
    strict : bool
        Raise if a condition of the chosen method fails, except the limit of the learning rate: it depends on the stop.
    seed : int
        Seed of measured responses and of resampled statistics.
    trials : int, optional
        Number of trials on which responses are measured.
    optimizers : bool
        Whether other optimisers than gradient descent are allowed, for which steps are counted but there is no flow.

    Returns
    -------
    Method

    Raises
    ------
    AssumptionViolated
        If a condition fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> method = lc.planning.method_for([task], network, 1e-3)
    >>> method.name, method.trust([0]).forecast_class
    ('modes', 'exact')
    """
    default, settings = default_learn(network), Training.of(training)
    check_plain_descent(settings, optimizers=optimizers, mean=True)
    if settings.learn is None:
        settings = settings.with_(learn=default)
    fixed = set(settings.learn or ()) == set(default)
    plain = settings.optimizer == "gd" and not settings.weight_decay
    known = _methods_of(network, fixed) if plain else ("auto", "descent")
    if method in METHODS and method not in known:
        how = f"that learns {', '.join(settings.learn or ())}" if plain else f"trained by {settings.optimizer!s:.40}"
        problem = f"{method!r} does not apply to a {type(network).__name__} {how}."
        raise InvalidSpec(f"{problem} Use {', '.join(known)}.", field="method")
    one_of("method", method, known)
    if not plain:
        return _optimizer_method(tuple(tasks), network, settings, seed)
    if isinstance(network, Activated):
        chosen: Method = _response_method(tuple(tasks), network, settings, fixed, method, seed, trials)
    else:
        chosen = _linear_method(tuple(tasks), network, settings, fixed, method, seed)
    if strict:
        require(a for a in chosen.assumptions if a.name != LIMIT)
    return chosen


def _methods_of(network: Network, fixed: bool) -> tuple[str, ...]:
    """Names of the methods for a network, in the order in which they are tried."""
    if isinstance(network, Activated):
        return ("auto", "modes", "responses")
    if not fixed:
        return ("auto", "flow")
    if isinstance(network, Deep):
        return ("auto", "deep")
    return ("auto", *(("modes",) if isinstance(network, LinearRNN) else ()), "two-layer", "pooled", "flow")


def check_plain_descent(training: Training, *, optimizers: bool = False, mean: bool = False) -> None:
    """Raise unless the training is gradient descent on half the squared error, or is allowed to differ.

    Parameters
    ----------
    training : Training
    optimizers, mean : bool
        Whether other optimisers are allowed, and the mean squared error.
    """
    plain = Training(training.learning_rate, loss="mse" if mean and training.loss == "mse" else "half_mse")
    for key in ("loss", "clip", "schedule"):
        if getattr(training, key) != getattr(plain, key):
            given, losses = f"{key}={getattr(training, key)!r:.40}", "half_mse or mse" if mean else "half_mse"
            raise InvalidSpec(f"This needs the loss {losses} without clip and schedule, got {given}.", field=key)
    for key, value in (("optimizer", training.optimizer), ("weight_decay", training.weight_decay or "gd")):
        if value != "gd" and not optimizers:
            raise InvalidSpec(f"This needs plain gradient descent, got {key}={value!r:.40}.", field=key)


def _optimizer_method(tasks: tuple[Task, ...], network: Network, training: Training, seed: int) -> OptimizerMethod:
    """The method for other optimisers than plain gradient descent, and for weight decay."""
    if isinstance(network, Activated):
        raise UnsupportedModel(f"{training.optimizer!r:.40} is forecast for linear networks only.", field="network")
    if callable(training.optimizer):
        raise InvalidSpec(f"Forecasts need an optimizer by name: {', '.join(OPTIMIZERS)}.", field="optimizer")
    if training.batch is not None:
        raise InvalidSpec("Named optimisers are forecast for full batches. Use batch=None, or train.", field="batch")
    return OptimizerMethod(tasks, network, training.with_(learn=checked_learn(network, training.learn)), seed)


def _linear_method(
    tasks: tuple[Task, ...], network: Linear, training: Training, fixed: bool, method: str, seed: int
) -> Method:
    training = training.with_(learn=checked_learn(network, training.learn))
    if isinstance(network, Deep):
        return (PooledMethod if fixed else FlowMethod)(tasks, network, training, seed)
    may_have_modes = method == "modes" or (method == "auto" and fixed and _may_share_modes(tasks, network))
    if may_have_modes and isinstance(network, LinearRNN):
        modes = ModeMethod.of(tasks, network, training, seed)
        if method == "modes" or modes.applies:
            return modes
    # Building the two-layer method factorises every task: look at its cheap conditions first.
    if method == "two-layer" or (method == "auto" and fixed and _may_be_white(tasks, network)):
        exact = TwoLayerMethod(tasks, network, training, seed)
        if method == "two-layer" or exact.applies:
            return exact
    if method == "pooled" or (method == "auto" and fixed):
        pooled = PooledMethod(tasks, network, training, seed)
        if method == "pooled" or pooled.applies:
            return pooled
    return FlowMethod(tasks, network, training, seed)


def _may_be_white(tasks: tuple[Task, ...], network: LinearRNN | TwoLayer) -> bool:
    """Whether the recurrence is scalar and every pooled input white."""
    problems = [PooledProblem.of(task, network) for task in tasks]
    return all(p.scalar_recurrence.holds and p.whitened_input.holds for p in problems)


def _may_share_modes(tasks: tuple[Task, ...], network: LinearRNN | TwoLayer) -> bool:
    """Whether pooled inputs, targets and the start could be diagonal in one frame: then they commute.

    Recorded data and random starts fail this clearly, and their trials need not be decomposed step by step.
    """
    if isinstance(network, TwoLayer):
        return False
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


def _response_method(
    tasks: tuple[Task, ...], network: Activated, training: Training, fixed: bool, method: str, seed: int,
    trials: int | None,
) -> Method:  # fmt: skip
    if not fixed:
        raise InvalidSpec(
            f"Activated networks need a fixed recurrence, got learn={training.learn!r}. Use learncast.advise.",
            field="learn",
        )
    check_network(network)
    if method in ("auto", "modes") and has_one_response(network):
        modes = ResponseModeMethod(modes_of_responses(network, tasks, seed, trials), network, training, seed)
        if method == "modes" or modes.applies:
            return modes
    if method == "modes":
        raise UnsupportedModel(
            f"method 'modes' needs ReLU units of one recurrence and one sign, got {network.activation} units.",
            field="method",
        )
    return ResponseMethod(tasks, network, training, seed, trials)
