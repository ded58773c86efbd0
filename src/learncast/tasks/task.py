"""A task, described by second-order statistics of its inputs and targets."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any, ParamSpec, Self

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, hinted, suggestion
from learncast._core.validation import FloatArray, count, flag, frozen, real_array
from learncast.display import Displayable, HtmlRepr, Plot, facts, plural
from learncast.results import described, spec_hash
from learncast.tasks.covariance import MEMORY_LIMIT, Covariance, Dense, Kronecker, Sampled
from learncast.tasks.recorded.estimation import Estimate, estimate
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.recorded.preparation import binned, filled, in_axis_order, with_constant
from learncast.tasks.recorded.recording import Recording
from learncast.tasks.recorded.targets import check_same_trials
from learncast.tasks.recorded.trials import RecordedTrials, padded
from learncast.tasks.sampling import ConditionalSampler, MixingSampler, sampler

#: Relative size of a negative eigenvalue that counts as round-off (statistics are often stored as float32).
ROUND_OFF = 1e-7

#: Most steps of a trial in a plot.
PLOTTED_STEPS = 60


@dataclass(frozen=True)
class Recipe:
    """The call of a family that made a task, so that `Task.varied` can repeat it with changes."""

    family: Callable[..., Task]
    parameters: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Name of the family."""
        return self.family.__name__


@dataclass(frozen=True, eq=False, repr=False)
class Task(Displayable):
    """What a network is to learn: covariances of the inputs over time, and with the target.

    Parameters
    ----------
    input_covariance : (steps, inputs, steps, inputs)
        E[x_t x_t'^T], an array or a structured `Covariance`.
    cross_covariance : (steps, inputs, outputs) or (steps, inputs, steps, outputs)
        E[x_t y^T] for a target at the end of the trial, or E[x_t y_r^T] for a target at every step.
    target_covariance : (outputs, outputs) or (steps, outputs, steps, outputs), optional
        E[y y^T]. Only the value of the loss depends on it: without it losses are nan, and `sample` draws the
        noise-free target with the given cross covariance.
    name : str
        Name in tables and figures.

    Attributes
    ----------
    trials : int or None
        Number of trials from which the statistics were estimated.
    recipe : Recipe or None
        Call of the family that made the task.
    recording : Recording or None
        Preprocessing of recorded trials, and the data that `tasks.resampled` needs to estimate the sampling error.

    Notes
    -----
    Second moments are about zero, because a linear network without bias cannot subtract a mean.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((200, 10, 2))
    >>> lc.Task.from_samples(inputs, inputs.sum(axis=1), name="sums")
    <Task 'sums': 10 steps, 2 inputs, 2 outputs at the end; estimated from 200 trials>
    >>> lc.Task(np.ones((1, 1, 1, 1)), np.full((1, 1, 1), 0.5), name="halves")
    <Task 'halves': 1 step, 1 input, 1 output at the end; given statistics>
    """

    input_covariance: Covariance
    cross_covariance: Covariance
    target_covariance: Covariance | None = None
    name: str = "task"
    trials: int | None = None
    recipe: Recipe | None = None
    recording: Recording | None = None

    def __init__(
        self,
        input_covariance: Covariance | ArrayLike,
        cross_covariance: Covariance | ArrayLike,
        target_covariance: Covariance | ArrayLike | None = None,
        *,
        name: str = "task",
    ) -> None:
        inputs = _as_covariance("input_covariance", input_covariance)
        cross = _as_covariance("cross_covariance", cross_covariance, ndim=3)
        target = None if target_covariance is None else _as_covariance("target_covariance", target_covariance, ndim=2)
        _check_shapes(inputs, cross, target)
        _check_symmetric("input_covariance", inputs)
        if target is not None:
            _check_symmetric("target_covariance", target)
        _check_positive(inputs, cross, target)
        self.__dict__.update(input_covariance=inputs, cross_covariance=cross, target_covariance=target, name=name)

    @classmethod
    def trusted(
        cls, inputs: Covariance, cross: Covariance, target: Covariance | None, *, name: str, **attributes: Any
    ) -> Self:
        """Make a task from statistics that are valid by construction, without checks, with other attributes."""
        task = object.__new__(cls)
        statistics = {"input_covariance": inputs, "cross_covariance": cross, "target_covariance": target}
        task.__dict__.update(statistics, name=name, **attributes)
        return task

    @classmethod
    def estimated(cls, estimate: Estimate, *, name: str) -> Task:
        """Make a task from statistics that were estimated from trials."""
        return cls.trusted(*estimate[:3], name=name, trials=estimate.trials, recording=estimate.recording)

    def replaced(self, **attributes: Any) -> Task:
        """Return a task with some attributes replaced, without checks."""
        kept = {field.name: getattr(self, field.name) for field in fields(Task)} | attributes
        return Task.trusted(*(kept.pop(f"{part}_covariance") for part in ("input", "cross", "target")), **kept)

    @classmethod
    @hinted
    def from_samples(
        cls,
        inputs: ArrayLike,
        targets: ArrayLike,
        *,
        name: str = "recorded",
        centre: bool = False,
        scale: str = "none",
        mask: ArrayLike | None = None,
        lengths: ArrayLike | None = None,
        labels: bool | None = None,
        classes: int | Sequence[object] | None = None,
        axes: str | None = None,
        fill: str | None = None,
        bias: bool = False,
        rate: float | None = None,
        bin_width: float | None = None,
        chunk: int | None = None,
    ) -> Task:
        """Estimate a task from recorded trials.

        Parameters
        ----------
        inputs : (trials, steps, inputs)
            numpy array, memory map or torch tensor, or a list with one (steps, inputs) array per trial. The axes of an
            xarray array are identified by their names (trial, time, neuron, ...), in any order.
        targets : (trials, outputs) or (trials, steps, outputs)
            Targets at the end or at every step (a list if the inputs are a list). Integers, booleans and strings are
            class labels, (trials,) or (trials, 1) at the end, (trials, steps) at every step, and become one-hot
            targets. Floats, and integers of several outputs, are numbers. Integers that could be counts (more than ten
            values, or a rare one) need `labels`.
        name : str
            Name of the task.
        centre : bool
            Subtract the mean over trials first. Off by default, because a linear network without bias learns from
            second moments about zero.
        scale : {"none", "channel"}
            "channel" divides each input channel by its root mean square over trials and steps, after centring.
        mask : (trials,) or (trials, steps), optional
            1 for targets that count and 0 for others, which may be missing. (trials,) leaves trials out;
            (trials, steps) leaves readouts out of the loss, which remains a mean over trials.
        lengths : (trials,), optional
            Number of steps of each trial in arrays that are padded at the end. Trials with a target at the end are
            shifted so that they end together, after steps of zero input. Targets at every step count up to the end of
            their trial.
        labels : bool, optional
            Whether the targets are labels: True for labels stored as floats, False for integers that are numbers.
        classes : int or sequence, optional
            Number of classes, numbered from 0, or the classes; those that occur by default. Give them if several
            tasks share a network.
        axes : str, optional
            Order of the axes of plain arrays, for example "time trial channel"; "trial time channel" by default.
        fill : {"zero", "hold", "drop"}, optional
            What is done with NaN: zero, the value of the step before, or the trial is left out. NaN raises by default.
        bias : bool
            Whether the network has biases: adds an input channel that is always 1.
        rate, bin_width : float, optional
            Samples per second, and seconds of a step if it is to be longer than a sample: inputs, and targets at every
            step, are averaged over it. If the steps do not fill a trial, its first samples are left out, or its last
            ones with targets at every step.
        chunk : int, optional
            Number of trials read at a time; by default temporary arrays stay below 64 MB.

        Notes
        -----
        `recording` describes the preprocessing. If some readouts do not count, the statistics are sums over those
        that do, in the form of a target at the end (see `Recording`).
        """
        flag("centre", centre)
        if bias and centre:
            raise InvalidSpec("centre removes a constant input. Give either bias or centre.", field="bias")
        check_same_trials(inputs=inputs, targets=targets, mask=mask, lengths=lengths)
        inputs, targets, lengths, labels = padded(*in_axis_order(inputs, targets, axes), lengths, labels)
        inputs, targets, mask, lengths = filled(inputs, targets, fill, mask, lengths)
        if bin_width is not None and (lengths is not None or np.ndim(mask) == 2):
            raise InvalidSpec("bin_width needs trials of equal length without a mask of steps.", field="bin_width")
        inputs, targets = binned(inputs, targets, rate, bin_width)
        inputs = with_constant(inputs) if bias else inputs
        trials = RecordedTrials.of(inputs, targets, mask=mask, lengths=lengths, labels=labels, classes=classes)
        found = estimate(trials, centre=centre, scale=scale, chunk=chunk)
        return cls.estimated(found._replace(recording=replace(found.recording, bias=bias)), name=name)

    @property
    def without_bias(self) -> Task | None:
        """The statistics without the constant input that stands for biases; None if it was not added."""
        if self.recording is None or not self.recording.bias:
            return None
        kept, same = np.eye(self.inputs)[:, :-1], np.eye(self.outputs)
        inputs, cross = self.input_covariance.rotated(kept, kept), self.cross_covariance.rotated(kept, same)
        return self.replaced(input_covariance=inputs, cross_covariance=cross, recording=None, trials=None)

    @property
    def steps(self) -> int:
        """Number of steps of a trial."""
        return self.input_covariance.shape[0]

    @property
    def inputs(self) -> int:
        """Number of input channels."""
        return self.input_covariance.shape[1]

    @property
    def outputs(self) -> int:
        """Number of output channels."""
        return self.cross_covariance.shape[3]

    @property
    def targets(self) -> str:
        """When there is a target: ``"end"`` or ``"every_step"``."""
        return "end" if self.cross_covariance.shape[2] == 1 else "every_step"

    @cached_property
    def target_power(self) -> float:
        """Mean squared target, summed over outputs and readout steps; nan if unknown."""
        if self.target_covariance is None:
            return float("nan")
        readouts = np.eye(self.target_covariance.shape[0])
        return float(np.trace(self.target_covariance.contracted(readouts)))

    def sample(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Draw Gaussian trials with the statistics of the task.

        Returns
        -------
        inputs : (trials, steps, inputs)
        targets : (trials, outputs) or (trials, steps, outputs)
        """
        number = count("trials", trials)
        inputs, targets = self._sampler.draw(number, rng)
        layout = self.cross_covariance.shape[3:] if self.targets == "end" else self.cross_covariance.shape[2:]
        return inputs.reshape(number, self.steps, self.inputs), targets.reshape(number, *layout)

    @cached_property
    def recorded_trials(self) -> MaskedTrials | None:
        """The recorded trials, centred and scaled as the statistics are; None if only statistics are stored."""
        cross, rule = self.cross_covariance, self.recording
        if isinstance(cross, Sampled) and isinstance(self.input_covariance, Sampled):
            centred, scaled = (rule.centred, rule.scaled) if rule is not None else (False, False)
            return MaskedTrials.complete(cross.left, cross.right, centred=centred, scaled=scaled)
        kept = rule and rule.kept
        return kept.prepared()[0] if kept else None

    @cached_property
    def pooled_cache(self) -> dict[float, tuple[FloatArray, FloatArray]]:
        """Statistics of the input pooled by each recurrence that was asked for (see `geometry.pooled_statistics`)."""
        return {}

    @cached_property
    def _sampler(self) -> ConditionalSampler | MixingSampler:
        return sampler(self.input_covariance, self.cross_covariance, self.target_covariance)

    def varied(self, **changes: Any) -> Task:
        """Make the task again with some keywords of its family changed."""
        if self.recipe is None:
            raise InvalidSpec(f"only a task from a family can be varied, got task {self.name!r}.")
        known = tuple(inspect.signature(self.recipe.family).parameters)
        for key in changes:
            if key not in known:
                hint = suggestion(key, known) or f"Its keywords are {', '.join(known)}."
                raise InvalidSpec(f"{self.recipe.name} has no keyword {key!r}. {hint}", field=key)
        return self.recipe.family(**{**self.recipe.parameters, **changes})

    def renamed(self, name: str) -> Self:
        """Return the task under another name."""
        other = copy.copy(self)
        other.__dict__["name"] = name
        return other

    @cached_property
    def hash(self) -> str:
        """Short hash of the statistics, and of the recorded trials or of what is stored of them."""
        parts: list[Any] = [self.trials]
        for covariance in (self.input_covariance, self.cross_covariance, self.target_covariance):
            parts.extend([] if covariance is None else covariance.__dict__.values())
        return spec_hash(*parts, *(self.recording.fingerprint if self.recording is not None else ()))

    def _html_repr(self) -> HtmlRepr:
        parameters = {} if self.recipe is None else self.recipe.parameters
        rows = [("steps", f"{self.steps}"), ("inputs", f"{self.inputs}"), ("outputs", f"{self.outputs}")]
        rows += [("mean squared target", "" if math.isnan(self.target_power) else f"{self.target_power:.4g}")]
        rows += [("trials", f"{self.trials:,}" if self.trials else "")]
        rows += [(key.replace("_", " "), f"{value:g}") for key, value in parameters.items() if isinstance(value, float)]
        return HtmlRepr.of(self, facts(rows))

    def _plot(self) -> Plot:
        """Covariance of the input with the target over steps; for a single step, over channels."""
        import xarray as xr

        cross, title = self.cross_covariance, "Covariance of inputs and target"
        steps = np.unique(np.linspace(0, self.steps - 1, PLOTTED_STEPS).round().astype(int))
        kernels = (np.arange(self.steps)[:, None] == steps[:, None, None]) * np.ones(cross.shape[2])
        values = np.array([cross.contracted(kernel) for kernel in kernels])
        if self.steps == 1:
            return Plot.of("matrix", xr.DataArray(values[0].T, dims=("output", "input")), title=title)
        single = values[0].size == 1
        size = values[:, 0, 0] if single else np.sqrt((values**2).sum(axis=(1, 2)))
        long_name = "covariance with the target" if single else "norm over channels"
        attrs = described(long_name, "input × target")
        return Plot.of(
            "step_profile", xr.DataArray(size, dims="step", coords={"step": steps}, attrs=attrs), title=title
        )

    def __repr__(self) -> str:
        when = "at the end" if self.targets == "end" else "at every step"
        source = f"{self.recipe.name} family" if self.recipe else "given statistics"
        if self.trials:
            source = f"estimated from {plural(self.trials, 'trial')}"
        if self.recording is not None:
            source += ", centred" * self.recording.centred + ", scaled" * self.recording.scaled
            when = "at the steps that count" if self.recording.counted is not None else when
        sizes = ", ".join(plural(getattr(self, f"{word}s"), word) for word in ("step", "input", "output"))
        return f"<Task {self.name!r}: {sizes} {when}; {source}>"


Call = ParamSpec("Call")


def family(build: Callable[Call, Task]) -> Callable[Call, Task]:
    """Store the call in the tasks that a function makes (see `Task.varied`)."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def made(*args: Call.args, **keywords: Call.kwargs) -> Task:
        task = hinted(build)(*args, **keywords)
        call = signature.bind(*args, **keywords)
        call.apply_defaults()
        task.__dict__["recipe"] = Recipe(made, call.arguments)
        return task

    return made


def _as_covariance(name: str, value: Covariance | ArrayLike, ndim: int = 4) -> Covariance:
    """Return a covariance with finite entries; an array of `ndim` < 4 axes lacks the axes of the target's steps."""
    if isinstance(value, Covariance):
        return type(value)(**{key: frozen(real_array(f"{name}.{key}", part)) for key, part in vars(value).items()})
    array = frozen(real_array(name, value, ndim=(ndim, 4) if ndim < 4 else 4))
    if array.ndim == 2:
        return Dense(array[None, :, None, :])
    return Dense(array[:, :, None, :] if array.ndim == 3 else array)


def _check_shapes(inputs: Covariance, cross: Covariance, target: Covariance | None) -> None:
    (steps, channels), readouts = inputs.shape[:2], cross.shape[2:]
    many = cross.shape[:2] == (steps, channels) and readouts[0] == steps
    wanted = {"input": (steps, channels) * 2, "cross": (steps, channels, steps if many else 1, readouts[1])}
    for name, covariance in {"input": inputs, "cross": cross, "target": target}.items():
        required = wanted.get(name, readouts * 2)
        if covariance is not None and (covariance.shape != required or 0 in covariance.shape):
            name = f"{name}_covariance"
            raise InvalidSpec(f"{name} must have shape {required}, got {covariance.shape}.", field=name)


def _check_symmetric(name: str, covariance: Covariance) -> None:
    parts = zip(vars(covariance).values(), vars(covariance.transposed()).values(), strict=True)
    difference = max(_difference(one, other) for one, other in parts)
    if difference > ROUND_OFF:
        got = f"entries that differ by {difference:.3g} of the largest"
        raise InvalidSpec(f"{name} must be symmetric, got {got}.", field=name)


def _difference(one: FloatArray, other: FloatArray) -> float:
    """Largest difference of two arrays, relative to the largest entry; infinite if their shapes differ."""
    scale = float(np.abs(one).max(initial=0.0)) or 1.0
    return float(np.abs(one - other).max(initial=0.0)) / scale if one.shape == other.shape else math.inf


def _check_positive(inputs: Covariance, cross: Covariance, target: Covariance | None) -> None:
    """Require that the joint covariance of inputs and targets is positive semi-definite."""
    n, m = math.prod(inputs.shape[:2]), math.prod(cross.shape[2:])
    if 8 * (n + m) ** 2 > MEMORY_LIMIT and isinstance(inputs, Kronecker):
        # Sufficient, and all that fits in memory: every pattern is positive semi-definite.
        for matrix in (*inputs.time, *inputs.channel):
            _check_semidefinite("input_covariance", matrix, "time and channel patterns")
        return
    xx, xy = inputs.dense().reshape(n, n), cross.dense().reshape(n, m)
    _check_semidefinite("input_covariance", xx, "input_covariance")
    if target is not None:
        joint = np.block([[xx, xy], [xy.T, target.dense().reshape(m, m)]])
        _check_semidefinite("cross_covariance", joint, "the joint covariance of inputs and targets")
        return
    coefficients = np.linalg.lstsq(xx, xy, rcond=None)[0]
    missed = float(np.abs(xx @ coefficients - xy).max())
    if missed > ROUND_OFF * max(float(np.abs(xy).max()), np.finfo(float).tiny):
        name = "cross_covariance"
        raise InvalidSpec(f"{name} must be zero for inputs without variance, got {missed:.3g}.", field=name)


def _check_semidefinite(name: str, matrix: FloatArray, what: str) -> None:
    lowest = _lowest_eigenvalue(matrix)
    if lowest < -ROUND_OFF:
        raise InvalidSpec(f"{what} must be positive semi-definite, got an eigenvalue {lowest:.3g}.", field=name)


def _lowest_eigenvalue(matrix: FloatArray) -> float:
    """Lowest eigenvalue after scaling to unit variance; 0 if a Cholesky factor exists."""
    deviation = np.sqrt(np.abs(np.diag(matrix)))
    # Channels with no variance up to round-off are scaled by the largest, so that a covariance with them is detected.
    largest = float(deviation.max(initial=0.0))
    unit = np.where(deviation > np.sqrt(np.finfo(float).eps) * largest, deviation, largest or 1.0)
    scaled = matrix / np.outer(unit, unit)
    try:
        np.linalg.cholesky(scaled + ROUND_OFF * np.eye(len(scaled)))
    except np.linalg.LinAlgError:
        return float(np.linalg.eigvalsh(scaled)[0])
    return 0.0
