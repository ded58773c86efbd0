"""The validity of advice: what it assumes, each condition measured as one number."""

from __future__ import annotations

import copy
from dataclasses import dataclass

import torch
from torch import nn

from learncast.assumptions import Assumption, Condition
from learncast.simulate.surrogate import LinearSurrogate
from learncast.simulate.surrogate_descent import written_out
from learncast.simulate.trial_pool import Member

CONDITIONS = {
    "linear_at_start": Condition(
        0.25,
        "none: near its start the model should answer like its linear surrogate (measured: share of the answers' "
        "spread by which they differ on the target)",
        "activity is already bent by the units, and the ranking is less sure",
        "start from smaller weights, or ask for a pilot race",
        binding=False,
    ),
    "surrogate_learns_target": Condition(
        0.0,
        "the surrogate must learn the target (measured: 1 when it does not)",
        "no plan can be compared with direct training",
        "lower the learning rate or the accuracy, or raise most_steps",
    ),
    "smooth_descent": Condition(
        0.0,
        "the units' slope must not jump while everything is trained without an adaptive optimiser (measured: 1 for "
        "ReLU with SGD)",
        "rankings agree with training only weakly there, and so do two trainings with each other",
        "use tanh or a gated layer, an adaptive optimiser, or ask for a pilot race",
    ),
}


@dataclass(frozen=True)
class AdviceValidity(Assumption):
    """One condition of advice, as measured; `name` is a key of `CONDITIONS`."""

    @property
    def condition(self) -> Condition:
        """What it requires and what follows when it fails."""
        return CONDITIONS[self.name]


def bent(model: nn.Module, surrogate: LinearSurrogate, target: Member) -> float:
    """How far the model's answers are from its surrogate's, as a share of their size."""
    own = copy.deepcopy(model).eval()
    x, y = target.source.held_out(200, (0, 0), next(own.parameters()).dtype)
    lags = target.moments.lags
    rows, _ = written_out(x.double(), y.double(), lags)
    with torch.no_grad():
        real = own(x).double().reshape(-1, surrogate.outputs)
        filters = surrogate.system(surrogate.stacked(1)).filters(lags).flatten(2)[0]
    size = float(real.pow(2).mean().sqrt())
    return float((real - rows @ filters.T).pow(2).mean().sqrt()) / size if size > 0 else 0.0
