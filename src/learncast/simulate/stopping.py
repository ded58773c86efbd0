"""When a training run ends: at an accuracy, at a goal or some time after it, or on a plateau."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from learncast.dynamics.mode_equation import band_scale
from learncast.errors import InvalidSpec
from learncast.simulate.goals import Goal
from learncast.simulate.sources import Source
from learncast.validation import FloatArray, between, count, positive, real_array


@dataclass(frozen=True)
class Accuracy:
    """Stop when every mode is within 1 - accuracy of the optimum.

    Parameters
    ----------
    accuracy : float
    optimum : array, optional
        Strength each mode should reach. Without it the theory's, where the network is linear with fixed recurrence;
        for any other network training is first run to its plateau, and what it finds there is the optimum (the paper's
        two passes). A network without modes is judged by its loss instead: the excess over the plateau's must fall
        below (1 - accuracy)^2 of where it began.
    plateau : Plateau
        Where that first pass ends.
    """

    accuracy: float
    optimum: Any = None
    plateau: Plateau = field(default_factory=lambda: Plateau())

    def __post_init__(self) -> None:
        between("accuracy", self.accuracy, 0.0, 1.0, why="it is one minus the tolerance")
        if self.optimum is not None:
            real_array("optimum", self.optimum, ndim=(0, 1))


@dataclass(frozen=True)
class Plateau:
    """Stop when neither the loss nor the weights move on.

    Over the last `window` steps against the `window` before, the mean loss has fallen by less than `tolerance` of
    itself and the mean of each kind of weights has moved by less than `tolerance` of its size. Both are asked for: at a
    small start the loss stands still while weights grow, and large weights hardly move while the loss falls.
    """

    window: int = 200
    tolerance: float = 2e-3

    def __post_init__(self) -> None:
        count("window", self.window, why="it counts steps")
        positive("tolerance", self.tolerance, why="noise never rests altogether")


@dataclass(frozen=True)
class Learned:
    """Stop when the task is learned, or some time after.

    What a task has taught goes on growing for a while after its own goal is met.

    Parameters
    ----------
    goal : Goal or float
        Of the task itself; a number is a loss.
    times : float
        Training goes on to so many times the steps at which the goal was met; 1 stops there.
    ahead : Ahead, optional
        What is trained on next: the stage is over as soon as that is met, however far the task itself is.
    """

    goal: Any
    times: float = 1.0
    ahead: Ahead | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "goal", Goal.read(self.goal))
        if not positive("times", self.times, why="it multiplies steps") >= 1.0:
            raise InvalidSpec(
                required="times must be at least 1",
                got=f"{self.times:g}",
                why="when a goal is met is known only then",
                remedy="lower the goal to stop sooner",
            )

    @property
    def words(self) -> str:
        """The rule in a few words."""
        after = "" if self.times == 1 else f", and on to {self.times:g} times its steps"
        return f"{self.goal.words}{after}"


@dataclass(frozen=True)
class Ahead:
    """A goal on trials that a stage does not train on: those of a later one.

    Parameters
    ----------
    source : Source
        Those trials.
    goal : Goal
    """

    source: Source = field(repr=False)
    goal: Goal
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", self.source.hash)  # a repr tells rules apart where runs are taken up again


Rule = Accuracy | Goal | Learned | Plateau


def read_rule(until: Any) -> Rule:
    """Take a rule, or a number: the accuracy to reach."""
    if isinstance(until, int | float) and not isinstance(until, bool):
        return Accuracy(float(until))
    if isinstance(until, Rule):
        return until
    raise InvalidSpec(
        required="until must be an accuracy or a rule (Accuracy, LossBelow, DecisionAccuracy, Measured, Learned, "
        "Plateau)",
        got=type(until).__name__,
        why="it decides when training ends",
        remedy="use until=0.99, or one of learncast.simulate's rules",
    )


class GoalWatch:
    """The state of a goal along a stage: the last looks, and when they met it.

    Attributes
    ----------
    latest : float
        The goal's measure at the last look; nan before the first.
    looked, learned : int
        Steps of the last look, and at which the goal was met; -1 before.
    """

    def __init__(self, rule: Goal | Learned) -> None:
        self.goal: Goal = rule.goal if isinstance(rule, Learned) else rule
        self.times = rule.times if isinstance(rule, Learned) else 1.0
        self.latest, self.looked, self.learned = np.nan, -1, -1
        self._recent: deque[float] = deque(maxlen=self.goal.looks)
        ahead = rule.ahead if isinstance(rule, Learned) else None
        self.ahead = None if ahead is None else GoalWatch(ahead.goal)
        self.source = None if ahead is None else ahead.source

    def settled(self, step: int, look: Callable[[Goal, Source | None], float]) -> bool:
        """Look where it is due, and say whether the stage is over at this step.

        Parameters
        ----------
        step : int
        look : callable
            From a goal, and trials or None for those of the stage, to the goal's measure there.
        """
        if self.ahead is not None and self.ahead.settled(step, lambda goal, _: look(goal, self.source)):
            return True
        if self.learned < 0 and step % self.goal.every == 0:
            self.latest = look(self.goal, None)
            self._recent.append(self.latest)
            if len(self._recent) == self.goal.looks and self.goal.met(float(np.mean(self._recent))):
                self.learned = step
        return self.learned >= 0 and step >= np.ceil(self.times * self.learned)

    def state(self) -> dict[str, Any]:
        """What is needed to go on."""
        ahead = {} if self.ahead is None else {f"ahead.{key}": value for key, value in self.ahead.state().items()}
        return {"learned": self.learned, "latest": self.latest, "recent": np.array(self._recent), **ahead}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.learned, self.latest = int(state["learned"]), float(state["latest"])
        self._recent.extend(np.atleast_1d(state["recent"]).tolist())
        if self.ahead is not None:
            self.ahead.restore({key.removeprefix("ahead."): v for key, v in state.items() if key.startswith("ahead.")})


class Watch:
    """The state of a plateau rule along a run: means over one window of steps after the other.

    Attributes
    ----------
    means : list of arrays
        Over the last window: of the loss, the strengths, and each kind of weights; empty before the first is over.
    """

    def __init__(self, rule: Plateau) -> None:
        self.rule, self.steps = rule, 0
        self.means: list[Any] = []
        self._sums: list[Any] = []
        self.spacing = next(k for k in range(max(1, rule.window // 10), 0, -1) if rule.window % k == 0)

    def settled(self, judge: Callable[[], float], weights: list[FloatArray], strength: FloatArray) -> bool:
        """Take in one step; at the end of a window say whether it agrees with the window before."""
        # The loss changes slowly, and to judge it may cost more than a step: it stands for the steps until the next.
        loss = self.spacing * judge() if self.steps % self.spacing == 0 else 0.0
        now = [np.array(loss), strength, *weights]
        with np.errstate(over="ignore", invalid="ignore"):
            begins = self.steps % self.rule.window == 0
            self._sums = now if begins else [old + new for old, new in zip(self._sums, now, strict=True)]
        self.steps += 1
        return self.steps % self.rule.window == 0 and self._compared()

    def _compared(self) -> bool:
        before, tolerance = self.means, self.rule.tolerance
        self.means = [total / self.rule.window for total in self._sums]
        if not before:
            return False
        loss, _, *weights = self.means
        with np.errstate(over="ignore", invalid="ignore"):
            # Each kind of weights by itself: large ones that rest would hide small ones that grow.
            rest = all(
                np.linalg.norm(now - then) <= tolerance * np.linalg.norm(now)
                for now, then in zip(weights, before[2:], strict=True)
            )
            return bool(rest and before[0] - loss <= tolerance * abs(loss))

    def state(self) -> dict[str, Any]:
        """What is needed to go on."""
        kept = {f"means.{k}": value for k, value in enumerate(self.means)}
        return {"steps": self.steps, **kept, **{f"sums.{k}": value for k, value in enumerate(self._sums)}}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.steps = int(state["steps"])
        for name, values in (("means", self.means), ("sums", self._sums)):
            values += [state[f"{name}.{k}"] for k in range(sum(key.startswith(name) for key in state))]


def inside(strength: FloatArray, optimum: FloatArray, accuracy: float) -> bool:
    """Whether every mode is in its band; a mode with nothing to learn (optimum nan) always is."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(strength - optimum) <= (1 - accuracy) * band_scale(optimum)
    return bool((gap | np.isnan(optimum)).all())
