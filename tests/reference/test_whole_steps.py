"""Plans of one mode against all schedules in whole steps, tried one by one on the weights."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import learncast as lc

#: A network with one mode.
NETWORK = lc.LinearRNN.aligned(recurrence=0.96, initial=0.3, hidden_size=4)
TARGET = lc.tasks.integration(steps=50)


def strengths(task: lc.Task, recurrence: float = 0.96) -> tuple[float, float]:
    """Cross and input strength of a task with one channel, weighted by the recurrence."""
    powers = recurrence ** np.arange(task.steps - 1, -1, -1.0)
    cross = task.cross_covariance.dense().reshape(task.steps)
    power = task.input_covariance.dense().reshape(task.steps, task.steps)
    return float(powers @ cross), float(powers @ power @ powers)


def brute_force(
    tasks: list[lc.Task], rate: float, accuracy: float, max_stages: int, costs: list[float], switch: float, start: float
) -> float:
    """Least cost of all schedules of at most `max_stages` stages, the last of which is the target (the last task)."""
    rates = [strengths(task) for task in tasks]
    last = len(tasks) - 1
    optimum = rates[last][0] / rates[last][1]
    best = math.inf

    def step(a: float, c: float, task: int) -> tuple[float, float]:
        beta, power = rates[task]
        pull = rate * (beta - power * a * c)
        return a + c * pull, c + a * pull

    def finish(a: float, c: float) -> float:
        steps = 0
        while abs(a * c - optimum) > (1 - accuracy) * optimum:
            a, c = step(a, c, last)
            steps += 1
            if steps > 1000:
                return math.inf
        return steps * costs[last]

    def search(a: float, c: float, spent: float, stages: int, before: int) -> None:
        nonlocal best
        best = min(best, spent + finish(a, c))
        if stages == 1:
            return
        for task in range(last + 1):
            if task == before:
                continue
            x, y, cost = *step(a, c, task), spent + costs[task] + switch
            while cost < best:
                search(x, y, cost, stages - 1, task)
                x, y = step(x, y, task)
                cost += costs[task]

    search(start, start, 0.0, max_stages, -1)
    return best


def drawn_pool(rng: np.random.Generator, number: int) -> list[lc.Task]:
    names = ("target_strength", "input_strength")
    pool = []
    for k in range(number):
        drawn = (rng.uniform(0.4, 2.5), rng.uniform(0.3, 3.0))
        pool.append(TARGET.varied(**dict(zip(names, map(float, drawn), strict=True))).renamed(f"c{k}"))
    return pool


@pytest.mark.parametrize(
    ("seed", "max_stages", "rules"),
    [
        (0, 2, {}),
        (1, 3, {}),
        (2, 4, {}),
        (3, 3, {"costs": (1.0, 5.0, 2.0)}),
        (4, 3, {"costs": (0.7, 0.3, 1.1), "switch_cost": 0.45}),
        (5, 2, {"switch_cost": 1.0}),
        (6, 4, {"costs": (1.0, 1.0, 3.0), "switch_cost": 2.0}),
    ],
)
def test_no_schedule_in_whole_steps_costs_less_than_an_exact_plan(
    seed: int, max_stages: int, rules: dict[str, Any]
) -> None:
    pool, rate = drawn_pool(np.random.default_rng(seed), 2), 8e-3
    terms = lc.Terms(0.95, max_stages=max_stages, **rules)
    plan = lc.plan(TARGET, pool, NETWORK, learning_rate=rate, terms=terms)
    costs, switch = list(rules.get("costs", (1.0, 1.0, 1.0))), rules.get("switch_cost", 0.0)
    truth = brute_force([*pool, TARGET], rate, 0.95, max_stages, costs, switch, 0.3)
    assert plan.proof == "exact"
    assert plan.total == pytest.approx(truth, rel=1e-12)
    assert plan.cost_of(plan.best) == pytest.approx(truth, rel=1e-12)


def test_drawn_pools_have_the_fewest_steps_that_six_stages_allow() -> None:
    rng, totals = np.random.default_rng(11), []
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    for _ in range(3):
        pool = drawn_pool(rng, 4)
        plan = lc.plan(TARGET, pool, network, learning_rate=1e-3, terms=lc.Terms(max_stages=6))
        totals.append((plan.total, plan.proof))
    # Found by hand for the third pool: c2 for 97 steps, then c1 and c0 for 1 step each. Fewer are possible.
    assert totals == [(141.0, "exact"), (110.0, "exact"), (98.0, "exact")]


def test_limits_on_accuracy_hold_in_whole_steps() -> None:
    rng, rate = np.random.default_rng(7), 4e-3
    pool = drawn_pool(rng, 1)
    free = lc.plan(TARGET, pool, NETWORK, learning_rate=rate, terms=lc.Terms(0.95))
    reached = free.candidates[0].accuracy
    limited = lc.plan(TARGET, pool, NETWORK, learning_rate=rate, terms=lc.Terms(0.95, least_accuracy=reached + 0.1))
    assert free.proof == limited.proof == "exact"
    assert free.total <= limited.total < limited.direct_total
    assert limited.candidates[0].accuracy >= reached + 0.1 - 1e-6


def test_an_unbalanced_mode_has_the_proof_of_its_flow() -> None:
    balanced = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    network = lc.LinearRNN(5 * balanced.input_weights, balanced.recurrent_weights, balanced.output_weights)
    pool = drawn_pool(np.random.default_rng(3), 2)
    plan = lc.plan(TARGET, pool, network, learning_rate=1e-3, terms=lc.Terms(max_stages=3))
    assert plan.proof == "certified"
    assert plan.bound <= plan.flow_route.total * (1 + 1e-9)


@pytest.mark.parametrize(("rate", "start"), [(8e-3, 0.3), (1e-3, 0.01), (2e-4, 0.3), (0.012, 0.3)])
def test_the_best_stop_of_every_candidate_is_the_one_that_plain_descent_finds(rate: float, start: float) -> None:
    pool = drawn_pool(np.random.default_rng(3), 12)
    network = lc.LinearRNN.aligned(recurrence=0.96, initial=start, hidden_size=4)
    plan = lc.plan(TARGET, pool, network, learning_rate=rate, terms=lc.Terms(0.95))
    direct = brute_force([TARGET], rate, 0.95, 1, [1.0], 0.0, start)
    for candidate in plan.candidates:
        truth = brute_force([candidate.task, TARGET], rate, 0.95, 2, [1.0, 1.0], 0.0, start)
        assert candidate.total == truth
        assert candidate.helps == (truth < direct)
