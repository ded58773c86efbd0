"""The conditions of the theory, each measured as one number on a task and a network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from learncast._core.errors import AssumptionViolated
from learncast._core.validation import FloatArray
from learncast.display import Table
from learncast.networks.linear_rnn import Alignment
from learncast.results import FORECAST_CLASSES
from learncast.tasks.covariance import Covariance
from learncast.tasks.geometry import Frame, share
from learncast.tasks.task import Task

#: A residual that round-off in a few matrix products can leave.
EXACT = 1e-8


@dataclass(frozen=True)
class Condition:
    """What a condition requires, what follows when it fails, and what to do then.

    Examples
    --------
    >>> from learncast.theory.assumptions import ASSUMPTIONS
    >>> condition = ASSUMPTIONS["stable_learning_rate"]
    >>> condition.allowed, condition.binding
    (2.0, True)
    >>> condition.requires
    'learning_rate times the sharpest curvature met must stay below 2'
    """

    allowed: float
    requires: str
    otherwise: str
    remedy: str
    #: Whether the solution is exact only when the condition is met; otherwise it only tells what the solution does.
    binding: bool = True


ASSUMPTIONS = {
    "static_geometry": Condition(
        EXACT,
        "the directions that join inputs to targets must not turn over time or between tasks",
        "modes would mix while they learn, so their times are not separate",
        "use tasks with one geometry, integrate with gradient_flow, or pass strict=False for approximate times",
    ),
    "aligned_input_covariance": Condition(
        EXACT,
        "inputs must co-vary only within modes",
        "modes would drive each other through their inputs",
        "decorrelate the channels, integrate with gradient_flow, or pass strict=False for approximate times",
    ),
    "normal_recurrence": Condition(
        EXACT,
        "the recurrence must act on each mode's hidden direction as a number",
        "hidden activity would leak from one mode into others",
        "use a diagonal or scalar recurrence in the modes' directions, or integrate with gradient_flow",
    ),
    "aligned_start": Condition(
        EXACT,
        "the initial weights must join each input direction to its own output direction",
        "modes would share hidden directions and compete",
        "start with LinearRNN.aligned(task=...), or integrate with gradient_flow",
    ),
    "balanced_start": Condition(
        1.0,
        "none: balanced (a = c) and unbalanced starts are both solved exactly",
        "nothing is lost",
        "nothing to do",
        binding=False,
    ),
    "stable_learning_rate": Condition(
        2.0,
        "learning_rate times the sharpest curvature met must stay below 2",
        "gradient descent oscillates or diverges where the flow converges",
        "lower the learning rate, or pass strict=False for the flow's times alone",
    ),
    "one_response": Condition(
        EXACT,
        "no input weight of a ReLU unit may pass through zero on its way to the optimum",
        "the unit would answer with the other sign's response, which the closed form does not know",
        "use learncast.solve or learncast.follow, which integrate both responses, or start from other output weights",
    ),
    "whitened_input": Condition(
        EXACT,
        "the input (pooled over time in a recurrent network) must have equal variance in all directions",
        "directions of larger variance learn sooner, which the matrix Riccati solution does not know",
        "whiten the task with tasks.whitened, or integrate with gradient_flow",
    ),
    "balanced_weights": Condition(
        EXACT,
        "the layers must be balanced, W2^T W2 - W1 W1^T a multiple of the identity where the weights act",
        "the layers grow at different rates, and the error is of order one",
        "start with TwoLayer.balanced, or integrate with gradient_flow",
    ),
    "scalar_recurrence": Condition(
        EXACT,
        "the recurrent weights must be a multiple of the identity",
        "inputs of different age reach the output through different maps, so they cannot be pooled",
        "use a scalar recurrence, a network aligned with the task's modes, or gradient_flow",
    ),
    "regular_orientation": Condition(
        1.0 - 1e-10,
        "the start must not be turned exactly against the task",
        "the exact flow ends on a saddle and never learns a mode; real training stalls there and escapes by noise",
        "start from other weights, or expect the stall",
        binding=False,
    ),
}


@dataclass(frozen=True)
class Assumption:
    """One condition of the theory, as measured.

    Attributes
    ----------
    name : str
        Key of `ASSUMPTIONS`.
    measured, allowed : float
        The number found, and the largest under which the theory is exact.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.solve(task, network, learning_rate=1e-3)
    >>> rate = solution.assumptions[-1]
    >>> rate.name, rate.holds, rate.allowed
    ('stable_learning_rate', True, 2.0)
    """

    name: str
    measured: float
    conditions: ClassVar[Mapping[str, Condition]] = ASSUMPTIONS

    @property
    def condition(self) -> Condition:
        """What it requires and what follows when it fails."""
        return self.conditions[self.name]

    @property
    def allowed(self) -> float:
        """Largest measured number under which the theory is exact."""
        return self.condition.allowed

    @property
    def holds(self) -> bool:
        """Whether the condition is met."""
        return bool(self.measured <= self.allowed)

    @property
    def verdict(self) -> str:
        """Whether it holds, for people; a condition that nothing rests on is only told."""
        return "yes" if self.holds else "NO" if self.condition.binding else "no, not needed"

    def violation(self) -> AssumptionViolated:
        """Make the error that says so."""
        return AssumptionViolated(
            f"{self.name} requires that {self.condition.requires} (at most {self.allowed:g}), got {self.measured:.4g}.",
            assumption=self.name,
            measured=self.measured,
            allowed=self.allowed,
        )


@dataclass(frozen=True)
class Trust:
    """How far numbers can be trusted: one statement for table, class, footer, exit code, repr and badge.

    Attributes
    ----------
    assumptions : tuple of Assumption
        Every condition, as measured.
    promise : str
        What may be promised where all that bind hold: a key of `learncast.results.FORECAST_CLASSES`.

    Examples
    --------
    >>> from learncast.theory.assumptions import Assumption, Trust
    >>> trust = Trust((Assumption("stable_learning_rate", 0.1), Assumption("aligned_start", 0.3)), promise="exact")
    >>> trust.forecast_class, trust.names
    ('outside', 'aligned start (0.3)')
    """

    assumptions: tuple[Assumption, ...]
    promise: str

    @property
    def failed(self) -> tuple[Assumption, ...]:
        """Conditions that bind and do not hold."""
        return tuple(a for a in self.assumptions if a.condition.binding and not a.holds)

    @property
    def holds(self) -> bool:
        """Whether every condition that binds holds."""
        return not self.failed

    @property
    def forecast_class(self) -> str:
        """What may be promised here; what was measured stays measured."""
        return self.promise if self.holds or self.promise == "measured" else "outside"

    @property
    def standing(self) -> tuple[str, str]:
        """The class and what it promises."""
        return self.forecast_class, FORECAST_CLASSES[self.forecast_class]

    @property
    def table(self) -> Table:
        """Every condition with what was measured and what is allowed."""
        rows = [(a.name.replace("_", " "), f"{a.measured:.3g}", f"{a.allowed:g}", a.verdict) for a in self.assumptions]
        return Table("How far to trust it", ("assumption", "measured", "allowed", "holds"), rows)

    @property
    def names(self) -> str:
        """The conditions that fail, with their numbers, in words."""
        return ", ".join(f"{a.name.replace('_', ' ')} ({a.measured:.2g})" for a in self.failed)


def require(assumptions: Iterable[Assumption]) -> None:
    """Raise for the first binding assumption that does not hold.

    Parameters
    ----------
    assumptions : iterable of Assumption
        As a solution's ``assumptions`` gives them.

    Raises
    ------
    AssumptionViolated
        For the first that binds and does not hold.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import Assumption, require
    >>> require([Assumption("aligned_start", 0.0)])
    >>> try:
    ...     require([Assumption("aligned_start", 0.3)])
    ... except lc.AssumptionViolated as error:
    ...     print(error.why)
    modes would share hidden directions and compete
    """
    for assumption in assumptions:
        if assumption.condition.binding and not assumption.holds:
            raise assumption.violation()


def exact(assumptions: Iterable[Assumption]) -> bool:
    """Whether every binding assumption holds, so that the solution is exact.

    Parameters
    ----------
    assumptions : iterable of Assumption
        As a solution's ``assumptions`` gives them.

    Returns
    -------
    bool

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import exact
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.solve(task, network, learning_rate=1e-3)
    >>> exact(solution.assumptions)
    True
    """
    return all(a.holds for a in assumptions if a.condition.binding)


def worst(groups: Iterable[Iterable[Assumption]]) -> tuple[Assumption, ...]:
    """For each condition the largest number measured anywhere, in the order first met.

    Parameters
    ----------
    groups : iterable of iterables of Assumption
        Those of several tasks or stages, say.

    Returns
    -------
    tuple of Assumption

    Examples
    --------
    >>> from learncast.theory.assumptions import Assumption, worst
    >>> stages = [[Assumption("aligned_start", 0.0)], [Assumption("aligned_start", 0.2)]]
    >>> [(one.name, one.measured) for one in worst(stages)]
    [('aligned_start', 0.2)]
    """
    found: dict[str, Assumption] = {}
    for group in groups:
        for item in group:
            if item.name not in found or not item.measured <= found[item.name].measured:
                found[item.name] = item
    return tuple(found.values())


def static_geometry(task: Task, frame: Frame) -> Assumption:
    """Share of the cross covariance that lies between different modes.

    Parameters
    ----------
    task : Task
    frame : Frame
        Directions of the modes, as `learncast.tasks.geometry.common_frame` finds them.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import static_geometry
    >>> from learncast.tasks.geometry import common_frame
    >>> task = lc.tasks.integration(steps=5)
    >>> static_geometry(task, common_frame([task])).holds
    True
    """
    rotated = task.cross_covariance.rotated(frame.inputs, frame.outputs)
    return Assumption("static_geometry", _off_diagonal_share(rotated))


def aligned_input_covariance(task: Task, frame: Frame) -> Assumption:
    """Share of the modes' input covariance that lies between a mode and any other input direction.

    Parameters
    ----------
    task : Task
    frame : Frame
        Directions of the modes, as `learncast.tasks.geometry.common_frame` finds them.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import aligned_input_covariance
    >>> from learncast.tasks.geometry import common_frame
    >>> task = lc.tasks.integration(steps=5)
    >>> aligned_input_covariance(task, common_frame([task])).measured
    0.0
    """
    # Directions beyond the modes may co-vary among themselves: no weights ever read them.
    rotated = task.input_covariance.rotated(frame.mode_inputs, frame.inputs)
    return Assumption("aligned_input_covariance", _off_diagonal_share(rotated))


def _off_diagonal_share(covariance: Covariance) -> float:
    off = covariance.off_diagonal_norm()
    return share(off, covariance.norm()) if off else 0.0


def balanced_start(alignment: Alignment) -> Assumption:
    """Largest |a^2 - c^2| / (a^2 + c^2) over modes.

    Parameters
    ----------
    alignment : Alignment
        A network's weights in the directions of the modes, as `Alignment.of` finds them.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.assumptions import balanced_start
    >>> from learncast.networks.linear_rnn import Alignment
    >>> from learncast.tasks.geometry import common_frame
    >>> task = lc.tasks.integration(steps=5)
    >>> network = lc.LinearRNN([[0.1]], [[0.9]], [[0.2]])
    >>> round(balanced_start(Alignment.of(network, common_frame([task]))).measured, 3)
    0.6
    """
    a2, c2 = alignment.input_weight**2, alignment.output_weight**2
    total = a2 + c2
    ratios = np.abs(a2 - c2) / np.where(total > 0, total, 1.0)
    return Assumption("balanced_start", float(ratios.max(initial=0.0)))


def stable_learning_rate(learning_rate: float, sharpness: FloatArray) -> Assumption:
    """Learning rate times the largest curvature of the loss at the start and at the optimum.

    Parameters
    ----------
    learning_rate : float
    sharpness : array
        Curvatures of the loss that descent meets.

    Returns
    -------
    Assumption

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory.assumptions import stable_learning_rate
    >>> [stable_learning_rate(rate, np.array([5.0, 50.0])).holds for rate in (0.01, 0.1)]
    [True, False]
    """
    return Assumption("stable_learning_rate", learning_rate * float(np.max(sharpness, initial=0.0)))
