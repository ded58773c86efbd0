"""Mixed trials: shares, padding, and a loss that counts what was there and nothing else."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from learncast.advice.mixture import Mixture, together
from learncast.errors import InvalidSpec
from learncast.simulate import CrossEntropy, Training, train
from learncast.simulate.goals import LossBelow
from learncast.simulate.sources import Batch, Source
from learncast.simulate.stopping import Ahead, Learned


def source(mark: float, steps: int = 4, name: str = "task") -> Source:
    """Inputs that are all one number, labels likewise."""

    def draw(trials: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        return np.full((trials, steps, 2), mark), np.full((trials, steps), int(mark), dtype=np.int64)

    draw.__qualname__ = f"{name}{mark}"
    return Source.of(draw)


def test_every_batch_has_its_share_of_each() -> None:
    mixture = Mixture.mixed([source(0), source(1), source(2)])
    sizes = []
    for step in range(3):
        x, y, _ = mixture.batch(32, (0, 0), step, torch.float32)
        assert len(x) == 32
        torch.testing.assert_close(x[:, 0, 0], y[:, 0].float())
        sizes.append(np.bincount(y[:, 0].numpy(), minlength=3))
    # 32 is 11 + 11 + 10, and another has the 10 at every step.
    assert np.array(sizes).sum(0).tolist() == [32, 32, 32]
    assert len(mixture.held_out(60, (0, 0), torch.float32).inputs) == 60


def test_one_alone_is_itself() -> None:
    alone = source(1)
    assert Mixture.mixed([alone]) is alone


def test_padding_does_not_count() -> None:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        layer, head = nn.GRU(2, 5, batch_first=True), nn.Linear(5, 3)
    parts = [source(1, 3).batch(4, (0, 0), 0, torch.float32), source(2, 6).batch(4, (0, 0), 0, torch.float32)]
    both = together(parts)
    assert both.inputs.shape == (8, 6, 2)
    # The mean over all 4 x 3 + 4 x 6 readouts, each part by itself.
    each = [nn.functional.cross_entropy(head(layer(x)[0]).flatten(0, 1), y.flatten(), reduction="sum") for x, y, _ in parts]
    torch.testing.assert_close(CrossEntropy()(head(layer(both.inputs)[0]), both.targets, both.weights), sum(each) / 36)


def test_targets_at_the_end_stay_there() -> None:
    short, long = (Batch(torch.ones(2, steps, 1), torch.ones(2, 1)) for steps in (2, 5))
    both = together([short, long])
    assert both.inputs[:2, :, 0].tolist() == [[0, 0, 0, 1, 1]] * 2
    assert both.weights is None


def test_targets_of_two_kinds_are_refused() -> None:
    numbers = Batch(torch.ones(2, 3, 1), torch.ones(2, 3, 1))
    labels = Batch(torch.ones(2, 3, 1), torch.ones(2, 3, dtype=torch.int64))
    with pytest.raises(InvalidSpec, match="labels beside numbers"):
        together([numbers, labels])


class Constant(nn.Module):
    """Answers that do not look at their inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.logits = nn.Parameter(torch.zeros(3))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.logits.expand(*x.shape[:2], 3)


def test_a_stage_ends_when_what_lies_ahead_is_met() -> None:
    # The mixture asks for 1 and 2 and never reaches a loss of 0.1; its second half alone falls below 0.9 on the way.
    mixture, later = Mixture.mixed([source(1), source(2)]), source(2)
    ahead = Ahead(later, LossBelow(0.9, CrossEntropy()))
    settings = Training(0.05, batch=8, optimizer="adam", loss="cross_entropy", record=(), most_steps=300, dtype="float32")
    ended, not_ended = (
        train([(mixture, Learned(LossBelow(0.1), ahead=one)), (later, LossBelow(0.2))], Constant(), settings)
        for one in (ahead, None)
    )
    first = int((ended.dataset["stage"].values == 0).sum()) if ended.dataset.sizes["time"] else 0
    assert ended.status.name == "ok" and first < 300
    assert not_ended.status.name == "not_learned"


def test_rules_ahead_are_told_apart_by_their_trials() -> None:
    one, other = (repr(Learned(0.1, ahead=Ahead(source(mark), LossBelow(0.9)))) for mark in (1, 2))
    assert one != other and "0x" not in one
