"""The three objects that say what is asked of a diagnosis; each checks itself when it is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec, suggestion
from learncast._core.validation import count, increasing, one_of, positive

METHODS = ("sound", "paper")
#: Random sign flips of which the largest score is exceeded by chance in one of twenty cases.
LEAST_NULLS = 19
#: Signal-to-noise ratio from which the published diagnosis counts a lag as learnable.
THRESHOLD = 0.1
#: Why lags are whole numbers that fit into a sequence.
LAG = "a lag counts steps between two states of a sequence"
#: Lags that are looked at when none are named.
_LAGS = 32
#: Numbers in one array of a chunk (sequences x steps x units).
_CHUNK = 2**21


@dataclass(frozen=True)
class Measurement:
    """What is measured: which gradient, over which lags, along how many directions, to which order.

    Parameters
    ----------
    lags : sequence of int, optional
        Growing; 32 from 1 to half the steps by default.
    directions : int
        Random directions on which gradients are projected. The answer is about the mean of their statistics; each
        is in the result too.
    order : 0 or 1
        Of the transport: gates alone, or one visit to the recurrent weights.
    auxiliary : bool
        Add a GRU's auxiliary envelopes.
    exact : int
        Sequences on which the envelope is computed to all orders too, for up to 16 units, to see whether it decays as
        fast. It costs about 64 units^2 operations per step and sequence times the longest lag.
    loss : function of (answers, targets), optional
        One loss per sequence or finer, not averaged over sequences; half the squared error by default.

    Raises
    ------
    InvalidSpec
        If lags do not grow, a number is no count, or the order is another.

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
    auxiliary: bool = False
    exact: int = 0
    loss: Callable[[Any, Any], Any] | None = None

    def __post_init__(self) -> None:
        if self.lags is not None:
            object.__setattr__(self, "lags", increasing("lags", self.lags))
        count("directions", self.directions)
        count("exact", self.exact, least=0)
        if self.order not in (0, 1):
            raise InvalidSpec(
                f"order must be 0 or 1, got {self.order!r}. Use the exact transport for all orders.", field="order"
            )

    def lags_within(self, steps: int) -> list[int]:
        """The lags to look at in sequences of `steps` steps."""
        if self.lags is None:
            return [int(lag) for lag in np.unique(np.linspace(1, max(1, steps // 2), _LAGS).round())]
        return list(increasing("lags", self.lags, most=steps - 1))


@dataclass(frozen=True)
class DetectionRule:
    """When a lag counts as learnable, and for how many sequences that is asked.

    Parameters
    ----------
    method : {"sound", "paper"}
        ``"paper"`` follows the published rule, which finds windows in pure noise; it is here to be compared with.
    nulls : int
        Random sign flips behind the critical score, and as many again for the null band.
    threshold : float, optional
        Signal-to-noise ratio from which a lag counts. By default the ratio of a signal that is just told from 0 (at
        the critical score); 0.1 for the published method.
    sample_sizes : sequence of int, optional
        Numbers of sequences to give windows for; from 1/64 of those given to 4 times as many by default.
    seed : int
        Of directions, random signs and the order of visit.

    Raises
    ------
    InvalidSpec
        If the method is another, there are fewer than 19 nulls, the threshold is not above 0, or sizes do not grow.

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
            sizes = increasing("sample_sizes", self.sample_sizes)
            object.__setattr__(self, "sample_sizes", sizes)
        count("seed", self.seed, least=0)

    def threshold_at(self, critical: float) -> float:
        """Ratio from which a lag counts when scores above `critical` are told from 0."""
        if self.threshold is not None:
            return self.threshold
        # The statistic's scale is its deviation over sqrt(2), as for a normal law written as a stable one.
        return float(np.sqrt(2) * critical) if self.method == "sound" else THRESHOLD

    def sizes_around(self, sequences: int) -> list[int]:
        """Numbers of sequences to give windows for when `sequences` are diagnosed."""
        if self.sample_sizes is not None:
            return list(self.sample_sizes)
        return sorted({max(1, round(sequences * 2.0**power)) for power in range(-6, 3)})


@dataclass(frozen=True)
class Batching:
    """How the sequences are laid out, how many are held at a time, and how much of them is kept.

    Parameters
    ----------
    batch_first : bool, optional
        Whether the first axis counts sequences; as the recurrent block says, by default.
    chunk : int, optional
        Sequences held at a time; by default so many that one array of states has about two million numbers.
    memory : int
        Bytes of contributions, sequences x lags x directions x units x 8, up to which all are kept: then every
        sequence is tested with signs from the other half. Beyond, the first half gives the signs, the second is
        tested, and what is kept is one number per tested sequence and lag.

    Raises
    ------
    InvalidSpec
        If a number is no count.

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
        """Sequences held at a time when each has this many states."""
        return self.chunk or _CHUNK // numbers or 1

    def keeps(self, contributions: int, method: str) -> bool:
        """Whether so many contributions are all kept; the published method cannot do without."""
        if 8 * contributions <= self.memory:
            return True
        if method == "paper":
            raise InvalidSpec(
                f'method="paper" must keep all contributions in {self.memory / 2**20:,.0f} MiB, got '
                f"{8 * contributions / 2**20:,.0f} MiB of them. Use fewer sequences, lags or directions, or "
                "raise memory."
            )
        return False


#: Keyword of `learncast.windows.window` by which each object is given.
GROUPS: dict[str, Any] = {"measurement": Measurement, "rule": DetectionRule, "batching": Batching}
_PLACE = {field.name: keyword for keyword, group in GROUPS.items() for field in fields(group)}


def grouped(options: Mapping[str, Any]) -> dict[str, Any]:
    """The three objects from one flat table, as a study or a command gives it; None keeps a default."""
    given = {name: value for name, value in options.items() if value is not None}
    return {
        keyword: group(**{name: value for name, value in given.items() if _PLACE[name] == keyword})
        for keyword, group in GROUPS.items()
    }


def refuse_loose(options: Mapping[str, Any]) -> None:
    """Refuse keywords that belong into one of the three objects, or that nothing knows."""
    for name in options:
        place = _PLACE.get(name)
        remedy = f"write {place}={GROUPS[place].__name__}({name}=...)" if place else ""
        raise InvalidSpec(
            required=f"{name} must be given in {place}" if place else "every keyword must be known",
            got=f"the keyword {name}",
            why="what is asked is said by three objects, and a keyword would be ignored",
            remedy=remedy or suggestion(name, (*GROUPS, *_PLACE)) or f"use one of {', '.join(GROUPS)}",
        )
