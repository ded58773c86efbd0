"""The designer: the intermediate task, out of a family, that helps a target most."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import scipy

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, noticed, silent, time_is_up, time_limit
from learncast._core.validation import FloatArray, count, one_of, positive, real_array
from learncast._core.validation import between as within
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.forecast import Forecast, difference, ratio
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.schedules.problem import TIE, best_stop
from learncast.planning.variants import variant_of, weighted_variants
from learncast.procedure.goals import Accuracy
from learncast.procedure.stage import Stage
from learncast.results import Status
from learncast.tasks.task import Task
from learncast.theory.assumptions import require
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.modes import Modes
from learncast.theory.dynamics.steps.mode_descent import Problem
from learncast.theory.responses.trials import seed_of

#: What a gradient step may cost: the same on every task, or as much as its trial is long.
COSTS = ("steps", "trial_steps")


@dataclass(frozen=True, eq=False, repr=False)
class Design:
    """A designed intermediate task, its stop, and what it saves.

    Attributes
    ----------
    task : Task
        The designed task; the target itself if no design saves anything.
    parameters : mapping from keyword to number
    stop_steps : float
        Flow steps to spend on it.
    total, direct : float
        Cost of both stages, and of direct training, in steps of the target.
    at_bounds : tuple of str
        Keywords at an end of their range: a wider range would help more.
    evaluations : int
        Designs that were priced.
    forecast : Forecast
        Forecast of both stages.

    Examples
    --------
    Targets of any strength up to 3: the strongest helps most, and a wider range would help more.

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> bounds = {"target_strength": (0.5, 3.0)}
    >>> found = lc.planning.design(task, network, bounds=bounds, learning_rate=1e-3, evaluations=40)
    >>> round(found.stop_steps, 1), round(found.saving, 1), found.at_bounds
    (77.8, 252.2, ('target_strength',))
    """

    task: Task
    parameters: Mapping[str, float]
    stop_steps: float
    total: float
    direct: float
    at_bounds: tuple[str, ...]
    evaluations: int
    forecast: Forecast

    @property
    def saving(self) -> float:
        """Cost saved against direct training."""
        return difference(self.direct, self.total)

    @property
    def saving_ratio(self) -> float:
        """Cost of direct training over the total."""
        return ratio(self.direct, self.total)

    @property
    def helps(self) -> bool:
        """Whether some design saves anything."""
        return self.stop_steps > 0

    @property
    def status(self) -> Status:
        """Status of the forecast."""
        return self.forecast.steps.status

    def __repr__(self) -> str:
        given = ", ".join(f"{key} {value:.5g}" for key, value in self.parameters.items())
        return f"<Design {given}: cost {self.total:.6g}, direct {self.direct:.6g}, {self.status.name}>"


@noticed("designing a task")
def design(
    target: Task,
    network: LinearRNN | Activated,
    *,
    bounds: Mapping[str, tuple[float, float]],
    learning_rate: float,
    accuracy: float = 0.99,
    cost: str = "steps",
    most_sharpness: float = 1.0,
    evaluations: int = 4000,
    strict: bool = True,
    progress: Progress = silent,
    seconds: float | None = None,
    seed: int = 0,
) -> Design:
    """Design the intermediate task that, stopped at its best moment, makes the target cheapest.

    Keywords of the target's family are varied together within bounds; every design is priced at its own best stop on
    the closed forms. Designs too sharp for the learning rate do not compete. The search is global
    (differential evolution, then downhill) but without a proof: a better design may exist.

    Parameters
    ----------
    target : Task
        From a family.
    network : LinearRNN or Activated
    bounds : mapping from keyword to (low, high)
        What may be changed, and how far: target_strength, correlation, timescale, steps, ...
    learning_rate, accuracy : float
    cost : {"steps", "trial_steps"}
        Whether a gradient step costs the same on every task, or in proportion to the length of its trials.
    most_sharpness : float
        Largest learning rate times curvature of a design. Above 1 descent oscillates and leaves the flow that is
        forecast, above 2 it diverges.
    evaluations : int
        Designs to price, about.
    strict : bool
        Raise when the target or the design fails a condition of the theory.
    progress : callable
        Called with the share of the search done.
    seconds : float, optional
        After which the best design so far is taken.
    seed : int
        Of the search, and of the trials an Activated network is measured on.

    Returns
    -------
    Design
        The task, its stop, and what it saves.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> found = lc.planning.design(task, network, bounds={"target_strength": (0.5, 3.0)}, learning_rate=1e-3)
    >>> found.total < found.direct
    True
    """
    rate = positive("learning_rate", learning_rate)
    tolerance = 1.0 - within("accuracy", accuracy, 0.0, 1.0)
    one_of("cost", cost, COSTS)
    number = count("evaluations", evaluations)
    sharpest = within("most_sharpness", most_sharpness, 0.0, 2.0)
    ranges = _checked_bounds(target, bounds)
    seed = seed_of(seed)
    method = method_for([target], network, rate, method="modes", seed=seed, strict=strict)
    studio = _Studio(
        target, method.modes[0], network, tuple(ranges), tolerance, rate, cost == "trial_steps", sharpest, seed
    )
    if math.isfinite(studio.direct) and studio.direct > 0:
        with time_limit(seconds):
            values = _searched(studio, np.array(list(ranges.values())), number, progress)
    else:
        values = np.array([low for low, _ in ranges.values()])
    return _packed(studio, values, ranges, accuracy, strict)


@dataclass
class _Studio:
    """Computes the costs of many designs together."""

    target: Task
    own: Modes
    network: LinearRNN | Activated
    keywords: tuple[str, ...]
    tolerance: float
    rate: float
    by_length: bool
    sharpest: float
    seed: int

    def __post_init__(self) -> None:
        self.second = Problem(self.own.weighted_cross, self.own.weighted_input, self.own.imbalance)
        self.direct = float(self.second.arrival(self.own.start, self.tolerance)[0])
        self.evaluations = 0

    def method(self, tasks: list[Task]) -> Method:
        """The mode method of some tasks."""
        return method_for(tasks, self.network, self.rate, method="modes", seed=self.seed)

    def price(self, values: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Best total and the time on the design for it, of designs (designs, keywords)."""
        self.evaluations += len(values)
        changes = {key: values[:, k] for k, key in enumerate(self.keywords)}
        cross, power = weighted_variants(self.target, self.own, self.network, changes, self.seed)
        length = changes.get("steps", np.array(float(self.target.steps))) / self.target.steps
        price = np.broadcast_to(length if self.by_length else 1.0, (len(values),))
        # A step at half the price is a step at twice the speed.
        first = Problem(cross / price[:, None], power / price[:, None], self.own.imbalance)
        stops, totals = best_stop(self.own.start, first, self.second, self.tolerance)
        sharp = mode_equation.sharpness(self.own.start, self.own.imbalance, cross, power).max(axis=1)
        excess = np.maximum(sharp * self.rate - self.sharpest, 0.0)
        # Designs that are too sharp cost more than direct training, increasingly, which leads the search back.
        totals = np.where(excess > 0, self.direct * (1 + excess), totals)
        return totals, np.where(excess > 0, 0.0, stops / price)


def _searched(studio: _Studio, ranges: FloatArray, evaluations: int, progress: Progress) -> FloatArray:
    whole = np.array([key == "steps" for key in studio.keywords])
    population = min(16 * len(ranges), max(5, evaluations))
    rounds = max(1, evaluations // population - 1)
    done = iter(range(1, rounds + 2))

    def report(_: FloatArray, convergence: float = 0.0) -> bool:
        progress(min(1.0, next(done, rounds) / rounds))
        return time_is_up()  # True ends the search with the best design so far

    result = scipy.optimize.differential_evolution(
        lambda x: studio.price(np.atleast_2d(x.T))[0],
        list(map(tuple, ranges)),
        maxiter=rounds,
        popsize=max(1, population // len(ranges)),
        tol=1e-10,
        polish=False,
        integrality=whole,
        vectorized=True,
        updating="deferred",
        init="sobol",
        seed=np.random.default_rng(studio.seed),  # scipy names it rng from 1.15 on, and takes both
        callback=report,
    )
    best, least = np.array(result.x, dtype=float), float(result.fun)
    free = ~whole
    if free.any():

        def cost(moved: FloatArray) -> float:
            full = best.copy()
            full[free] = moved
            return float(studio.price(full[None])[0][0])

        limits = [tuple(pair) for pair in ranges[free]]
        options = {"xatol": 1e-10, "fatol": 1e-12 * least, "maxfev": 200 * int(free.sum())}
        refined = scipy.optimize.minimize(cost, best[free], method="Nelder-Mead", bounds=limits, options=options)
        if refined.fun < least:
            best[free], least = refined.x, float(refined.fun)
    corners = np.where(np.isclose(best - ranges[:, 0], 0, atol=1e-6 * np.ptp(ranges, axis=1)), ranges[:, 0], best)
    corners = np.where(np.isclose(ranges[:, 1] - best, 0, atol=1e-6 * np.ptp(ranges, axis=1)), ranges[:, 1], corners)
    return corners if studio.price(corners[None])[0][0] <= least else best


def _packed(
    studio: _Studio, values: FloatArray, ranges: Mapping[str, tuple[float, float]], accuracy: float, strict: bool
) -> Design:
    totals, stops = studio.price(values[None]) if math.isfinite(studio.direct) else (np.array([np.inf]), np.zeros(1))
    total, stop = float(totals[0]), float(stops[0]) / studio.rate
    if not total < studio.direct * (1 - TIE):
        total, stop = studio.direct, 0.0
    final = Stage(studio.target, Accuracy(accuracy))
    if stop == 0.0:
        forecast = Forecast(studio.method([studio.target]), (final,), (0,))
        steps = studio.direct / studio.rate
        return Design(studio.target, {}, 0.0, steps, steps, (), studio.evaluations, forecast)
    given = dict(zip(ranges, values.tolist(), strict=True))
    task = variant_of(studio.target, given).renamed(f"designed {studio.target.name}")
    forecast = Forecast(studio.method([task, studio.target]), (Stage(task, steps=stop), final), (0, 1))
    if strict:
        require(forecast.trust.assumptions)
    ends = tuple(key for key, (low, high) in ranges.items() if given[key] in (low, high))
    return Design(
        task, given, stop, total / studio.rate, studio.direct / studio.rate, ends, studio.evaluations, forecast
    )


def _checked_bounds(target: Task, bounds: Mapping[str, object]) -> dict[str, tuple[float, float]]:
    if not bounds:
        raise InvalidSpec(
            "bounds must name at least one keyword of the target's family, such as {'target_strength': (0.5, 2.0)}.",
            field="bounds",
        )
    found = {}
    for key, pair in bounds.items():
        ends = real_array(f"bounds of {key}", pair, ndim=1)
        if len(ends) != 2 or not ends[0] < ends[1]:
            raise InvalidSpec(
                f"bounds of {key} must be a low and a high end, got {ends.tolist()!r:.60}.", field="bounds"
            )
        found[key] = (float(ends[0]), float(ends[1]))
    for end in (0, 1):  # both ends must be valid tasks
        variant_of(target, {key: pair[end] for key, pair in found.items()})
    return found
