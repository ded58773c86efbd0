"""Terms of a plan: what is asked of its end, what steps cost, and where stages may stop."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.limits import tables_of
from learncast._core.validation import FloatArray, between, count, one_of, real_array
from learncast.planning.methods.ground import GOALS
from learncast.results import spec_hash
from learncast.tasks.task import Task

Numbers = float | Sequence[float]


@dataclass(frozen=True)
class Terms:
    """What a plan must meet and what it costs.

    Parameters
    ----------
    accuracy : float
        Accuracy the target must reach; 1 is reached at infinite time only.
    goal : {"modes", "loss"}, optional
        Whether every mode must be that accurate (the default where there are modes) or the loss as a whole.
    max_stages : int
        Stages at most, the target included; 1 trains the target directly.
    costs : float or (candidates + 1,)
        Cost of a step on each candidate and, last, on the target.
    switch_cost : float
        Cost of each change of task, in the same unit; the change to the target counts.
    least_accuracy, most_accuracy : float or (candidates,), optional
        Accuracy on its own task at which a candidate's stage may stop; nan where it is free.
    most_excess_loss : float or (candidates,), optional
        Excess loss of each candidate allowed at the end: a limit on what is forgotten; nan where there is none.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> terms = lc.Terms(accuracy=0.95, max_stages=3, switch_cost=10.0)
    >>> pool = [task.varied(target_strength=s).renamed(f"strength {s:g}") for s in (1.5, 2.0)]
    >>> lc.plan(task, pool, network, learning_rate=1e-3, terms=terms).total
    132.0
    """

    accuracy: float = 0.99
    goal: str | None = None
    max_stages: int = 2
    costs: Numbers = 1.0
    switch_cost: float = 0.0
    least_accuracy: Numbers | None = None
    most_accuracy: Numbers | None = None
    most_excess_loss: Numbers | None = None

    def __post_init__(self) -> None:
        if self.goal is not None:
            one_of("goal", self.goal, GOALS)
        limits = {name: getattr(self, name) for name in ("least_accuracy", "most_accuracy", "most_excess_loss")}
        plain = {
            "accuracy": between("accuracy", self.accuracy, 0.0, 1.0),
            "max_stages": count("max_stages", self.max_stages),
            "switch_cost": checked_switch_cost(self.switch_cost),
            "costs": _plain("costs", self.costs),
            **{name: value if value is None else _plain(name, value) for name, value in limits.items()},
        }
        # Equal terms must hash and print alike: a list, an array or a number of another kind would not.
        for name, value in plain.items():
            object.__setattr__(self, name, value)
        checked_costs(self.costs, np.size(self.costs))
        lengths = {len(value) for name, value in plain.items() if name in limits and isinstance(value, tuple)}
        if len(lengths) <= 1:
            self.over(*(lengths or {1}), costs=False)

    def over(self, candidates: int, *, costs: bool = True) -> PoolTerms:
        """The terms of a pool of so many candidates, number by number."""
        least, most = accuracy_limits(self.least_accuracy, self.most_accuracy, candidates)
        return PoolTerms(
            terms=self,
            cost=checked_costs(self.costs if costs else 1.0, candidates + 1),
            least=least,
            most=most,
            most_loss=_loss_limits(self.most_excess_loss, candidates),
        )

    @property
    def direct(self) -> Terms:
        """The same without a pool: the target alone."""
        own = float(np.ravel(self.costs)[-1])
        return replace(self, costs=own, least_accuracy=None, most_accuracy=None, most_excess_loss=None)

    def with_(self, **changes: Any) -> Terms:
        """The same terms with some changed."""
        return replace(self, **changes)

    @cached_property
    def hash(self) -> str:
        """Short hash of all of it."""
        return spec_hash(*(repr(getattr(self, f.name)) for f in fields(self)))

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Terms:
        """Terms from a table of them, as a file has it."""
        known = tuple(f.name for f in fields(cls))
        for key in values:
            if key not in known:
                raise InvalidSpec(f"terms are {', '.join(known)}, got {key!r}.")
        return cls(**values)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Terms:
        """Read terms from a TOML file."""
        return cls.from_dict(tables_of(Path(path), "the file of terms"))

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the terms to a TOML file."""
        target = Path(path)
        lines = [f"{key} = {_toml(value)}" for key, value in asdict(self).items() if value is not None]
        target.write_text("\n".join(lines) + "\n", encoding="utf-8")
        return target


def _plain(name: str, values: Any) -> float | tuple[float, ...]:
    """Numbers as Python's own; nan where a task has no limit."""
    try:
        array = np.asarray(values, dtype=float)
    except (TypeError, ValueError) as error:
        raise InvalidSpec(
            required=f"{name} must be a number, or a list of them",
            got=repr(values)[:60],
            why="there is one for all tasks or one for each",
            remedy=f"write {name} as numbers",
        ) from error
    return tuple(array.ravel().tolist()) if array.ndim else float(array)


def _toml(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_toml, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


@dataclass(frozen=True, eq=False)
class PoolTerms:
    """Terms for the candidates of one pool.

    Attributes
    ----------
    terms : Terms
    cost : (candidates + 1,)
        Of a step on each candidate and, last, on the target.
    least, most : (candidates,)
        Accuracy at which a candidate's stage may stop; -inf and 1 where it is free.
    most_loss : (candidates,)
        Excess loss of each candidate allowed at the end; infinite where any is.
    """

    terms: Terms
    cost: FloatArray
    least: FloatArray
    most: FloatArray
    most_loss: FloatArray

    @property
    def accuracy(self) -> float:
        """Accuracy the target must reach."""
        return self.terms.accuracy

    @property
    def switch_cost(self) -> float:
        """Cost of each change of task."""
        return self.terms.switch_cost

    @property
    def max_stages(self) -> int:
        """Stages at most, the target included."""
        return self.terms.max_stages

    @property
    def priced(self) -> bool:
        """Whether cost and steps are two things."""
        return bool((self.cost != 1).any()) or self.switch_cost > 0

    @property
    def plain(self) -> bool:
        """Whether every step costs the same and nothing is asked for but the target's accuracy at the end."""
        same = bool((self.cost == self.cost[-1]).all()) and self.switch_cost == 0
        free = np.isinf(self.least).all() and (self.most == 1).all() and np.isinf(self.most_loss).all()
        return bool(same and free)

    def may_finish(self, candidate: int) -> bool:
        """Whether a candidate may be learned as well as the target is asked for."""
        if candidate >= len(self.least):  # the target itself, between other tasks
            return False
        within = self.least[candidate] <= self.accuracy <= self.most[candidate]
        return bool(within) and not np.isfinite(self.most_loss).any()


def check_terms(terms: Any, moved: Mapping[str, Any]) -> None:
    """Refuse what is not Terms, and keywords that belong into them."""
    if not isinstance(terms, Terms):
        raise InvalidSpec(
            f"terms must be learncast.Terms, got {type(terms).__name__}. Pass "
            "terms=learncast.Terms(accuracy=0.99, ...).",
            field="terms",
        )
    known = tuple(f.name for f in fields(Terms))
    for key in moved:
        if key not in known:
            raise TypeError(f"plan() got an unexpected keyword argument {key!r}")
        raise InvalidSpec(
            required=f"{key} is one of the terms of a plan",
            got=f"the keyword {key}={moved[key]!r}"[:80],
            why="what is asked and what steps cost are one object, which hashes and saves",
            remedy=f"pass terms=learncast.Terms({key}=...)",
        )


def checked_pool(target: Task, candidates: Sequence[Task]) -> list[Task]:
    """Validate target and candidates: tasks, some of them, and none of them the target."""
    if not isinstance(target, Task):
        raise InvalidSpec(
            f"the target must be a Task, got {type(target).__name__}. Make one with learncast.tasks, "
            "Task.from_samples or learncast.tasks.from_batches."
        )
    if isinstance(candidates, Task | str) or not isinstance(candidates, Iterable):
        raise InvalidSpec(f"candidates must be a list of tasks, got {type(candidates).__name__}.", field="candidates")
    pool = list(candidates)
    if not pool:
        raise InvalidSpec(
            "there must be at least one candidate, got none. Offer a task to train first, or ask for the "
            "target alone (learncast forecast, solve)."
        )
    for k, task in enumerate(pool):
        if not isinstance(task, Task):
            raise InvalidSpec(
                f"every candidate must be a Task, got {type(task).__name__} as candidate {k}. Make one with "
                "learncast.tasks, Task.from_samples or learncast.tasks.from_batches."
            )
        if task.hash == target.hash:
            raise InvalidSpec(
                f"candidates must differ from the target, got candidate {k}, {task.name!r}, which is the target. "
                "Remove it from the candidates.",
                field="candidates",
            )
    names = [task.name for task in (*pool, target)]
    for name in names:
        if names.count(name) > 1:
            raise InvalidSpec(
                f"every task of a pool must have a name of its own, got {names.count(name)} called {name!r}. "
                "Rename one with task.renamed(...)."
            )
    return pool


def checked_switch_cost(switch_cost: Any) -> float:
    """Validate the cost of a change of task."""
    return between("switch_cost", switch_cost, 0.0, float(np.finfo(float).max))


def checked_costs(costs: Any, tasks: int) -> FloatArray:
    """Validate costs per step: one for all tasks, or one each."""
    array = real_array("costs", costs, ndim=(0, 1))
    if array.ndim and len(array) != tasks:
        raise InvalidSpec(
            f"costs must be one number or one for each of the {tasks} tasks, got {len(array)}.", field="costs"
        )
    if not (array > 0).all():
        raise InvalidSpec(f"costs must be positive, got {float(array.min()):g}.", field="costs")
    return np.array(np.broadcast_to(array, (tasks,)))


def accuracy_limits(least: Any, most: Any, tasks: int) -> tuple[FloatArray, FloatArray]:
    """Validate limits on the accuracy at which stages stop; -inf and 1 where there is none."""
    limits = []
    for name, value, none in (("least_accuracy", least, -np.inf), ("most_accuracy", most, 1.0)):
        given = np.asarray(np.nan if value is None else value, dtype=float)
        if given.ndim > 1 or (given.ndim and len(given) != tasks):
            raise InvalidSpec(
                f"{name} must be one number or one for each of the {tasks} tasks, got shape {given.shape}.", field=name
            )
        for bad in given[~np.isnan(given) & ~((given >= 0) & (given <= 1))].ravel()[:1]:
            between(name, bad, 0.0, 1.0)
        limits.append(np.array(np.broadcast_to(np.where(np.isnan(given), none, given), (tasks,))))
    low, high = limits
    if (low > high).any():
        k = int(np.argmax(low > high))
        raise InvalidSpec(
            f"least_accuracy must not exceed most_accuracy, got {low[k]:g} and {high[k]:g} for task {k}.",
            field="least_accuracy",
        )
    return low, high


def stop_band(cross: FloatArray, power: FloatArray, least: Any, most: Any) -> tuple[FloatArray, FloatArray]:
    """Least and greatest distance from its optimum at which a stage of each task may stop."""
    low, high = accuracy_limits(least, most, len(cross))
    size = np.abs(np.divide(cross, power, out=np.zeros_like(cross), where=power > 0))
    farthest = np.where(np.isinf(low), np.inf, (1 - np.where(np.isinf(low), 0.0, low)) * size)
    return (1 - high) * size, farthest


def _loss_limits(most_excess_loss: Any, tasks: int) -> Any:
    given = np.asarray(np.nan if most_excess_loss is None else most_excess_loss, dtype=float)
    if given.ndim and given.shape != (tasks,):
        raise InvalidSpec(
            f"most_excess_loss must be one number or one for each of the {tasks} candidates, got shape {given.shape}.",
            field="most_excess_loss",
        )
    if (given < 0).any():
        raise InvalidSpec(
            f"most_excess_loss must not be negative, got {float(np.nanmin(given)):g}.", field="most_excess_loss"
        )
    return np.array(np.broadcast_to(np.where(np.isnan(given), np.inf, given), (tasks,)))
