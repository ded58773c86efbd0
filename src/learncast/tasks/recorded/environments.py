"""Tasks from trial-based environments such as those of neurogym."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from typing import Any, Protocol

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel, suggestion
from learncast._core.packages import package
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.tasks.task import Task


class Environment(Protocol):
    """An environment that draws trials, as neurogym's `TrialEnv` does."""

    def new_trial(self) -> object: ...
    def reset(self) -> object: ...
    def seed(self, seed: int) -> object: ...


def from_environment(
    environment: str | Environment,
    *,
    trials: int,
    seed: int,
    name: str | None = None,
    steps: int | None = None,
    at: str = "every_step",
    centre: bool = False,
    options: Mapping[str, object] | None = None,
) -> Task:
    """Estimate a task from trials of an environment: observations are inputs, the ground truth is the target.

    The environment must have the interface of neurogym's `TrialEnv`: `new_trial()` draws a trial, after which `ob`
    (steps, channels) and `gt` (steps) or (steps, channels) contain it. It is reset and seeded, so that the same seed
    gives the same trials, except for random numbers that the environment draws when it is made. An environment that is
    passed in is left in the state after the last trial. Ground truth that numbers classes (a discrete action space)
    becomes one-hot targets.

    The statistics are those of trials that are drawn once. A network trained on the task (`training.train`) is trained
    on further trials of the environment, not on Gaussian trials with the same statistics.

    Trials of unequal length are aligned at their end: shorter ones begin with steps of zero input and target, longer
    ones lose their first steps. A linear network at rest stays at rest over steps of zero input, so these steps change
    neither its output nor its loss.

    Parameters
    ----------
    environment : str or environment
        An id such as "PerceptualDecisionMaking-v0", which needs the neurogym package, or an environment.
    trials : int
    seed : int
    name : str, optional
        Name of the task; the environment's name by default.
    steps : int, optional
        Length of every trial; that of the longest trial by default.
    at : {"every_step", "end"}
        When there is a target.
    centre : bool
        See `Task.from_samples`.
    options : mapping, optional
        Keywords of an environment that is given by its id.

    Returns
    -------
    Task
        Statistics of the trials.

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
    number, seed = count("trials", trials, least=2), count("seed", seed, least=0)
    one_of("at", at, ("every_step", "end"))
    steps = None if steps is None else count("steps", steps)
    origin = EnvironmentTrials(make_environment(environment, options), steps, at, name)
    pairs, classes = origin.trials(number, seed), origin.classes
    length = max(len(x) for x, _ in pairs) if steps is None else steps
    one_hot = [y if classes is None else np.equal(y, classes).astype(float) for _, y in pairs]
    inputs = np.stack([_padded(x, length, "end") for x, _ in pairs])
    targets = np.stack([_padded(y, length, "end") for y in one_hot])
    default = environment if isinstance(environment, str) else origin.name
    task = Task.from_samples(inputs, targets[:, -1] if at == "end" else targets, name=name or default, centre=centre)
    if centre or task.recording is None:
        return task  # centred statistics differ from those of the environment's trials
    return task.replaced(recording=replace(task.recording, origin=replace(origin, steps=length)))


def is_environment(source: object) -> bool:
    """Whether an object draws trials as neurogym's `TrialEnv` does."""
    return all(callable(getattr(_core(source), key, None)) for key in ("new_trial", "reset", "seed"))


@dataclass(frozen=True, eq=False)
class EnvironmentTrials:
    """Trials of an environment, drawn on request.

    Attributes
    ----------
    environment : environment or str
    steps : int, optional
        Number of last steps that are used of a trial; all by default.
    at : {"every_step", "end"}
        When there is a target.
    called : str, optional
        Name, if it differs from the environment's.
    """

    environment: Any
    steps: int | None = None
    at: str = "every_step"
    called: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "environment", make_environment(self.environment, None))

    @property
    def name(self) -> str:
        """Name of the trials."""
        return self.called or type(_core(self.environment)).__name__

    @property
    def classes(self) -> range | None:
        """The classes, if the ground truth numbers them."""
        space = getattr(_core(self.environment), "action_space", None)
        first, number = int(getattr(space, "start", 0)), getattr(space, "n", None)
        return None if number is None else range(first, first + int(number))

    def trials(self, number: int, seed: int) -> list[tuple[FloatArray, FloatArray]]:
        """Observations (steps, inputs) and ground truth (steps, 1 or outputs) of every trial, each of its length."""
        core, drawing = _core(self.environment), self.environment
        if not is_environment(core):
            got = type(core).__name__
            raise UnsupportedModel(f"environment must have new_trial, reset and seed, got {got}.", field="environment")
        core.seed(seed)  # neurogym's reset draws from a stream that it does not seed
        self.environment.reset(seed=seed)
        core.seed(seed)
        while not hasattr(type(drawing), "new_trial"):  # the outermost wrapper that changes how trials are drawn
            drawing = drawing.env
        return [self._next_trial(drawing, core, k) for k in range(number)]

    def _next_trial(self, drawing: Any, core: Any, k: int) -> tuple[FloatArray, FloatArray]:
        drawing.new_trial()
        if getattr(core, "ob", None) is None or getattr(core, "gt", None) is None:
            got = f"none in trial {k} of {type(core).__name__}"
            raise UnsupportedModel(f"environment must set ob and gt in new_trial, got {got}.", field="environment")
        x, y, classes = real_array(f"ob of trial {k}", core.ob), real_array(f"gt of trial {k}", core.gt), self.classes
        if x.ndim == 0 or y.ndim == 0 or len(x) != len(y) or len(x) == 0:
            shapes = f"shapes {x.shape} and {y.shape} in trial {k}"
            raise InvalidSpec(f"ob and gt must have the same steps, got {shapes}.", field="environment")
        x, y = x.reshape(len(x), -1), y.reshape(len(y), -1)
        if classes is not None and (y.shape[1] != 1 or not np.isin(y, classes).all()):
            wanted = f"one class from {classes[0]} to {classes[-1]} at each step"
            got = f"{y.shape[1]} from {y.min():g} to {y.max():g}"
            raise InvalidSpec(f"gt of trial {k} must be {wanted}, got {got}.", field="environment")
        return x, y

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[object, ...]:
        """Trials of equal length: inputs, targets, and a mask (trials, steps) if the target is at every step.

        Targets that number classes are labels from 0. Shorter trials are padded at their end, where the mask is 0; with
        the target at the end they begin with steps of zero input instead.
        """
        pairs = self.trials(trials, int(rng.integers(2**31)))
        length, classes = self.steps or max(len(x) for x, _ in pairs), self.classes
        inputs, targets = (np.stack([_padded(pair[part], length, self.at) for pair in pairs]) for part in (0, 1))
        if classes is not None:
            targets = (targets[:, :, 0] - classes[0]).astype(np.int64)
        if self.at == "end":
            return inputs, targets[:, -1]
        lengths = np.array([len(x) for x, _ in pairs])
        mask = (np.arange(length) < lengths[:, None]).astype(float)
        # Padding need not be a class.
        return inputs, np.where(mask > 0, targets, 0) if classes is not None else targets, mask


def make_environment(environment: object, options: Mapping[str, object] | None) -> object:
    """Return an environment, made by neurogym if it is given by its id."""
    if not isinstance(environment, str):
        if options:
            raise InvalidSpec("options need an environment that is given by its id.", field="options")
        return environment
    neurogym = package("neurogym", "to make an environment from its id", extra="neurogym")
    known = tuple(import_module("gymnasium").registry)  # neurogym registers its environments when it is imported
    if environment not in known:
        hint = suggestion(environment, known)
        raise InvalidSpec(f"environment must be a registered id, got {environment!r}. {hint}", field="environment")
    return neurogym.make(environment, **(options or {}))


def _core(environment: object) -> Any:
    return getattr(environment, "unwrapped", environment)


def _padded(values: FloatArray, length: int, at: str) -> FloatArray:
    """Keep the last steps of a trial, or pad it with zeros: at its start if trials end together, else at its end."""
    kept = values[-length:]
    missing = length - len(kept)
    return np.pad(kept, ((missing, 0) if at == "end" else (0, missing), (0, 0)))
