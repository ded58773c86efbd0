"""What each unit contributes to the gradient of a sequence's loss over each lag."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from learncast.learnability.replay.replay import Replay
from learncast.learnability.transport.derivative import step_maps
from learncast.learnability.transport.factor import sum_over_steps
from learncast.validation import FloatArray

#: Largest of a set of numbers of which products in single precision are safe.
_ORDINARY = 1e4


class Contributions:
    """Gathers what each unit contributes on a walk over the lags.

    That is the mean over the steps of each sequence of mu_q a_q, mu the effective rate and a_q = delta_q <b_q, w>.

    Parameters
    ----------
    replay : Replay
    lags : sequence of int
    sensitivities : (directions, time, batch, hidden) tensor
        <b_q, w>, from `learncast.learnability.transport.derivative.sensitivities`.
    deltas : (batch, time, hidden) tensor
        From `learncast.learnability.replay.capture.capture`.
    rates : (time, batch, hidden) tensor or float
        Base rates; where they are nan they count as 0.

    Notes
    -----
    Implements: livi2025 Eq. (12), times the effective rate of Eq. (6)
    """

    def __init__(
        self, replay: Replay, lags: Sequence[int], *, sensitivities: Tensor, deltas: Tensor, rates: Tensor | float
    ) -> None:
        self._steps, batch, width = replay.hidden.shape
        self._blame, self._sensitivities, self._rates, self._lags = deltas.transpose(0, 1), sensitivities, rates, lags
        self._found = torch.zeros(len(sensitivities), batch, len(lags), width, dtype=torch.float64)
        self._some, self._unit = slice(0), 1.0
        self._part = self._targets = self._carried = self._sources = self._found

    def begin(self, some: slice, dtype: torch.dtype) -> None:
        """Sequences come next."""
        # Contiguous: rows a fixed power of two apart would crowd into a few lines of the cache.
        sources = self._sensitivities[:, :, some].to(dtype).contiguous()
        if isinstance(self._rates, Tensor):
            sources = sources * self._rates[:, some].to(dtype).nan_to_num(0.0)
        self._some = some
        self._targets, blamed = _in_own_unit(self._blame[:, some].to(dtype).contiguous())
        self._sources, answered = _in_own_unit(sources)
        self._unit = blamed * answered * (1.0 if isinstance(self._rates, Tensor) else self._rates)
        _, *shape = self._targets.shape
        self._carried = torch.empty_like(self._targets)
        self._part = self._targets.new_empty(len(sources), len(self._lags), *shape)

    def take(self, row: int, lag: int, total: Tensor) -> None:
        """Add one lag."""
        number = self._steps - lag
        carried = torch.mul(total, self._targets[lag:], out=self._carried[:number])
        for j, source in enumerate(self._sources):
            sum_over_steps(self._part[j, row], carried, source[:number])

    def end(self, kept: Tensor, scale: Tensor | None) -> None:
        """Count the sequences in."""
        number = self._steps - torch.tensor(self._lags, dtype=torch.float64, device=self._part.device)
        each = self._unit / number[:, None, None]
        found = self._part * (each if scale is None else scale * each)
        self._found[:, self._some] = found.transpose(1, 2).cpu()

    @property
    def found(self) -> FloatArray:
        """Contributions, (directions, batch, lags, hidden)."""
        return self._found.numpy()


@torch.no_grad()
def forward_gradients(replay: Replay, answers: Tensor, deltas: Tensor) -> FloatArray:
    """The exact gradient of every sequence's loss by the layer's parameters, along each direction.

    Carries the answer of the whole state to each direction forward in time; equal to backpropagation through time
    (all lags together), but with one number per sequence instead of one gradient for all.

    Parameters
    ----------
    replay : Replay
        Of many sequences at once rather than few: the steps are taken one by one.
    answers : (directions, time, batch, states) tensor
        Immediate ones of the whole state, from `learncast.learnability.transport.derivative.state_sensitivities`.
        They are used up: afterwards it holds the total answers.
    deltas : (batch, time, hidden) tensor

    Returns
    -------
    (directions, batch) array

    Notes
    -----
    Implements: livi2025 Eq. (3)
    """
    blame = deltas.transpose(0, 1).contiguous()
    before, *later = answers.unbind(1)
    for step, now in zip(step_maps(replay)[1:], later, strict=True):
        step(before, now)
        before = now
    shown = answers[..., : replay.hidden.shape[2]]
    found = blame.new_empty(len(answers), *blame.shape[1:])
    for total, one in zip(found, shown, strict=True):
        sum_over_steps(total, one, blame)
    return found.sum(2, dtype=torch.float64).cpu().numpy()


def _in_own_unit(values: Tensor) -> tuple[Tensor, float]:
    """Values of ordinary size, and what they are measured in: products of very small ones must not vanish."""
    low, high = (float(end) for end in torch.aminmax(values))
    largest = max(-low, high)
    if largest == 0 or not math.isfinite(largest) or 1 / _ORDINARY < largest < _ORDINARY:
        return values, 1.0
    unit = math.ldexp(1.0, math.frexp(largest)[1])  # a power of two: nothing is rounded
    return values / unit, unit
