"""What the sequences of a diagnosis say about one recurrent layer, gathered chunk by chunk."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, optim

from learncast.errors import InvalidSpec
from learncast.learnability.base_rate import base_rates, parameter_rates
from learncast.learnability.contribution import Contributions, forward_gradients
from learncast.learnability.detection import Detection, detect, detect_projected
from learncast.learnability.lag_walk import walk_lags
from learncast.learnability.recurrent_layer import RecurrentLayer
from learncast.learnability.replay import Replay
from learncast.learnability.sensitivity import sensitivities, state_sensitivities, unit_directions, whole_state
from learncast.learnability.sequences import STREAM
from learncast.learnability.transport import Transport, TransportMeans, mean_transport, pooled
from learncast.learnability.transport_exact import exact_transport
from learncast.learnability.unit_signs import SignPilot
from learncast.validation import FloatArray

#: Units whose exact transport is followed when a layer has more.
PROBES = 16


class Evidence:
    """Sums and one number per sequence and lag: what remains of a chunk when it is let go.

    Parameters
    ----------
    layer : RecurrentLayer
    optimizer : torch.optim.Optimizer, optional
        Without it every base rate is 1.
    lags : list of int
    sequences : int
        How many there will be.
    directions : int
        Random directions on which gradients are projected. Their units count as separate units of one statistic, the
        mean over directions.
    signs : {"crossed", "pilot"}
        Keep every contribution, for signs from the other half of the sequences; or take signs from the first half and
        keep only the statistic of the second.
    seed : tuple of int
    order, auxiliary
        See `learncast.learnability.transport.mean_transport`.
    exact : int
        Sequences on which the transport is computed to all orders too.
    """

    def __init__(
        self,
        layer: RecurrentLayer,
        optimizer: optim.Optimizer | None,
        *,
        lags: list[int],
        sequences: int,
        directions: int,
        signs: str,
        seed: tuple[int, int],
        order: int,
        auxiliary: bool,
        exact: int = 0,
    ) -> None:
        self.layer, self.lags, self.signs = layer, lags, signs
        self._options: dict[str, Any] = {"order": order, "auxiliary": auxiliary}
        self._rng = np.random.default_rng([STREAM, *seed, 1])
        generator = torch.Generator().manual_seed(int(self._rng.integers(2**62)))
        self._directions = unit_directions(layer, directions, generator=generator)
        self._rates = None if optimizer is None else parameter_rates(optimizer, layer.own)
        self._transport: Transport | None = None
        self._pilot, self._pilots = SignPilot(), sequences // 2 if signs == "pilot" else 0
        tested = sequences - self._pilots
        self._kept = np.empty((tested, len(lags), directions * (layer.hidden_size if signs == "crossed" else 1)))
        self._number = directions
        self._total = np.empty(tested)
        self.residual, self.blamed = 0.0, False
        self._exact, self._both = exact, np.zeros((2, len(lags)))

    @property
    def transport(self) -> Transport:
        """Mean transport over all sequences so far."""
        assert self._transport is not None
        return self._transport

    @property
    def tested(self) -> int:
        """Sequences behind the noise of the statistic."""
        return len(self._kept)

    def add(self, some: slice, replay: Replay, deltas: Tensor) -> None:
        """Count the sequences at the places `some` in."""
        rates = 1.0 if self._rates is None else base_rates(replay, self._rates)
        answers = sensitivities(replay, self._directions)
        means = TransportMeans(replay, self.lags, rates)
        gathered = Contributions(replay, self.lags, sensitivities=answers, deltas=deltas, rates=rates)
        walk_lags(replay, self.lags, [means, gathered], **self._options)
        part, found = means.transport, gathered.found
        self._transport = part if self._transport is None else pooled([self._transport, part])
        if some.start == 0:
            size = float(replay.hidden.abs().max())
            self.residual = replay.residual() / size if size else 0.0
        self.blamed = self.blamed or bool(deltas.any())
        if some.start < self._exact:
            self._check(replay, rates, min(some.stop, self._exact) - some.start)
        first = max(0, min(self._pilots, some.stop) - some.start)  # sequences of this chunk that belong to the pilot
        batch = found.shape[1]
        if first:
            self._pilot.add(self._meant(found[:, :first]))
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

    @property
    def compared(self) -> FloatArray | None:
        """Envelope as it is used and to all orders, on the same sequences, (2, lags)."""
        return self._both / self._exact if self._exact else None

    def _meant(self, found: FloatArray, kept: FloatArray | None = None) -> FloatArray:
        """Contributions to the mean over directions, (sequences, lags, directions x units), into `kept` if given."""
        k, batch, lags, units = found.shape
        kept = np.empty((batch, lags, k * units)) if kept is None else kept
        np.divide(found.transpose(1, 2, 0, 3), k, out=kept.reshape(batch, lags, k, units))
        return kept

    def _reduced(self, contributions: FloatArray) -> FloatArray:
        """Their signed sum over the units of each direction."""
        batch, lags, _ = contributions.shape
        signs = self._pilot.signs.reshape(lags, self._number, -1)
        return np.einsum("nlkq,lkq->nlk", contributions.reshape(batch, lags, self._number, -1), signs)

    def _projected(self, replay: Replay, answers: Tensor, deltas: Tensor) -> FloatArray:
        """The step of each sequence's gradient, a mean over its steps, along the normalised sum of all directions."""
        summed = {name: value.sum(0, keepdim=True) for name, value in self._directions.items()}
        length = torch.cat([value.double().flatten() for value in summed.values()]).norm()
        if self._rates is None:
            # The answer to a sum of directions is the sum of their answers, which are known.
            immediate = whole_state(replay, answers.sum(0, keepdim=True), summed).div_(length)
        else:
            # Along w an optimiser with rates Lambda moves by w^T Lambda g.
            weighed = {name: value / length.to(value) * self._rates[name] for name, value in summed.items()}
            immediate = state_sensitivities(replay, weighed)
        return forward_gradients(replay, immediate, deltas)[0] / replay.hidden.shape[0]

    def detection(self, *, method: str, nulls: int) -> Detection:
        """Which lags have a signal."""
        if not self.blamed:
            raise InvalidSpec(
                required=f"the loss must have a gradient at {', '.join(self.layer.own)}",
                got="a gradient of exactly 0 on every sequence",
                why="no error reaches the recurrent layer, so no lag can be credited",
                remedy="check the targets, the loss and that the weights which read the layer are not all 0",
            )
        options: dict[str, Any] = {"rng": self._rng, "total": self._total, "nulls": nulls}
        if self.signs == "pilot":
            return detect_projected(self.lags, self._kept, **options)
        single = self.layer.parameters[self.layer.recurrent_weights].dtype == torch.float32
        options |= {"directions": self._number, "precision": np.float32 if single else np.float64}
        return detect(self.lags, self._kept, method=method, **options)
