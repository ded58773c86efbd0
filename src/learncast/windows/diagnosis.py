"""The diagnosis of a trained recurrent model: how far back its gradient carries a signal that N sequences show."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import numpy as np
import torch
import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.progress import Progress, check_time, noticed, silent, within
from learncast._core.validation import FloatArray
from learncast.results import Provenance, described, spec_hash
from learncast.windows.detection.detection import Detection, detect
from learncast.windows.detection.signs import matched_statistic
from learncast.windows.layer_result import SEQUENCES, LayerResult, add_control
from learncast.windows.layers.recording import Capture, Loss, answers_of, capture, losses_of, restored
from learncast.windows.layers.recurrent_layer import RecurrentLayer, recurrent_layers
from learncast.windows.layers.replay import Replay
from learncast.windows.layers.stepped import SteppedLayer
from learncast.windows.options import Batching, DetectionRule, Measurement
from learncast.windows.result import Window
from learncast.windows.sequences import STREAM, Sequences, checked_sequences
from learncast.windows.transport import derivative
from learncast.windows.transport.accumulator import Transport, lag_sums, pooled
from learncast.windows.transport.base_rate import base_rates, parameter_rates

#: Largest number of units whose exact transport is computed.
PROBES = 16


@hinted
@noticed("diagnosing")
def window(
    model: nn.Module,
    inputs: ArrayLike | Tensor,
    targets: ArrayLike | Tensor,
    *,
    labels: bool | None = None,
    optimizer: optim.Optimizer | None = None,
    measurement: Measurement | None = None,
    rule: DetectionRule | None = None,
    batching: Batching | None = None,
    progress: Progress = silent,
) -> Window:
    """How far back the gradient of a model carries a signal, by number of sequences.

    A signal is necessary for learning from that far back, not sufficient: training may still not reach it.

    Parameters
    ----------
    model : torch.nn.Module
        Contains exactly one of nn.RNN, nn.GRU, nn.LSTM, a cell of `learncast.windows`, or a custom cell with
        `input_size`, `hidden_size` and a method step(state, input) that returns the next state (`training.RateRNN`). A
        cell, also nn.RNNCell, nn.GRUCell or nn.LSTMCell, may be called once per step as ``h = self.cell(x[:, t], h)``.
        The model runs in evaluation mode and is left unchanged.
    inputs : (sequences, steps, channels), or integer tokens (sequences, steps) for a model with nn.Embedding
        In the layout of the model (time first if it takes time first). An array, a tensor or a memory map.
    targets : (sequences, steps, ...) or (sequences, ...)
        Per step, in the layout of the inputs, or per sequence. Integers (sequences,) or (sequences, steps) number
        classes, one for each output of the model, and are compared as one-hot targets unless a loss is given.
    labels : bool, optional
        Whether targets are class labels: False for integers that are numbers (see `Task.from_samples`).
    optimizer : torch.optim.SGD, Adam, AdamW or RMSprop, optional
        The one that trained the model. Without it every base rate is 1. Before its first step, its rates are those of a
        first step on all sequences.
    measurement : Measurement, optional
        What is measured: lags, directions, the order of the transport, the loss.
    rule : DetectionRule, optional
        When a lag counts: method, nulls, threshold, sample sizes and seed.
    batching : Batching, optional
        Layout, chunk size and memory.
    progress : callable
        Called with the completed share of the work, from 0 to 1.

    Returns
    -------
    Window
        ``windows()`` are the longest lags with a detectable signal for each number of sequences.

    Notes
    -----
    One pass over the data, no files. Memory is a few dozen arrays of a chunk, plus `Batching.memory`. A chunk costs one
    forward pass, one replay by matrix products, ``directions`` products per lag, and one scan over time. Gates and
    derivatives have the precision of the model, sums over lags are in double precision. Tail indices far below 1 need a
    model in double precision.

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
    >>> window = lc.windows.window(Reader(), inputs, inputs[:, -2, :1], measurement=measurement)
    >>> window.sequences, sorted(window.windows())[-1] >= 120
    (120, True)
    """
    measurement, rule, batching = measurement or Measurement(), rule or DetectionRule(), batching or Batching()
    given: object = optimizer
    if not isinstance(given, optim.Optimizer | None):
        message = f"optimizer must be the torch optimizer that trains the model, got {given!r:.40}."
        raise InvalidSpec(message, field="optimizer")
    data = checked_sequences(
        model, inputs, targets, batching.batch_first, labels, seed=rule.seed, meaning=measurement.loss is None
    )
    lags, sizes = measurement.lags_within(data.steps), np.array(rule.sizes_around(len(data)), dtype=np.float64)
    layers = recurrent_layers(model)
    loss = measurement.loss or data.squared_error()
    widths = [layer.hidden_size for layer in layers]
    kept = batching.keeps(len(data) * len(lags) * measurement.directions * sum(widths), rule.method)
    signs, size = "crossed" if kept else "pilot", batching.chunk_of(data.steps * max(widths))
    fresh = optimizer is not None and not isinstance(optimizer, optim.SGD) and not optimizer.state
    first = _first_gradients(model, data, loss, size) if fresh else None

    def diagnosed(sequences: Sequences, part: Progress) -> list[LayerEvidence]:
        evidence = [
            LayerEvidence(
                one, optimizer, measurement, lags, sequences=len(data), signs=signs, seed=(rule.seed, k), first=first
            )
            for k, one in enumerate(layers)
        ]
        _collect(model, sequences, loss, size, evidence, part)
        return evidence

    passes = 2 if measurement.control else 1
    evidence = diagnosed(data, within(progress, 0, passes))
    dataset = _combined([one.result(rule).dataset(sizes) for one in evidence])
    if measurement.control:
        others = diagnosed(replace(data, shift=1), within(progress, 1, passes))
        add_control(dataset, _combined([one.result(rule).dataset(sizes) for one in others]))
    dataset["sequences"] = ((), len(data), described("diagnosed sequences", SEQUENCES))
    name = "none" if optimizer is None else "first-step " * fresh + type(optimizer).__name__
    dataset.attrs = {"method": rule.method, "order": measurement.order, "optimizer": name, "signs": signs}
    dataset.attrs |= {"cell": layers[0].kind, "directions": measurement.directions}
    weights = [value.cpu().numpy() for layer in layers for value in layer.parameters.values()]
    rates = [value.cpu().numpy() for one in evidence for value in (one.rates or {}).values()]
    # The repr of a loss is only its address, and a control changes nothing else.
    options = (repr(replace(measurement, loss=None, control=False)), repr(rule), signs)
    digest = spec_hash(*weights, *rates, *data.fingerprint(), lags, sizes, *options)
    return Window(dataset, Provenance("diagnosis", ("livi2025",), digest, rule.seed))


def _first_gradients(model: nn.Module, data: Sequences, loss: Loss, size: int) -> dict[str, Tensor]:
    """Gradient of the mean loss of a sequence by every parameter: that of the first step on all sequences."""
    learned = {name: value for name, value in model.named_parameters() if value.requires_grad}
    total = {name: torch.zeros_like(value) for name, value in learned.items()}
    with restored(model), torch.backends.cudnn.flags(enabled=False):  # its layers have no gradients in eval mode
        for _, chunk, wanted in data.chunks(size):
            with torch.enable_grad():
                summed = losses_of(loss, answers_of(model, chunk), wanted).sum() / len(data)
            if not summed.requires_grad:  # reported below as a loss that depends on no parameter
                continue
            grads = torch.autograd.grad(summed, list(learned.values()), allow_unused=True)
            for name, grad in zip(learned, grads, strict=True):
                total[name] += 0.0 if grad is None else grad
    return total


def _collect(
    model: nn.Module, data: Sequences, loss: Loss, size: int, evidence: list[LayerEvidence], progress: Progress
) -> None:
    """Add all sequences to the evidence of every layer, `size` at a time."""
    for places, chunk, wanted in data.chunks(size):
        captured = capture(model, chunk, wanted, loss)
        received, number = captured.outputs[0].shape[0], places.stop - places.start
        if received != number:
            got = f"{received} of {number} sequences in its recurrent block"
            raise InvalidSpec(f"batch_first must fit the model, got {got}.", field="batch_first")
        for index, one in enumerate(evidence):
            one.add(places, captured, index)
        check_time()
        progress(places.stop / len(data))


def _combined(layers: list[xr.Dataset]) -> xr.Dataset:
    """All layers in one dataset."""
    if len(layers) == 1:  # aligning labels takes longer than a small diagnosis
        dataset = layers[0].expand_dims("layer")
    else:
        dataset = xr.concat(layers, "layer", join="outer", combine_attrs="no_conflicts")
    dataset["layer"] = ("layer", np.arange(len(layers)), described("recurrent layer, the lowest first", "1"))
    return dataset


class LayerEvidence:
    """Statistics of one layer that are kept of each chunk: sums, and one number per sequence and lag.

    Parameters
    ----------
    layer : RecurrentLayer
    optimizer : torch.optim.Optimizer, optional
        Without it every base rate is 1.
    measurement : Measurement
        The units of its directions count as separate units of one statistic, the mean over directions.
    lags : list of int
    sequences : int
        Total number of sequences.
    signs : {"crossed", "pilot"}
        Keep every contribution, for signs from the other half of the sequences; or take signs from the first half and
        keep only the statistic of the second.
    seed : tuple of int
    first : dict of tensors, optional
        Gradients of the first step, for an optimiser that has not stepped yet.
    """

    def __init__(
        self,
        layer: RecurrentLayer | SteppedLayer,
        optimizer: optim.Optimizer | None,
        measurement: Measurement,
        lags: list[int],
        *,
        sequences: int,
        signs: str,
        seed: tuple[int, int],
        first: Mapping[str, Tensor] | None = None,
    ) -> None:
        self.layer, self.optimizer, self.lags, self.signs = layer, optimizer, lags, signs
        self._lag_sums = partial(lag_sums, order=measurement.order)
        self._number = measurement.directions
        self._exact = min(sequences, measurement.exact)
        self._rng = np.random.default_rng([STREAM, *seed, 1])
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        self._directions = derivative.unit_directions(layer, self._number, generator=generator)
        self._summed = {name: value.sum(0, keepdim=True) for name, value in self._directions.items()}
        self._length = torch.cat([value.double().flatten() for value in self._summed.values()]).norm()
        self.rates = None if optimizer is None else parameter_rates(optimizer, layer.own, first)
        self._transport: Transport | None = None
        self._pilots = sequences // 2 if signs == "pilot" else 0
        self._pilot = np.zeros((len(lags), self._number * layer.hidden_size))
        tested = sequences - self._pilots
        self._kept = np.empty((tested, len(lags), self._number * layer.hidden_size if signs == "crossed" else 1))
        self._total = np.empty(tested)
        self._residual, self._has_gradient = 0.0, False
        self._compared = np.zeros((2, len(lags)))

    def add(self, places: slice, captured: Capture, index: int) -> None:
        """Add a chunk of sequences, which are at `places` in the order."""
        deltas, replay = captured.deltas[index], captured.replay(index)
        pilots = max(0, min(self._pilots, places.stop) - places.start)  # sequences of this chunk that give signs
        if self._transport is None and (size := float(captured.outputs[index].abs().max())):
            self._residual = replay.residual() / size
        rates = 1.0 if self.rates is None else base_rates(replay, self.rates)
        derivatives = derivative.sensitivities(replay, self._directions)
        new, contributions = self._lag_sums(
            replay.chain, self.lags, rates=rates, sensitivities=derivatives, deltas=deltas
        )
        self._transport = new if self._transport is None else pooled([self._transport, new])
        self._has_gradient = self._has_gradient or bool(deltas.any())
        if places.start < self._exact:
            number = min(places.stop, self._exact) - places.start
            self._compare(replay.take(slice(0, number)), rates, number)
        if pilots:
            self._pilot += self._mean_contributions(contributions[:, :pilots]).sum(axis=0)
        if pilots < len(deltas):
            rows = slice(places.start + pilots - self._pilots, places.stop - self._pilots)
            if self.signs == "crossed":
                self._mean_contributions(contributions, self._kept[rows])
            else:
                signed = matched_statistic(self._mean_contributions(contributions[:, pilots:]), np.sign(self._pilot))
                self._kept[rows] = signed[:, :, None]
            tested = replay.take(slice(pilots, None))
            immediate = self._immediate(tested, derivatives[:, :, pilots:])
            self._total[rows] = derivative.forward_gradients(tested, immediate, deltas[pilots:])[0] / deltas.shape[1]

    def _compare(self, replay: Replay, rates: Tensor | float, number: int) -> None:
        """Add the envelopes of the first `number` sequences of a chunk, to first order and to all orders."""
        rates = rates[:, :number] if isinstance(rates, Tensor) else rates
        probes = None if self.layer.hidden_size <= PROBES else PROBES
        # One seed for all chunks, so that they probe the same units and chunk sizes do not matter.
        exact = derivative.exact_transport(replay, self.lags, rates=rates, probes=probes)
        first, _ = self._lag_sums(replay.chain, self.lags, rates=rates)
        self._compared += number * np.stack([first.envelope, exact.envelope])

    def _mean_contributions(self, contributions: FloatArray, out: FloatArray | None = None) -> FloatArray:
        """Contributions to the mean over directions, (sequences, lags, directions x units)."""
        k, batch, lags, units = contributions.shape
        out = np.empty((batch, lags, k * units)) if out is None else out
        np.divide(contributions.transpose(1, 2, 0, 3), k, out=out.reshape(batch, lags, k, units))
        return out

    def _immediate(self, replay: Replay, derivatives: Tensor) -> Tensor:
        """Immediate derivatives of all states along the optimiser's step for the normalised sum of all directions.

        For a direction w and the gradient g, an optimiser with rates Lambda changes the loss by w^T Lambda g.
        """
        if self.rates is None:
            # The derivative along a sum of directions is the sum of their derivatives, which are known.
            summed = derivatives.sum(0, keepdim=True)
            return derivative.state_sensitivities(replay, self._summed, summed).div_(self._length)
        weighted = {name: value / self._length.to(value) * self.rates[name] for name, value in self._summed.items()}
        return derivative.state_sensitivities(replay, weighted)

    def result(self, rule: DetectionRule) -> LayerResult:
        """The results of all sequences under a detection rule."""
        assert self._transport is not None
        detection = self._detection(rule)
        compared = self._compared / self._exact if self._exact else None
        threshold = rule.threshold_at(detection.critical)
        return LayerResult(self._transport, detection, self._learning_rate(), threshold, self._residual, compared)

    def _learning_rate(self) -> float:
        """The learning rate of the layer's parameters, weighted by their number if groups differ."""
        if self.optimizer is None:
            return 1.0
        own = {id(p) for p in self.layer.own.values()}
        sizes = [sum(p.numel() for p in group["params"] if id(p) in own) for group in self.optimizer.param_groups]
        return float(np.average([float(group["lr"]) for group in self.optimizer.param_groups], weights=sizes))

    def _detection(self, rule: DetectionRule) -> Detection:
        if not self._has_gradient:
            raise InvalidSpec(f"loss must depend on {', '.join(self.layer.own)}, got gradients of 0.", field="loss")
        single = next(iter(self.layer.parameters.values())).dtype == torch.float32
        return detect(
            self.lags,
            self._kept,
            rng=self._rng,
            method=rule.method,
            total=self._total,
            nulls=rule.nulls,
            signed=self.signs == "pilot",
            precision=np.float32 if single and self.signs == "crossed" else np.float64,
        )
