"""Terms of a plan: goal of the target, cost of steps, and limits on stages."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.validation import FloatArray, between, count, one_or_each
from learncast.procedure.goals import Goal, goal_of
from learncast.results import spec_hash
from learncast.tasks.task import Task

Numbers = float | Sequence[float]

#: The goal of a plan for the held-out loss.
GENERALISE = "generalise"


@dataclass(frozen=True)
class Terms:
    """What a plan must meet and what it costs.

    Parameters
    ----------
    goal : Goal, float or "generalise", optional
        When the target counts as learned: ``Accuracy(0.99)`` for task families and ``Explained(0.95)`` for recordings
        by default. A number means `Accuracy` for task families and `Explained` for recordings.
        "generalise" chooses the stops of the least held-out loss instead of the fewest steps.
    max_stages : int
        Largest number of stages, including the target; 1 trains the target directly.
    costs : float or (candidates + 1,)
        Cost of a step on each candidate and, last, on the target.
    switch_cost : float
        Cost of each change of task, in the same unit, including the change to the target.
    least_accuracy, most_accuracy : float or (candidates,), optional
        Accuracy on its own task at which a candidate's stage may stop; nan for no limit. A stage ends at the first step
        at or above its accuracy.
    most_excess_loss : float or (candidates,), optional
        Excess loss of each candidate allowed at the end: a limit on forgetting; nan for no limit.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> terms = lc.Terms(0.95, max_stages=3, switch_cost=10.0)
    >>> pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    >>> lc.plan(task, pool, network, learning_rate=1e-3, terms=terms).total
    132.0
    """

    goal: Goal | float | str | None = None
    max_stages: int = 2
    costs: Numbers = 1.0
    switch_cost: float = 0.0
    least_accuracy: Numbers | None = None
    most_accuracy: Numbers | None = None
    most_excess_loss: Numbers | None = None

    def __post_init__(self) -> None:
        if self.goal != GENERALISE:
            goal_of(self.goal, recorded=False)
        # Equal terms must hash and print identically, whatever the type of the numbers given.
        plain: dict[str, object] = {name: _plain(name, getattr(self, name)) for name in ("costs", *_LIMITS)}
        plain["max_stages"] = count("max_stages", self.max_stages)
        plain["switch_cost"] = between("switch_cost", self.switch_cost, 0.0, float(np.finfo(float).max))
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        checked_costs(self.costs, np.size(self.costs))
        lengths = {len(v) for v in map(plain.get, _LIMITS) if isinstance(v, tuple)}
        if len(lengths) <= 1:
            self._limits(*(lengths or {1}))

    def over(self, candidates: int, goal: Goal) -> PoolTerms:
        """Return the terms of a pool of candidates, number by number."""
        return PoolTerms(self, goal, checked_costs(self.costs, candidates + 1), *self._limits(candidates))

    def _limits(self, candidates: int) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Check the limits; return them number by number, with -inf, 1 and infinity for no limit."""
        low, high = (
            _one_per_task(name, getattr(self, name), candidates, none, 1.0)
            for name, none in (("least_accuracy", -np.inf), ("most_accuracy", 1.0))
        )
        if (low > high).any():
            k = int(np.argmax(low > high))
            raise InvalidSpec(
                f"least_accuracy must not exceed most_accuracy, got {low[k]:g} and {high[k]:g} for task {k}.",
                field="least_accuracy",
            )
        return low, high, _one_per_task("most_excess_loss", self.most_excess_loss, candidates, np.inf, np.inf)

    @property
    def direct(self) -> Terms:
        """These terms without candidates."""
        own = float(np.ravel(self.costs)[-1])
        return replace(self, costs=own, least_accuracy=None, most_accuracy=None, most_excess_loss=None)

    def with_(self, **changes: Any) -> Terms:
        """Return these terms with some changed."""
        return replace(self, **changes)

    @cached_property
    def hash(self) -> str:
        """Short hash of all terms."""
        return spec_hash(*(repr(getattr(self, f.name)) for f in fields(self)))


Terms.__init__ = hinted(Terms.__init__)  # type: ignore[method-assign]
_LIMITS = ("least_accuracy", "most_accuracy", "most_excess_loss")


def _plain(name: str, values: ArrayLike | None) -> float | tuple[float, ...] | None:
    """Return numbers as Python floats; nan is no limit."""
    if values is None:
        return None
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(f"{name} must be a number or a list of numbers, got {values!r:.60}.", field=name) from error
    return tuple(array.ravel().tolist()) if array.ndim else float(array)


@dataclass(frozen=True, eq=False)
class PoolTerms:
    """Terms for the candidates of one pool.

    Attributes
    ----------
    terms : Terms
    goal : Goal
        Of the target.
    cost : (candidates + 1,)
        Of a step on each candidate and, last, on the target.
    least, most : (candidates,)
        Accuracy at which a candidate's stage may stop; -inf and 1 for no limit.
    most_loss : (candidates,)
        Excess loss of each candidate allowed at the end; infinite for no limit.
    """

    terms: Terms
    goal: Goal
    cost: FloatArray
    least: FloatArray
    most: FloatArray
    most_loss: FloatArray

    @property
    def switch_cost(self) -> float:
        """Cost of each change of task."""
        return self.terms.switch_cost

    @property
    def max_stages(self) -> int:
        """Largest number of stages, including the target."""
        return self.terms.max_stages

    @property
    def priced(self) -> bool:
        """Whether cost and steps differ."""
        return bool((self.cost != 1).any()) or self.switch_cost > 0

    @property
    def unrestricted(self) -> bool:
        """Whether every step costs the same and there are no limits on stages."""
        same = bool((self.cost == self.cost[-1]).all()) and self.switch_cost == 0
        free = np.isinf(self.least).all() and (self.most == 1).all() and np.isinf(self.most_loss).all()
        return bool(same and free)

    @property
    def without_limits(self) -> PoolTerms:
        """These terms without limits on stages."""
        none = np.full_like(self.least, np.inf)
        return replace(self, least=-none, most=np.ones_like(self.most), most_loss=none)

    def price(self, places: Sequence[int], steps: ArrayLike) -> FloatArray:
        """Cost of steps (stages, ...) on tasks, the target last; empty stages before it cost nothing."""
        counts = np.asarray(steps, dtype=float)
        switches = np.count_nonzero(counts[:-1] > 0, axis=0)
        return np.asarray(np.tensordot(self.cost[list(places)], counts, axes=1) + self.switch_cost * switches)

    def may_finish(self, candidate: int, accuracy: float) -> bool:
        """Whether a candidate may be trained to an accuracy."""
        if candidate >= len(self.least):  # the target itself, between other tasks
            return False
        within = self.least[candidate] <= accuracy <= self.most[candidate]
        return bool(within) and not np.isfinite(self.most_loss).any()


def checked_pool(target: object, candidates: object) -> list[Task]:
    """Check target and candidates: at least one candidate, none equal to the target, all names different."""
    if not isinstance(target, Task):
        made = "Make one from trials with learncast.tasks.from_data(inputs, targets)."
        raise InvalidSpec(f"target must be a Task, got {type(target).__name__}. {made}", field="target")
    if isinstance(candidates, Task | str) or not isinstance(candidates, Iterable):
        raise InvalidSpec(f"candidates must be a list of tasks, got {type(candidates).__name__}.", field="candidates")
    pool = list(candidates)
    if not pool:
        raise InvalidSpec("A plan needs at least one candidate. Use forecast for the target alone.", field="candidates")
    for k, task in enumerate(pool):
        if not isinstance(task, Task):
            raise InvalidSpec(f"candidates must be tasks, got {type(task).__name__} at {k}.", field="candidates")
        if task.hash == target.hash:
            raise InvalidSpec(f"Candidate {k}, {task.name!r}, is the target. Remove it.", field="candidates")
    names = [task.name for task in (*pool, target)]
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise InvalidSpec(f"Two tasks are called {twice!r}. Rename one with task.renamed(...).", field="candidates")
    return pool


def checked_costs(costs: ArrayLike, tasks: int) -> FloatArray:
    """Check costs per step: one for all tasks, or one each."""
    array = one_or_each("costs", costs, tasks, of="one per task")
    if not (array > 0).all():
        raise InvalidSpec(f"costs must be positive, got {float(array.min()):g}.", field="costs")
    return array


def _one_per_task(name: str, value: ArrayLike | None, tasks: int, none: float, most: float) -> FloatArray:
    """Limits from 0 to `most`, one for each task; nan is no limit."""
    given = np.asarray(np.nan if value is None else value, dtype=float)
    if given.ndim and given.shape != (tasks,):
        raise InvalidSpec(f"{name} must be one number or {tasks}, one per task, got shape {given.shape}.", field=name)
    outside = given[(given < 0) | (given > most)]
    if outside.size:
        raise InvalidSpec(f"{name} must lie between 0 and {most:g}, got {outside[0]:g}.", field=name)
    return np.array(np.broadcast_to(np.where(np.isnan(given), none, given), (tasks,)))
