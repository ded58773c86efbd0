"""A task: what is to be learned, as second-order statistics of inputs and targets."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.tasks.covariance import MEMORY_LIMIT, Covariance, Dense, Kronecker, Sampled
from learncast.tasks.estimation import Estimate, estimate
from learncast.tasks.recording import Recording
from learncast.tasks.sampling import Sampler, sampler
from learncast.trajectory import spec_hash
from learncast.validation import FloatArray, frozen, real_array, suggestion

#: Relative size of a negative eigenvalue that counts as round-off (statistics often pass through float32).
ROUND_OFF = 1e-7


@dataclass(frozen=True)
class Recipe:
    """The family call that made a task, so that it can be made again with one thing changed."""

    family: Callable[..., Task]
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.family.__name__


@dataclass(frozen=True, eq=False, repr=False)
class Task:
    """What is to be learned: how inputs co-vary over time, and how they co-vary with the target.

    Parameters
    ----------
    input_covariance : (steps, inputs, steps, inputs)
        E[x_t x_t'^T], an array or a structured `Covariance`.
    cross_covariance : (steps, inputs, outputs) or (steps, inputs, steps, outputs)
        E[x_t y^T] for a target at the end of the trial, or E[x_t y_r^T] for a target at every step.
    target_covariance : (outputs, outputs) or (steps, outputs, steps, outputs), optional
        E[y y^T]. Only the value of the loss needs it; without it losses are unknown (nan) and `sample`
        draws the noise-free target that has the given cross covariance.
    name : str
        What to call it in tables and figures.

    Attributes
    ----------
    trials : int or None
        Trials that the statistics were estimated from.
    recipe : Recipe or None
        The family call that made it.
    recording : Recording or None
        What was kept of recorded trials, from which `tasks.resampled` tells the sampling error.

    Notes
    -----
    The second moments are taken about zero, since a linear network without bias sees no mean.
    """

    input_covariance: Covariance
    cross_covariance: Covariance
    target_covariance: Covariance | None = None
    name: str = "task"
    trials: int | None = None
    recipe: Recipe | None = field(default=None)
    recording: Recording | None = field(default=None)

    def __init__(
        self,
        input_covariance: Any,
        cross_covariance: Any,
        target_covariance: Any = None,
        *,
        name: str = "task",
    ) -> None:
        inputs = _as_covariance("input_covariance", input_covariance, end=False)
        cross = _as_covariance("cross_covariance", cross_covariance, end=True)
        target = None if target_covariance is None else _target("target_covariance", target_covariance, cross)
        _check_shapes(inputs, cross, target)
        _check_symmetric("input_covariance", inputs)
        if target is not None:
            _check_symmetric("target_covariance", target)
        _check_positive(inputs, cross, target)
        self._fill(inputs, cross, target, name)

    def _fill(
        self,
        inputs: Covariance,
        cross: Covariance,
        target: Covariance | None,
        name: str,
        trials: int | None = None,
        recipe: Recipe | None = None,
        recording: Recording | None = None,
    ) -> None:
        for key, value in (
            ("input_covariance", inputs),
            ("cross_covariance", cross),
            ("target_covariance", target),
            ("name", name),
            ("trials", trials),
            ("recipe", recipe),
            ("recording", recording),
        ):
            object.__setattr__(self, key, value)

    @classmethod
    def trusted(
        cls,
        inputs: Covariance,
        cross: Covariance,
        target: Covariance | None,
        *,
        name: str,
        trials: int | None = None,
        recipe: Recipe | None = None,
        recording: Recording | None = None,
    ) -> Task:
        """Make a task whose statistics are valid by construction, skipping the checks."""
        task = object.__new__(cls)
        task._fill(inputs, cross, target, name, trials, recipe, recording)
        return task

    @classmethod
    def estimated(cls, found: Estimate, *, name: str) -> Task:
        """Make a task of statistics that were estimated from trials."""
        return cls.trusted(
            found.input, found.cross, found.target, name=name, trials=found.trials, recording=found.recording
        )

    @classmethod
    def from_samples(
        cls,
        inputs: Any,
        targets: Any,
        *,
        name: str = "recorded",
        centre: bool = False,
        chunk: int | None = None,
    ) -> Task:
        """Estimate a task from recorded trials.

        Parameters
        ----------
        inputs : (trials, steps, inputs)
            numpy array, memory map or torch tensor.
        targets : (trials, outputs) or (trials, steps, outputs)
            A target at the end, or one at every step.
        name : str
            What to call it.
        centre : bool
            Subtract the mean over trials first. Off by default: a linear network without bias sees
            second moments about zero, and centring would describe other data.
        chunk : int, optional
            Trials read at a time; chosen to keep temporaries below 64 MB.
        """
        return cls.estimated(estimate(inputs, targets, centre=centre, chunk=chunk), name=name)

    @property
    def steps(self) -> int:
        """Steps in a trial."""
        return self.input_covariance.shape[0]

    @property
    def inputs(self) -> int:
        """Input channels."""
        return self.input_covariance.shape[1]

    @property
    def outputs(self) -> int:
        """Output channels."""
        return self.cross_covariance.shape[3]

    @property
    def targets(self) -> str:
        """When the target is asked for: ``"end"`` or ``"every_step"``."""
        return "end" if self.cross_covariance.shape[2] == 1 else "every_step"

    @cached_property
    def target_power(self) -> float:
        """Mean squared target, summed over outputs and readout steps; nan when unknown."""
        if self.target_covariance is None:
            return float("nan")
        readouts = np.eye(self.target_covariance.shape[0])
        return float(np.trace(self.target_covariance.contracted(readouts)))

    def sample(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draw Gaussian trials whose population statistics are exactly this task's.

        Returns
        -------
        inputs : (trials, steps, inputs)
        targets : (trials, outputs) or (trials, steps, outputs)
        """
        inputs, targets = self._sampler.draw(trials, rng)
        return inputs, targets[:, 0, :] if self.targets == "end" else targets

    @cached_property
    def _sampler(self) -> Sampler:
        return sampler(self.input_covariance, self.cross_covariance, self.target_covariance)

    def varied(self, **changes: Any) -> Task:
        """Make the same task with some keywords of its family changed."""
        if self.recipe is None:
            raise InvalidSpec(
                required="a task must come from a family to be varied",
                got=f"task {self.name!r}, which is made of statistics",
                why="statistics alone have no keyword to change",
                remedy="build it with a family such as tasks.integration, or build each variant yourself",
            )
        known = tuple(inspect.signature(self.recipe.family).parameters)
        for key in changes:
            if key not in known:
                raise InvalidSpec(
                    required=f"the keyword must be one of {self.recipe.name}'s ({', '.join(known)})",
                    got=repr(key),
                    why="the family has no such parameter",
                    remedy=suggestion(key, known) or "use one of these",
                )
        return self.recipe.family(**{**self.recipe.parameters, **changes})

    def renamed(self, name: str) -> Task:
        """Return the same task under another name."""
        return Task.trusted(
            self.input_covariance,
            self.cross_covariance,
            self.target_covariance,
            name=name,
            trials=self.trials,
            recipe=self.recipe,
            recording=self.recording,
        )

    @cached_property
    def hash(self) -> str:
        """Short hash of the statistics."""
        parts: list[Any] = []
        for covariance in (self.input_covariance, self.cross_covariance, self.target_covariance):
            parts.extend([] if covariance is None else covariance.__dict__.values())
        return spec_hash(*parts)

    def __repr__(self) -> str:
        when = "at the end" if self.targets == "end" else "at every step"
        source = (
            f"{self.recipe.name} family"
            if self.recipe
            else (f"estimated from {self.trials} trials" if self.trials else "given statistics")
        )
        return (
            f"<Task {self.name!r}: {self.steps} steps, {self.inputs} inputs, {self.outputs} outputs {when}; {source}>"
        )


def _as_covariance(name: str, value: Any, *, end: bool) -> Covariance:
    if isinstance(value, Covariance):
        return _finite(name, value)
    array = frozen(real_array(name, value, ndim=(3, 4) if end else 4))
    return Dense(array[:, :, None, :] if array.ndim == 3 else array)


def _finite(name: str, covariance: Covariance) -> Covariance:
    """A structured covariance whose parts are finite, held as copies."""
    parts = {key: frozen(real_array(f"{name}.{key}", part)) for key, part in vars(covariance).items()}
    return type(covariance)(**parts)


def _target(name: str, value: Any, cross: Covariance) -> Covariance:
    if isinstance(value, Covariance):
        return _finite(name, value)
    array = frozen(real_array(name, value, ndim=(2, 4)))
    return Dense(array[None, :, None, :] if array.ndim == 2 else array)


def _check_shapes(inputs: Covariance, cross: Covariance, target: Covariance | None) -> None:
    steps, channels = inputs.shape[:2]
    problem = None
    if min(inputs.shape) < 1 or min(cross.shape) < 1:
        problem = "every axis must have at least one entry", f"{inputs.shape} and {cross.shape}"
    elif inputs.shape != (steps, channels, steps, channels):
        problem = "input_covariance must be (steps, inputs, steps, inputs)", f"shape {inputs.shape}"
    elif cross.shape[:2] != (steps, channels):
        problem = (
            f"cross_covariance must begin with the input's {steps} steps and {channels} inputs",
            f"shape {cross.shape[:2]} there",
        )
    elif cross.shape[2] not in (1, steps):
        problem = (
            f"targets must come at the end or at each of the {steps} steps",
            f"{cross.shape[2]} target steps",
        )
    elif target is not None and target.shape != (*cross.shape[2:], *cross.shape[2:]):
        problem = (
            f"target_covariance must pair the targets {cross.shape[2:]} with themselves",
            f"shape {target.shape}",
        )
    if problem:
        raise InvalidSpec(
            required=problem[0],
            got=problem[1],
            why="the axes of the three covariances must describe the same steps and channels",
            remedy="check the axis order, time before channel on each side",
        )


def _check_symmetric(name: str, covariance: Covariance) -> None:
    if isinstance(covariance, Sampled):
        symmetric = covariance.left is covariance.right or np.array_equal(covariance.left, covariance.right)
        difference = 0.0 if symmetric else float("inf")
    elif isinstance(covariance, Kronecker):
        difference = max(_asymmetry(covariance.time), _asymmetry(covariance.channel))
    else:
        size = covariance.shape[0] * covariance.shape[1]
        difference = _asymmetry(covariance.dense().reshape(1, size, size))
    if difference > ROUND_OFF:
        raise InvalidSpec(
            required=f"{name} must be symmetric: entry [t, i, s, j] equal to entry [s, j, t, i]",
            got=f"a difference of {difference:.3g} of its largest entry",
            why="a covariance is symmetric under exchange of its two sides",
            remedy="symmetrise it, or check the axis order (steps, channels, steps, channels)",
        )


def _asymmetry(matrices: FloatArray) -> float:
    """Largest |M - M^T| over a stack, relative to the largest |M|."""
    scale = float(np.abs(matrices).max(initial=0.0))
    return float(np.abs(matrices - np.swapaxes(matrices, 1, 2)).max(initial=0.0)) / (scale or 1.0)


def _check_positive(inputs: Covariance, cross: Covariance, target: Covariance | None) -> None:
    """Refuse statistics that no data can have: the joint covariance must be positive semi-definite."""
    n, m = inputs.shape[0] * inputs.shape[1], cross.shape[2] * cross.shape[3]
    if 8 * (n + m) ** 2 > MEMORY_LIMIT and isinstance(inputs, Kronecker):
        _check_terms(inputs)
        return
    xx = inputs.dense().reshape(n, n)
    lowest = _lowest_eigenvalue(xx)
    if lowest < -ROUND_OFF:
        raise InvalidSpec(
            required="input_covariance must be positive semi-definite",
            got=f"an eigenvalue of {lowest:.3g} in units of the largest variance",
            why="no data have a negative variance",
            remedy="check the sign and axis order, or estimate it with Task.from_samples",
        )
    xy = cross.dense().reshape(n, m)
    if target is not None:
        yy = target.dense().reshape(m, m)
        lowest = _lowest_eigenvalue(np.block([[xx, xy], [xy.T, yy]]))
        if lowest < -ROUND_OFF:
            raise InvalidSpec(
                required="input, cross and target covariance together must be positive semi-definite",
                got=f"an eigenvalue of {lowest:.3g} in units of the largest variance",
                why="the target co-varies more with the input than its own variance allows",
                remedy="check the scale of cross_covariance against target_covariance",
            )
    else:
        coefficients = np.linalg.lstsq(xx, xy, rcond=None)[0]
        missed = float(np.abs(xx @ coefficients - xy).max())
        if missed > ROUND_OFF * max(float(np.abs(xy).max()), np.finfo(float).tiny):
            raise InvalidSpec(
                required="the target may co-vary only with inputs that vary",
                got=f"a covariance of {missed:.3g} with a combination of inputs of zero variance",
                why="no data have such statistics",
                remedy="check cross_covariance against input_covariance",
            )


def _check_terms(inputs: Kronecker) -> None:
    """Check each time and channel pattern alone: enough to be positive, and all that fits in memory."""
    lowest = min(_lowest_eigenvalue(matrix) for stack in (inputs.time, inputs.channel) for matrix in stack)
    if lowest < -ROUND_OFF:
        raise InvalidSpec(
            required="each time and channel pattern of a large covariance must be positive semi-definite",
            got=f"an eigenvalue of {lowest:.3g} in units of the largest variance",
            why="their sum could not be checked otherwise without exhausting memory",
            remedy="write it as a sum of positive semi-definite patterns",
        )


def _lowest_eigenvalue(matrix: FloatArray) -> float:
    """Lowest eigenvalue after scaling to unit variance: 0 when a Cholesky factor shows it is fine."""
    deviation = np.sqrt(np.abs(np.diag(matrix)))
    # A channel without variance, up to round-off, is measured by the largest: a covariance with it is still seen.
    largest = float(deviation.max(initial=0.0))
    unit = np.where(deviation > np.sqrt(np.finfo(float).eps) * largest, deviation, largest or 1.0)
    scaled = matrix / np.outer(unit, unit)
    try:
        np.linalg.cholesky(scaled + ROUND_OFF * np.eye(len(scaled)))
    except np.linalg.LinAlgError:
        return float(np.linalg.eigvalsh(scaled)[0])
    return 0.0
