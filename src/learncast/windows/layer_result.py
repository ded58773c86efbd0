"""The results of one recurrent layer as a labelled dataset."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import xarray as xr
from numpy.typing import NDArray
from scipy.special import ndtri

from learncast._core.validation import FloatArray
from learncast.results import Status, described
from learncast.windows.detection.detection import NOISES, Detection
from learncast.windows.detection.requirement import predicted_window, sample_exponent
from learncast.windows.detection.tail_index import MINIMUM_SAMPLES, TWO_SIDED
from learncast.windows.result import CONDITIONS
from learncast.windows.transport.accumulator import Transport
from learncast.windows.transport.decay import KINDS, Decay, fit_decay, unit_time_scales

RATE = "parameter change per gradient"
SEQUENCES = "sequences"
LAG = "steps"
_COORDINATES = ("lag", "unit", "sample_size", "noise", "side")

#: Dimensions, values, long name and units of each variable.
Variables = dict[str, tuple[str | tuple[str, ...], object, str, str]]


@dataclass(frozen=True, eq=False, repr=False)
class LayerResult:
    """Transport and detection of one layer.

    Parameters
    ----------
    transport : Transport
    detection : Detection
    rate : float
        The learning rate of the gates' part of the envelope.
    threshold : float
        Signal-to-noise ratio from which a lag counts.
    residual : float
        Relative error of the replayed outputs.
    compared : (2, lags), optional
        Envelope to first order and to all orders, on the same sequences.
    """

    transport: Transport
    detection: Detection
    rate: float
    threshold: float
    residual: float
    compared: FloatArray | None = None

    def dataset(self, sizes: FloatArray) -> xr.Dataset:
        """All numbers over (lag, unit, sample_size, noise, side)."""
        transport = self.transport
        gates, adaptive = transport.decomposition(self.rate)
        decay = fit_decay(transport.lags, transport.envelope)
        time_scale, status = unit_time_scales(transport.lags, transport.effective)
        variables: Variables = {
            "envelope": ("lag", transport.envelope, "sum over units of the mean effective rate", RATE),
            "envelope_gate": ("lag", gates, "part of the envelope due to the gates at the learning rate", RATE),
            "envelope_optimizer": ("lag", adaptive, "part of the envelope due to the optimiser's rates", RATE),
            "learning_rate": ((), self.rate, "learning rate behind envelope_gate", RATE),
            "effective_rate": (("lag", "unit"), transport.effective, "mean effective rate of each unit", RATE),
            "time_scale": ("unit", time_scale, "time scale of each unit's effective rate", LAG),
            "time_scale_status": ("unit", _names(status), "status of each time scale", "1"),
            **self._signal(),
            **self._windows(sizes, decay),
            **_decay(decay, transport.lags),
            **self._exact(),
            **self._validity(),
            "lag": ("lag", transport.lags, "lag", LAG),
            "unit": ("unit", np.arange(transport.total.shape[1]), "hidden unit", "1"),
            "sample_size": ("sample_size", sizes.astype(np.int64), "number of sequences", SEQUENCES),
            "noise": ("noise", list(NOISES), "what the signal competes with", "1"),
            "side": ("side", ["low", "high"], "end of a 95% interval", "1"),
        }
        labels = {name: (dims, values, described(*text)) for name, (dims, values, *text) in variables.items()}
        return xr.Dataset(labels, {name: labels.pop(name) for name in _COORDINATES})

    def _signal(self) -> Variables:
        detection, noise = self.detection, self.detection.noise
        margin = TWO_SIDED * detection.standard_error
        interval = np.stack([detection.mean - margin, detection.mean + margin], -1)
        required = np.stack([detection.required(self.threshold, noise=one) for one in NOISES])
        return {
            "signal": ("lag", detection.mean, "mean of the matched statistic", RATE),
            "signal_interval": (("lag", "side"), interval, "95% interval of the signal", RATE),
            "score": ("lag", detection.score, "signal over its standard error", "1"),
            "critical_score": ((), detection.critical, "score above which a signal is significant", "1"),
            "tail_index": ("lag", noise.index, "tail index of the noise between sequences", "1"),
            "tail_index_interval": (("lag", "side"), noise.index_interval, "95% interval of the tail index", "1"),
            "scale": ("lag", noise.scale, "scale of the noise between sequences", RATE),
            "scale_interval": (("lag", "side"), noise.scale_interval, "95% interval of the scale", RATE),
            "total_tail_index": ((), detection.total_index, "tail index of the total gradient's noise", "1"),
            "total_scale": ((), detection.total_scale, "scale of the total gradient's noise", RATE),
            "status": ("lag", _names(detection.status), "status of each lag", "1"),
            "required_sequences": (("noise", "lag"), required, "sequences that a lag needs", SEQUENCES),
            "threshold": ((), self.threshold, "signal-to-noise ratio from which a lag counts", "1"),
        }

    def _windows(self, sizes: FloatArray, decay: Decay) -> Variables:
        detection, threshold = self.detection, self.threshold
        tested = np.array([len(detection.statistic)])
        reach, gapless = (float(part[0]) for part in detection.windows(tested, threshold))
        any_lag, contiguous = np.stack([detection.windows(sizes, threshold, noise=noise) for noise in NOISES], 1)
        null = np.stack([detection.null_windows(sizes, threshold, noise=noise).any_lag for noise in NOISES])
        # The smallest window that at least 95% of the nulls do not exceed; nan if they are unknown.
        high = np.quantile(null, 0.95, axis=-1, method="higher")
        grid = ("noise", "sample_size")
        return {
            "window": (grid, any_lag, "longest learnable lag", LAG),
            "contiguous_window": (grid, contiguous, "longest lag before the first that is not learnable", LAG),
            "null_window": (grid, high, "95% quantile of the window without a signal", LAG),
            "reach": ((), reach, "longest lag with a significant signal in these sequences", LAG),
            "contiguous_reach": ((), gapless, "longest lag before the first without a significant signal", LAG),
            "reach_of_fourfold": ((), self._fourfold(reach, decay), "reach with 4 times the sequences", LAG),
        }

    def _fourfold(self, reach: float, decay: Decay) -> float:
        """Follow the fitted law from the reach of the tested sequences to that of 4 times as many (Eq. 26)."""
        if decay.best is None or not reach > 0:
            return np.nan
        detection, law, tested = self.detection, decay.best.law, len(self.detection.statistic)
        index = float(detection.noise.index[np.flatnonzero(detection.lags == reach)[0]])
        if not index > 1:
            return np.nan
        level = float(law.at(reach)) * tested ** (1 / float(sample_exponent(index)))
        return float(predicted_window(law, 4 * tested, index=index, constant=level))

    def _exact(self) -> Variables:
        if self.compared is None:
            return {}
        first_order, exact = self.compared
        slope = _log_slope(first_order, exact)
        return {
            "exact_envelope": ("lag", exact, "envelope to all orders, on a part of the sequences", RATE),
            "exact_slope": ((), slope, "slope of log envelope on log exact envelope", "1"),
        }

    def _validity(self) -> Variables:
        detection, noise, f = self.detection, self.detection.noise, self.transport.envelope
        significant = detection.significant
        with np.errstate(divide="ignore", invalid="ignore"):
            rises = np.where(f[:-1] > 0, f[1:] / f[:-1] - 1, 0.0)
        scales = noise.scale[noise.scale > 0]
        nulls = detection.null_windows(len(detection.statistic), self.threshold).any_lag
        measured = {
            "faithful_replay": self.residual,
            "silent_null": float(np.mean(nulls != 0)),
            "enough_sequences": MINIMUM_SAMPLES / len(detection.statistic),
            "averaging_helps": float(np.mean(noise.index[significant] <= 1)) if significant.any() else 0.0,
            "falling_envelope": max(0.0, float(rises.max(initial=0.0))),
            "noise_apart_from_envelope": float(scales.max() / scales.min()) if scales.size else np.nan,
        }
        if self.compared is not None:
            measured["first_order_transport"] = abs(_log_slope(*self.compared) - 1)
        return {f"validity_{name}": ((), value, CONDITIONS[name].requires, "1") for name, value in measured.items()}


def add_control(dataset: xr.Dataset, control: xr.Dataset) -> None:
    """Add the diagnosis with the targets of other sequences, and the lags whose signal is due to the task.

    With other targets, the gradient still has the network's own answer. A lag is attributable to the task if it has a
    significant signal and this signal differs from the control's, two-sided at 5% over all lags (Bonferroni).
    """
    margins = [one["signal_interval"].sel(side="high", drop=True) - one["signal"] for one in (dataset, control)]
    error = (margins[0] ** 2 + margins[1] ** 2) ** 0.5 / TWO_SIDED
    differs = abs(dataset["signal"] - control["signal"]) > float(-ndtri(0.025 / dataset.sizes["lag"])) * error
    own = differs & (dataset["score"] > dataset["critical_score"])
    texts = {"signal": RATE, "score": "1", "reach": LAG}
    for name, units in texts.items():
        about = described(f"{dataset[name].attrs['long_name']}, with the targets of other sequences", units)
        dataset[f"control_{name}"] = control[name].assign_attrs(about)
    dataset["attributable"] = own.assign_attrs(described("whether the signal of a lag is due to the task", "1"))
    reach = (own * dataset["lag"]).max("lag").astype(float)
    dataset["attributable_reach"] = reach.assign_attrs(described("longest lag whose signal is due to the task", LAG))


def _decay(decay: Decay, lags: NDArray[np.int64]) -> Variables:
    best = decay.best
    law = dict.fromkeys(("amplitude", "rate", "exponent"), np.nan)
    if best is not None:
        law |= {name: getattr(best.law, name) for name in ("amplitude", *KINDS[best.kind][1])}
    fitted = np.full(len(lags), np.nan) if best is None else best.law.at(lags)
    return {
        "decay_kind": ((), "unknown" if best is None else best.kind, "law that describes the envelope best", "1"),
        "decay_amplitude": ((), law["amplitude"], "amplitude of that law", RATE),
        "decay_rate": ((), law["rate"], "its exponential rate", "per step"),
        "decay_exponent": ((), law["exponent"], "its power of the lag", "1"),
        "decay_r_squared": ((), np.nan if best is None else best.r_squared, "share of log f it explains", "1"),
        "decay_status": ((), decay.status.name, "status of the fit", "1"),
        "decay_implication": ((), decay.implication, "what it means for the window", "1"),
        "envelope_fit": ("lag", fitted, "envelope by the fitted law", RATE),
    }


def _log_slope(first_order: FloatArray, exact: FloatArray) -> float:
    """How many times as fast the envelope decays as the exact one: 1 if their logarithms differ by a constant."""
    both = (first_order > 0) & (exact > 0)
    if both.sum() < 2:
        return np.nan
    x, y = np.log(exact[both]), np.log(first_order[both])
    x = x - x.mean()
    return float(x @ y / (x @ x)) if (x != 0).any() else np.nan


def _names(status: NDArray[np.object_]) -> NDArray[np.str_]:
    return np.array([one.name if isinstance(one, Status) else str(one) for one in status], dtype=np.str_)
