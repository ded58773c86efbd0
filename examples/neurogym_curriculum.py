"""Which easier variants of a neurogym task should a rate network be trained on first, and what does it save?

The goal is that of the experiment: 85% right decisions in the response period. The network is trained by the advice and
directly, and both curves are drawn.

Run with: python examples/neurogym_curriculum.py [--steps 1500] [--out neurogym_curriculum.png]
"""

from __future__ import annotations

import argparse
import warnings
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch

import learncast
import learncast as lc
from learncast import figures

TASK = "PerceptualDecisionMaking-v0"
DT, UNITS, BATCH, RATE = 100, 64, 32, 1e-3
#: Coherences of the evidence, and how long it is shown and has to be remembered: the target, then easier variants.
TARGET = {"cohs": [6.4, 12.8, 25.6, 51.2], "timing": {"stimulus": 1000, "delay": 1000}}
VARIANTS = {
    "strong evidence": {"cohs": [51.2], "timing": {"stimulus": 1000, "delay": 1000}},
    "no delay": {"cohs": [12.8, 25.6, 51.2], "timing": {"stimulus": 1000, "delay": 0}},
    "strong and brief": {"cohs": [51.2], "timing": {"stimulus": 500, "delay": 200}},
}


def trials(name: str, cohs: list[float], **options: object) -> lc.training.Source:
    """The environment's own trials, with coherences of one's choice."""
    import neurogym

    environment = neurogym.make(TASK, dt=DT, **options)
    environment.unwrapped.cohs = np.array(cohs)
    return lc.training.trials(environment, name=name)


def chosen(argument: list[str] | None = None) -> argparse.Namespace:
    """What the command line says."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=1500, help="where a stage is given up")
    parser.add_argument("--out", type=Path, default=Path("neurogym_curriculum.png"))
    return parser.parse_args(argument)


def main() -> None:
    """Ask for advice, carry it out beside training directly, and draw both."""
    options = chosen()
    if find_spec("neurogym") is None:
        print("neurogym is not installed, so there is nothing to train on: pip install 'learncast[neurogym]'")
        return
    warnings.filterwarnings("ignore", module="gymnasium")
    torch.set_num_threads(1)
    target = trials("remembered decision", **TARGET)
    candidates = {name: trials(name, **settings) for name, settings in VARIANTS.items()}
    model = lc.training.gated_module(
        "rate", inputs=3, hidden_size=UNITS, outputs=3, every_step=True, alpha=0.2, nonlinearity="tanh", seed=0
    )
    # Class 0 is to fixate: only the response period asks for a decision.
    goal = lc.training.DecisionAccuracy(0.85, ignore=0, looks=2, every=10)
    training = lc.Training(RATE, optimizer="adam", loss="cross_entropy", batch=BATCH, clip=1.0)
    advice = learncast.advise(model, target, candidates, training, goal=goal)
    print(advice)
    record = lc.training.Records(("loss", "goal"), every=20, evaluation=500, log=print)
    advised = advice.train(most_steps=options.steps, record=record)
    print(advised)
    given = training.with_(most_steps=options.steps)
    single = lc.training.Execution(dtype="float32")
    runs = {"as advised": advised}
    runs["at the given rate"] = lc.training.train(target, model, given, goal=goal, record=record, execution=single)
    print(runs["at the given rate"])
    chance = float(advice.dataset.attrs["chance"])
    figure = figures.sheet(lambda ax: figures.goal_curves(runs, ax, level=goal.level, chance=chance), width=6.0)
    figures.save(figure, options.out)
    print(f"\nBoth curves are in {options.out}")


if __name__ == "__main__":
    main()
