"""Plans for random linear pools, carried out by real training on sampled batches."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np

import learncast as lc
from benchmarks.timing import fastest
from learncast.theory import modes

POOLS, CANDIDATES, SEEDS, BATCH = 20, 4, 3, 4000

#: At 0.99 the strengths of several modes scatter by as much as their bands are wide, at any batch that is practical.
ACCURACY = 0.95


def pool(number: int) -> tuple[lc.Task, list[lc.Task], lc.LinearRNN, float]:
    """A random target with candidates, a network and a learning rate at which descent follows the flow."""
    rng = np.random.default_rng([20, number])
    channels, steps = int(rng.integers(1, 4)), int(rng.integers(15, 40))

    def task(name: str) -> lc.Task:
        shared = {"steps": steps, "name": name}
        if rng.random() < 0.5:
            strengths, scale = rng.uniform(0.5, 2.0, channels).tolist(), float(rng.uniform(0.6, 1.5))
            return lc.tasks.integration(target_strength=strengths, input_strength=scale, **shared)
        return lc.tasks.leaky_integration(
            timescale=rng.uniform(4.0, 30.0, channels).tolist(),
            correlation=float(rng.uniform(0.0, 0.6)),
            gain=rng.uniform(0.5, 1.5, channels).tolist(),
            **shared,
        )

    target, *others = (task(f"task {k}") for k in range(CANDIDATES + 1))
    network = lc.LinearRNN.aligned(
        recurrence=float(rng.uniform(0.85, 0.97)), initial=float(rng.uniform(0.01, 0.1)), hidden_size=16, task=target
    )
    sharpest = max(float(np.max(2 * m.weighted_cross)) for m in (modes(t, network) for t in (target, *others)))
    return target, others, network, 0.03 / sharpest


def carried_out(number: int) -> tuple[lc.Plan, np.ndarray]:
    """A plan and the steps its training took, one for each seed."""
    target, others, network, rate = pool(number)
    plan = lc.plan(target, others, network, learning_rate=rate, terms=lc.Terms(ACCURACY, max_stages=3))
    trainings = [lc.Training(rate, batch=BATCH, seed=seed, most_steps=20_000) for seed in range(SEEDS)]
    stages = [
        replace(stage, goal=replace(stage.goal, optimum=tuple(m.optimum)))
        for stage, m in zip(plan.stages, plan.best.modes, strict=True)
    ]
    jobs = [lc.training.TrainingJob(stages, network, training, record=()) for training in trainings]
    runs = lc.training.train_all(jobs, processes=1)
    return plan, np.array([run.steps for run in runs], dtype=float)


def rows() -> Iterator[tuple[str, str, str]]:
    errors, stages = [], []
    for number in range(POOLS):
        plan, steps = carried_out(number)
        errors.append(steps.mean() / plan.best.steps.descent - 1)
        stages.append(len(plan.best.stages))
        label = f"pool {number}, {len(plan.best.modes[0])} modes: predicted {plan.best.steps.descent:.0f} steps"
        yield f"{label}, trained {steps.mean():.1f}", f"{errors[-1]:+.1%}", ""
    worst = float(np.abs(errors).max())
    label = f"{POOLS} pools, {SEEDS} seeds, batches of {BATCH}, accuracy {ACCURACY}"
    yield f"{label}: largest error of a total", f"{worst:.1%}", "<= 3%"
    yield "plans of more than one stage", f"{sum(n > 1 for n in stages)}", ""
    yield "plans of three stages", f"{sum(n > 2 for n in stages)}", ""
    rng = np.random.default_rng(0)
    goal = lc.tasks.integration(target_strength=np.linspace(0.5, 2.0, 10).tolist())
    others = [lc.tasks.integration(target_strength=rng.uniform(0.3, 3.0, 10).tolist(), name=f"{k}") for k in range(8)]
    network = lc.LinearRNN.aligned(hidden_size=32, task=goal)
    seconds = fastest(
        lambda: lc.plan(goal, others, network, learning_rate=1e-3, terms=lc.Terms(max_stages=3)), repeats=2
    )
    yield "3 stages, 8 candidates, 10 modes, certified", f"{seconds:.2f} s", "<= 10 s"
