"""How a task was recorded: what was done to its trials, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from learncast._core.validation import FloatArray
from learncast.tasks.recorded.blocks import Blocks
from learncast.tasks.recorded.masked import MaskedTrials

#: Most classes that are named one by one.
NAMED_CLASSES = 12


@dataclass(frozen=True, eq=False)
class Recording:
    """How a task was recorded.

    Attributes
    ----------
    centred, scaled : bool
        Whether the mean over trials was subtracted, and whether each input channel was then divided by its root mean
        square.
    input_mean, target_mean : (steps, channels)
        Means over trials of what was recorded, in its own units: subtracted where centred, left in elsewhere.
    scales : (inputs,)
        What each input channel was divided by; 1 where it was not.
    classes : tuple or None
        What the one-hot targets stand for, in order, where labels were recorded.
    given : int
        Trials that were given; fewer count where a mask drops some.
    lengths : (int, int) or None
        Steps of the shortest and the longest trial, where they differ.
    counted : (steps,) or None
        Share of trials whose target counts at each step, where a mask or a trial's end leaves some out. The task's
        statistics are then sums over the readouts that count, each with its own past: exact for a linear network from
        rest, whose lag-ordered statistics they are.
    blocks : Blocks or None
        None where the trials themselves are kept, or where blocks would take more than `BLOCK_MEMORY`.
    masked : MaskedTrials or None
        The trials, where some of their steps do not count.
    origin : EnvironmentTrials, loader, data set or function, or None
        What gives further trials, as `learncast.training` reads them; None where there is no such thing, or where the
        statistics are of trials that were changed.

    Examples
    --------
    Prepare new trials as the recorded ones were, so that what was forecast holds for them:

    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = 5 + 3 * rng.standard_normal((300, 8, 2))
    >>> task = lc.Task.from_samples(inputs, inputs.sum(axis=1), centre=True, scale="channel")
    >>> rule = task.recording
    >>> fresh = (5 + 3 * rng.standard_normal((300, 8, 2)) - rule.input_mean) / rule.scales
    >>> float(fresh.mean().round(1)), float(fresh.std().round(1))
    (0.0, 1.0)
    """

    centred: bool
    scaled: bool
    input_mean: FloatArray
    target_mean: FloatArray
    scales: FloatArray
    classes: tuple[Any, ...] | None = None
    given: int | None = None
    lengths: tuple[int, int] | None = None
    counted: FloatArray | None = None
    blocks: Blocks | None = None
    masked: MaskedTrials | None = None
    origin: Any = None

    @property
    def replicate(self) -> Recording:
        """What a replicate drawn from it keeps: the rules alone."""
        return replace(self, blocks=None, masked=None, origin=None)

    def with_targets_times(self, factor: float) -> Recording:
        """The same recording with every target multiplied."""
        return replace(
            self,
            target_mean=factor * self.target_mean,
            blocks=self.blocks and self.blocks.with_targets_times(factor),
            masked=self.masked and replace(self.masked, targets=factor * self.masked.targets),
            origin=None,
        )

    def sentences(self, trials: int) -> tuple[str, ...]:
        """What was done to the trials, of which so many count, in plain words."""
        found = []
        if self.given is not None and self.given != trials:
            found.append(f"{trials} of {self.given} trials count; the others are left out.")
        if self.classes is not None:
            named = ", ".join(map(str, self.classes)) if len(self.classes) <= NAMED_CLASSES else "those recorded"
            found.append(f"Labels were turned into one-hot targets of {len(self.classes)} classes ({named}).")
        if self.lengths is not None:
            aligned = (
                "aligned at their end, after steps without input"
                if self.counted is None
                else "and targets count while a trial lasts"
            )
            found.append(f"Trials have {self.lengths[0]} to {self.lengths[1]} steps, {aligned}.")
        if self.counted is not None:
            found.append(
                f"Targets count at {self.counted.sum():.4g} of {len(self.counted)} steps of a trial on average; the "
                "statistics are sums over the readouts that count."
            )
        if self.centred:
            found.append("The mean over trials at each step was subtracted from inputs and targets.")
        if self.scaled:
            found.append(
                "Each input channel was divided by its root mean square over trials and steps "
                f"({self.scales.min():.3g} to {self.scales.max():.3g}); learning rates are for inputs so scaled."
            )
        return tuple(found)
