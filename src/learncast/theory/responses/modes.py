"""One response feature as one learning mode: the closed forms of the linear theory with measured statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray, positive
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import Alignment
from learncast.results import Trajectory
from learncast.tasks.geometry import Frame
from learncast.tasks.task import Task
from learncast.theory import assumptions as conditions
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.learning_problem import pooled_curvature
from learncast.theory.dynamics.modes import Modes, ModeSolution
from learncast.theory.dynamics.solution import LearningTime, checked_time
from learncast.theory.dynamics.steps.mode_descent import Problem
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.problem import network_of
from learncast.theory.responses.response import Response, active_units, check_network, linear_weights, response
from learncast.theory.responses.solution import ResponseFlowSolution, ResponseSolution
from learncast.theory.responses.trials import seed_of

__all__ = ["ResponseModeSolution", "ResponseModes", "solve_response"]


@dataclass(frozen=True, eq=False, repr=False)
class ResponseModes(Modes):
    """The single mode of ReLU units of one recurrence and one sign, with beta_yx = E[y z] and beta_xx = E[z^2].

    Let a and c be the vectors of |a_i| and c_i over units. The residual beta - u B drives a + c and a - c in proportion
    to themselves. Any number of units thus follows the equation of one mode, with u = a . c and
    |lambda| = |a + c| |a - c|.

    Attributes
    ----------
    response : Response

    Examples
    --------
    The response of a rectified unit has nearly the power of a linear one, but half its covariance with the target:

    >>> import learncast as lc
    >>> from learncast.theory.dynamics.modes import modes
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1)
    >>> linear = modes(task, network)
    >>> (relu,) = lc.theory.modes_of_responses(lc.Activated(network, "relu"), [task], trials=2000)
    >>> [(float(m.weighted_cross[0].round(1)), float(m.weighted_input[0].round(1))) for m in (linear, relu)]
    [(8.8, 5.2), (3.8, 4.2)]
    >>> relu.resamples[0].shape
    (200, 1)
    """

    promise = "response"
    response: Response
    resamples: tuple[FloatArray, FloatArray] = field(kw_only=True)

    @property
    def target_power(self) -> float:
        return float(self.response.features.target_power[0])


@dataclass(frozen=True, eq=False, repr=False)
class ResponseModeSolution(ResponseSolution, ModeSolution):
    """Closed-form learning of ReLU units that share one response feature; times have intervals.

    Assumes: one_response, stable_learning_rate

    Attributes
    ----------
    modes : ResponseModes
        The mode, with its response.
    network : LinearRNN
        The weights before training.
    learning_rate : float
        Times are in steps of this size.

    Examples
    --------
    A rectified unit takes twice as many steps as a linear one; 2000 trials give this to 3%:

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1)
    >>> lc.forecast(task, network, learning_rate=1e-3).solution.time_to(0.9).descent_steps
    497.0
    >>> measured = lc.theory.response(task, lc.Activated(network, "relu"), trials=2000)
    >>> solution = lc.theory.solve_response(measured, learning_rate=1e-3)
    >>> solution
    <ResponseModeSolution of 'integration' at learning rate 0.001: one response feature, response>
    >>> solution.time_to(0.9)
    <LearningTime to 0.9: 1056.08 flow steps, 1057 descent steps (1040 to 1074), ok>
    """

    modes: ResponseModes
    _origin = ("theory", ("curriculum2025", "proca2025", "saxe2014"))

    @property
    def response(self) -> Response:  # type: ignore[override]
        """Statistics, trials and the network before training."""
        return self.modes.response

    def at(self, times: ArrayLike) -> Trajectory:
        """Return strength, weights and loss; the mode has the number of its feature, as in the integrated flow."""
        trajectory = super().at(times)
        return Trajectory(trajectory.dataset.assign_coords(mode=[_feature(self.response)]), trajectory.provenance)

    def network_at(self, time: float) -> Activated:  # type: ignore[override]
        """Return the network after `time` gradient steps of the flow."""
        u = float(self._strengths(np.array([checked_time(time)]))[0, 0])
        sign, w, c = _units(self.response.network)
        forward, backward = w + c, w - c
        growth = np.sqrt(_growth(u, forward, backward))
        with np.errstate(divide="ignore", invalid="ignore"):
            forward = np.where(forward == 0, 0.0, forward * growth)
            backward = np.where(backward == 0, 0.0, backward / growth)
        state = np.concatenate([sign * (forward + backward) / 2, (forward - backward) / 2])
        return network_of(self.response.network, state)

    def time_to(self, accuracy: float) -> LearningTime:
        """Return the first time with |u - u*| <= (1 - accuracy) |u*| for the measured statistics, with intervals."""
        times = super().time_to(accuracy)
        alignment, resampled = self.modes.alignment, Problem(*self.modes.resamples, self.modes.imbalance)
        weights = np.stack([alignment.input_weight, alignment.output_weight])
        start, goal = np.repeat(weights[None], len(resampled.cross), axis=0), resampled.within(1.0 - times.accuracy)
        descent = resampled.steps_to(start, goal, self.learning_rate, precise=False)[0]
        return replace(times, descent_interval=interval(times.mode_descent_steps, descent[:, None]))

    @cached_property
    def curvatures(self) -> FloatArray:
        """Curvature of the loss in the weights of all units, at the start and at the end."""
        beta, B = self.modes.weighted_cross[None], self.modes.weighted_input[None]
        ends = (linear_weights(network) for network in (self.response.network, self.network_at(np.inf)))
        return np.array([pooled_curvature(beta, B, np.abs(w.input_weights), w.output_weights) for w in ends])

    def __repr__(self) -> str:
        return (
            f"<ResponseModeSolution of {self.modes.task.name!r} at learning rate {self.learning_rate:g}: "
            f"one response feature, {self.forecast_class}>"
        )


def has_one_response(network: Activated) -> bool:
    """Return whether there is a closed form: all active units share one response feature and one output."""
    if network.activation != "relu" or network.outputs != 1:
        return False
    w, active = linear_weights(network), active_units(network)
    signs, recurrence = np.sign(w.input_weights[active, 0]), np.diagonal(w.recurrent_weights)[active]
    return bool((signs == signs[0]).all() and (recurrence == recurrence[0]).all())


def solve_response(measured: Response, *, learning_rate: float) -> ResponseSolution:
    """Solve the learning of a network from its measured responses.

    ReLU units that share one response and keep it have a closed form; others are integrated.

    Parameters
    ----------
    measured : Response
        Result of `response`, with the network before training.
    learning_rate : float
        Step size of gradient descent; times are in steps of this size.

    Returns
    -------
    ResponseSolution
        Learning as a function of time, with intervals.

    Examples
    --------
    One measurement serves several learning rates:

    >>> import learncast as lc
    >>> from learncast.theory import response, solve_response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> measured = response(task, network, trials=2000)
    >>> [solve_response(measured, learning_rate=rate).time_to(0.9).descent_steps for rate in (1e-3, 1e-2)]
    [1057.0, 106.0]
    """
    rate = positive("learning_rate", learning_rate)
    if has_one_response(measured.network):
        modes = mode_of_response(measured)
        if conditions.exact(modes.assumptions):
            return ResponseModeSolution(modes, linear_weights(measured.network), rate)
    return ResponseFlowSolution.of(measured, rate)


def modes_of_responses(
    network: Activated, tasks: Sequence[Task], rng: np.random.Generator | int = 0, trials: int | None = None
) -> list[ResponseModes]:
    """Return the mode of each task for a network whose ReLU units share one response.

    Parameters
    ----------
    network : Activated
        ReLU units of one recurrence and one sign, with one output.
    tasks : sequence of Task
    rng : numpy.random.Generator or int
        Generator or seed of the trials. All tasks share their noise.
    trials : int, optional
        Number of trials, as for `response`.

    Returns
    -------
    list of ResponseModes

    Examples
    --------
    >>> import learncast as lc
    >>> tasks = [lc.tasks.integration(steps=20, target_strength=strength) for strength in (1.0, 2.0)]
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> modes = lc.theory.modes_of_responses(network, tasks, trials=2000)
    >>> [float(mode.optimum[0].round(2)) for mode in modes]
    [0.9, 1.81]
    """
    check_network(network)
    if not has_one_response(network):
        raise UnsupportedModel(
            "Closed forms need ReLU units of one recurrence and one sign with one output, got "
            f"{len(active_units(network))} {network.activation} units and {network.outputs} outputs.",
            field="network",
        )
    seed = seed_of(rng, "rng")  # all tasks share their noise
    return [mode_of_response(response(task, network, rng=seed, trials=trials)) for task in tasks]


def mode_of_response(measured: Response) -> ResponseModes:
    """Return the mode of one measured response."""
    _, w, c = _units(measured.network)
    k, features = _feature(measured), measured.features
    crosses, powers = features.cross[:, 0, k, None], np.maximum(features.power[:, k, k, None], 0.0)
    cross, power = float(crosses[0, 0]), float(powers[0, 0])
    alignment = _alignment(w, c, float(features.recurrences[0]), measured.network.hidden_size)
    assumptions = (_one_response(w, c, cross, power), conditions.balanced_start(alignment))
    frame, resamples = Frame(np.ones((1, 1)), np.ones((1, 1))), (crosses[1:], powers[1:])
    strengths = crosses[0], powers[0]
    return ResponseModes(measured.trials.task, frame, alignment, *strengths, assumptions, measured, resamples=resamples)


def _units(network: Activated) -> tuple[float, FloatArray, FloatArray]:
    """Return the common sign, and |a| and c of the active units."""
    w, active = linear_weights(network), active_units(network)
    a = w.input_weights[active, 0]
    return float(np.sign(a[0])), np.abs(a), w.output_weights[0, active]


def _feature(measured: Response) -> int:
    return 0 if _units(measured.network)[0] > 0 else 1


def _alignment(w: FloatArray, c: FloatArray, recurrence: float, hidden: int) -> Alignment:
    if len(w) == 1:
        a_one, c_one = float(w[0]), float(c[0])
    else:  # one unit with the same |a + c| and |a - c| follows the same equation
        forward, backward = float(np.linalg.norm(w + c)), float(np.linalg.norm(w - c))
        a_one, c_one = (forward + backward) / 2, (forward - backward) / 2
    direction = np.eye(hidden, 1)
    return Alignment(np.array([a_one]), np.array([c_one]), np.array([recurrence]), direction, 0.0, 0.0)


def _growth(u: float, forward: FloatArray, backward: FloatArray) -> float:
    """Return the factor by which |a + c|^2 grows, and |a - c|^2 shrinks, until the strength is u."""
    P, Q = float(forward @ forward), float(backward @ backward)
    larger = float(np.hypot(np.sqrt(P * Q), 2 * u)) + 2 * abs(u)
    if u >= 0:
        return larger / P if P > 0 else np.inf
    return Q / larger


def _one_response(w: FloatArray, c: FloatArray, cross: float, power: float) -> Assumption:
    """Measure the share of units whose input weight passes through 0 on the way to the optimum."""
    best = cross / power if power > 0 else 0.0
    forward, backward = w + c, w - c
    growth = _growth(best, forward, backward)
    end = forward if np.isinf(growth) else forward * growth + backward
    return Assumption("one_response", float(np.mean(end < 0)))
