"""The labelled numbers of a learnability window."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast.learnability.decay import Decay, fit_decay
from learncast.learnability.detection import NOISES, Detection
from learncast.learnability.sample_requirement import sample_exponent
from learncast.learnability.tail_index import MINIMUM_SAMPLES, TWO_SIDED
from learncast.learnability.time_scales import unit_time_scales
from learncast.learnability.transport import Transport
from learncast.learnability.validity import Validity
from learncast.learnability.window_forecast import predicted_window
from learncast.trajectory import Status, described
from learncast.validation import FloatArray

RATE = "parameter change per gradient"
SEQUENCES = "sequences"
LAG = "steps"


@dataclass(frozen=True, eq=False, repr=False)
class LayerFinding:
    """What was found about one layer.

    Parameters
    ----------
    transport : Transport
    detection : Detection
    rate : float
        The learning rate that the gates' part of the envelope is counted at.
    threshold : float
        Signal-to-noise ratio from which a lag counts.
    residual : float
        Relative error of the replayed outputs.
    compared : (2, lags), optional
        Envelope as it is used and to all orders, on the same sequences.
    """

    transport: Transport
    detection: Detection
    rate: float
    threshold: float
    residual: float
    compared: FloatArray | None = None


def window_dataset(
    findings: Sequence[LayerFinding], sizes: FloatArray, *, sequences: int, method: str, order: int
) -> xr.Dataset:
    """One Dataset over (layer, lag, unit, sample_size, direction, noise, side)."""
    parts = [_layer(finding, sizes) for finding in findings]
    # A single layer is spared the work of aligning labels, which takes longer than a small diagnosis.
    whole = parts[0].expand_dims("layer") if len(parts) == 1 else _stacked(parts)
    whole["layer"] = ("layer", np.arange(len(parts)), described("recurrent layer, the lowest first", "1"))
    whole["sequences"] = ((), sequences, described("sequences diagnosed", SEQUENCES))
    whole.attrs = {"method": method, "order": order}
    return whole


def _stacked(parts: list[xr.Dataset]) -> xr.Dataset:
    return xr.concat(parts, "layer", join="outer", combine_attrs="no_conflicts")


def _layer(finding: LayerFinding, sizes: FloatArray) -> xr.Dataset:
    transport = finding.transport
    gates, optimiser = transport.decomposition(finding.rate)
    decay = fit_decay(transport.lags, transport.envelope)
    scales = unit_time_scales(transport.lags, transport.effective)
    variables: dict[str, Any] = {
        "envelope": _named("lag", transport.envelope, "sum over units of the mean effective rate", RATE),
        "envelope_gate": _named("lag", gates, "part of the envelope owed to the gates at the learning rate", RATE),
        "envelope_optimizer": _named("lag", optimiser, "part of the envelope owed to the optimiser's rates", RATE),
        "learning_rate": _named((), finding.rate, "learning rate behind envelope_gate", RATE),
        "effective_rate": _named(("lag", "unit"), transport.effective, "mean effective rate of each unit", RATE),
        "time_scale": _named("unit", scales.time_scale, "time scale of each unit's effective rate", LAG),
        "time_scale_status": _named("unit", _names(scales.status), "how each time scale came out", "1"),
        **_signal(finding),
        **_directions(finding.detection),
        **_windows(finding, sizes, decay),
        **_decay(decay, transport.lags),
        **_exact(finding),
        **_validity(finding),
    }
    coordinates = {
        "lag": ("lag", transport.lags, described("lag", LAG)),
        "unit": ("unit", np.arange(transport.total.shape[1]), described("hidden unit", "1")),
        "sample_size": ("sample_size", sizes.astype(np.int64), described("number of sequences", SEQUENCES)),
        "noise": ("noise", list(NOISES), described("what the signal competes with", "1")),
        "direction": (
            "direction",
            np.arange(len(finding.detection.by_direction.mean)),
            described("random direction of the recurrent parameters", "1"),
        ),
        "side": ("side", ["low", "high"], described("end of a 95% interval", "1")),
    }
    return xr.Dataset(variables, coordinates)


def _signal(finding: LayerFinding) -> dict[str, Any]:
    found = finding.detection
    margin, noise = TWO_SIDED * found.standard_error, found.noise
    required = np.stack([found.required(finding.threshold, noise=noise) for noise in NOISES])
    return {
        "signal": _named("lag", found.mean, "mean of the matched statistic", RATE),
        "signal_interval": _named(("lag", "side"), np.stack([found.mean - margin, found.mean + margin], -1),
                                  "95% interval of the signal", RATE),
        "score": _named("lag", found.score, "signal over its standard error", "1"),
        "critical_score": _named((), found.critical, "score above which a signal is told from 0", "1"),
        "tail_index": _named("lag", found.index, "tail index of the noise between sequences", "1"),
        "tail_index_interval": _named(("lag", "side"), noise.index_interval, "95% interval of the tail index", "1"),
        "scale": _named("lag", found.scale, "scale of the noise between sequences", RATE),
        "scale_interval": _named(("lag", "side"), noise.scale_interval, "95% interval of the scale", RATE),
        "total_tail_index": _named((), found.total_index, "tail index of the whole gradient's noise", "1"),
        "total_scale": _named((), found.total_scale, "scale of the whole gradient's noise", RATE),
        "status": _named("lag", _names(found.status), "how each lag came out", "1"),
        "required_sequences": _named(("noise", "lag"), required, "sequences that a lag needs", SEQUENCES),
        "threshold": _named((), finding.threshold, "signal-to-noise ratio from which a lag counts", "1"),
    }  # fmt: skip


def _directions(found: Detection) -> dict[str, Any]:
    each, grid = found.by_direction, ("direction", "lag")
    return {
        "signal_by_direction": _named(grid, each.mean, "signal along one direction; signal is their mean", RATE),
        "score_by_direction": _named(grid, each.score, "that signal over its standard error", "1"),
        "tail_index_by_direction": _named(grid, each.index, "tail index of the noise along one direction", "1"),
        "scale_by_direction": _named(grid, each.scale, "scale of the noise along one direction", RATE),
    }


def _windows(finding: LayerFinding, sizes: FloatArray, decay: Decay) -> dict[str, Any]:
    found, least = finding.detection, finding.threshold
    tested = np.array([len(found.statistic)])
    reach = found.windows(tested, least)
    real = [found.windows(sizes, least, noise=noise) for noise in NOISES]
    null = [found.null_windows(sizes, least, noise=noise) for noise in NOISES]
    anywhere = np.stack([one.any_lag for one in null])
    grid = ("noise", "sample_size")
    return {
        "window": _named(grid, np.stack([one.any_lag for one in real]), "longest learnable lag", LAG),
        "contiguous_window": _named(
            grid, np.stack([one.contiguous for one in real]), "longest lag before the first that is not learnable", LAG
        ),
        "null_window": _named(grid, _high(anywhere), "95% quantile of the window without signal", LAG),
        "null_alarms": _named(
            grid, np.where(np.isnan(anywhere), np.nan, anywhere > 0).mean(-1), "share of nulls with a window", "1"
        ),
        "reach": _named((), reach.any_lag[0], "longest lag told from 0 with the sequences at hand", LAG),
        "contiguous_reach": _named((), reach.contiguous[0], "the same before the first gap", LAG),
        "reach_of_fourfold": _named(
            (), _extrapolated(found, reach.any_lag[0], 4 * tested, decay)[0], "reach with 4 times the sequences", LAG
        ),
        "extrapolated_window": _named(
            "sample_size",
            _extrapolated(found, reach.any_lag[0], sizes, decay),
            "window if the envelope alone decided, from the largest measured one",
            LAG,
        ),
    }


def _high(windows: FloatArray) -> FloatArray:
    """Smallest window that at least 95% of the nulls do not exceed; nan where they are unknown."""
    return np.asarray(np.quantile(windows, 0.95, axis=-1, method="higher"))


def _extrapolated(found: Detection, reach: float, sizes: Any, decay: Decay) -> FloatArray:
    """Follow the fitted law from the reach of the tested sequences to other numbers of them (Eq. 26)."""
    unknown = np.full(np.shape(sizes), np.nan)
    if decay.best is None or not reach > 0:
        return unknown
    index = float(found.index[np.flatnonzero(found.lags == reach)[0]])
    if not index > 1:
        return unknown
    level = float(decay.best.law.at(reach)) * len(found.statistic) ** (1 / float(sample_exponent(index)))
    return predicted_window(decay.best.law, sizes, index=index, constant=level)


def _decay(decay: Decay, lags: NDArray[np.int64]) -> dict[str, Any]:
    best = decay.best
    law = dict.fromkeys(("amplitude", "rate", "exponent"), np.nan)
    if best is not None:
        law |= {name: getattr(best.law, name) for name in law if hasattr(best.law, name)}
    fitted = np.full(len(lags), np.nan) if best is None else best.law.at(lags)
    return {
        "decay_kind": _named((), "unknown" if best is None else best.kind, "law that describes the envelope best", "1"),
        "decay_amplitude": _named((), law["amplitude"], "amplitude of that law", RATE),
        "decay_rate": _named((), law["rate"], "its exponential rate", "per step"),
        "decay_exponent": _named((), law["exponent"], "its power of the lag", "1"),
        "decay_r_squared": _named((), np.nan if best is None else best.r_squared, "share of log f it explains", "1"),
        "decay_status": _named((), decay.status.name, "how the fit came out", "1"),
        "decay_implication": _named((), decay.implication, "what it means for the window", "1"),
        "envelope_fit": _named("lag", fitted, "envelope by the fitted law", RATE),
    }


def _exact(finding: LayerFinding) -> dict[str, Any]:
    if finding.compared is None:
        return {}
    used, full = finding.compared
    return {
        "exact_envelope": _named("lag", full, "envelope to all orders, on a part of the sequences", RATE),
        "exact_slope": _named((), _slope(used, full), "slope of log envelope on log exact envelope", "1"),
    }


def _slope(used: FloatArray, full: FloatArray) -> float:
    """How many times as fast the envelope decays as the exact one: 1 when their logarithms differ by a constant."""
    both = (used > 0) & (full > 0)
    if both.sum() < 2:
        return np.nan
    x, y = np.log(full[both]), np.log(used[both])
    x = x - x.mean()
    return float(x @ y / (x @ x)) if (x != 0).any() else np.nan


def _validity(finding: LayerFinding) -> dict[str, Any]:
    found, f = finding.detection, finding.transport.envelope
    told = found.significant
    with np.errstate(divide="ignore", invalid="ignore"):
        rises = np.where(f[:-1] > 0, f[1:] / f[:-1] - 1, 0.0)
    scales = found.scale[found.scale > 0]
    measured: dict[str, float] = {
        "faithful_replay": finding.residual,
        "silent_null": float(np.mean(found.null_windows(len(found.statistic), finding.threshold).any_lag != 0)),
        "enough_sequences": MINIMUM_SAMPLES / len(found.statistic),
        "averaging_helps": float(np.mean(found.index[told] <= 1)) if told.any() else 0.0,
        "falling_envelope": max(0.0, float(rises.max(initial=0.0))),
        "noise_apart_from_envelope": float(scales.max() / scales.min()) if scales.size else np.nan,
    }
    if finding.compared is not None:
        measured["first_order_transport"] = abs(_slope(*finding.compared) - 1)
    return {f"validity_{name}": _named((), value, Validity(name, value).condition.requires, "1")
            for name, value in measured.items()}  # fmt: skip


def _named(dims: Any, values: Any, long_name: str, units: str) -> tuple[Any, Any, dict[str, str]]:
    return (dims, values, described(long_name, units))


def _names(status: NDArray[np.object_]) -> NDArray[np.str_]:
    return np.array([one.name if isinstance(one, Status) else str(one) for one in status], dtype=np.str_)
