"""One response feature as one learning mode: the closed forms of the linear theory with measured statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from learncast._core.errors import UnsupportedModel
from learncast._core.validation import FloatArray, positive
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import Alignment
from learncast.results import Provenance, Trajectory, spec_hash
from learncast.tasks.geometry import Frame
from learncast.tasks.task import Task
from learncast.theory import assumptions as conditions
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.learning_problem import pooled_curvature
from learncast.theory.dynamics.modes import Modes, ModeSolution
from learncast.theory.dynamics.solution import LearningTime, checked_time
from learncast.theory.responses.bootstrap import interval
from learncast.theory.responses.problem import network_of
from learncast.theory.responses.response import Response, active_units, check_network, linear_weights, response
from learncast.theory.responses.solution import ResponseFlowSolution, ResponseSolution
from learncast.theory.responses.trials import seed_of

__all__ = ["ResponseModeSolution", "ResponseModes", "solve_response"]


@dataclass(frozen=True, eq=False, repr=False)
class ResponseModes(Modes):
    """A task seen by ReLU units of one recurrence and one sign: a single mode with beta_yx = E[y z], beta_xx = E[z^2].

    With |a_i| and c_i of all units as vectors the gap beta - u B drives a + c and a - c in proportion to themselves, so
    any number of units follows the equation of one mode, with u = a . c and |lambda| = |a + c| |a - c|.

    Attributes
    ----------
    response : Response

    Examples
    --------
    A rectified unit answers nearly as strongly as a linear one, but co-varies half as much with what is asked for:

    >>> import learncast as lc
    >>> from learncast.theory.dynamics.modes import modes
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1)
    >>> linear = modes(task, network)
    >>> relu = lc.solve(task, lc.Activated(network, "relu"), learning_rate=1e-3, trials=2000).modes
    >>> [(float(m.weighted_cross[0].round(1)), float(m.weighted_input[0].round(1))) for m in (linear, relu)]
    [(8.8, 5.2), (3.8, 4.2)]
    >>> relu.replicas[0].shape
    (200, 1)
    """

    response: Response

    @property
    def promise(self) -> str:
        """As good as the measured responses."""
        return "response"

    @property
    def replicas(self) -> tuple[FloatArray, FloatArray]:
        """Bootstrap replicas of beta_yx and beta_xx, (replicas, 1) each; the same resampling for every task."""
        k, features = _feature(self.response), self.response.features
        return features.cross[1:, 0, k, None], np.maximum(features.power[1:, k, k, None], 0.0)

    def loss(self, strengths: FloatArray) -> FloatArray:
        """Half mean squared error at strengths (..., 1)."""
        quadratic = self.weighted_input * strengths**2 / 2 - self.weighted_cross * strengths
        return np.asarray(self.response.features.target_power[0] / 2 + quadratic.sum(axis=-1))


@dataclass(frozen=True, eq=False, repr=False)
class ResponseModeSolution(ResponseSolution, ModeSolution):
    """Closed-form learning of ReLU units that share one response feature; times carry intervals.

    Assumes: one_response, stable_learning_rate

    Attributes
    ----------
    modes : ResponseModes
        The one mode, and the response it was measured by.
    network : LinearRNN
        The weights before training.
    learning_rate : float
        Times are counted in its steps.

    Examples
    --------
    A rectified unit takes twice the steps of a linear one, known to 3% from 2000 trials:

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1)
    >>> lc.solve(task, network, learning_rate=1e-3).time_to(0.9).descent_steps
    497.0
    >>> solution = lc.solve(task, lc.Activated(network, "relu"), learning_rate=1e-3, trials=2000)
    >>> solution
    <ResponseModeSolution of 'integration' at learning rate 0.001: one response feature, response>
    >>> solution.time_to(0.9)
    <LearningTime to 0.9: 1056.08 flow steps (1042.63 to 1073.58), 1057 descent steps, ok>
    """

    modes: ResponseModes

    @property
    def response(self) -> Response:  # type: ignore[override]
        """The measured statistics, and the network before training."""
        return self.modes.response

    def at(self, times: Any) -> Trajectory:
        """Strength, weights and loss; the mode is numbered as the feature that the integrated flow calls so."""
        found = super().at(times)
        return Trajectory(found.dataset.assign_coords(mode=[_feature(self.response)]), found.provenance)

    def network_at(self, time: float) -> Activated:  # type: ignore[override]
        """Return the network as it is after `time` gradient steps of the flow."""
        u = float(self._strengths(np.array([checked_time(time)]))[0, 0])
        sign, w, c = _units(self.response.network)
        forward, backward = w + c, w - c
        growth = np.sqrt(_growth(u, forward, backward))
        with np.errstate(divide="ignore", invalid="ignore"):
            forward = np.where(forward == 0, 0.0, forward * growth)
            backward = np.where(backward == 0, 0.0, backward / growth)
        moved = np.concatenate([sign * (forward + backward) / 2, (forward - backward) / 2])
        return network_of(self.response.network, moved)

    def time_to(self, accuracy: float) -> LearningTime:
        """First entry into |u - u*| <= (1 - accuracy) |u*| on the measured statistics, with intervals."""
        found = super().time_to(accuracy)
        m = self.modes
        arguments = (m.imbalance, *m.replicas)
        flow, edge = mode_equation.time_to_band(m.start, *arguments, 1.0 - found.accuracy)
        descent = mode_equation.descent_steps(
            np.broadcast_to(m.start, edge.shape), edge, *arguments, flow, self.learning_rate
        )
        return replace(
            found,
            flow_interval=interval(found.mode_flow_steps, flow / self.learning_rate),
            descent_interval=interval(found.mode_descent_steps, descent),
        )

    @cached_property
    def curvatures(self) -> FloatArray:
        """Curvature of the loss in all units' weights, at the start and at the end."""
        beta, B = self.modes.weighted_cross[None], self.modes.weighted_input[None]
        ends = (linear_weights(network) for network in (self.response.network, self.network_at(np.inf)))
        return np.array([pooled_curvature(beta, B, np.abs(w.input_weights), w.output_weights) for w in ends])

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        digest = spec_hash(self.response.hash, self.learning_rate)
        return Provenance("theory", ("curriculum2025", "proca2025", "saxe2014"), digest, self.response.provenance.seed)

    def __repr__(self) -> str:
        return (
            f"<ResponseModeSolution of {self.modes.task.name!r} at learning rate {self.learning_rate:g}: "
            f"one response feature, {self.forecast_class}>"
        )


def has_one_response(network: Activated) -> bool:
    """Whether all active units share one response feature and one output: the case with a closed form."""
    if network.activation != "relu" or network.outputs != 1:
        return False
    w, active = linear_weights(network), active_units(network)
    signs, recurrence = np.sign(w.input_weights[active, 0]), np.diagonal(w.recurrent_weights)[active]
    return bool((signs == signs[0]).all() and (recurrence == recurrence[0]).all())


def solve_response(found: Response, *, learning_rate: float) -> ResponseSolution:
    """Solve the learning of a network through its measured responses, whatever they were measured on.

    In closed form where ReLU units share one response and keep it, integrated otherwise.

    Parameters
    ----------
    found : Response
        What `response` measured; it holds the network before training.
    learning_rate : float
        Step size of gradient descent; times are counted in its steps.

    Returns
    -------
    ResponseSolution
        Learning as a function of time; its times carry intervals.

    Raises
    ------
    InvalidSpec
        If the learning rate is not positive.

    Examples
    --------
    Measure once, ask for several learning rates:

    >>> from learncast.theory.responses.modes import solve_response
    >>> import learncast as lc
    >>> from learncast.theory.responses.response import response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> found = response(task, network, trials=2000)
    >>> [solve_response(found, learning_rate=rate).time_to(0.9).descent_steps for rate in (1e-3, 1e-2)]
    [1057.0, 106.0]
    """
    rate = positive("learning_rate", learning_rate)
    if has_one_response(found.network):
        modes = mode_of_response(found)
        if conditions.exact(modes.assumptions):
            return ResponseModeSolution(modes, linear_weights(found.network), rate)
    return ResponseFlowSolution.of(found, rate)


def modes_of_responses(
    network: Activated, tasks: Sequence[Task], rng: np.random.Generator | int = 0, trials: int | None = None
) -> list[ResponseModes]:
    """Each task by the one response that the network's ReLU units share."""
    check_network(network)
    if not has_one_response(network):
        raise UnsupportedModel(
            "closed forms need ReLU units of one recurrence and one sign with one output, got "
            f"{len(active_units(network))} active {network.activation} units with {network.outputs} outputs. "
            "Use learncast.solve or learncast.follow, which integrate them."
        )
    seed = seed_of(rng)  # the same noise for all
    return [mode_of_response(response(task, network, rng=seed, trials=trials)) for task in tasks]


def mode_of_response(found: Response) -> ResponseModes:
    """The mode of one measured response of a task."""
    _, w, c = _units(found.network)
    k, features = _feature(found), found.features
    cross, power = features.cross[0, 0, k], max(features.power[0, k, k], 0.0)
    alignment = _alignment(w, c, float(features.recurrences[0]), found.network.hidden_size)
    assumptions = (_one_response(w, c, float(cross), float(power)), conditions.balanced_start(alignment))
    one = np.ones((1, 1))
    return ResponseModes(
        found.trials.described, Frame(one, one), alignment, np.array([cross]), np.array([power]), assumptions, found
    )


def _units(network: Activated) -> tuple[float, FloatArray, FloatArray]:
    """The common sign, and |a| and c of the active units."""
    w, active = linear_weights(network), active_units(network)
    a = w.input_weights[active, 0]
    return float(np.sign(a[0])), np.abs(a), w.output_weights[0, active]


def _feature(found: Response) -> int:
    return 0 if _units(found.network)[0] > 0 else 1


def _alignment(w: FloatArray, c: FloatArray, recurrence: float, hidden: int) -> Alignment:
    if len(w) == 1:
        a_one, c_one = float(w[0]), float(c[0])
    else:  # one unit with the same |a + c| and |a - c| follows the same equation
        forward, backward = float(np.linalg.norm(w + c)), float(np.linalg.norm(w - c))
        a_one, c_one = (forward + backward) / 2, (forward - backward) / 2
    direction = np.zeros((hidden, 1))
    direction[0] = 1.0
    return Alignment(np.array([a_one]), np.array([c_one]), np.array([recurrence]), direction, 0.0, 0.0)


def _growth(u: float, forward: FloatArray, backward: FloatArray) -> float:
    """Factor by which |a + c|^2 grows, and |a - c|^2 shrinks, until the strength is u."""
    P, Q = float(forward @ forward), float(backward @ backward)
    larger = float(np.hypot(np.sqrt(P * Q), 2 * u)) + 2 * abs(u)
    if u >= 0:
        return larger / P if P > 0 else np.inf
    return Q / larger


def _one_response(w: FloatArray, c: FloatArray, cross: float, power: float) -> Assumption:
    """Share of the units whose input weight passes through 0 on the way to the optimum."""
    best = cross / power if power > 0 else 0.0
    forward, backward = w + c, w - c
    growth = _growth(best, forward, backward)
    left = forward if np.isinf(growth) else forward * growth + backward
    return Assumption("one_response", float(np.mean(left < 0)))
