"""The diagnosis of a trained recurrent model: how far back it can learn, and from how many sequences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import torch
import xarray as xr
from numpy.typing import NDArray
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, check_time, noticed, silent
from learncast._core.validation import FloatArray
from learncast.results import Provenance, Status, described, spec_hash
from learncast.windows.detection.detection import NOISES, Detection, detect
from learncast.windows.detection.requirement import predicted_window, sample_exponent
from learncast.windows.detection.signs import matched_statistic
from learncast.windows.detection.tail_index import MINIMUM_SAMPLES, TWO_SIDED
from learncast.windows.learnability_window import LearnabilityWindow, Validity
from learncast.windows.question import Batching, DetectionRule, Measurement, refuse_loose
from learncast.windows.replay.capture import STREAM, Capture, capture, checked_sequences, half_squared_error
from learncast.windows.replay.recurrent_layer import RecurrentLayer, recurrent_layers
from learncast.windows.replay.replay import Chain, Replay, room_like
from learncast.windows.replay.stepped import SteppedLayer
from learncast.windows.transport.base_rate import base_rates, parameter_rates
from learncast.windows.transport.decay import Decay, fit_decay, unit_time_scales
from learncast.windows.transport.derivative import sensitivities, state_sensitivities, unit_directions, whole_state
from learncast.windows.transport.exact import exact_transport
from learncast.windows.transport.factor import walk_lags
from learncast.windows.transport.gathering import (
    Contributions,
    Transport,
    TransportMeans,
    forward_gradients,
    mean_transport,
    pooled,
)

RATE = "parameter change per gradient"
SEQUENCES = "sequences"
LAG = "steps"
#: Units whose exact transport is followed when a layer has more.
PROBES = 16
_COORDINATES = ("lag", "unit", "sample_size", "noise", "direction", "side")


@noticed("diagnosing")
def window(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    optimizer: optim.Optimizer | None = None,
    measurement: Measurement | None = None,
    rule: DetectionRule | None = None,
    batching: Batching | None = None,
    progress: Progress = silent,
    **loose: Any,
) -> LearnabilityWindow:
    """How many steps back a model can learn, from how many sequences, with its optimiser.

    Parameters
    ----------
    model : torch.nn.Module
        Contains exactly one of nn.RNN, nn.GRU, nn.LSTM, a cell of `learncast.windows.cells`, or a cell of one's
        own with `input_size`, `hidden_size` and a method step(state, input) to the next state (`training.RateRNN`); it
        runs in the mode it is in and is left as it was.
    inputs : (sequences, steps, channels)
        In the model's own layout (time first where it takes time first). An array, a tensor or a memory map.
    targets : (sequences, steps, ...) or (sequences, ...)
        Per step, in the layout of the inputs, or at the end.
    optimizer : torch.optim.SGD, Adam, AdamW or RMSprop, optional
        The one that trained the model. Without it every base rate is 1.
    measurement : Measurement, optional
        What is measured: lags, directions, the order of the transport, the loss.
    rule : DetectionRule, optional
        When a lag counts: method, nulls, threshold, sample sizes and seed.
    batching : Batching, optional
        How the sequences are laid out, held and kept.
    progress : callable
    **loose
        Refused: everything else belongs into one of the three objects.

    Returns
    -------
    LearnabilityWindow

    Notes
    -----
    One pass over the data, no files. Memory is a few dozen arrays of a chunk, plus what `Batching.memory` allows. A
    chunk costs one forward pass, one replay by matrix products, ``directions`` products per lag, and one scan over
    time. A model in single precision is followed in single precision where no product of gates leaves its range. Mean
    transport is then right to about 1e-5; tail indices far below 1 need a model in double precision.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> _ = torch.manual_seed(0)
    >>> class Reader(torch.nn.Module):
    ...     def __init__(self):
    ...         super().__init__()
    ...         self.layer, self.readout = torch.nn.GRU(2, 4, batch_first=True), torch.nn.Linear(4, 1)
    ...     def forward(self, inputs):
    ...         return self.readout(self.layer(inputs)[0][:, -1])
    ...
    >>> inputs = torch.randn(120, 8, 2)
    >>> measurement = lc.windows.Measurement(lags=(1, 2, 3))
    >>> found = lc.windows.window(Reader(), inputs, inputs[:, -2, :1], measurement=measurement)
    >>> found.sequences, sorted(found.windows())[-1] >= 120
    (120, True)
    """
    refuse_loose(loose)
    measurement, rule, batching = measurement or Measurement(), rule or DetectionRule(), batching or Batching()
    data = checked_sequences(model, inputs, targets, seed=rule.seed, batch_first=batching.batch_first)
    lags, sizes = measurement.lags_within(data.steps), np.array(rule.sizes_around(len(data)), dtype=np.float64)
    layers = recurrent_layers(model)
    widths = [layer.hidden_size for layer in layers]
    kept = batching.keeps(len(data) * len(lags) * measurement.directions * sum(widths), rule.method)
    signs = "crossed" if kept else "pilot"
    found = [
        Evidence(layer, optimizer, measurement, lags=lags, sequences=len(data), signs=signs, seed=(rule.seed, index))
        for index, layer in enumerate(layers)
    ]
    loss = measurement.loss or partial(half_squared_error, batch_first=data.axis == 0)
    for some, chunk, wanted in data.chunks(batching.chunk_of(data.steps * max(widths))):
        number = some.stop - some.start
        seen = capture(model, chunk, wanted, loss)
        if seen.outputs[0].shape[0] != number:
            raise InvalidSpec(
                f"the recurrent block must receive every sequence of a chunk, got {seen.outputs[0].shape[0]} "
                f"sequences instead of {number}. Pass batch_first={data.axis == 1} if the model takes its inputs "
                "the other way round."
            )
        assert seen.deltas is not None
        for index, evidence in enumerate(found):
            evidence.add(some, seen, index)
        check_time()
        progress(some.stop / len(data))
    findings = [evidence.finding(rule) for evidence in found]
    dataset = _labelled(findings, sizes, sequences=len(data))
    name = "none" if optimizer is None else type(optimizer).__name__
    dataset.attrs = {"method": rule.method, "order": measurement.order, "optimizer": name, "signs": signs}
    dataset.attrs |= {"cell": layers[0].kind, "directions": measurement.directions}
    weights = [value.cpu().numpy() for layer in layers for value in layer.parameters.values()]
    rates = [value.cpu().numpy() for one in found for value in (one.rates or {}).values()]
    asked = (repr(replace(measurement, loss=None)), repr(rule), signs)  # of a loss only its place in memory is known
    digest = spec_hash(*weights, *rates, *data.specimen(), lags, sizes, *asked)
    return LearnabilityWindow(dataset, Provenance("diagnosis", ("livi2025",), digest, rule.seed))


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


class Followed(NamedTuple):
    """What sequences did, followed through time: chain, base rates, answers to the directions, projected gradients."""

    chain: Chain
    rates: Tensor | float
    answers: Tensor
    total: FloatArray


class Evidence:
    """Sums and one number per sequence and lag: what remains of a chunk when it is let go.

    Parameters
    ----------
    layer : RecurrentLayer
    optimizer : torch.optim.Optimizer, optional
        Without it every base rate is 1.
    measurement : Measurement
        The units of its directions count as separate units of one statistic, the mean over directions.
    lags : list of int
    sequences : int
        How many there will be.
    signs : {"crossed", "pilot"}
        Keep every contribution, for signs from the other half of the sequences; or take signs from the first half and
        keep only the statistic of the second.
    seed : tuple of int
    """

    def __init__(
        self,
        layer: RecurrentLayer | SteppedLayer,
        optimizer: optim.Optimizer | None,
        measurement: Measurement,
        *,
        lags: list[int],
        sequences: int,
        signs: str,
        seed: tuple[int, int],
    ) -> None:
        self.layer, self.optimizer, self.lags, self.signs = layer, optimizer, lags, signs
        self._options: dict[str, Any] = {"order": measurement.order, "auxiliary": measurement.auxiliary}
        self._number, self._exact = measurement.directions, min(sequences, measurement.exact)
        self._rng = np.random.default_rng([STREAM, *seed, 1])
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        self._directions = unit_directions(layer, self._number, generator=generator)
        self._summed = {name: value.sum(0, keepdim=True) for name, value in self._directions.items()}
        self._length = torch.cat([value.double().flatten() for value in self._summed.values()]).norm()
        self.rates = None if optimizer is None else parameter_rates(optimizer, layer.own)
        self._parts: list[Transport] = []
        self._pilots = sequences // 2 if signs == "pilot" else 0
        self._pilot = np.zeros((len(lags), self._number * layer.hidden_size))
        tested = sequences - self._pilots
        self._kept = np.empty((tested, len(lags), self._number * (layer.hidden_size if signs == "crossed" else 1)))
        self._total = np.empty(tested)
        self._residual, self._blamed = 0.0, False
        self._both = np.zeros((2, len(lags)))
        self._room: tuple[Tensor, Chain | None] | None = None

    def add(self, some: slice, seen: Capture, index: int) -> None:
        """Count the sequences at the places `some` in."""
        assert seen.deltas is not None
        deltas, first = seen.deltas[index], max(0, min(self._pilots, some.stop) - some.start)  # these are the pilot's
        followed = self._followed(seen, index, first)
        chain, rates = followed.chain, followed.rates
        means = TransportMeans(chain, self.lags, rates)
        gathered = Contributions(chain, self.lags, sensitivities=followed.answers, deltas=deltas, rates=rates)
        walk_lags(chain, self.lags, [means, gathered], **self._options)
        found = gathered.found
        self._parts = [pooled([*self._parts, means.transport])]
        self._blamed = self._blamed or bool(deltas.any())
        if some.start < self._exact:
            number = min(some.stop, self._exact) - some.start
            self._check(seen.replay(index, slice(0, number)), rates, number)
        if first:
            self._pilot += self._meant(found[:, :first]).sum(axis=0)
        if first < found.shape[1]:
            rows = slice(some.start + first - self._pilots, some.stop - self._pilots)
            if self.signs == "crossed":
                self._meant(found, self._kept[rows])
            else:
                self._kept[rows] = self._reduced(self._meant(found[:, first:]))
            self._total[rows] = followed.total

    def _followed(self, seen: Capture, index: int, first: int) -> Followed:
        """Go through time, a few steps after the others, with all sequences: steps that are taken alone are short."""
        assert seen.deltas is not None
        deltas = seen.deltas[index]
        batch, steps, width = deltas.shape
        # Chunks follow one another in the same memory: fresh memory takes as long to get as some of it to fill.
        if self._room is None or self._room[0].shape[2] != batch:
            self._room = room_like(deltas, self._number, steps, batch, width), None
        answers, chain = self._room
        rates, residuals = [], []
        total, before = np.zeros(batch - first), None
        for some, replay in seen.stretches(index):
            part = replay.chain if self._options["auxiliary"] else replace(replay.chain, reset=None)
            if chain is None:
                chain = part.longer(steps)
                self._room = answers, chain
            chain.write(some, part)
            if not self._parts:
                residuals.append(replay.residual())
            if self.rates is not None:
                rates.append(base_rates(replay, self.rates))
            answers[:, some] = sensitivities(replay, self._directions)
            if first < batch:
                tested = replay.take(slice(first, batch))
                immediate = self._immediate(tested, answers[:, some, first:])
                total += forward_gradients(tested, immediate, deltas[first:, some], before=before)[0] / steps
                before = immediate[:, -1]
        if size := float(seen.outputs[index].abs().max()) if residuals else 0.0:
            self._residual = float(np.max(residuals)) / size
        assert chain is not None
        return Followed(chain, torch.cat(rates) if rates else 1.0, answers, total)

    def _check(self, replay: Replay, rates: Tensor | float, number: int) -> None:
        """Count the envelopes of the first `number` sequences in, as it is used and to all orders."""
        some = rates[:, :number] if isinstance(rates, Tensor) else rates
        units = self.layer.hidden_size
        probes = None if units <= PROBES else PROBES
        # One seed for all chunks: they look at the same units, so how sequences are cut changes nothing.
        generator = torch.Generator().manual_seed(0)
        full = exact_transport(replay, self.lags, rates=some, probes=probes, generator=generator)
        used = mean_transport(replay, self.lags, rates=some, **self._options)
        self._both += number * np.stack([used.envelope, full.envelope])

    def _meant(self, found: FloatArray, kept: FloatArray | None = None) -> FloatArray:
        """Contributions to the mean over directions, (sequences, lags, directions x units), into `kept` if given."""
        k, batch, lags, units = found.shape
        kept = np.empty((batch, lags, k * units)) if kept is None else kept
        np.divide(found.transpose(1, 2, 0, 3), k, out=kept.reshape(batch, lags, k, units))
        return kept

    def _reduced(self, contributions: FloatArray) -> FloatArray:
        """Their signed sum over the units of each direction."""
        batch, lags, _ = contributions.shape
        signs = np.sign(self._pilot).reshape(lags, self._number, -1)
        return matched_statistic(contributions.reshape(batch, lags, self._number, -1), signs)

    def _immediate(self, replay: Replay, answers: Tensor) -> Tensor:
        """What states answer at once to a step of each sequence's gradient along the normalised sum of all directions.

        Along w an optimiser with rates Lambda moves by w^T Lambda g.
        """
        if self.rates is None:
            # The answer to a sum of directions is the sum of their answers, which are known.
            return whole_state(replay, answers.sum(0, keepdim=True), self._summed).div_(self._length)
        weighed = {name: value / self._length.to(value) * self.rates[name] for name, value in self._summed.items()}
        return state_sensitivities(replay, weighed)

    def finding(self, rule: DetectionRule) -> LayerFinding:
        """What all sequences together say, by this rule."""
        detection = self._detection(rule)
        compared = self._both / self._exact if self._exact else None
        threshold = rule.threshold_at(detection.critical)
        return LayerFinding(self._parts[0], detection, self._reference_rate(), threshold, self._residual, compared)

    def _reference_rate(self) -> float:
        """The learning rate of the layer's parameters, weighed by their number where groups differ."""
        if self.optimizer is None:
            return 1.0
        own = {id(p) for p in self.layer.own.values()}
        sizes = [sum(p.numel() for p in group["params"] if id(p) in own) for group in self.optimizer.param_groups]
        return float(np.average([float(group["lr"]) for group in self.optimizer.param_groups], weights=sizes))

    def _detection(self, rule: DetectionRule) -> Detection:
        if not self._blamed:
            raise InvalidSpec(
                f"the loss must have a gradient at {', '.join(self.layer.own)}, got a gradient of exactly 0 on "
                "every sequence."
            )
        single = next(iter(self.layer.parameters.values())).dtype == torch.float32
        return detect(
            self.lags,
            self._kept,
            rng=self._rng,
            method=rule.method,
            total=self._total,
            nulls=rule.nulls,
            directions=self._number,
            signed=self.signs == "pilot",
            precision=np.float32 if single and self.signs == "crossed" else np.float64,
        )


def _labelled(findings: Sequence[LayerFinding], sizes: FloatArray, *, sequences: int) -> xr.Dataset:
    """One Dataset over (layer, lag, unit, sample_size, direction, noise, side)."""
    parts = [_layer(finding, sizes) for finding in findings]
    # A single layer is spared the work of aligning labels, which takes longer than a small diagnosis.
    several: dict[str, Any] = {"join": "outer", "combine_attrs": "no_conflicts"}
    whole = parts[0].expand_dims("layer") if len(parts) == 1 else xr.concat(parts, "layer", **several)
    whole["layer"] = ("layer", np.arange(len(parts)), described("recurrent layer, the lowest first", "1"))
    whole["sequences"] = ((), sequences, described("sequences diagnosed", SEQUENCES))
    return whole


def _layer(finding: LayerFinding, sizes: FloatArray) -> xr.Dataset:
    transport = finding.transport
    gates, adaptive = transport.decomposition(finding.rate)
    decay = fit_decay(transport.lags, transport.envelope)
    time_scale, status = unit_time_scales(transport.lags, transport.effective)
    directions = len(finding.detection.by_direction.mean)
    variables: dict[str, Any] = {
        "envelope": ("lag", transport.envelope, "sum over units of the mean effective rate", RATE),
        "envelope_gate": ("lag", gates, "part of the envelope owed to the gates at the learning rate", RATE),
        "envelope_optimizer": ("lag", adaptive, "part of the envelope owed to the optimiser's rates", RATE),
        "learning_rate": ((), finding.rate, "learning rate behind envelope_gate", RATE),
        "effective_rate": (("lag", "unit"), transport.effective, "mean effective rate of each unit", RATE),
        "time_scale": ("unit", time_scale, "time scale of each unit's effective rate", LAG),
        "time_scale_status": ("unit", _names(status), "how each time scale came out", "1"),
        **_signal(finding),
        **_directions(finding.detection),
        **_windows(finding, sizes, decay),
        **_decay(decay, transport.lags),
        **_exact(finding),
        **_validity(finding),
        "lag": ("lag", transport.lags, "lag", LAG),
        "unit": ("unit", np.arange(transport.total.shape[1]), "hidden unit", "1"),
        "sample_size": ("sample_size", sizes.astype(np.int64), "number of sequences", SEQUENCES),
        "noise": ("noise", list(NOISES), "what the signal competes with", "1"),
        "direction": ("direction", np.arange(directions), "random direction of the recurrent parameters", "1"),
        "side": ("side", ["low", "high"], "end of a 95% interval", "1"),
    }
    labels = {name: (dims, values, described(*text)) for name, (dims, values, *text) in variables.items()}
    return xr.Dataset(labels, {name: labels.pop(name) for name in _COORDINATES})


def _signal(finding: LayerFinding) -> dict[str, Any]:
    found = finding.detection
    margin, noise = TWO_SIDED * found.standard_error, found.noise
    interval = np.stack([found.mean - margin, found.mean + margin], -1)
    required = np.stack([found.required(finding.threshold, noise=noise) for noise in NOISES])
    return {
        "signal": ("lag", found.mean, "mean of the matched statistic", RATE),
        "signal_interval": (("lag", "side"), interval, "95% interval of the signal", RATE),
        "score": ("lag", found.score, "signal over its standard error", "1"),
        "critical_score": ((), found.critical, "score above which a signal is told from 0", "1"),
        "tail_index": ("lag", found.index, "tail index of the noise between sequences", "1"),
        "tail_index_interval": (("lag", "side"), noise.index_interval, "95% interval of the tail index", "1"),
        "scale": ("lag", found.scale, "scale of the noise between sequences", RATE),
        "scale_interval": (("lag", "side"), noise.scale_interval, "95% interval of the scale", RATE),
        "total_tail_index": ((), found.total_index, "tail index of the whole gradient's noise", "1"),
        "total_scale": ((), found.total_scale, "scale of the whole gradient's noise", RATE),
        "status": ("lag", _names(found.status), "how each lag came out", "1"),
        "required_sequences": (("noise", "lag"), required, "sequences that a lag needs", SEQUENCES),
        "threshold": ((), finding.threshold, "signal-to-noise ratio from which a lag counts", "1"),
    }


def _directions(found: Detection) -> dict[str, Any]:
    each, grid = found.by_direction, ("direction", "lag")
    return {
        "signal_by_direction": (grid, each.mean, "signal along one direction; signal is their mean", RATE),
        "score_by_direction": (grid, each.score, "that signal over its standard error", "1"),
        "tail_index_by_direction": (grid, each.index, "tail index of the noise along one direction", "1"),
        "scale_by_direction": (grid, each.scale, "scale of the noise along one direction", RATE),
    }


def _windows(finding: LayerFinding, sizes: FloatArray, decay: Decay) -> dict[str, Any]:
    found, least = finding.detection, finding.threshold
    tested = np.array([len(found.statistic)])
    reach, gapless = (float(part[0]) for part in found.windows(tested, least))
    real, unbroken = np.stack([found.windows(sizes, least, noise=noise) for noise in NOISES], 1)
    null = np.stack([found.null_windows(sizes, least, noise=noise).any_lag for noise in NOISES])
    # The smallest window that at least 95% of the nulls do not exceed; nan where they are unknown.
    high = np.quantile(null, 0.95, axis=-1, method="higher")
    alarms = np.where(np.isnan(null), np.nan, null > 0).mean(-1)
    fourfold, further = (_extrapolated(found, reach, number, decay) for number in (4 * tested, sizes))
    text = "window if the envelope alone decided, from the largest measured one"
    grid = ("noise", "sample_size")
    return {
        "window": (grid, real, "longest learnable lag", LAG),
        "contiguous_window": (grid, unbroken, "longest lag before the first that is not learnable", LAG),
        "null_window": (grid, high, "95% quantile of the window without signal", LAG),
        "null_alarms": (grid, alarms, "share of nulls with a window", "1"),
        "reach": ((), reach, "longest lag told from 0 with the sequences at hand", LAG),
        "contiguous_reach": ((), gapless, "the same before the first gap", LAG),
        "reach_of_fourfold": ((), fourfold[0], "reach with 4 times the sequences", LAG),
        "extrapolated_window": ("sample_size", further, text, LAG),
    }


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
    law = {name: getattr(best.law, name) if best and name in best.errors else np.nan
           for name in ("amplitude", "rate", "exponent")}  # fmt: skip
    fitted = np.full(len(lags), np.nan) if best is None else best.law.at(lags)
    return {
        "decay_kind": ((), "unknown" if best is None else best.kind, "law that describes the envelope best", "1"),
        "decay_amplitude": ((), law["amplitude"], "amplitude of that law", RATE),
        "decay_rate": ((), law["rate"], "its exponential rate", "per step"),
        "decay_exponent": ((), law["exponent"], "its power of the lag", "1"),
        "decay_r_squared": ((), np.nan if best is None else best.r_squared, "share of log f it explains", "1"),
        "decay_status": ((), decay.status.name, "how the fit came out", "1"),
        "decay_implication": ((), decay.implication, "what it means for the window", "1"),
        "envelope_fit": ("lag", fitted, "envelope by the fitted law", RATE),
    }


def _exact(finding: LayerFinding) -> dict[str, Any]:
    if finding.compared is None:
        return {}
    used, full = finding.compared
    return {
        "exact_envelope": ("lag", full, "envelope to all orders, on a part of the sequences", RATE),
        "exact_slope": ((), _slope(used, full), "slope of log envelope on log exact envelope", "1"),
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
    return {f"validity_{name}": ((), value, Validity(name, value).condition.requires, "1")
            for name, value in measured.items()}  # fmt: skip


def _names(status: NDArray[np.object_]) -> NDArray[np.str_]:
    return np.array([one.name if isinstance(one, Status) else str(one) for one in status], dtype=np.str_)
