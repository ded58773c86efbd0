"""The conditions under which a learnability window may be believed, each measured as one number."""

from __future__ import annotations

from dataclasses import dataclass

from learncast.assumptions import Assumption, Condition

CONDITIONS = {
    "faithful_replay": Condition(
        1e-3,
        "the replayed gates must give back the layer's own outputs",
        "the transport would belong to another network",
        "run the model in float64, or report the model's equations as a defect",
    ),
    "silent_null": Condition(
        0.05,
        "data whose sequences have random signs must almost never show a window",
        "the same window could come from no signal at all",
        'use method="sound" with more sequences',
    ),
    "enough_sequences": Condition(
        1.0,
        "at least 100 sequences must be left for the noise after its signs are chosen (measured: 100 / sequences)",
        "the tail index is unknown, and with it the number of sequences that a lag needs",
        "diagnose on more sequences",
    ),
    "averaging_helps": Condition(
        0.0,
        "the noise of every lag with a signal must have a tail index above 1 (measured: the share without)",
        "means over more sequences would not concentrate",
        "clip or rescale the outliers of the data",
    ),
    "falling_envelope": Condition(
        0.0,
        "none: a rising envelope (measured: its largest relative rise from one lag to the next) is only reported",
        "the first-order transport need not fall with the lag, and laws of decay describe it on average",
        "read the envelope instead of its fit",
        binding=False,
    ),
    "first_order_transport": Condition(
        0.25,
        "none: to all orders the envelope decays at another rate (measured: how far their ratio is from 1)",
        "by that factor the growth of the window with the data is misjudged",
        "read exact_envelope",
        binding=False,
    ),
    "noise_apart_from_envelope": Condition(
        2.0,
        "none: the noise of a lag (measured: largest over smallest scale) usually shrinks with its envelope",
        "the envelope cancels from the ratio of each lag to its own noise",
        'read the windows with noise="total", for which all lags compete with the same gradient noise',
        binding=False,
    ),
}


@dataclass(frozen=True)
class Validity(Assumption):
    """One condition of a learnability window, as measured; `name` is a key of `CONDITIONS`."""

    @property
    def condition(self) -> Condition:
        """What it requires and what follows when it fails."""
        return CONDITIONS[self.name]
