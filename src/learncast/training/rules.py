"""Rules that end a stage of training, and the watches that keep their state along the stage."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, positive
from learncast.procedure.goals import Goal, Loss, Plateau, Rule
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.results import Status, spec_hash
from learncast.theory.dynamics.mode_equation import band_scale
from learncast.training.goals import TrialGoal, checked_measurable
from learncast.training.losses import LossFunction
from learncast.training.sources import Batch, Source
from learncast.training.torch_state import Resumable

if TYPE_CHECKING:
    from learncast.training.learner import HeldOutView

#: Evaluations whose mean says how far a task is learned.
LOOKS = 3
#: Evaluations that are kept; beyond, every second of the older ones is dropped.
MOST_LOOKS = 200


@dataclass(frozen=True)
class Learned(Rule):
    """Stop when a goal is met, or some time later.

    What a task teaches for later stages keeps growing for a while after its own goal is met.

    Parameters
    ----------
    goal : Goal
        Of the task itself: Loss, R2, DecisionAccuracy or Measured.
    times : float
        Continue up to this multiple of the steps at which the goal was met; 1 stops there.
    ahead : Lookahead, optional
        A goal on the trials of a later stage. The stage also ends when this goal is met.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 5, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> rule = lc.training.Learned(lc.Loss(0.5), times=2)
    >>> rule.text
    'loss 0.5, then on to 2 times its steps'
    >>> training = lc.Training(0.02, learn=("input", "recurrent", "output"))
    >>> recorded = (inputs, inputs.sum(axis=1))
    >>> lc.training.train(recorded, network, training, goal=rule).steps
    42
    >>> lc.training.train(recorded, network, training, goal=lc.Loss(0.5)).steps
    21
    """

    goal: Goal
    times: float = 1.0
    ahead: Lookahead | None = None

    def __post_init__(self) -> None:
        checked_measurable(self.goal)
        if positive("times", self.times) < 1.0:
            raise InvalidSpec(f"times must be at least 1, got {self.times:g}.", field="times")

    @property
    def text(self) -> str:
        after = "" if self.times == 1 else f", then on to {self.times:g} times its steps"
        return f"{self.goal.text}{after}"


@dataclass(frozen=True)
class Lookahead:
    """A goal on the trials of a later stage.

    Parameters
    ----------
    source : Source
        Those trials.
    goal : Goal

    Examples
    --------
    >>> import learncast as lc
    >>> source = lc.training.Source.of(lc.tasks.integration(steps=5))
    >>> ahead = lc.training.Lookahead(source, lc.Loss(0.5))
    >>> lc.training.Learned(lc.Loss(0.1), ahead=ahead).ahead.goal.text
    'loss 0.5'
    """

    source: Source = field(repr=False)
    goal: Goal
    digest: str = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "digest", self.source.hash)  # the repr identifies the rule in checkpoints


@dataclass(frozen=True)
class Stalled(Rule):
    """Stop when the goal is met, or when it is still far and the loss falls ever more slowly.

    A task that stalls may need another task first. It has stalled if, after at least `least` steps, the goal `near` is
    not met and the second half of the stage contributed less than `share` of the decrease of the loss. This does not
    depend on the learning rate: a loss that falls linearly loses the same in both halves.

    Parameters
    ----------
    goal : Goal
        Of the task itself: Loss, R2, DecisionAccuracy or Measured.
    near : Goal, optional
        An easier goal of the same kind. Once it is met, the stage is not left for stalling.
    share : float
        Between 0 and 1.
    least : int
        Steps before which a stage cannot stall.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs, noise = rng.standard_normal((64, 5, 1)), rng.standard_normal((64, 1))
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> rule = lc.training.Stalled(lc.Loss(0.01))
    >>> rule.text
    'loss 0.01, or until it stalls'
    >>> training = lc.Training(0.02, learn=("input", "recurrent", "output"))
    >>> run = lc.training.train((inputs, noise), network, training, goal=rule)
    >>> run.steps, bool(run.dataset["loss"][-1] > 0.1)
    (30, True)
    """

    goal: Goal
    near: Goal | None = None
    share: float = 0.5
    least: int = 30

    def __post_init__(self) -> None:
        checked_measurable(self.goal)
        between("share", self.share, 0.0, 1.0)
        count("least", self.least)

    @property
    def text(self) -> str:
        return f"{self.goal.text}, or until it stalls"


class Watch(Resumable):
    """Decides when a stage is over, and keeps the state that this needs.

    Attributes
    ----------
    status : Status
        Not ok if the stage cannot begin.
    latest : float
        What was measured last; nan before.
    """

    status: Status = Status.ok
    latest: float = np.nan

    def take(self, step: int, batch: tuple[object, ...], output: object) -> None:
        """Take notice of a step: the batch, and the network's output if the caller reported it."""

    def over(self, step: int, view: HeldOutView | None) -> bool:
        """Whether the stage is over after this step."""
        raise NotImplementedError


class StepWatch(Watch):
    """Ends a stage after a number of steps."""

    def __init__(self, steps: float) -> None:
        self.steps = steps

    def over(self, step: int, view: HeldOutView | None) -> bool:
        return step >= self.steps


@dataclass(eq=False)
class TargetWatch(Watch):
    """Ends a stage when the strengths are near their optimum, or when the loss is small enough.

    Parameters
    ----------
    source : Source
    accuracy : float
    optimum : (modes,)
        Strengths to reach; nan if a loss is to be reached.
    loss : float
        Loss to reach; nan if strengths are to be reached.
    status : Status
        Not ok if the first training did not find the optimum.
    """

    source: Source
    accuracy: float
    optimum: FloatArray
    loss: float = np.nan
    status: Status = Status.ok

    def over(self, step: int, view: HeldOutView | None) -> bool:
        assert view is not None
        if np.isfinite(self.loss):
            return view.loss(self.source) <= self.loss
        return inside(view.strength, self.optimum, self.accuracy)


def inside(strength: FloatArray, optimum: FloatArray, accuracy: float) -> bool:
    """Whether every mode is within 1 - accuracy of its optimum; a mode without optimum (nan) always is."""
    with np.errstate(invalid="ignore"):
        gap = np.abs(strength - optimum) <= (1 - accuracy) * band_scale(optimum)
    return bool((gap | np.isnan(optimum)).all())


#: Measures the loss that is trained on.
TRAINED_LOSS = Loss(np.finfo(float).tiny)


class GoalWatch(Watch):
    """Evaluates a goal along a stage.

    Parameters
    ----------
    rule : Goal, Learned or Stalled
    source : Source
        What the stage is trained on.
    previous : Watch, optional
        Of the stage before. Its last evaluations of the same quantity count here too, so that a goal which is already
        met ends the stage immediately.

    Attributes
    ----------
    looked, learned : int
        Steps of the last evaluation, and at which the goal was met; -1 before.
    """

    kept = ("learned", "latest", "_recent", "history", "losses", "ahead")

    def __init__(self, rule: Rule, source: Source, previous: Watch | None = None) -> None:
        goal = rule.goal if isinstance(rule, Learned | Stalled) else rule
        assert isinstance(goal, Goal)
        self.goal: Goal = goal
        self.source, self.times = source, rule.times if isinstance(rule, Learned) else 1.0
        self.looked, self.learned = -1, -1
        before = previous if isinstance(previous, GoalWatch) else None
        same = None if before is None else before.alike(self)
        known = [] if same is None else list(same._recent)
        if before is not None and before.learned >= 0 and known:
            known = [known[0]] * LOOKS + known  # a goal that was met after few evaluations
        self._recent: deque[float] = deque(known, maxlen=max(LOOKS, self.goal.looks))
        self.begun: int = 0 if before is None else before.begun + max(before.looked, 0)
        #: Evaluations with the steps since the first stage, those of earlier stages included.
        self.history: list[Sequence[float]] = [] if same is None else list(same.history)
        ahead = rule.ahead if isinstance(rule, Learned) else None
        self.ahead = None if ahead is None else GoalWatch(ahead.goal, ahead.source, before)
        self.stall, self.losses = rule if isinstance(rule, Stalled) else None, list[float]()

    def alike(self, other: GoalWatch) -> GoalWatch | None:
        """Return the watch, this one or the one ahead, of the other's quantity on the same trials."""
        if self.source.hash == other.source.hash and self.goal.quantity == other.goal.quantity:
            return self
        return None if self.ahead is None else self.ahead.alike(other)

    def over(self, step: int, view: HeldOutView | None) -> bool:
        assert view is not None
        if self.ahead is not None and self.ahead.over(step, view):
            return True
        if self.learned < 0 and step % self.goal.every == 0:
            self.latest, self.looked = view.measure(self.goal, self.source), step
            self._recent.append(self.latest)
            self.history.append((self.begun + step, self.latest))
            if len(self.history) > MOST_LOOKS:
                self.history = self.history[:-LOOKS:2] + self.history[-LOOKS:]
            if self.goal.met(self._mean(self.goal.looks)):
                self.learned = step
            elif self.stall is not None:
                self.losses.append(view.measure(TRAINED_LOSS, self.source))
                return self._stalled(step, self.stall)
        return self.learned >= 0 and step >= np.ceil(self.times * self.learned)

    def _stalled(self, step: int, rule: Stalled) -> bool:
        """Whether the loss of the stage falls ever more slowly while the goal is still far."""
        if step < rule.least or len(self.losses) < 3 or (rule.near is not None and rule.near.met(self._mean(LOOKS))):
            return False
        last = len(self.losses) - 1
        middle, now = (np.mean(self.losses[max(0, look - 1) : look + 2]) for look in (last // 2, last))
        return not (self.losses[0] > now and middle - now >= rule.share * (self.losses[0] - now))

    def _mean(self, looks: int) -> float:
        """Return the mean of the last evaluations; nan if there are fewer."""
        return float(np.mean(list(self._recent)[-looks:])) if len(self._recent) >= looks else np.nan


class PlateauWatch(Watch):
    """Compares means over consecutive windows of steps.

    Attributes
    ----------
    means : list of arrays
        Over the last window: of the loss, the strengths and each weight matrix; empty before the first window ends.
    """

    kept = ("steps", "means", "_sums")

    def __init__(self, rule: Plateau, source: Source) -> None:
        self.rule, self.source, self.steps = rule, source, 0
        self.means: list[FloatArray] = []
        self._sums: list[FloatArray] = []
        self.spacing = next(k for k in range(max(1, rule.window // 10), 0, -1) if rule.window % k == 0)

    def over(self, step: int, view: HeldOutView | None) -> bool:
        assert view is not None
        # The loss changes slowly and may cost more than a step, so it is evaluated at every `spacing`-th step only.
        loss = self.spacing * view.loss(self.source) if self.steps % self.spacing == 0 else 0.0
        now = [np.array(loss), view.strength, *view.weights]
        with np.errstate(over="ignore", invalid="ignore"):
            begins = self.steps % self.rule.window == 0
            self._sums = now if begins else [old + new for old, new in zip(self._sums, now, strict=True)]
        self.steps += 1
        return self.steps % self.rule.window == 0 and self._compare()

    def _compare(self) -> bool:
        before, tolerance = self.means, self.rule.tolerance
        self.means = [total / self.rule.window for total in self._sums]
        if not before:
            return False
        loss, _, *weights = self.means
        with np.errstate(over="ignore", invalid="ignore"):
            # Each matrix by itself: large weights at rest would hide small weights that grow.
            rest = all(
                np.linalg.norm(now - then) <= tolerance * np.linalg.norm(now)
                for now, then in zip(weights, before[2:], strict=True)
            )
            return bool(rest and before[0] - loss <= tolerance * abs(loss))

    def restore(self, state: Mapping[str, Any]) -> None:
        super().restore(state)
        self.means, self._sums = ([np.array(value) for value in values] for values in (self.means, self._sums))


#: Makes the watch of a stage from that of the stage before.
MakeWatch = Callable[[Watch | None], Watch]


@dataclass(eq=False)
class StageRun:
    """One stage of a loop.

    Attributes
    ----------
    name : str
        Of the task.
    text : str
        When the stage ends, in words.
    limit : float
        Steps after which the stage is given up.
    make_watch : callable
        From the watch of the stage before (or None) to the watch of this one.
    batch : callable
        From the number of a batch to the batch.
    goal : Goal or None
        The goal of the stage, if it has one.
    rate : float
        Factor of the learning rate.
    expected_steps : float
        Steps that a plan forecasts; nan without a plan.
    steps : int
        Steps so far.
    loss, reached : float
        Last reported loss and last measured value of the goal; nan before.
    status : Status or None
        None until the stage is over: ``ok``, ``not_within`` if it was given up, ``diverged`` if the loss became
        infinite or nan.
    """

    name: str
    text: str
    limit: float
    make_watch: MakeWatch
    batch: Callable[[int], Any]
    goal: Goal | None = None
    rate: float = 1.0
    expected_steps: float = math.nan
    steps: int = 0
    loss: float = math.nan
    reached: float = math.nan
    status: Status | None = None
    warnings: list[str] = field(default_factory=list)

    @classmethod
    def of(
        cls,
        stage: Stage[object],
        source: Source,
        training: Training,
        place: int,
        dtype: torch.dtype,
        make_watch: MakeWatch,
    ) -> StageRun:
        """Return the run of a stage whose batches come from a source."""

        def batch(number: int) -> Batch:
            return source.batch(training.batch, (training.seed, place), number, dtype, shuffle=training.shuffle)

        if stage.goal is None:
            return cls(source.name, f"for {stage.steps:g} steps", math.inf, make_watch, batch, rate=stage.rate)
        rule = stage.goal
        goal = rule.goal if isinstance(rule, Learned | Stalled) else rule if isinstance(rule, Goal) else None
        return cls(source.name, f"until {rule.text}", training.most_steps, make_watch, batch, goal, stage.rate)


def chance_of(goal: Goal | None, source: Source, dtype: torch.dtype) -> float:
    """Return a goal's measure of the best constant answer; nan if unknown."""
    if not isinstance(goal, TrialGoal):
        return math.nan
    _, targets, weights = source.held_out(500, (0, 0), dtype)
    return goal.chance(targets, weights)


def watch_of(rule: Rule | None, steps: float | None, source: Source, previous: Watch | None = None) -> Watch:
    """Return the watch of a stage that ends by steps or by a rule that needs no optimum."""
    if rule is None:
        assert steps is not None
        return StepWatch(steps)
    if isinstance(rule, Plateau):
        return PlateauWatch(rule, source)
    assert isinstance(rule, Goal | Learned | Stalled)
    return GoalWatch(rule, source, previous)


def stage_keys(stages: Sequence[Stage[object]]) -> list[str]:
    """Return what identifies each stage: its trials and its rule."""
    return [
        spec_hash(Source.of(stage.task).hash, repr(_stable(stage.goal)), repr((stage.steps, stage.rate)))
        for stage in stages
    ]


def _stable(rule: Rule | None) -> Rule | None:
    """Return the rule with loss functions whose repr is the same in every process."""
    if isinstance(rule, Learned | Stalled):
        goal = _stable(rule.goal)
        assert isinstance(goal, Goal)
        return replace(rule, goal=goal)
    if isinstance(rule, Loss) and rule.function is not None:
        return replace(rule, function=LossFunction.read(rule.function))
    return rule
