"""Settings of a training: learning rate, optimiser, batch, loss and which weights learn."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, fields, replace
from numbers import Real
from typing import Any

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.validation import between, count, one_of, positive, real_array
from learncast.results import spec_hash

#: Update rules known by name, with the defaults of `torch.optim`.
OPTIMIZERS = ("gd", "momentum", "adam", "adamw", "rmsprop")
#: Steps after which a training that has not reached its goal ends.
MOST_STEPS = 1_000_000


@dataclass(frozen=True)
class Training:
    """How a network is trained, for forecasts and for torch alike.

    Parameters
    ----------
    learning_rate : float
        Factor of the gradient in every step.
    optimizer : {"gd", "momentum", "adam", "adamw", "rmsprop"} or callable
        Update rule with the defaults of `torch.optim`; a class of torch optimisers, or a `functools.partial` of one
        with other settings, which gets the learning rate; or a function from parameters to a torch optimiser, one
        of whose parameter groups has this learning rate.
    batch : int, optional
        Trials per step. None is the full batch: all trials of a recording, the exact statistics of a task family.
        Recorded trials are drawn independently of each other, so that one may occur twice in a batch. A batch of at
        least all recorded trials is the full batch.
    shuffle : bool
        Whether recorded trials are drawn in epochs instead, as by a `torch.utils.data.DataLoader` with `shuffle`: every
        epoch sees all trials once, in a new order, and its last batch may be smaller. Steps then vary much less.
    loss : str or callable
        "half_mse" (half the squared error, summed over outputs), "mse", "cross_entropy", a torch loss, or a function of
        (answers, targets). Forecasts of linear networks are for squared errors.
    learn : tuple of str, optional
        Weights that learn. By default the input and output weights of a recurrent network and all layers of other
        linear networks; all parameters of a torch module.
    momentum, eps : float
        Settings of the optimiser.
    betas : tuple of float
        Decay of the mean gradient and of its mean square, for Adam.
    weight_decay : float, optional
        Decay of the weights, in units of the optimiser.
    clip : float, optional
        Largest norm of the gradient; a larger gradient is scaled down to it.
    schedule : callable, optional
        From a torch optimiser to a scheduler of `torch.optim.lr_scheduler`.
    seed : int
        Seed of the batches.
    reset_optimizer : bool
        Whether each stage of a curriculum starts with a fresh optimiser.
    most_steps : int
        Steps after which a stage that has not reached its goal ends, in training and in forecasts that go through
        every step (momentum, Adam, batches). Forecasts of plain gradient descent count any number of steps.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.Training(1e-2, optimizer="adam", batch=32).optimizer
    'adam'
    """

    learning_rate: float
    _: KW_ONLY
    optimizer: str | Callable[..., object] = "gd"
    batch: int | None = None
    shuffle: bool = False
    loss: str | Callable[..., object] = "half_mse"
    learn: tuple[str, ...] | None = None
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float | None = None
    clip: float | None = None
    schedule: Callable[..., object] | None = None
    seed: int = 0
    reset_optimizer: bool = True
    most_steps: int = MOST_STEPS

    def __post_init__(self) -> None:
        object.__setattr__(self, "learning_rate", positive("learning_rate", self.learning_rate))
        if not callable(self.optimizer):
            one_of("optimizer", self.optimizer, OPTIMIZERS)
        if self.batch is not None:
            object.__setattr__(self, "batch", count("batch", self.batch))
        if self.learn is not None:
            given: object = self.learn
            object.__setattr__(self, "learn", (given,) if isinstance(given, str) else tuple(self.learn))
        between("momentum", self.momentum, 0.0, 1.0)
        betas = real_array("betas", self.betas, ndim=1)
        if len(betas) != 2 or not ((betas >= 0) & (betas < 1)).all():
            raise InvalidSpec(f"betas must be two numbers in [0, 1), got {self.betas!r:.60}.", field="betas")
        between("eps", self.eps, 0.0, 1e300)
        if self.weight_decay is not None:
            between("weight_decay", self.weight_decay, 0.0, 1e300)
        if self.clip is not None:
            positive("clip", self.clip)
        count("seed", self.seed, least=0)
        count("most_steps", self.most_steps)

    @classmethod
    def of(cls, training: Training | float | None, learning_rate: float | None = None) -> Training:
        """Return the settings given as a `Training`, or by a learning rate alone."""
        if isinstance(training, Training) and learning_rate is None:
            return training
        if training is not None and not isinstance(training, Training | Real):
            kind = type(training).__name__
            raise InvalidSpec(
                f"training must be a Training, got {kind}. Give trials as one pair (inputs, targets).", field="training"
            )
        if training is None and learning_rate is None:
            raise InvalidSpec("Give a learning rate, or training=learncast.Training(...).", field="learning_rate")
        if training is not None and learning_rate is not None:
            raise InvalidSpec("Give either training or learning_rate, got both.", field="learning_rate")
        rate = learning_rate if training is None else training
        assert not isinstance(rate, Training)
        return cls(positive("learning_rate", rate))

    def with_(self, **changes: Any) -> Training:
        """Return these settings with some changed."""
        for key in changes:
            one_of("setting", key, tuple(f.name for f in fields(self)))
        return replace(self, **changes)

    @property
    def hash(self) -> str:
        """Short hash of every setting that decides a result."""
        values = [getattr(self, f.name) for f in fields(self)]
        return spec_hash(*(getattr(v, "__qualname__", None) or repr(v) for v in values))


Training.__init__ = hinted(Training.__init__)  # type: ignore[method-assign]
