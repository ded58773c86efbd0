"""A request for advice: a model, what it is to learn, what could be trained first, and how it is trained."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast.advice.runner import Runner
from learncast.advice.update_rule import UpdateRule
from learncast.training.borrowed import at_rest
from learncast.training.goals import Goal, LossBelow
from learncast.training.learner import check_answers
from learncast.training.losses import Loss
from learncast.training.sources import Batch, Source
from learncast.training.stopping import Rule
from learncast.training.training import Training

#: Held-out trials by which a goal is judged.
JUDGED = 500
#: Names that say nothing about the task.
_NAMELESS = ("recorded", "DataLoader", "<lambda>", "function", "partial", "Dataset")


@dataclass(frozen=True, eq=False)
class Request:
    """What is asked, checked.

    Attributes
    ----------
    model : nn.Module
        As it was given, before training; copied for every run.
    target : Source
    candidates : tuple of Source
        Under names that tell them apart.
    goal : Goal or None
        When the target counts as learned; None where that is a share of the loss.
    training : Training
        Loss, batch, clipping, schedule, seed, and whether stages reset the optimiser.
    rule : UpdateRule
        The optimiser.
    """

    model: nn.Module
    target: Source
    candidates: tuple[Source, ...]
    goal: Goal | None
    training: Training
    rule: UpdateRule

    @classmethod
    def of(
        cls,
        model: nn.Module,
        target: Any,
        candidates: Any,
        *,
        goal: Any = None,
        optimizer: Any = "adam",
        learning_rate: float | None = None,
        batch: int | None = 256,
        seed: int = 0,
        training: Training | None = None,
        **settings: Any,
    ) -> Request:
        """Read and check a request.

        Parameters
        ----------
        model : nn.Module
        target : anything that `training.train` takes trials from
        candidates : list of such, or mapping from names to such
        goal : Goal or float, optional
            A number is a loss.
        optimizer : str, torch optimiser, its class, or a function from parameters to one
        learning_rate : float, optional
            With a name or a class.
        batch, seed : int
        training : Training, optional
            Says all of these, from optimizer on; they are then left out.
        **settings
            Others of `Training`: loss, clip, schedule, weight_decay, reset_optimizer.
        """
        _check_model(model)
        if training is not None:
            optimizer, learning_rate = _of_training(training, learning_rate, settings)
        elif settings.get("weight_decay") is not None and not isinstance(optimizer, str):
            raise InvalidSpec(
                "weight_decay is said by the optimiser itself where one is given, got "
                f"weight_decay={settings['weight_decay']!r} with {type(optimizer).__name__}. Leave it out, or "
                "pass the optimiser's name."
            )
        rule = UpdateRule.of(optimizer, learning_rate, model, weight_decay=settings.get("weight_decay"))
        if training is None:
            training = Training(rule.learning_rate, batch=batch, seed=seed, evaluation=JUDGED, **settings)
        first, *others = _named_sources(target, candidates)
        for source in (first, *others):
            source.check(training.batch)
        made = cls(model, first, tuple(others), None if goal is None else Goal.read(goal), training, rule)
        if isinstance(made.goal, LossBelow):
            made = replace(made, goal=made.goal.of(made.loss))
        return made

    @property
    def loss(self) -> Loss:
        """What training makes small."""
        return self.training.loss_object

    @property
    def sources(self) -> tuple[Source, ...]:
        """All trials, the target's first."""
        return (self.target, *self.candidates)

    @property
    def dtype(self) -> torch.dtype:
        """Precision of the model."""
        return next(self.model.parameters()).dtype

    def held_out(self, source: Source) -> Batch:
        """The trials by which a task is judged."""
        return source.held_out(JUDGED, (0, 0), self.dtype).rows(slice(0, JUDGED))  # recorded trials come all of them

    def check_fit(self) -> None:
        """Refuse a model that cannot answer some of the trials, or a loss that does not suit them."""
        for source in self.sources:
            x, y, w = self.held_out(source)
            check_answers(self.model, x, y, source.name)
            with at_rest(self.model):
                self.loss(self.model(x), y, w)

    def measured(self, goal: Goal | Loss, source: Source, model: nn.Module | None = None) -> float:
        """A goal's measure, or a loss, of a model (the start by default) on a task's held-out trials."""
        x, y, w = self.held_out(source)
        with at_rest(own := self.model if model is None else model):
            answers = own(x)
        return goal.measure(answers, y, w) if isinstance(goal, Goal) else float(goal(answers, y, w))

    def chance(self, source: Source | None = None) -> float:
        """What the goal measures of the best answer that does not look at its inputs; nan where unknown."""
        _, y, w = self.held_out(self.target if source is None else source)
        return math.nan if self.goal is None else self.goal.chance(y, w)

    @property
    def facts(self) -> dict[str, Any]:
        """What was asked, for the attributes of an answer."""
        return {
            "target": self.target.name,
            "goal": "" if self.goal is None else self.goal.words,
            "chance": self.chance(),
            "loss": repr(self.loss),
            "loss_meaning": self.loss.meaning,
            "optimizer_between_stages": "reset" if self.training.reset_optimizer else "kept",
            "optimizer": self.rule.name,
            "learning_rate": self.rule.learning_rate,
        }

    def runner(self, stages: Sequence[tuple[Source, Rule | None]], *, seed: int = 0) -> Runner:
        """A copy of the model, ready to be really trained by some stages."""
        return Runner(copy.deepcopy(self.model), stages, self.rule, self.training.with_(seed=seed), judged=JUDGED)

    def trained_as(self, **changes: Any) -> Training:
        """The user's training as `training.train` takes it: by this very optimiser, in the model's precision."""
        names = [name for name, value in self.model.named_parameters() if value.requires_grad]
        again: Any = partial(_made_again, self.rule, names)
        again.__name__ = self.rule.name
        own = {"optimizer": again, "dtype": str(self.dtype).removeprefix("torch.")}
        return self.training.with_(steps=None, until=None, **own, **changes)

    @property
    def remarks(self) -> tuple[str, ...]:
        """What should be known of the trials."""
        again = [source.name for source in self.sources if source.kept is None and source.repeats]
        if not again:
            return ()
        return (
            f"{', '.join(again)}: the trials that are judged by are trained on from the second pass on; give others as "
            "simulate.trials(loader, held_out=(inputs, targets)).",
        )


def _made_again(rule: UpdateRule, names: Sequence[str], parameters: Iterable[nn.Parameter]) -> torch.optim.Optimizer:
    given = list(parameters)
    # A settings' hash asks for an optimiser of one parameter alone.
    return rule.made(dict(zip(names, given, strict=len(given) > 1)))


def _check_model(model: Any) -> None:
    if not isinstance(model, nn.Module) or next(model.parameters(), None) is None:
        raise UnsupportedModel(
            f"the model must be a torch.nn.Module with parameters, got {type(model).__name__}. Pass the model itself."
        )
    for name, value in model.named_parameters():
        if value.device.type != "cpu":
            raise UnsupportedModel(
                f"the model must be on the CPU, got {name} on {value.device}. Pass copy.deepcopy(model).cpu()."
            )
        if not torch.isfinite(value).all():
            raise InvalidSpec(
                f"the model's weights must be finite ({name} is not), got {int((~torch.isfinite(value)).sum())} "
                f"NaN or infinite values of {value.numel()}."
            )


def _of_training(training: Any, learning_rate: float | None, settings: Mapping[str, Any]) -> tuple[Any, float | None]:
    """The optimiser and its rate as a Training says them."""
    if not isinstance(training, Training) or learning_rate is not None or settings:
        given = sorted([*settings, *(["learning_rate"] if learning_rate is not None else [])])
        raise InvalidSpec(
            required="training must be a Training that says everything",
            got=", ".join(given) + " besides" if given else type(training).__name__,
            why="two sets of settings would contradict each other",
            remedy="put them into the Training, or leave it out",
        )
    return training.made_optimizer, None


def _named_sources(target: Any, candidates: Any) -> list[Source]:
    """The trials of target and candidates, each under a name of its own."""
    named = _named(candidates)
    found: list[Source] = []
    for place, (name, given) in enumerate([(None, target), *named]):
        usual = "target" if place == 0 else f"candidate {place}"
        source = Source.of(given, where=f" of {usual}" if name is None else f" of candidate {name!r}")
        base = name or (usual if source.name in _NAMELESS else source.name)
        label, again = base, 2
        while label in {one.name for one in found}:
            label, again = f"{base} ({again})", again + 1
        if place and source.hash == found[0].hash:
            raise InvalidSpec(
                f"candidates must differ from the target, got {label!r} (number {place}), which has the target's "
                "own trials. Leave it out.",
                field="candidates",
            )
        found.append(replace(source, name=label))
    return found


def _named(candidates: Any) -> list[tuple[str | None, Any]]:
    if isinstance(candidates, str | bytes) or not isinstance(candidates, Mapping | Sequence) or not candidates:
        raise InvalidSpec(
            required="candidates must be a list of tasks, or a mapping from names to tasks, at least one candidate",
            got=type(candidates).__name__ if candidates else "none",
            why="advice compares pretraining on each of them with none",
            remedy="put them in a list, a single one too",
        )
    if isinstance(candidates, Mapping):
        return [(str(name), source) for name, source in candidates.items()]
    return [(None, source) for source in candidates]
