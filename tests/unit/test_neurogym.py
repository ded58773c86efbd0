"""Neurogym's own environments and data sets, where it is installed."""

from __future__ import annotations

import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

import learncast as lc

EXAMPLE = Path(__file__).parents[2] / "examples" / "neurogym_curriculum.py"
needs_neurogym = pytest.mark.skipif(find_spec("neurogym") is None, reason="neurogym is not installed")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("neurogym") is not None, reason="neurogym is installed")
def test_without_neurogym_the_example_says_so():
    done = subprocess.run([sys.executable, EXAMPLE], capture_output=True, text=True, check=True, timeout=120)
    assert "pip install 'learncast[neurogym]'" in done.stdout
    assert not done.stderr


@needs_neurogym
@pytest.mark.filterwarnings("ignore")
def test_trials_are_the_environments_own():
    import neurogym

    made = neurogym.make("PerceptualDecisionMaking-v0", dt=100)
    x, y, w = lc.training.trials(made).batch(20, (0, 0), 0, torch.float64)
    core = made.unwrapped
    made.reset(seed=1)
    core.new_trial()
    assert x.shape[1:] == core.ob.shape
    assert set(x[:, :, 0].unique().tolist()) == set(np.unique(core.ob[:, 0]).tolist())  # fixation is on or off
    assert not y.is_floating_point()
    assert set(y.unique().tolist()) <= {0, 1, 2}
    assert bool((w == 1).all())
    task = lc.tasks.from_environment("PerceptualDecisionMaking-v0", trials=50, seed=0, options={"dt": 100})
    again = lc.training.trials(task).batch(20, (0, 0), 0, torch.float64).inputs
    drawn = lc.training.trials(task, gaussian=True).batch(20, (0, 0), 0, torch.float64).inputs
    assert set(again[:, :, 0].unique().tolist()) == {0.0, 1.0}
    assert float((drawn[:, :, 0] - drawn[:, :, 0].round()).abs().max()) > 0.1


@needs_neurogym
@pytest.mark.filterwarnings("ignore")
def test_a_dataset_is_read_steps_first_with_its_labels():
    import neurogym

    data = neurogym.Dataset("PerceptualDecisionMaking-v0", env_kwargs={"dt": 100}, batch_size=6, seq_len=40)
    source = lc.training.trials(data)
    batch = source.batch(None, (0, 0), 0, torch.float32)
    assert tuple(batch.inputs.shape) == (6, 40, 3)
    assert tuple(batch.targets.shape) == (6, 40)
    assert not batch.targets.is_floating_point()
    model = lc.training.gated_module("rate", inputs=3, hidden_size=8, outputs=3, every_step=True)
    settings, record = lc.Training(0.01, loss="cross_entropy"), lc.training.Records(evaluation=12)
    execution = lc.training.Execution(dtype="float32")
    assert lc.training.train(data, model, settings, steps=3, record=record, execution=execution).status is lc.Status.ok
