"""A task: what is to be learned, as second-order statistics of inputs and targets."""

from __future__ import annotations

import copy
import functools
import inspect
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ParamSpec, Self

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, frozen, real_array
from learncast.display import Displayable, HtmlRepr, Plot, facts, plural
from learncast.results import described, spec_hash
from learncast.tasks.covariance import MEMORY_LIMIT, Covariance, Dense, Kronecker, Sampled, check_steps
from learncast.tasks.recorded.estimation import Estimate, estimate
from learncast.tasks.recorded.recording import Recording
from learncast.tasks.recorded.trials import Trials

#: Relative size of a negative eigenvalue that counts as round-off (statistics often pass through float32).
ROUND_OFF = 1e-7

#: Steps of a trial in a picture.
MOST_SHOWN = 60

#: Share of a variance below which it counts as round-off of an exactly predictable quantity.
NEGLIGIBLE = 1e-12


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
class Task(Displayable):
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
        What was done to recorded trials, and what was kept of them, from which `tasks.resampled` tells the sampling
        error.

    Notes
    -----
    The second moments are taken about zero, since a linear network without bias sees no mean.

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
        input_covariance: Any,
        cross_covariance: Any,
        target_covariance: Any = None,
        *,
        name: str = "task",
    ) -> None:
        inputs = _as_covariance("input_covariance", input_covariance)
        cross = _as_covariance("cross_covariance", cross_covariance, short=3)
        target = None if target_covariance is None else _as_covariance("target_covariance", target_covariance, short=2)
        _check_shapes(inputs, cross, target)
        _check_symmetric("input_covariance", inputs)
        if target is not None:
            _check_symmetric("target_covariance", target)
        _check_positive(inputs, cross, target)
        self.__dict__.update(input_covariance=inputs, cross_covariance=cross, target_covariance=target, name=name)

    @classmethod
    def trusted(
        cls, inputs: Covariance, cross: Covariance, target: Covariance | None, *, name: str, **about: Any
    ) -> Self:
        """Make a task whose statistics are valid by construction, skipping the checks; `about` are other attributes."""
        task = object.__new__(cls)
        statistics = {"input_covariance": inputs, "cross_covariance": cross, "target_covariance": target}
        task.__dict__.update(statistics, name=name, **about)
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
        scale: str = "none",
        mask: Any = None,
        lengths: Any = None,
        labels: bool = False,
        classes: int | Sequence[Any] | None = None,
        chunk: int | None = None,
    ) -> Task:
        """Estimate a task from recorded trials.

        Parameters
        ----------
        inputs : (trials, steps, inputs)
            numpy array, memory map or torch tensor; or a list of arrays (steps, inputs), one for each trial.
        targets : (trials, outputs) or (trials, steps, outputs)
            A target at the end, or one at every step (a list where inputs are one). Whole numbers or words (trials,)
            label classes and become one-hot targets.
        name : str
            What to call it.
        centre : bool
            Subtract the mean over trials first. Off by default: a linear network without bias sees
            second moments about zero, and centring would describe other data.
        scale : {"none", "channel"}
            Divide each input channel by its root mean square over trials and steps, after centring.
        mask : (trials,) or (trials, steps), optional
            1 where a target counts, 0 where it does not: trials that are left out, or readouts that add nothing to
            the loss, which remains a mean over all trials that are not left out. Targets there may be missing.
        lengths : (trials,), optional
            Steps of each trial in an array that is padded after them. Trials with a target at the end are aligned
            there, after steps without input, over which a network stays at rest; targets at every step count while
            their trial lasts.
        labels : bool
            Whether the targets are labels: those at every step, (trials, steps), have to be told from channels.
        classes : int or sequence, optional
            How many classes, numbered from 0, or which; those that occur by default. Tasks of one network need the
            same.
        chunk : int, optional
            Trials read at a time; chosen to keep temporaries below 64 MB.

        Notes
        -----
        What was done to the trials stands in `recording`. Where readouts do not count the task's statistics are sums
        over those that do, in the form of a target at the end (see `Recording`).
        """
        trials = Trials.of(inputs, targets, mask=mask, lengths=lengths, labels=labels, classes=classes)
        return cls.estimated(estimate(trials, centre=centre, scale=scale, chunk=chunk), name=name)

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
        number = count("trials", trials)
        inputs, targets = self._sampler.draw(number, rng)
        layout = self.cross_covariance.shape[3:] if self.targets == "end" else self.cross_covariance.shape[2:]
        return inputs.reshape(number, self.steps, self.inputs), targets.reshape(number, *layout)

    @cached_property
    def pooled_already(self) -> dict[float, tuple[FloatArray, FloatArray]]:
        """Statistics of the input pooled by a recurrence, kept by those that pool it: every question asks for them."""
        return {}

    @cached_property
    def _sampler(self) -> ConditionalTrials | MixedTrials:
        return sampler(self.input_covariance, self.cross_covariance, self.target_covariance)

    def varied(self, **changes: Any) -> Task:
        """Make the same task with some keywords of its family changed."""
        if self.recipe is None:
            raise InvalidSpec(
                f"a task must come from a family to be varied, got task {self.name!r}, which is made of statistics."
            )
        known = tuple(inspect.signature(self.recipe.family).parameters)
        for key in changes:
            if key not in known:
                raise InvalidSpec(f"the keyword must be one of {self.recipe.name}'s ({', '.join(known)}), got {key!r}.")
        return self.recipe.family(**{**self.recipe.parameters, **changes})

    def renamed(self, name: str) -> Self:
        """Return the same task under another name."""
        other = copy.copy(self)
        other.__dict__["name"] = name
        return other

    @cached_property
    def hash(self) -> str:
        """Short hash of the statistics."""
        parts: list[Any] = []
        for covariance in (self.input_covariance, self.cross_covariance, self.target_covariance):
            parts.extend([] if covariance is None else covariance.__dict__.values())
        return spec_hash(*parts)

    def _html_repr(self) -> HtmlRepr:
        asked = {} if self.recipe is None else self.recipe.parameters
        rows = [("steps", f"{self.steps}"), ("inputs", f"{self.inputs}"), ("outputs", f"{self.outputs}")]
        rows += [("mean squared target", "" if math.isnan(self.target_power) else f"{self.target_power:.4g}")]
        rows += [("trials", f"{self.trials:,}" if self.trials else "")]
        rows += [(key.replace("_", " "), f"{value:g}") for key, value in asked.items() if isinstance(value, float)]
        return HtmlRepr.of(self, facts(rows))

    def _plot(self) -> Plot:
        """How much the input of every step says of the target; of a single step, input by input."""
        import xarray as xr

        cross, title = self.cross_covariance, "What the inputs say of the target"
        steps = np.unique(np.linspace(0, self.steps - 1, MOST_SHOWN).round().astype(int))
        kernels = (np.arange(self.steps)[:, None] == steps[:, None, None]) * np.ones(cross.shape[2])
        said = np.array([cross.contracted(kernel) for kernel in kernels])
        if self.steps == 1:
            return Plot.of("matrix", xr.DataArray(said[0].T, dims=("output", "input")), title=title)
        size = said[:, 0, 0] if said[0].size == 1 else np.sqrt((said**2).sum(axis=(1, 2)))
        named = described(
            "covariance with the target" if said[0].size == 1 else "size of it over channels", "input × target"
        )
        profile = xr.DataArray(size, dims="step", coords={"step": steps}, attrs=named)
        return Plot.of("step_profile", profile, title=title)

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
    """Let the tasks of a function remember the call that made them."""
    signature = inspect.signature(build)

    @functools.wraps(build)
    def made(*args: Call.args, **keywords: Call.kwargs) -> Task:
        task = build(*args, **keywords)
        call = signature.bind(*args, **keywords)
        call.apply_defaults()
        task.__dict__["recipe"] = Recipe(made, call.arguments)
        return task

    return made


def _as_covariance(name: str, value: Any, short: int | None = None) -> Covariance:
    """A covariance as it is, of finite parts, or an array of four axes; `short` has the target's step left out."""
    if isinstance(value, Covariance):
        return type(value)(**{key: frozen(real_array(f"{name}.{key}", part)) for key, part in vars(value).items()})
    array = frozen(real_array(name, value, ndim=4 if short is None else (short, 4)))
    if array.ndim == 2:
        return Dense(array[None, :, None, :])
    return Dense(array[:, :, None, :] if array.ndim == 3 else array)


def _check_shapes(inputs: Covariance, cross: Covariance, target: Covariance | None) -> None:
    steps, channels = inputs.shape[:2]
    if min(inputs.shape) < 1 or min(cross.shape) < 1:
        required, got = "every axis must have at least one entry", f"{inputs.shape} and {cross.shape}"
    elif inputs.shape != (steps, channels, steps, channels):
        required, got = "input_covariance must be (steps, inputs, steps, inputs)", f"shape {inputs.shape}"
    elif cross.shape[:2] != (steps, channels):
        required = f"cross_covariance must begin with the input's {steps} steps and {channels} inputs"
        got = f"shape {cross.shape[:2]} there"
    elif cross.shape[2] not in (1, steps):
        required = f"targets must come at the end or at each of the {steps} steps"
        got = f"{cross.shape[2]} target steps"
    elif target is not None and target.shape != (*cross.shape[2:], *cross.shape[2:]):
        required = f"target_covariance must pair the targets {cross.shape[2:]} with themselves"
        got = f"shape {target.shape}"
    else:
        required = got = ""
    if required:
        raise InvalidSpec(f"{required}, got {got}.")


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
            f"{name} must be symmetric: entry [t, i, s, j] equal to entry [s, j, t, i], got a difference of "
            f"{difference:.3g} of its largest entry. Symmetrise it, or check the axis order (steps, channels, "
            "steps, channels).",
            field=name,
        )


def _asymmetry(matrices: FloatArray) -> float:
    """Largest |M - M^T| over a stack, relative to the largest |M|."""
    scale = float(np.abs(matrices).max(initial=0.0))
    return float(np.abs(matrices - np.swapaxes(matrices, 1, 2)).max(initial=0.0)) / (scale or 1.0)


def _check_positive(inputs: Covariance, cross: Covariance, target: Covariance | None) -> None:
    """Refuse statistics that no data can have: the joint covariance must be positive semi-definite."""
    n, m = inputs.shape[0] * inputs.shape[1], cross.shape[2] * cross.shape[3]
    if 8 * (n + m) ** 2 > MEMORY_LIMIT and isinstance(inputs, Kronecker):
        # Each time and channel pattern alone: enough to be positive, and all that fits in memory.
        for matrix in (*inputs.time, *inputs.channel):
            _refuse_negative(
                matrix,
                "each time and channel pattern of a large covariance",
                why="their sum could not be checked otherwise without exhausting memory",
                remedy="write it as a sum of positive semi-definite patterns",
            )
        return
    xx, xy = inputs.dense().reshape(n, n), cross.dense().reshape(n, m)
    _refuse_negative(
        xx,
        "input_covariance",
        why="no data have a negative variance",
        remedy="check the sign and axis order, or estimate it with Task.from_samples",
    )
    if target is not None:
        _refuse_negative(
            np.block([[xx, xy], [xy.T, target.dense().reshape(m, m)]]),
            "input, cross and target covariance together",
            why="the target co-varies more with the input than its own variance allows",
            remedy="check the scale of cross_covariance against target_covariance",
        )
        return
    coefficients = np.linalg.lstsq(xx, xy, rcond=None)[0]
    missed = float(np.abs(xx @ coefficients - xy).max())
    if missed > ROUND_OFF * max(float(np.abs(xy).max()), np.finfo(float).tiny):
        raise InvalidSpec(
            f"the target may co-vary only with inputs that vary, got a covariance of {missed:.3g} with a "
            "combination of inputs of zero variance."
        )


def _refuse_negative(matrix: FloatArray, what: str, *, why: str, remedy: str) -> None:
    lowest = _lowest_eigenvalue(matrix)
    if lowest < -ROUND_OFF:
        raise InvalidSpec(
            f"{what} must be positive semi-definite, got an eigenvalue of {lowest:.3g} in units of the "
            "largest variance."
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


def sampler(inputs: Covariance, cross: Covariance, target: Covariance | None) -> ConditionalTrials | MixedTrials:
    """Choose the sampler that uses the statistics' own structure."""
    if isinstance(inputs, Sampled) and isinstance(cross, Sampled):
        return MixedTrials(inputs, cross)
    if isinstance(inputs, Kronecker):
        basis = _independent_channels(inputs)
        if basis is not None:
            if not all(_is_white(time) for time in inputs.time):
                check_steps(inputs.shape[0], 5)  # roots and their inverses, vectors and what finds them
            return ConditionalTrials.of(inputs, cross, target, basis)

    def flat(covariance: Covariance) -> Kronecker:
        """All steps and channels as the steps of a single channel."""
        size = math.prod(covariance.shape[:2])
        return Kronecker(covariance.dense().reshape(1, size, -1), np.ones((1, 1, 1)))

    return ConditionalTrials.of(flat(inputs), flat(cross), None if target is None else flat(target), np.ones((1, 1)))


@dataclass(frozen=True)
class ConditionalTrials:
    """Inputs that are independent across channels of some basis, then targets given inputs.

    Writing the target as its regression on the input plus a remainder never forms the joint covariance of
    all steps and channels, only one (steps, steps) factor per distinct channel.
    """

    basis: FloatArray  # (inputs, channels): x = basis @ independent channels
    roots: tuple[FloatArray, ...]  # for each channel (steps, steps): x_channel = root @ white; a number if x is white
    readers: FloatArray  # (channels, steps, readouts * outputs): target given the white numbers
    remainder: FloatArray | None  # (readouts * outputs, rank): what the input does not explain

    @classmethod
    def of(
        cls, inputs: Kronecker, cross: Covariance, target: Covariance | None, basis: FloatArray
    ) -> ConditionalTrials:
        """Factor the statistics, given a basis in which the inputs' channels are independent."""
        channels = inputs.rotated(basis, basis).diagonal()
        rotated = cross.rotated(basis, np.eye(cross.shape[3])).dense().transpose(1, 0, 2, 3)
        readouts, outputs = cross.shape[2:]
        roots = []
        readers = np.empty((*channels.shape[:2], readouts * outputs))
        for k, time in enumerate(channels):
            # Cov(white, y) = root^-1 Cov(x, y): regression without ever inverting Cov(x).
            root, inverse = _root(time)
            seen = rotated[k].reshape(len(time), -1)
            roots.append(root)
            readers[k] = inverse @ seen if inverse.ndim else inverse * seen
        remainder = None if target is None else _remainder(readers, target)
        return cls(basis, tuple(roots), readers, remainder)

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Inputs and targets of so many trials; how the numbers of one trial are laid out is the task's to say."""
        white = rng.standard_normal((len(self.roots), trials, self.readers.shape[1]))
        sources = [one @ root.T if root.ndim else one * root for one, root in zip(white, self.roots, strict=True)]
        inputs = np.tensordot(np.stack(sources), self.basis, axes=([0], [1]))
        targets = np.einsum("kpt,ktm->pm", white, self.readers, optimize=True)
        if self.remainder is not None:
            targets += rng.standard_normal((trials, self.remainder.shape[1])) @ self.remainder.T
        return inputs, targets


def _root(time: FloatArray) -> tuple[FloatArray, FloatArray]:
    """A root of one channel's covariance over time, and its inverse where it has one: numbers where that is white."""
    if _is_white(time):
        deviation = np.sqrt(np.asarray(time[0, 0]))
        return deviation, np.asarray(1.0 / deviation)
    values, vectors = np.linalg.eigh(time)
    root = np.sqrt(np.clip(values, 0.0, None))
    live = root > np.sqrt(NEGLIGIBLE) * root.max(initial=0.0)
    inverse = np.where(live, 1.0 / np.where(live, root, 1.0), 0.0)
    return np.ascontiguousarray(vectors * root), inverse[:, None] * vectors.T


def _is_white(time: FloatArray) -> bool:
    return bool(np.count_nonzero(time) == len(time) and (np.diagonal(time) == time[0, 0]).all())


@dataclass(frozen=True)
class MixedTrials:
    """New Gaussian trials as random mixtures of recorded ones: they have the recorded second moments."""

    inputs: Sampled
    cross: Sampled

    def draw(self, trials: int, rng: np.random.Generator) -> tuple[FloatArray, FloatArray]:
        """Inputs and targets of so many trials."""
        mixing = rng.standard_normal((trials, self.inputs.trials)) / np.sqrt(self.inputs.trials)
        return np.tensordot(mixing, self.cross.left, axes=1), np.tensordot(mixing, self.cross.right, axes=1)


def _independent_channels(inputs: Kronecker) -> FloatArray | None:
    """Orthonormal basis in which all channel patterns are diagonal, or None when there is none."""
    # Fixed weights without accidental ties, so that a weighted sum separates what any term separates.
    weights = 1.0 + np.mod(np.arange(1, len(inputs.channel) + 1) * 0.6180339887498949, 1.0)
    _, basis = np.linalg.eigh(np.tensordot(weights, inputs.channel, axes=1))
    off = inputs.rotated(basis, basis).off_diagonal_norm()
    return basis if off <= np.sqrt(NEGLIGIBLE) * inputs.norm() else None


def _remainder(readers: FloatArray, target: Covariance) -> FloatArray | None:
    """Root of Cov(y | x); None when the inputs determine the target, without writing the covariance out."""
    readouts, outputs = target.shape[:2]
    power = np.trace(target.contracted(np.eye(readouts)))
    explained = float((readers**2).sum())
    if power - explained <= 100 * NEGLIGIBLE * power:
        return None
    m = readouts * outputs
    flat = readers.reshape(-1, m)
    values, vectors = np.linalg.eigh(target.dense().reshape(m, m) - flat.T @ flat)
    keep = values > NEGLIGIBLE * power
    return vectors[:, keep] * np.sqrt(values[keep])
