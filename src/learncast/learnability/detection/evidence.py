"""What the sequences of a diagnosis say about one recurrent layer, gathered chunk by chunk."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, optim

from learncast.errors import InvalidSpec
from learncast.learnability.detection.detection import Detection, detect, detect_projected
from learncast.learnability.detection.signs import matched_statistic
from learncast.learnability.question import DetectionRule, Measurement
from learncast.learnability.replay.recurrent_layer import RecurrentLayer
from learncast.learnability.replay.replay import Replay
from learncast.learnability.replay.sequences import STREAM
from learncast.learnability.transport.base_rate import base_rates, parameter_rates
from learncast.learnability.transport.contribution import Contributions, forward_gradients
from learncast.learnability.transport.derivative import sensitivities, state_sensitivities, unit_directions, whole_state
from learncast.learnability.transport.exact import exact_transport
from learncast.learnability.transport.factor import walk_lags
from learncast.learnability.transport.mean import Transport, TransportMeans, mean_transport, pooled
from learncast.validation import FloatArray

#: Units whose exact transport is followed when a layer has more.
PROBES = 16


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
        layer: RecurrentLayer,
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
        self.rates = None if optimizer is None else parameter_rates(optimizer, layer.own)
        self._parts: list[Transport] = []
        self._pilots = sequences // 2 if signs == "pilot" else 0
        self._pilot = np.zeros((len(lags), self._number * layer.hidden_size))
        tested = sequences - self._pilots
        self._kept = np.empty((tested, len(lags), self._number * (layer.hidden_size if signs == "crossed" else 1)))
        self._total = np.empty(tested)
        self._residual, self._blamed = 0.0, False
        self._both = np.zeros((2, len(lags)))

    def add(self, some: slice, replay: Replay, deltas: Tensor) -> None:
        """Count the sequences at the places `some` in."""
        rates = 1.0 if self.rates is None else base_rates(replay, self.rates)
        answers = sensitivities(replay, self._directions)
        means = TransportMeans(replay, self.lags, rates)
        gathered = Contributions(replay, self.lags, sensitivities=answers, deltas=deltas, rates=rates)
        walk_lags(replay, self.lags, [means, gathered], **self._options)
        found = gathered.found
        self._parts = [pooled([*self._parts, means.transport])]
        if some.start == 0:
            size = float(replay.hidden.abs().max())
            self._residual = replay.residual() / size if size else 0.0
        self._blamed = self._blamed or bool(deltas.any())
        if some.start < self._exact:
            self._check(replay, rates, min(some.stop, self._exact) - some.start)
        first = max(0, min(self._pilots, some.stop) - some.start)  # sequences of this chunk that belong to the pilot
        batch = found.shape[1]
        if first:
            self._pilot += self._meant(found[:, :first]).sum(axis=0)
        if first < batch:
            rows = slice(some.start + first - self._pilots, some.stop - self._pilots)
            if self.signs == "crossed":
                self._meant(found, self._kept[rows])
            else:
                self._kept[rows] = self._reduced(self._meant(found[:, first:]))
            self._total[rows] = self._projected(replay.take(slice(first, batch)), answers[:, :, first:], deltas[first:])

    def _check(self, replay: Replay, rates: Tensor | float, number: int) -> None:
        """Count the envelopes of the first `number` sequences in, as it is used and to all orders."""
        part = replay.take(slice(0, number))
        some = rates[:, :number] if isinstance(rates, Tensor) else rates
        units = self.layer.hidden_size
        probes = None if units <= PROBES else PROBES
        # One seed for all chunks: they look at the same units, so how sequences are cut changes nothing.
        generator = torch.Generator().manual_seed(0)
        full = exact_transport(part, self.lags, rates=some, probes=probes, generator=generator)
        used = mean_transport(part, self.lags, rates=some, **self._options)
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

    def _projected(self, replay: Replay, answers: Tensor, deltas: Tensor) -> FloatArray:
        """The step of each sequence's gradient, a mean over its steps, along the normalised sum of all directions."""
        summed = {name: value.sum(0, keepdim=True) for name, value in self._directions.items()}
        length = torch.cat([value.double().flatten() for value in summed.values()]).norm()
        if self.rates is None:
            # The answer to a sum of directions is the sum of their answers, which are known.
            immediate = whole_state(replay, answers.sum(0, keepdim=True), summed).div_(length)
        else:
            # Along w an optimiser with rates Lambda moves by w^T Lambda g.
            weighed = {name: value / length.to(value) * self.rates[name] for name, value in summed.items()}
            immediate = state_sensitivities(replay, weighed)
        return forward_gradients(replay, immediate, deltas)[0] / replay.hidden.shape[0]

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
                required=f"the loss must have a gradient at {', '.join(self.layer.own)}",
                got="a gradient of exactly 0 on every sequence",
                why="no error reaches the recurrent layer, so no lag can be credited",
                remedy="check the targets, the loss and that the weights which read the layer are not all 0",
            )
        options: dict[str, Any] = {"rng": self._rng, "total": self._total, "nulls": rule.nulls}
        if self.signs == "pilot":
            return detect_projected(self.lags, self._kept, **options)
        single = self.layer.parameters[self.layer.recurrent_weights].dtype == torch.float32
        options |= {"directions": self._number, "precision": np.float32 if single else np.float64}
        return detect(self.lags, self._kept, method=rule.method, **options)
