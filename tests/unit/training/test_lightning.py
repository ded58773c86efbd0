"""The callback under Lightning itself, where it is installed."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import learncast as lc
from learncast.planning import loop_of
from learncast.training import CurriculumCallback, Loop

pl = pytest.importorskip("lightning.pytorch")


@pytest.mark.filterwarnings("ignore")
def test_lightning_is_led_through_the_plan_and_stopped():
    fast = lc.tasks.leaky_integration(steps=6, timescale=2.0, gain=0.4, name="fast")
    slow = lc.tasks.leaky_integration(steps=6, timescale=4.0, name="slow")
    network = lc.LinearRNN.aligned(recurrence=0.8, initial=0.2, hidden_size=4)
    stages = [lc.Stage(fast, goal=0.8), lc.Stage(slow, goal=0.9)]

    def loader(task):
        pair = (torch.tensor(part) for part in task.sample(4096, np.random.default_rng(0)))
        return torch.utils.data.DataLoader(torch.utils.data.TensorDataset(*pair), batch_size=256)

    loaders = {"fast": loader(fast), "slow": loader(slow)}
    loop = loop_of(lc.follow(stages, network, learning_rate=0.02), loaders)

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = lc.training.as_module(network, learn=("input", "output"))

        def training_step(self, batch, index):
            x, y = batch
            output = self.net(x)
            return {"loss": (output - y).pow(2).sum() / (2 * len(x)), "output": output}

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.02)

    quiet = {
        "logger": False,
        "enable_progress_bar": False,
        "enable_checkpointing": False,
        "enable_model_summary": False,
    }
    trainer = pl.Trainer(max_epochs=-1, callbacks=[CurriculumCallback(loop)], accelerator="cpu", **quiet)
    trainer.fit(Module(), loop)
    assert loop.done
    first, second = loop.stages
    assert first.status is second.status is lc.Status.ok
    assert second.steps > 0
    # One batch is fetched ahead at the end of each stage; batches of 256 are noisy by a few per cent.
    assert first.steps == pytest.approx(first.expected_steps + 2, rel=0.15)


def choice(trials, rng):
    """Which of two inputs was larger at the first step."""
    x = rng.standard_normal((trials, 4, 2))
    return x, (x[:, 0, 1] > x[:, 0, 0]).astype(int)


@pytest.mark.filterwarnings("ignore")
def test_lightning_is_led_through_goals_and_its_optimiser_reset():
    goal = lc.training.DecisionAccuracy(0.9)
    made = []

    class Module(pl.LightningModule):
        def __init__(self):
            super().__init__()
            self.net = lc.training.gated_module("gru", inputs=2, hidden_size=12, outputs=2)

        def forward(self, x):
            return self.net(x)

        def training_step(self, batch, index):
            return torch.nn.functional.cross_entropy(self(batch.inputs), batch.targets)

        def configure_optimizers(self):
            made.append(torch.optim.Adam(self.parameters(), lr=0.01))
            return made[-1]

    module, said = Module(), []
    stages = [lc.Stage(choice, steps=20), lc.Stage(choice, goal)]
    loop = Loop.of(stages, module, lc.Training(0.01, batch=32, most_steps=1500), log=said.append)
    quiet = dict.fromkeys(("logger", "enable_progress_bar", "enable_checkpointing", "enable_model_summary"), False)
    trainer = pl.Trainer(max_epochs=-1, callbacks=[CurriculumCallback(loop)], accelerator="cpu", **quiet)
    trainer.fit(module, loop)
    assert loop.status is lc.Status.ok
    assert loop.index == 2
    assert len(said) == 4
    steps = made[0].state[next(module.parameters())]["step"]
    assert int(steps) == pytest.approx(loop.steps[1], abs=2)  # fresh since the switch, one batch fetched ahead
