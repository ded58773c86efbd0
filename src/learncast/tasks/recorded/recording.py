"""How the trials of a recorded task were preprocessed, and the data needed to resample them."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from learncast._core.validation import FloatArray
from learncast.tasks.recorded.blocks import Blocks
from learncast.tasks.recorded.masked import MaskedTrials
from learncast.tasks.recorded.trials import RecordedTrials

#: Fewest trials with which the coverage of intervals was measured.
TESTED_TRIALS = 20
#: Least R² of the mean target that is remarked on.
NOTABLE = 0.05


@dataclass(frozen=True, eq=False)
class Recording:
    """Preprocessing of recorded trials, and the data needed to resample them.

    Attributes
    ----------
    centred, scaled : bool
        Whether the mean over trials was subtracted, and whether each input channel was then divided by its root mean
        square.
    input_mean, target_mean : (steps, channels)
        Means over trials in recorded units, whether or not they were subtracted.
    scales : (inputs,)
        Divisor of each input channel; 1 if not scaled.
    classes : tuple or None
        Classes of the one-hot targets in order, if the targets were labels.
    given : int
        Number of trials given, including those that a mask leaves out.
    lengths : (int, int) or None
        Steps of the shortest and the longest trial, if they differ.
    counted : (steps,) or None
        Share of trials whose target counts at each step, if some do not. The task's statistics are then sums over the
        readouts that count, ordered by lag: exact for a linear network that starts from rest.
    blocks : Blocks or None
        Second moments of blocks of trials; None if the trials are stored, or if blocks exceed `BLOCK_MEMORY`.
    source : RecordedTrials or None
        The trials as recorded, if they fit in memory and the task's statistics do not store them themselves.
    origin : EnvironmentTrials, loader, data set or function, or None
        Source of further trials for `learncast.training`; None if there is none or if the trials were preprocessed.
    bias : bool
        Whether the last input is a constant that was added: its weights are the biases of the hidden units.

    Examples
    --------
    Preprocess new trials as the recorded ones, so that the forecast holds for them:

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
    classes: tuple[object, ...] | None = None
    given: int | None = None
    lengths: tuple[int, int] | None = None
    counted: FloatArray | None = None
    blocks: Blocks | None = None
    source: RecordedTrials | None = None
    origin: Any = None
    bias: bool = False

    @cached_property
    def kept(self) -> MaskedTrials | None:
        """The trials as recorded, read when they are first needed."""
        return None if self.source is None else self.source.masked(self.centred, self.scaled)

    @property
    def masked(self) -> MaskedTrials | None:
        """The trials, if the statistics depend on which of their steps count."""
        source = self.source
        return self.kept if source and source.needs_mask(self.centred or self.scaled) else None

    @property
    def fingerprint(self) -> tuple[Any, ...]:
        """Everything that decides resamples and batches."""
        stored = self.blocks if self.source is None else self.source
        return self.centred, self.scaled, *(() if stored is None else vars(stored).values())

    def with_targets_times(self, factor: float) -> Recording:
        """Return the recording with every target multiplied by a factor."""
        return replace(
            self,
            target_mean=factor * self.target_mean,
            blocks=self.blocks and self.blocks.with_targets_times(factor),
            source=self.source and replace(self.source, targets=factor * self.source.targets),
            origin=None,
        )

    def constant_r2(self, power: float) -> float:
        """R² of the mean target as the answer to every trial; 0 for centred trials.

        Parameters
        ----------
        power : float
            Mean squared target, summed over outputs and readout steps.
        """
        if self.centred or not power > 0:
            return 0.0
        counts = np.ones(len(self.target_mean)) if self.counted is None else self.counted
        mean = counts @ self.target_mean / counts.sum()
        return float(counts.sum() * mean @ mean / power)

    def sentences(self, trials: int, power: float = np.nan) -> tuple[str, ...]:
        """Sentences that describe the preprocessing.

        Parameters
        ----------
        trials : int
            Number of trials that count.
        power : float
            Mean squared target, summed over outputs and readout steps.
        """
        lines = []
        if self.classes is None and self.constant_r2(power) >= NOTABLE:
            lines.append(
                f"R² compares with zero output: the mean target alone has R² {self.constant_r2(power):.3g}. "
                "Centre the trials to compare with the mean."
            )
        if trials < TESTED_TRIALS:
            lines.append(f"Intervals from {trials} trials may be too narrow; {TESTED_TRIALS} or more were tested.")
        if self.given is not None and self.given != trials:
            lines.append(f"{trials} of {self.given} trials count; the others are left out.")
        if self.classes is not None:
            names = ", ".join(map(str, self.classes[:12])) + ", ..." * (len(self.classes) > 12)
            lines.append(f"Labels became one-hot targets of {len(self.classes)} classes ({names}).")
        if self.lengths is not None:
            rule = "aligned at their end" if self.counted is None else "and targets count up to a trial's end"
            lines.append(f"Trials have {self.lengths[0]} to {self.lengths[1]} steps, {rule}.")
        if self.counted is not None:
            mean, steps = self.counted.sum(), len(self.counted)
            lines.append(f"Targets count at {mean:.4g} of {steps} steps of a trial on average.")
        if self.centred:
            lines.append("The mean over trials at each step was subtracted from inputs and targets.")
        if self.scaled:
            span = f"{self.scales.min():.3g} to {self.scales.max():.3g}"
            lines.append(
                f"Each input channel was divided by its root mean square over trials and steps ({span}); "
                "learning rates are for the scaled inputs."
            )
        return tuple(lines)
