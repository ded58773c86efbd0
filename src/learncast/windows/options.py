"""Options of a diagnosis: `Measurement`, `DetectionRule` and `Batching`, each validated when it is created."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import count, increasing, one_of, positive

if TYPE_CHECKING:
    from torch import Tensor

METHODS = ("sound", "paper")
#: With 19 random sign flips, the largest score is exceeded by chance in one of twenty cases.
LEAST_NULLS = 19
#: Signal-to-noise ratio from which the published diagnosis counts a lag as learnable.
THRESHOLD = 0.1
#: Number of lags measured by default.
_LAGS = 32
#: Numbers in one array of a chunk (sequences x steps x units).
_CHUNK = 2**20


@dataclass(frozen=True)
class Measurement:
    """What is measured: which gradient, at which lags, along how many directions, to which order.

    Parameters
    ----------
    lags : sequence of int, optional
        Strictly increasing; 32 from 1 to half the steps by default.
    directions : int
        Random directions on which gradients are projected. The window refers to the mean of their statistics.
    order : 0 or 1
        Order of the transport in the recurrent weights: the product of the gates, or one pass through the weights more.
    exact : int
        Sequences on which the envelope is also computed to all orders (for up to 16 units), to see whether it decays
        equally fast. It costs about 64 units^2 operations per step and sequence times the longest lag.
    control : bool
        Diagnose a second time with the targets of other sequences, to find out which lags are due to the task
        (`Window.attributable`).
    loss : function of (answers, targets), optional
        One loss per sequence or finer, not averaged over sequences; half the squared error by default.

    Raises
    ------
    InvalidSpec
        If the lags do not increase, a number is not a valid count, or the order is not 0 or 1.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.windows.Measurement(lags=(1, 2, 4)).lags_within(50)
    [1, 2, 4]
    >>> lc.windows.Measurement().lags_within(12)
    [1, 2, 3, 4, 5, 6]
    """

    lags: Sequence[int] | None = None
    directions: int = 2
    order: int = 1
    exact: int = 0
    control: bool = False
    loss: Callable[..., Tensor] | None = None

    def __post_init__(self) -> None:
        if self.lags is not None:
            object.__setattr__(self, "lags", increasing("lags", self.lags))
        count("directions", self.directions)
        count("exact", self.exact, least=0)
        if self.order not in (0, 1):
            raise InvalidSpec(f"order must be 0 or 1, got {self.order!r}.", field="order")

    def lags_within(self, steps: int) -> list[int]:
        """Lags to measure in sequences of `steps` steps."""
        if steps < 2:
            raise InvalidSpec(f"inputs must have at least 2 steps, got {steps}.", field="inputs")
        if self.lags is None:
            return [int(lag) for lag in np.unique(np.linspace(1, max(1, steps // 2), _LAGS).round())]
        return list(increasing("lags", self.lags, most=steps - 1))


@dataclass(frozen=True)
class DetectionRule:
    """When a lag counts as learnable, and for which numbers of sequences windows are given.

    Parameters
    ----------
    method : {"sound", "paper"}
        ``"paper"`` follows the published rule, which finds windows in pure noise; it is provided for comparison.
    nulls : int
        Random sign flips behind the critical score, and as many again for the null band.
    threshold : float, optional
        Signal-to-noise ratio from which a lag counts. By default the ratio of a signal at the critical score, or 0.1
        for the published method.
    sample_sizes : sequence of int, optional
        Numbers of sequences to give windows for; from 1/64 of those given to 4 times as many by default.
    seed : int
        Seed of directions, random signs and the order of sequences.

    Raises
    ------
    InvalidSpec
        If the method is unknown, there are fewer than 19 nulls, the threshold is not above 0, or sizes do not increase.

    Examples
    --------
    >>> import learncast as lc
    >>> lc.windows.DetectionRule(nulls=99, sample_sizes=(100, 1000)).sizes_around(128)
    [100, 1000]
    >>> lc.windows.DetectionRule().sizes_around(128)
    [2, 4, 8, 16, 32, 64, 128, 256, 512]
    """

    method: str = "sound"
    nulls: int = 200
    threshold: float | None = None
    sample_sizes: Sequence[int] | None = None
    seed: int = 0

    def __post_init__(self) -> None:
        one_of("method", self.method, METHODS)
        count("nulls", self.nulls, least=LEAST_NULLS)
        if self.threshold is not None:
            positive("threshold", self.threshold)
        if self.sample_sizes is not None:
            object.__setattr__(self, "sample_sizes", increasing("sample_sizes", self.sample_sizes))
        count("seed", self.seed, least=0)

    def threshold_at(self, critical: float) -> float:
        """Ratio from which a lag counts if scores above `critical` are significant."""
        if self.threshold is not None:
            return self.threshold
        # The statistic's scale is its deviation over sqrt(2), as for a normal distribution written as a stable one.
        return float(np.sqrt(2) * critical) if self.method == "sound" else THRESHOLD

    def sizes_around(self, sequences: int) -> list[int]:
        """Numbers of sequences to give windows for if `sequences` are diagnosed."""
        if self.sample_sizes is not None:
            return list(self.sample_sizes)
        return sorted({max(1, round(sequences * 2.0**power)) for power in range(-6, 3)})


@dataclass(frozen=True)
class Batching:
    """Layout of the sequences, how many are processed at a time, and how much is kept of each.

    Parameters
    ----------
    batch_first : bool, optional
        Whether the first axis counts sequences; by default as the recurrent block expects.
    chunk : int, optional
        Sequences processed at a time; by default one array of states has about a million numbers.
    memory : int
        Largest size in bytes of the contributions, sequences x lags x directions x units x 8, at which all are kept.
        Every sequence is then tested with signs from the other half. Beyond it, the first half gives the signs, the
        second half is tested, and one number per tested sequence and lag is kept.

    Raises
    ------
    InvalidSpec
        If a number is not a valid count.

    Examples
    --------
    >>> import learncast as lc
    >>> batching = lc.windows.Batching(chunk=16, memory=2**20)
    >>> batching.keeps(200 * 32 * 2 * 4, "sound"), batching.keeps(200 * 32 * 2 * 64, "sound")
    (True, False)
    """

    batch_first: bool | None = None
    chunk: int | None = None
    memory: int = 2**28

    def __post_init__(self) -> None:
        if self.chunk is not None:
            count("chunk", self.chunk)
        count("memory", self.memory, least=0)

    def chunk_of(self, numbers: int) -> int:
        """Sequences processed at a time if each has this many states."""
        return self.chunk or _CHUNK // numbers or 1

    def keeps(self, contributions: int, method: str) -> bool:
        """Whether all of this many contributions are kept, which the published method requires."""
        kept = 8 * contributions <= self.memory
        if not kept and method == "paper":
            raise InvalidSpec(f"memory must be at least {8 * contributions}, got {self.memory}.", field="memory")
        return kept


class Options(TypedDict):
    """Keyword arguments of `learncast.windows.window` that hold its options."""

    measurement: Measurement
    rule: DetectionRule
    batching: Batching


def grouped(options: Mapping[str, object]) -> Options:
    """Group a flat table of options, as a study or a command gives it; None keeps a default."""

    def given(group: type) -> dict[str, Any]:
        names = [field.name for field in fields(group) if options.get(field.name) is not None]
        return {name: options[name] for name in names}

    return {
        "measurement": Measurement(**given(Measurement)),
        "rule": DetectionRule(**given(DetectionRule)),
        "batching": Batching(**given(Batching)),
    }
