"""The pools of the skill benchmark: a target and six candidates each, drawn at random and fixed before tuning."""

from __future__ import annotations

import numpy as np

from learncast import tasks
from learncast.tasks import Task

#: Intermediate tasks of a pool.
CANDIDATES = 6
#: Pools on which anything may be tuned, and pools on which it is judged.
TUNING, HELD_OUT = (0, 2, 4), (1, 3, 5)


def pool(index: int) -> tuple[Task, list[Task]]:
    """Target and candidates of one pool; the same for the same number."""
    rng = np.random.default_rng([20_26, index])
    made = [_drawn(rng, k) for k in range(CANDIDATES + 1)]
    return made[0].renamed("target"), made[1:]


def _drawn(rng: np.random.Generator, k: int) -> Task:
    """A task of inputs of about unit variance, and targets of a standard deviation between 0.5 and 1.5."""
    target = k == 0
    steps = 20 if target else int(rng.choice([10, 15, 20, 25]))
    size = 1.0 if target else float(np.exp(rng.uniform(np.log(0.5), np.log(1.5))))
    if rng.random() < 0.35:
        strength = float(rng.uniform(0.6, 1.6))
        made = tasks.integration(steps, strength, size * np.sqrt(strength / steps))
        return made.renamed(f"{k}: integration, {steps} steps, input {strength:.2f}, target {size:.2f}")
    timescale = float(np.exp(rng.uniform(np.log(5.0 if target else 2.0), np.log(40.0))))
    correlation = float(rng.uniform(-0.4, 0.8))
    noise = float(1 - correlation**2)
    plain = tasks.leaky_integration(steps, timescale, correlation, noise)
    gain = size / np.sqrt(plain.target_power)
    made = tasks.leaky_integration(steps, timescale, correlation, noise, gain)
    return made.renamed(f"{k}: leak {timescale:.1f}, correlation {correlation:+.2f}, {steps} steps, target {size:.2f}")
