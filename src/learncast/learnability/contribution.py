"""What each unit contributes to the gradient of a sequence's loss over each lag."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor

from learncast.errors import InvalidSpec
from learncast.learnability.jacobian import push_forward
from learncast.learnability.lag_walk import walk_lags
from learncast.learnability.replay import Replay
from learncast.learnability.sensitivity import state_sensitivities
from learncast.learnability.transport_factor import check_order, checked_lags
from learncast.validation import FloatArray


@torch.no_grad()
def unit_contributions(
    replay: Replay,
    lags: Sequence[int],
    *,
    sensitivities: Tensor,
    deltas: Tensor,
    rates: Tensor | float = 1.0,
    order: int = 1,
    auxiliary: bool = False,
) -> FloatArray:
    """Mean over the steps of each sequence of mu_q a_q, mu the effective rate and a_q = delta_q <b_q, w>.

    Parameters
    ----------
    replay : Replay
    lags : sequence of int
    sensitivities : (directions, time, batch, hidden) tensor
        <b_q, w>, from `learncast.learnability.sensitivity.sensitivities`.
    deltas : (batch, time, hidden) tensor
        From `learncast.learnability.replay_capture.capture`.
    rates : (time, batch, hidden) tensor or float
        Base rates; where they are nan they count as 0.
    order, auxiliary
        See `learncast.learnability.transport.mean_transport`.

    Returns
    -------
    (directions, batch, lags, hidden) array

    Notes
    -----
    Implements: livi2025 Eq. (12), times the effective rate of Eq. (6)
    """
    wanted = checked_lags(lags, replay)
    check_order(order)
    gathered = Contributions(replay, wanted, sensitivities=sensitivities, deltas=deltas, rates=rates)
    walk_lags(replay, wanted, [gathered], order=order, auxiliary=auxiliary)
    return gathered.found


class Contributions:
    """Gathers what each unit contributes on a walk over the lags."""

    def __init__(
        self, replay: Replay, lags: list[int], *, sensitivities: Tensor, deltas: Tensor, rates: Tensor | float
    ) -> None:
        self._steps, batch, width = replay.hidden.shape
        self._blame, self._sensitivities, self._rates = _blame(replay, deltas), sensitivities, rates
        self._found = torch.zeros(len(sensitivities), batch, len(lags), width, dtype=torch.float64)
        self._some, self._targets = slice(0), self._blame
        self._sources: list[Tensor] = []

    def begin(self, some: slice) -> None:
        """Sequences come next."""
        self._some, self._targets = some, self._blame[:, some].double()
        rates = self._rates
        weights = rates[:, some].double().nan_to_num(0.0) if isinstance(rates, Tensor) else rates
        self._sources = [one[:, some].double() * weights for one in self._sensitivities]

    def take(self, row: int, lag: int, zeroth: Tensor, total: Tensor) -> None:
        """Add one lag."""
        carried, number = total * self._targets[lag:], self._steps - lag
        for j, source in enumerate(self._sources):
            self._found[j, self._some, row] = (carried * source[:number]).sum(0).div_(number).cpu()

    @property
    def found(self) -> FloatArray:
        """Contributions, (directions, batch, lags, hidden)."""
        return self._found.numpy()


@torch.no_grad()
def projected_gradients(replay: Replay, *, directions: Mapping[str, Tensor], deltas: Tensor) -> FloatArray:
    """The exact gradient of every sequence's loss by the layer's parameters, along each direction.

    Carries the answer of the whole state to each direction forward in time; equal to backpropagation through time
    (all lags together), but with one number per sequence instead of one gradient for all.

    Parameters
    ----------
    replay : Replay
        Of many sequences at once rather than few: the steps are taken one by one.
    directions : dict of (directions, *shape) tensors
    deltas : (batch, time, hidden) tensor

    Returns
    -------
    (directions, batch) array

    Notes
    -----
    Implements: livi2025 Eq. (3)
    """
    blame = _blame(replay, deltas)
    immediate = state_sensitivities(replay, directions)
    width = replay.hidden.shape[2]
    bare = _bare(replay)
    answer = immediate[:, :1]
    total = (answer[..., :width] * blame[:1]).sum((1, 3), dtype=torch.float64)
    for t in range(1, replay.hidden.shape[0]):
        now = slice(t, t + 1)
        answer = push_forward(bare.take(steps=now), answer) + immediate[:, now]
        total += (answer[..., :width] * blame[now]).sum((1, 3), dtype=torch.float64)
    return total.cpu().numpy()


def _bare(replay: Replay) -> Replay:
    """Only what acts on states: cutting it into steps is then cheap."""
    paths = tuple(replace(path, terms=()) for path in replay.paths if path.recurrent is not None)
    shown = replay.expression
    if shown is not None:
        shown = replace(shown, output=replace(shown.output, terms=()))
    return replace(replay, paths=paths, expression=shown, gates={})


def _blame(replay: Replay, deltas: Tensor) -> Tensor:
    steps, batch, width = replay.hidden.shape
    if deltas.shape != (batch, steps, width):
        raise InvalidSpec(
            required=f"deltas must be ({batch}, {steps}, {width}): batch, time, hidden",
            got=f"shape {tuple(deltas.shape)}",
            why="every state of the replay has one error",
            remedy="take deltas and replay from the same capture, layer and sequences",
        )
    return deltas.transpose(0, 1)
