"""Tasks from trial-based environments, as neurogym makes them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.packages import install
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.tasks.task import Task


def from_environment(
    environment: Any,
    *,
    trials: int,
    seed: int,
    name: str | None = None,
    steps: int | None = None,
    at: str = "every_step",
    centre: bool = False,
    options: Mapping[str, Any] | None = None,
) -> Task:
    """Estimate a task from trials of an environment: observations are inputs, the ground truth is the target.

    The environment must follow the interface of neurogym's `TrialEnv`: `new_trial()` draws a trial, `ob` (steps,
    channels) and `gt` (steps) or (steps, channels) then hold it whole. It is reset and seeded here, so the same seed
    gives the same trials; an environment that was passed in is left after its last trial, since a copy of it could
    share its random stream. What an environment draws when it is made no seed reaches. Ground truth that numbers
    classes (a discrete action space) becomes one-hot targets.

    The statistics are of trials that were drawn once; a network that is trained on the task (`training.train`) is
    trained on further trials of the environment itself, and not on Gaussian ones with the same statistics.

    Trials of unequal length are aligned at their end, where answers are asked for: shorter ones begin with steps
    without input or target, longer ones lose their beginning. A linear network that starts at rest stays at rest over
    such steps, so they change neither its output nor its loss.

    Parameters
    ----------
    environment : str or environment
        An id such as "PerceptualDecisionMaking-v0", which needs the neurogym package, or an environment.
    trials : int
    seed : int
    name : str, optional
        What to call it; the environment's name by default.
    steps : int, optional
        Length of every trial; the longest drawn by default.
    at : {"every_step", "end"}
        When the target is asked for.
    centre : bool
        As in `Task.from_samples`.
    options : mapping, optional
        Keywords of the environment, where it is given by its id.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> class Guess:
    ...     def new_trial(self):
    ...         side = self.rng.choice([-1.0, 1.0])
    ...         self.ob, self.gt = np.full((5, 1), side), np.full((5, 1), side)
    ...         return {}
    ...     def seed(self, seed=None):
    ...         self.rng = np.random.default_rng(seed)
    ...     def reset(self, **options):
    ...         return None
    ...
    >>> lc.tasks.from_environment(Guess(), trials=20, seed=0, name="guess")
    <Task 'guess': 5 steps, 1 input, 1 output at every step; estimated from 20 trials>
    """
    trials = count("trials", trials, least=2)
    seed = count("seed", seed, least=0)
    one_of("at", at, ("every_step", "end"))
    steps = None if steps is None else count("steps", steps)
    origin = EnvironmentTrials(made_environment(environment, options), steps, at, name)
    drawn = origin.trials(trials, seed)
    length = max(len(x) for x, _ in drawn) if steps is None else steps
    inputs = np.stack([_aligned(x, length) for x, _ in drawn])
    targets = np.stack([_aligned(_one_hot(y, origin.classes), length) for _, y in drawn])
    default = environment if isinstance(environment, str) else origin.name
    wanted = targets[:, -1] if at == "end" else targets
    task = Task.from_samples(inputs, wanted, name=name or default, centre=centre)
    if centre or task.recording is None:
        return task  # trials themselves are not centred: such statistics are of others
    recording = replace(task.recording, origin=replace(origin, steps=length))
    return Task.trusted(
        task.input_covariance,
        task.cross_covariance,
        task.target_covariance,
        name=task.name,
        trials=task.trials,
        recording=recording,
    )


def is_environment(source: Any) -> bool:
    """Whether this draws trials as neurogym's `TrialEnv` does."""
    core = _core(source)
    return all(callable(getattr(core, key, None)) for key in ("new_trial", "reset", "seed"))


@dataclass(frozen=True, eq=False)
class EnvironmentTrials:
    """The trials of an environment, drawn when they are wanted.

    Attributes
    ----------
    environment : environment or str
    steps : int, optional
        Steps that are kept of a trial, its last; all by default.
    at : {"every_step", "end"}
        When the target is asked for.
    called : str, optional
        Another name than the environment's.
    """

    environment: Any
    steps: int | None = None
    at: str = "every_step"
    called: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "environment", made_environment(self.environment, None))

    @property
    def name(self) -> str:
        """What to call it."""
        return self.called or type(_core(self.environment)).__name__

    @property
    def classes(self) -> range | None:
        """The classes, where the ground truth numbers them."""
        return _classes(_core(self.environment))

    def trials(self, number: int, seed: int) -> list[tuple[FloatArray, FloatArray]]:
        """Observations (steps, inputs) and ground truth (steps, 1 or outputs) of every trial, each of its length."""
        return _trials(self.environment, number, seed)

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[Any, ...]:
        """Trials of one length: inputs, targets, and a mask (trials, steps) where trials differ in length.

        Targets that number classes are labels from 0. Shorter trials are filled up after their end, where the mask is
        0; with the target at the end they begin with steps without input instead.
        """
        found = self.trials(trials, int(rng.integers(2**31)))
        kept = [(x[-self.steps :], y[-self.steps :]) for x, y in found] if self.steps else found
        length = self.steps or max(len(x) for x, _ in kept)
        at_end = self.at == "end"
        place = _aligned if at_end else _filled_up
        inputs, targets = (np.stack([place(pair[part], length) for pair in kept]) for part in (0, 1))
        classes = self.classes
        if classes is not None:
            targets = (targets[:, :, 0] - classes[0]).astype(np.int64)
        if at_end:
            return inputs, targets[:, -1]
        lengths = np.array([len(x) for x, _ in kept])
        mask = (np.arange(length) < lengths[:, None]).astype(float)
        # The class of what does not count need not be one.
        targets = np.where(mask > 0, targets, 0) if classes is not None else targets
        return inputs, targets, mask


def made_environment(environment: Any, options: Mapping[str, Any] | None) -> Any:
    """The environment of an id, or the one given."""
    if not isinstance(environment, str):
        if options:
            raise InvalidSpec(
                "options belong to an environment that is given by its id, got options with "
                f"{type(environment).__name__}. Leave them out, or give the id."
            )
        return environment
    if find_spec("neurogym") is None:
        raise InvalidSpec(
            "neurogym must be installed to make an environment from its id, got no such package. "
            f"{install('neurogym')}, or pass an environment of your own.",
            field="neurogym",
        )
    try:
        neurogym = import_module("neurogym")
    except ImportError as error:  # it loads torch without asking for it to be installed
        raise InvalidSpec(f"neurogym must load, got {type(error).__name__}: {error}.", field="neurogym") from error
    known = tuple(import_module("gymnasium").registry)  # neurogym enters its environments there when it loads
    if environment not in known:
        raise InvalidSpec(f"an environment's id must be registered, got {environment!r}.")
    return neurogym.make(environment, **(options or {}))


def _core(environment: Any) -> Any:
    return getattr(environment, "unwrapped", environment)


def _trials(environment: Any, trials: int, seed: int) -> list[tuple[FloatArray, FloatArray]]:
    """Inputs and targets of every trial, each of its own length."""
    core = _core(environment)
    if not is_environment(core):
        raise UnsupportedModel(
            "an environment must have new_trial, reset and seed, as neurogym's TrialEnv has, got "
            f"{type(core).__name__}. Use a trial-based environment, or collect trials yourself and use "
            "tasks.from_batches."
        )
    core.seed(seed)  # neurogym's own stream, which its reset draws from and does not seed
    environment.reset(seed=seed)
    core.seed(seed)
    draw, classes = _outermost(environment).new_trial, _classes(core)
    found = []
    for k in range(trials):
        draw()
        found.append(_read(core, classes, k))
    return found


def _outermost(environment: Any) -> Any:
    """The outermost wrapper that draws trials in its own way."""
    while not hasattr(type(environment), "new_trial"):
        environment = environment.env
    return environment


def _classes(core: Any) -> range | None:
    """The classes, where the ground truth numbers them."""
    space = getattr(core, "action_space", None)
    first, number = getattr(space, "start", 0), getattr(space, "n", None)
    return None if number is None else range(int(first), int(first) + int(number))


def _read(core: Any, classes: range | None, k: int) -> tuple[FloatArray, FloatArray]:
    observed, truth = getattr(core, "ob", None), getattr(core, "gt", None)
    if observed is None or truth is None:
        raise UnsupportedModel(
            f"every trial must have observations ob and ground truth gt, got none in trial {k} of "
            f"{type(core).__name__}. Use an environment that builds both in new_trial, such as those tagged "
            "'supervised' in neurogym."
        )
    x = real_array(f"observations of trial {k}", observed)
    y = real_array(f"ground truth of trial {k}", truth)
    if x.ndim == 0 or y.ndim == 0 or len(x) != len(y) or len(x) == 0:
        raise InvalidSpec(
            f"observations and ground truth of trial {k} must have the same steps, got shapes {x.shape} and "
            f"{y.shape}. Check the environment's new_trial."
        )
    x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
    if classes is None:
        return x, y
    if y.shape[1] != 1 or not np.isin(y, classes).all():
        raise InvalidSpec(
            f"ground truth of trial {k} must be one class from {classes[0]} to {classes[-1]} at each step, "
            f"got values from {y.min():g} to {y.max():g}, {y.shape[1]} a step. Check the environment's action "
            "space."
        )
    return x, y


def _one_hot(truth: FloatArray, classes: range | None) -> FloatArray:
    return truth if classes is None else np.equal(truth, classes).astype(float)


def _filled_up(values: FloatArray, length: int) -> FloatArray:
    """The steps of a trial, before steps of zeros where it is shorter."""
    return np.concatenate([values, np.zeros((length - len(values), values.shape[1]))])


def _aligned(values: FloatArray, length: int) -> FloatArray:
    """The last steps of a trial, after steps of zeros where it is shorter."""
    kept = values[-length:]
    return np.concatenate([np.zeros((length - len(kept), values.shape[1])), kept])
