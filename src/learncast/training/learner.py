"""A network in training: its module, and what can be measured of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch
from torch import nn

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.networks.activated import Activated
from learncast.networks.deep import Deep, Linear
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import LinearNetwork, product
from learncast.procedure.goals import Goal, Loss
from learncast.procedure.training import Training
from learncast.results import spec_hash
from learncast.tasks.geometry import Frame, common_frame
from learncast.tasks.one_step import from_pairs
from learncast.tasks.task import Task
from learncast.theory.dynamics.learning_problem import LearningProblem, learned_weights
from learncast.training.goals import loss_of, measure
from learncast.training.losses import IGNORED, HalfSquaredError, LossFunction
from learncast.training.modules import LayeredModule, Model, Network, RecurrentModule, as_module
from learncast.training.sources import Batch, Source
from learncast.training.torch_state import evaluating, own_randomness, training_copy


class HeldOutView:
    """Measures goals of a module on held-out trials.

    Parameters
    ----------
    module : nn.Module
    loss : LossFunction
        That is trained on.
    trials : int
        Held-out trials.
    seed : int
        Of the held-out trials.
    most : int, optional
        Largest number of recorded trials.
    """

    def __init__(
        self, module: nn.Module, loss: LossFunction, *, trials: int, seed: int = 0, most: int | None = None
    ) -> None:
        self.module, self.loss_function, self.evaluation, self.seed, self.most = module, loss, trials, seed, most
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._trials: dict[str, Batch] = {}

    def measure(self, goal: Goal, source: Source) -> float:
        """Return a goal's quantity on a source's held-out trials, which are drawn once."""
        if source.hash not in self._trials:
            dtype = next(self.module.parameters()).dtype
            self._trials[source.hash] = source.held_out(self.evaluation, (self.seed, 0), dtype).rows(
                slice(0, self.most)
            )
        x, y, w = self._trials[source.hash]
        with evaluating(self.module):
            return measure(goal, self.loss_function, self.module(x), y, w)

    def loss(self, source: Source) -> float:
        """Return the training loss on held-out trials."""
        return HeldOutView.measure(self, Loss(1.0), source)

    @property
    def strength(self) -> FloatArray:
        """Strength of each mode; none for a torch module."""
        return np.zeros(0)

    @property
    def weights(self) -> list[FloatArray]:
        """The weights that learn."""
        return [p.detach().numpy().astype(float) for p in self.parameters]


class Learner(HeldOutView):
    """A module and what training records of it.

    Parameters
    ----------
    network : LinearRNN, TwoLayer, Activated or nn.Module
        The start; a module is copied.
    sources : sequence of Source
        The trials of all stages.
    training : Training
    dtype : torch dtype
    evaluation : int
        Held-out trials.

    Attributes
    ----------
    module : nn.Module
        What is trained.
    start : LinearRNN, TwoLayer, Activated or nn.Module
    network : LinearRNN, TwoLayer, Activated or None
        The description before training; None for a torch module.
    frame : Frame or None
        Directions of the modes of the last task; None for a torch module.
    """

    def __init__(
        self, network: Model, sources: Sequence[Source], training: Training, *, dtype: torch.dtype, evaluation: int
    ) -> None:
        self.dtype, self.start, self.network = dtype, network, None if isinstance(network, nn.Module) else network
        self.learn: tuple[str, ...] = ()
        self._own: RecurrentModule | LayeredModule | None = None
        self._problems: dict[str, LearningProblem | None] = {}
        example = sources[0].held_out(2, (training.seed, 0), dtype)
        self._probe = example.inputs[:2]
        if isinstance(network, nn.Module):
            if training.learn is not None:
                raise InvalidSpec("learn must be None for a torch module. Set requires_grad.", field="learn")
            module: nn.Module = training_copy(network).to(dtype)
        else:
            module = self._own = as_module(network, learn=training.learn, every_step=example.every_step, dtype=dtype)
            self.learn = learned_weights(linear_part(network), training.learn)
        super().__init__(module, LossFunction.read(training.loss), trials=evaluation, seed=training.seed)
        if not self.parameters:
            raise UnsupportedModel("The module has no parameter that requires a gradient.")
        for source in sources:
            few = source.held_out(2, (self.seed, 0), dtype)
            check_answers(self.module, self.loss_function, *few, name=source.name)
        self.tasks = [self._task(source) for source in sources] if self._own is not None else []
        self.frame = self._frame()

    def _task(self, source: Source) -> Task:
        if source.task is not None:
            return source.task
        x, y, w = source.held_out(self.evaluation, (self.seed, 0), torch.float64)
        # Statistics know no fractional weights.
        mask = None if w is None else (w if w.ndim < 3 else w.amax(2)).numpy() > 0
        classes = None
        if not y.is_floating_point() and self.network is not None:
            mask, classes = (y != IGNORED).numpy() & (True if mask is None else mask), self.network.outputs
        build = from_pairs if x.ndim == 2 else Task.from_samples
        return build(x, y, name=source.name, mask=mask, classes=classes)

    def _frame(self) -> Frame | None:
        if self._own is None:
            return None
        now = self._own.described()
        function = now.output_weights @ now.input_weights if isinstance(now, LinearRNN) else now.function
        # The last task decides the directions, as in the forecasts that training is compared with.
        recurrence = getattr(now, "scalar_recurrence", None) if "recurrent" not in self.learn else None
        return common_frame([self.tasks[-1], *self.tasks[:-1]], maps=(function,), recurrence=recurrence)

    @property
    def modes(self) -> int:
        """Number of modes; 0 for a torch module."""
        return 0 if self.frame is None else self.frame.modes

    @property
    def strength(self) -> FloatArray:
        """Strength of each mode: the diagonal of W_y W_x in the modes' frame."""
        if self.frame is None or self._own is None:
            return np.zeros(0)
        first, *between, last = (w.detach().numpy() for w in self._own.weights.values())
        with np.errstate(over="ignore", invalid="ignore"):  # weights of a run that diverges
            into, out = first @ self.frame.mode_inputs, self.frame.mode_outputs.T @ last
            if isinstance(self._own, LayeredModule):
                into = product([into, *between])
            return np.asarray((out * into.T).sum(axis=1), dtype=float)

    def described(self) -> Network | None:
        """Return the network with its current weights; None for a torch module."""
        if self._own is None:
            return None
        now = self._own.described()
        if not isinstance(self.network, Activated):
            return now
        assert not isinstance(now, Deep)
        return Activated(now, self.network.activation)

    def problem(self, task: Task) -> LearningProblem | None:
        """Return the learning problem of a linear network; None for other networks and losses."""
        network = self.network
        if self.loss_function != HalfSquaredError() or not isinstance(network, LinearNetwork):
            return None
        return LearningProblem.of(task, network, self.learn)

    def loss(self, source: Source) -> float:
        """Return the loss on a task: exact for a linear network with known statistics, else on held-out trials."""
        if source.hash not in self._problems:
            task = source.task
            known = task is not None and task.target_covariance is not None
            self._problems[source.hash] = self.problem(task) if known else None  # type: ignore[arg-type]
        problem = self._problems[source.hash]
        if problem is None or self._own is None:
            return super().loss(source)
        weights = replace(problem, network=self._own.described()).start
        with np.errstate(over="ignore", invalid="ignore"):
            return problem.loss_and_slopes(weights)[0]

    def measure(self, goal: Goal, source: Source) -> float:
        """Return a goal's quantity on held-out trials; the loss that is trained on as `loss` returns it."""
        if isinstance(goal, Loss) and loss_of(goal, self.loss_function) == self.loss_function:
            return self.loss(source)
        return super().measure(goal, source)

    def least_loss(self, stage: int) -> float:
        """Return the least loss of any linear map on a stage's task; nan for networks that are not linear."""
        problem = self.problem(self.tasks[stage]) if self.tasks else None
        return np.nan if problem is None else problem.least_loss

    @property
    def hash(self) -> str:
        """Short hash of the start."""
        if self.network is not None:
            return self.network.hash
        # Modules may differ in what their parameters do not show: add their printed form and an answer.
        weights = [value.detach().numpy() for value in self.module.state_dict().values()]
        with evaluating(self.module):
            answer = self.module(self._probe).numpy()
        return spec_hash(type(self.module).__qualname__, repr(self.module), answer, *weights)


def linear_part(network: Network) -> Linear:
    """Return the weights of a described network."""
    return network.network if isinstance(network, Activated) else network


def check_answers(
    module: nn.Module, loss: LossFunction, x: torch.Tensor, y: torch.Tensor, w: torch.Tensor | None, *, name: str
) -> None:
    """Refuse a module whose answers do not fit the targets or the loss, or that mixes trials."""
    labels = not y.is_floating_point()
    try:
        with evaluating(module):
            answers = _answers(module, x)
            # A module that reads steps first would mix trials.
            is_tensor = isinstance(answers, torch.Tensor)
            mixed = is_tensor and len(x) > 1 and x.ndim == 3 and not _trials_apart(module, x, answers)
    except (RuntimeError, TypeError, ValueError, IndexError, AttributeError) as error:
        wanted = f"inputs {tuple(x.shape)} of {name!r}"
        message = f"{type(error).__name__}: {error}".splitlines()[0]
        table = next((part for part, one in module.named_modules() if isinstance(one, nn.Embedding)), None)
        cast = "" if table is None else f" Trials are floats: write self.{table}(x.long()) in forward."
        raise InvalidSpec(f"The network must accept {wanted}, got {message}.{cast}", field="network") from error
    if not is_tensor:
        raise InvalidSpec(f"The network must return one tensor, got {type(answers).__name__}.", field="network")
    shape = tuple(answers.shape)
    if shape != ((*y.shape, *shape[-1:]) if labels else tuple(y.shape)):
        wanted = f"{(*y.shape, 'outputs')}".replace("'", "") if labels else f"{tuple(y.shape)}"
        raise InvalidSpec(
            f"The outputs of the network for {name!r} must have shape {wanted}, got {shape}.", field="network"
        )
    if mixed:
        remedy = "Use batch_first=True or training.TimeFirst(model)."
        raise InvalidSpec(f"The network must not mix trials. {remedy}", field="network")
    try:
        with evaluating(module):
            loss(answers, y, w)
    except (
        RuntimeError,
        TypeError,
        ValueError,
        IndexError,
        AttributeError,
    ) as error:  # of torch's loss, or of a user's function
        if isinstance(error, InvalidSpec):
            raise
        kinds = f"answers {shape} and {'labels' if labels else 'targets'} {tuple(y.shape)} of {name!r}"
        message = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
        raise InvalidSpec(f"The loss must accept {kinds}, got {message}.", field="loss") from error


def _trials_apart(module: nn.Module, x: torch.Tensor, answers: torch.Tensor) -> bool:
    """Whether the other trials' answers stay the same when the first trial's inputs change."""
    other = x.clone()
    other[0] = x[-1]
    round_off = 1e-6 * float(answers.abs().nan_to_num().max())
    return bool(torch.allclose(_answers(module, other)[1:], answers[1:], rtol=1e-4, atol=round_off, equal_nan=True))


def _answers(module: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Return a module's answers, always with the same noise."""
    with own_randomness(0):
        answers: torch.Tensor = module(x)
    return answers
