"""A request for advice: a model, its target, candidate tasks, the training and the goal."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import nn

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import between, count
from learncast.procedure.goals import Explained, Goal, Loss
from learncast.procedure.training import Training
from learncast.training.goals import TrialGoal
from learncast.training.learner import check_answers
from learncast.training.losses import LossFunction
from learncast.training.sources import Batch, Source, Trials
from learncast.training.torch_state import evaluating
from learncast.training.updates import UpdateRule

#: Held-out trials on which a goal is evaluated.
EVALUATION = 500
#: Names that say nothing about the task.
_NAMELESS = ("recorded", "DataLoader", "<lambda>", "function", "partial", "Dataset")


@dataclass(frozen=True)
class AdviceTerms:
    """How advice is searched for.

    Parameters
    ----------
    find_rate : bool
        Whether pilots look for the learning rate; otherwise the given one is used.
    stops : sequence of float
        Shares of the loss that pretraining may remove before it stops; for goals on the loss. Forecasts of later stops
        are less certain, and later stops cost more if they are wrong.
    most_steps : int
        Steps after which the surrogate's direct training is given up.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.advice.AdviceTerms().stops
    (0.5, 0.8)
    """

    find_rate: bool = True
    stops: tuple[float, ...] = (0.5, 0.8)
    most_steps: int = 20_000

    def __post_init__(self) -> None:
        stops = tuple(sorted({between("stops", stop, 0.0, 1.0) for stop in self.stops}))
        if not stops:
            raise InvalidSpec("stops must contain a share of the loss.", field="stops")
        object.__setattr__(self, "stops", stops)
        count("most_steps", self.most_steps)


@dataclass(frozen=True, eq=False)
class Request:
    """A checked request.

    Attributes
    ----------
    model : nn.Module
        Before training; copied for every run.
    target : Source
    candidates : tuple of Source
        With unique names.
    goal : Explained, Loss or TrialGoal
        When the target counts as learned.
    training : Training

    Examples
    --------
    >>> import learncast as lc
    >>> easy, target = (lc.tasks.integration(6, 1.0, strength, name=f"sum {strength}") for strength in (0.9, 0.3))
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> request = lc.advice.Request.of(model, target, [easy], lc.Training(0.1), goal=0.9)
    >>> [source.name for source in request.sources], request.goal.text
    (['sum 0.3', 'sum 0.9'], '0.9 of the explainable variance')
    """

    model: nn.Module
    target: Source
    candidates: tuple[Source, ...]
    goal: Goal
    training: Training

    @classmethod
    def of(
        cls,
        model: nn.Module,
        target: Trials,
        candidates: Mapping[str, Trials] | Iterable[Trials],
        training: Training,
        *,
        goal: Goal | float = 0.95,
    ) -> Request:
        """Check a request; the parameters are those of `learncast.advise`."""
        _check_model(model)
        if not isinstance(training, Training):
            raise InvalidSpec(
                f"training must be a Training, got {type(training).__name__}. Give learncast.Training(learning_rate).",
                field="training",
            )
        meant = goal if isinstance(goal, Goal) else Explained(between("goal", goal, 0.0, 1.0))
        if not isinstance(meant, Explained | Loss | TrialGoal):
            kinds = "Explained, Loss, DecisionAccuracy or Measured"
            raise InvalidSpec(f"goal must be {kinds}, got {type(meant).__name__}.", field="goal")
        if isinstance(meant, Explained):
            meant.check_forecast()
        first, *others = _named_sources(target, candidates, LossFunction.read(training.loss))
        request = cls(model, first, tuple(others), meant, training)
        _ = request.rule  # an optimiser that cannot be used is refused before any work
        if isinstance(meant, Loss) and meant.function is None:
            request = replace(request, goal=replace(meant, function=request.loss))
        return request

    @cached_property
    def rule(self) -> UpdateRule:
        """The optimiser of the training."""
        return UpdateRule.of(self.training, self.model)

    @property
    def loss(self) -> LossFunction:
        """The loss that is trained on."""
        return LossFunction.read(self.training.loss)

    @property
    def sources(self) -> tuple[Source, ...]:
        """All trials, the target's first."""
        return (self.target, *self.candidates)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the model."""
        return next(self.model.parameters()).dtype

    def held_out(self, source: Source) -> Batch:
        """Return the trials on which a task is evaluated."""
        return source.held_out(EVALUATION, (0, 0), self.dtype).rows(slice(0, EVALUATION))

    def check_fit(self) -> None:
        """Refuse a model or a loss that does not fit some of the trials."""
        for source in self.sources:
            check_answers(self.model, self.loss, *self.held_out(source), name=source.name)

    def start_loss(self, source: Source) -> float:
        """Return the loss of the model before training."""
        x, y, w = self.held_out(source)
        with evaluating(self.model):
            return float(self.loss(self.model(x), y, w))

    def chance(self) -> float:
        """Return the goal's measure of the best constant answer to the target; nan if unknown."""
        _, y, w = self.held_out(self.target)
        return self.goal.chance(y, w) if isinstance(self.goal, TrialGoal) else math.nan

    @property
    def facts(self) -> dict[str, object]:
        """Attributes of a dataset that describe the request."""
        return {
            "target": self.target.name,
            "goal": self.goal.text,
            "chance": self.chance(),
            "loss": repr(self.loss),
            "optimizer_between_stages": "reset" if self.training.reset_optimizer else "kept",
            "optimizer": self.rule.name,
            "learning_rate": self.rule.learning_rate,
        }

    @property
    def remarks(self) -> tuple[str, ...]:
        """Remarks about the trials."""
        target = self.target
        if target.kept is not None or not (target.repeats or target.data is not None):
            return ()
        return (
            f"{target.name}: the goal is evaluated on trials that are trained on; set some aside with "
            "training.trials(source, held_out=0.2), or (inputs, targets) for a loader.",
        )


def _check_model(model: object) -> None:
    if not isinstance(model, nn.Module) or next(model.parameters(), None) is None:
        raise UnsupportedModel(f"model must be a module with parameters, got {type(model).__name__}.", field="model")
    if not any(value.requires_grad for value in model.parameters()):
        raise UnsupportedModel("model must have a parameter that requires a gradient, got none.", field="model")
    for name, value in model.named_parameters():
        if value.device.type != "cpu":
            raise UnsupportedModel(f"model must be on the CPU, got {name} on {value.device}.", field="model")
        if not torch.isfinite(value).all():
            raise InvalidSpec(f"The weights of the model must be finite, got NaN or infinity in {name}.", field="model")


def _named_sources(
    target: Trials, candidates: Mapping[str, Trials] | Iterable[Trials], loss: LossFunction
) -> list[Source]:
    """Return the trials of target and candidates with unique names."""
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Mapping | Sequence):
        raise InvalidSpec("candidates must be a list or a mapping of tasks.", field="candidates")
    named = list(candidates.items()) if isinstance(candidates, Mapping) else [(None, one) for one in candidates]
    sources: list[Source] = []
    for place, (name, given) in enumerate([(None, target), *named]):
        usual = "target" if place == 0 else f"candidate {place}"
        where = f" of {usual}" if name is None else f" of candidate {str(name)!r}"
        source = Source.of(given, where=where, loss=loss)
        base = str(name) if name else usual if source.name in _NAMELESS else source.name
        label, again = base, 2
        while label in {one.name for one in sources}:
            label, again = f"{base} ({again})", again + 1
        if place and source.hash == sources[0].hash:
            raise InvalidSpec(
                f"candidates must differ from the target, got its trials as {label!r}.", field="candidates"
            )
        sources.append(replace(source, name=label))
    return sources
