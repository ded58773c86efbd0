"""A network in training: its module, and what can be seen of it at any step."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.results import spec_hash
from learncast.tasks.geometry import Frame, common_frame
from learncast.tasks.one_step import from_pairs
from learncast.tasks.task import Task
from learncast.theory.assumptions import exact
from learncast.theory.dynamics.learning_problem import LearningProblem
from learncast.theory.dynamics.modes import modes_of, without_round_off
from learncast.training.borrowed import at_rest, own_randomness
from learncast.training.goals import Goal, LossBelow
from learncast.training.losses import HalfSquaredError, Loss
from learncast.training.modules import LayeredModule, Network, RecurrentModule, as_module
from learncast.training.sources import Source
from learncast.training.training import DTYPES, Training


class Learner:
    """A module and the view of it that training records.

    Attributes
    ----------
    module : nn.Module
        What is trained: our own for a described network, a copy of the user's module otherwise.
    start : LinearRNN, TwoLayer, Activated or nn.Module
        What was given.
    network : LinearRNN, TwoLayer, Activated or None
        The description before training.
    frame : Frame or None
        Directions of the modes, those of the last task; None without a description.
    """

    def __init__(self, network: Network | nn.Module, sources: Sequence[Source], training: Training) -> None:
        self.dtype, self.training = DTYPES[training.dtype], training
        self.start, self.network = network, None if isinstance(network, nn.Module) else network
        self._own: RecurrentModule | LayeredModule | None = None
        example = sources[0].held_out(2, (training.seed, 0), self.dtype)
        self._probe, self.loss = example.inputs[:2], training.loss_object
        if isinstance(network, nn.Module):
            if training.learn is not None:
                raise InvalidSpec(
                    f"learn names weights of a described network, got learn={training.learn!r} with a torch module. "
                    "Set requires_grad on the module's parameters."
                )
            self.module = copy.deepcopy(network).to(self.dtype)  # the user's own stays as it is
        else:
            self._own = as_module(network, learn=training.learn, every_step=example.every_step, dtype=self.dtype)
            self.module = self._own
        self.module.train()
        self.parameters = [p for p in self.module.parameters() if p.requires_grad]
        if not self.parameters:
            raise UnsupportedModel(
                "some parameters of the module must require a gradient, got none that does. Set requires_grad on "
                "what should learn."
            )
        self._check_answers(sources)
        self.tasks = [self._task(source) for source in sources] if self._own is not None else []
        self.frame = self._frame()

    def _check_answers(self, sources: Sequence[Source]) -> None:
        for source in sources:
            x, y, w = source.held_out(2, (self.training.seed, 0), self.dtype)
            check_answers(self.module, x, y, source.name)
            with at_rest(self.module):
                self.loss(self.module(x), y, w)  # a loss that does not suit the targets says so before training

    def _task(self, source: Source) -> Task:
        if source.task is not None:
            return source.task
        x, y, w = source.held_out(self.training.evaluation, (self.training.seed, 0), torch.float64)
        if w is not None or not y.is_floating_point():
            return Task.from_samples(x, y, name=source.name, mask=_counted(w), labels=not y.is_floating_point())
        build = from_pairs if x.ndim == 2 else Task.from_samples
        return build(x, y, name=source.name)

    def _frame(self) -> Frame | None:
        if self._own is None:
            return None
        now = self._own.described()
        function = now.function if isinstance(now, TwoLayer) else now.output_weights @ now.input_weights
        # The target, which comes last, decides: so do the forecasts that training is compared with.
        fixed = "recurrent" not in (self.training.learn or ("recurrent",))
        recurrence = getattr(now, "scalar_recurrence", None) if fixed else None
        return common_frame([self.tasks[-1], *self.tasks[:-1]], maps=(function,), recurrence=recurrence)

    @property
    def modes(self) -> int:
        """Number of modes; 0 without a description."""
        return 0 if self.frame is None else self.frame.modes

    @property
    def strength(self) -> FloatArray:
        """Strength of each mode now: the diagonal of W_y W_x in the modes' frame."""
        if self.frame is None or self._own is None:
            return np.zeros(0)
        first, *_, last = (w.detach().numpy() for w in self._own.weights.values())
        with np.errstate(over="ignore", invalid="ignore"):  # a run that diverges passes through anything
            into, out = first @ self.frame.mode_inputs, self.frame.mode_outputs.T @ last
            return np.asarray((out * into.T).sum(axis=1), dtype=float)

    @property
    def weights(self) -> list[FloatArray]:
        """The weights that learn, of each kind."""
        return [p.detach().numpy().astype(float) for p in self.parameters]

    def described(self) -> Network | None:
        """The network with its weights as they are now."""
        if self._own is None:
            return None
        now = self._own.described()
        return Activated(now, self.network.activation) if isinstance(self.network, Activated) else now

    def judge(self, source: Source) -> Judge:
        """What tells the loss on a stage's task: on its statistics where the network is linear, else on trials."""
        network, task = self.network, source.task
        if self.loss == HalfSquaredError() and isinstance(network, LinearRNN | TwoLayer) and _known(task):
            assert task is not None
            return partial(_exact_loss, self._own, LearningProblem.of(task, network, self.training.learn))
        trials = source.held_out(self.training.evaluation, (self.training.seed, 0), self.dtype)
        return partial(self.loss_on, *trials)

    def look(self, goal: Goal, source: Source) -> Judge:
        """What tells a goal's measure on a stage's task; of the loss that is trained on, as `judge` tells it."""
        if isinstance(goal, LossBelow) and (goal.loss is None or goal.loss == self.loss):
            return self.judge(source)
        x, y, w = source.held_out(self.training.evaluation, (self.training.seed, 0), self.dtype)

        def look() -> float:
            with at_rest(self.module):
                return goal.measure(self.module(x), y, w)

        return look

    def optimum(self, stage: int) -> FloatArray | None:
        """The optimum of a linear network on a stage's task as theory knows it; None where it does not."""
        network, frame, learn = self.network, self.frame, set(self.training.learn or ())
        # Weights of steps or outputs, and other losses, have other optima.
        if frame is None or not self.loss.squared or self.loss.steps or self.loss.outputs:
            return None
        task = self.tasks[stage]
        if isinstance(network, TwoLayer) and network.hidden_size >= frame.modes and len(learn) != 1:
            power = task.input_covariance.dense()[0, :, 0, :]
            best = np.linalg.lstsq(power, task.cross_covariance.dense()[0, :, 0, :], rcond=None)[0].T
            strengths = np.einsum("mk,mn,nk->k", frame.mode_outputs, best, frame.mode_inputs)
            return without_round_off(strengths, np.asarray(best, dtype=float))
        if isinstance(network, LinearRNN) and learn == {"input", "output"}:
            found = modes_of([self.tasks[-1], task], network)[-1]
            return found.optimum if exact(found.assumptions) else None
        return None

    def least_loss(self, stage: int) -> float:
        """The least loss of any linear map on a stage's task; nan for networks that are not linear."""
        if self.loss != HalfSquaredError() or not isinstance(self.network, LinearRNN | TwoLayer):
            return np.nan
        return LearningProblem.of(self.tasks[stage], self.network, self.training.learn).least_loss

    def loss_on(self, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor | None = None) -> float:
        """The loss on given trials, judged without training."""
        return judged(self.module, self.loss, x, y, w)

    @property
    def hash(self) -> str:
        """Short hash of the start."""
        if self.network is not None:
            return self.network.hash
        # Modules may differ in what their parameters do not show: their printed form and an answer tell more.
        weights = [value.detach().numpy() for value in self.module.state_dict().values()]
        with at_rest(self.module):
            answer = self.module(self._probe).numpy()
        return spec_hash(type(self.module).__qualname__, repr(self.module), answer, *weights)


#: Tells the loss on a task of a network in training.
Judge = Callable[[], float]


def _exact_loss(module: Any, problem: LearningProblem) -> float:
    """The loss of a linear network on a task's statistics."""
    weights = replace(problem, network=module.described()).start
    with np.errstate(over="ignore", invalid="ignore"):
        return problem.loss_and_slopes(weights)[0]


def judged(module: nn.Module, loss: Loss, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor | None = None) -> float:
    """The loss of a module on given trials, judged without training."""
    with at_rest(module):
        return float(loss(module(x), y, w))


def check_answers(module: nn.Module, x: torch.Tensor, y: torch.Tensor, name: str) -> None:
    """Refuse a module whose answers do not have the targets' shape, or that takes trials for steps."""
    cause: Exception | None = None
    labels = not y.is_floating_point()
    try:
        with at_rest(module):
            answers = _answered(module, x)
            found = tuple(answers.shape)
            got = f"answers of shape {found}"
            # The answer to a trial is its own affair: a module that reads steps first would mix trials.
            mixed = len(x) > 1 and x.ndim == 3 and not _apart(module, x, answers)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        got, cause, found, mixed = f"{type(error).__name__}: {error}".splitlines()[0], error, (), False
    wanted = (*y.shape, *found[-1:]) if labels else tuple(y.shape)
    if found != wanted:
        asked = f"{(*y.shape, 'outputs')}".replace("'", "") if labels else f"{wanted}"
        raise InvalidSpec(
            f"the network must take {name!r} inputs {tuple(x.shape)} to answers {asked}, got {got}."
        ) from cause
    if mixed:
        raise InvalidSpec(
            f"the network must take inputs (trials, steps, inputs), as {name!r} has them, trial by trial, got "
            "answers to one trial that change with another. Make its layers with batch_first=True, or wrap "
            "it: training.TimeFirst(model)."
        )


def _apart(module: nn.Module, x: torch.Tensor, answers: torch.Tensor) -> bool:
    """Whether the other trials' answers stay when the first trial's inputs change."""
    other = x.clone()
    other[0] += 1.0
    return bool(torch.allclose(_answered(module, other)[1:], answers[1:], rtol=1e-4, atol=1e-6, equal_nan=True))


def _answered(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What a module answers, with the same noise every time where it has noise of its own."""
    with own_randomness(0):
        found: torch.Tensor = module(x)
    return found


def _known(task: Task | None) -> bool:
    return task is not None and task.target_covariance is not None


def _counted(weights: torch.Tensor | None) -> Any:
    """Which readouts count, for statistics, which know no weight between none and all."""
    if weights is None:
        return None
    return (weights if weights.ndim < 3 else weights.amax(2)).numpy() > 0
