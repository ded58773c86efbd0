"""When a training run ends: at an accuracy, at a goal or some time after it, when it stalls, or on a plateau."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, positive, real_array
from learncast.theory.dynamics.mode_equation import band_scale
from learncast.training.goals import Goal, LossBelow
from learncast.training.sources import Source


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

    Raises
    ------
    InvalidSpec
        If the accuracy does not lie between 0 and 1, or the optimum is no number.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=10)
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> until = lc.training.Accuracy(0.9)
    >>> training = lc.training.Training(learning_rate=0.01, batch=100, until=until, learn=("input", "output"))
    >>> run = lc.training.train(task, network, training)
    >>> run.status.name, run.steps
    ('ok', 55)
    """

    accuracy: float
    optimum: Any = None
    plateau: Plateau = field(default_factory=lambda: Plateau())

    def __post_init__(self) -> None:
        between("accuracy", self.accuracy, 0.0, 1.0)
        if self.optimum is not None:
            real_array("optimum", self.optimum, ndim=(0, 1))


@dataclass(frozen=True)
class Plateau:
    """Stop when neither the loss nor the weights move on.

    Over the last `window` steps against the `window` before, the mean loss has fallen by less than `tolerance` of
    itself and the mean of each kind of weights has moved by less than `tolerance` of its size. Both are asked for: at a
    small start the loss stands still while weights grow, and large weights hardly move while the loss falls.

    Parameters
    ----------
    window : int
    tolerance : float

    Raises
    ------
    InvalidSpec
        If the window holds no step, or the tolerance is not above 0.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> until = lc.training.Plateau(window=10, tolerance=1e-3)
    >>> training = lc.training.Training(learning_rate=0.02, batch=None, until=until, learn=("input", "output"))
    >>> run = lc.training.train((inputs, inputs.sum(axis=1)), network, training)
    >>> run.status.name, round(float(run.dataset["loss"][-1]), 2)
    ('ok', 0.06)
    """

    window: int = 200
    tolerance: float = 2e-3

    def __post_init__(self) -> None:
        count("window", self.window)
        positive("tolerance", self.tolerance)


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

    Raises
    ------
    InvalidSpec
        If the goal is neither a Goal nor a number, or `times` is below 1.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> rule = lc.training.Learned(0.5, times=2)
    >>> rule.words
    'a loss of 0.5, and on to 2 times its steps'
    >>> training = lc.training.Training(learning_rate=0.02, batch=None, until=rule)
    >>> recorded = (inputs, inputs.sum(axis=1))
    >>> lc.training.train(recorded, network, training).steps
    42
    >>> lc.training.train(recorded, network, training.with_(until=lc.training.Learned(0.5))).steps
    21
    """

    goal: Any
    times: float = 1.0
    ahead: Ahead | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "goal", Goal.read(self.goal))
        if not positive("times", self.times) >= 1.0:
            raise InvalidSpec(
                f"times must be at least 1, got {self.times:g}. Lower the goal to stop sooner.", field="times"
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


@dataclass(frozen=True)
class Stalled:
    """Stop when the goal is met, or when it is far and the loss falls ever more slowly.

    A task that does not get on by itself may need another one first. It has stalled when, after `least` steps or more,
    the goal `near` is not met and the later half of the stage's steps took off less than `share` of what the loss has
    lost in the stage. That is no matter of the learning rate: of a loss that falls along a line each half takes off the
    same, and of one that slows down the later half takes off less.

    Parameters
    ----------
    goal : Goal or float
        Of the task itself; a number is a loss.
    near : Goal, optional
        A lower goal of the same kind: once it is met the task is not left.
    share : float
        Between 0 and 1.
    least : int
        Steps before which nothing is said.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs, noise = rng.standard_normal((64, 5, 1)), rng.standard_normal((64, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> rule = lc.training.Stalled(0.01)
    >>> rule.words
    'a loss of 0.01, or until it stalls'
    >>> training = lc.training.Training(learning_rate=0.02, batch=None, until=rule)
    >>> run = lc.training.train((inputs, noise), network, training)
    >>> run.steps, bool(run.dataset["loss"][-1] > 0.1)
    (30, True)
    """

    goal: Any
    near: Goal | None = None
    share: float = 0.5
    least: int = 30

    def __post_init__(self) -> None:
        object.__setattr__(self, "goal", Goal.read(self.goal))
        between("share", self.share, 0.0, 1.0)
        count("least", self.least)

    @property
    def words(self) -> str:
        """The rule in a few words."""
        return f"{self.goal.words}, or until it stalls"


Rule = Accuracy | Goal | Learned | Plateau | Stalled


def read_rule(until: Any) -> Rule:
    """Take a rule, or a number: the accuracy to reach."""
    if isinstance(until, int | float) and not isinstance(until, bool):
        return Accuracy(float(until))
    if isinstance(until, Rule):
        return until
    raise InvalidSpec(
        "until must be an accuracy or a rule (Accuracy, LossBelow, DecisionAccuracy, Measured, Learned, "
        f"Stalled, Plateau), got {type(until).__name__}. Use until=0.99, or one of learncast.training's "
        "rules.",
        field="until",
    )


#: Looks whose mean says how far a task is: a single one is noisy, and to leave it too early costs most.
LOOKS = 3
#: From a goal and trials to the goal's measure there.
Look = Callable[[Goal, Source], float]
#: Any goal of this kind measures the loss that is trained on.
TRAINED_LOSS = LossBelow(np.finfo(float).tiny)


class GoalWatch:
    """The state of a goal along a stage: the last looks, and when they met it.

    Parameters
    ----------
    rule : Goal, Learned or Stalled
    source : Source
        What the stage is trained on.
    before : GoalWatch, optional
        Of the stage before: what was looked at there goes on here, so that a goal which is met already is met at once.

    Attributes
    ----------
    latest : float
        The goal's measure at the last look; nan before the first.
    looked, learned : int
        Steps of the last look, and at which the goal was met; -1 before.
    """

    def __init__(self, rule: Goal | Learned | Stalled, source: Source, before: GoalWatch | None = None) -> None:
        self.goal: Goal = rule if isinstance(rule, Goal) else rule.goal
        self.source = source
        self.times = rule.times if isinstance(rule, Learned) else 1.0
        self.latest, self.looked, self.learned = np.nan, -1, -1
        known = [] if before is None else before.looks_at(self)
        self._recent: deque[float] = deque(known, maxlen=max(LOOKS, self.goal.looks))
        ahead = rule.ahead if isinstance(rule, Learned) else None
        self.ahead = None if ahead is None else GoalWatch(ahead.goal, ahead.source, before)
        self.stall = Stall(rule) if isinstance(rule, Stalled) else None

    def looks_at(self, other: GoalWatch) -> list[float]:
        """The last looks at what another watch is about, here or ahead; none where nothing was looked at."""
        if self.source.hash == other.source.hash and self.goal.asked == other.goal.asked:
            return list(self._recent)
        return [] if self.ahead is None else self.ahead.looks_at(other)

    def settled(self, step: int, look: Look) -> bool:
        """Look where it is due, and say whether the stage is over at this step."""
        if self.ahead is not None and self.ahead.settled(step, look):
            return True
        if self.learned < 0 and step % self.goal.every == 0:
            self.latest, self.looked = look(self.goal, self.source), step
            self._recent.append(self.latest)
            if self.goal.met(self._mean(self.goal.looks)):
                self.learned = step
            elif self.stall is not None:
                return self.stall.settled(step, self._mean(LOOKS), look(TRAINED_LOSS, self.source))
        return self.learned >= 0 and step >= np.ceil(self.times * self.learned)

    def _mean(self, looks: int) -> float:
        """The mean of the last looks; nan where there are fewer."""
        return float(np.mean(list(self._recent)[-looks:])) if len(self._recent) >= looks else np.nan

    def state(self) -> dict[str, Any]:
        """What is needed to go on."""
        ahead = {} if self.ahead is None else {f"ahead.{key}": value for key, value in self.ahead.state().items()}
        fallen = {} if self.stall is None else {"losses": np.array(self.stall.losses)}
        return {"learned": self.learned, "latest": self.latest, "recent": np.array(self._recent), **fallen, **ahead}

    def restore(self, state: dict[str, Any]) -> None:
        """Go on from a saved state."""
        self.learned, self.latest = int(state["learned"]), float(state["latest"])
        self._recent.clear()
        self._recent.extend(np.atleast_1d(state["recent"]).tolist())
        if self.stall is not None:
            self.stall.losses = np.atleast_1d(state["losses"]).tolist()
        if self.ahead is not None:
            self.ahead.restore({key.removeprefix("ahead."): v for key, v in state.items() if key.startswith("ahead.")})


class Stall:
    """The state of a rule of stalling: the losses at the looks of a stage."""

    def __init__(self, rule: Stalled) -> None:
        self.rule = rule
        self.losses: list[float] = []

    def settled(self, step: int, reached: float, loss: float) -> bool:
        """Take in a look, and say whether the task has stalled there."""
        self.losses.append(loss)
        rule, near = self.rule, self.rule.near
        if step < rule.least or len(self.losses) < 3 or (near is not None and near.met(reached)):
            return False
        last = len(self.losses) - 1
        begun, middle, now = self.losses[0], self._around(last // 2), self._around(last)
        return not (begun > now and middle - now >= rule.share * (begun - now))

    def _around(self, look: int) -> float:
        """The loss about a look: a single one is noisy."""
        return float(np.mean(self.losses[max(0, look - 1) : look + 2]))


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


def watch_of(rule: Any, source: Source, before: Watch | GoalWatch | None = None) -> Watch | GoalWatch | None:
    """What keeps the state of a rule that has one along a stage that is trained on a source."""
    if isinstance(rule, Plateau):
        return Watch(rule)
    if isinstance(rule, Goal | Learned | Stalled):
        return GoalWatch(rule, source, before if isinstance(before, GoalWatch) else None)
    return None
