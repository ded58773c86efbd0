"""Skill of the advice for decisions: every baseline and the advice itself, in steps to 85% right held-out decisions."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from benchmarks.skill_decisions import FRESH, POOLS, Pool
from benchmarks.skill_environments import ENVIRONMENTS, NAMED
from benchmarks.skill_truth import JOINT, MIXED, RESULTS, SEEDS, TARGET, stored

#: Trials shown once for a forecast cost about a third of a gradient step for every 32 of them.
FORWARD = 256 / 32 / 3
RESTART = (TARGET, "80%")
#: Pools on which the ways were tuned, and pools of public environments on which the last one is judged.
TUNING, HELD_OUT = (*POOLS, *FRESH), ENVIRONMENTS


class Case:
    """One pool, cell and optimiser: steps of every plan on every seed; one that was given up counts as the limit."""

    def __init__(self, key: str, everything: dict[str, Any]) -> None:
        name, self.cell, self.rule = key.split("/")
        self.pool: Pool = next(pool for pool in (*TUNING, *HELD_OUT) if pool.name == name)
        self.truth, self.helped = everything["truth"][key], everything.get("helped", {}).get(key)
        self.first, self.second, self.kernel = (
            everything.get(part, {}).get(key) for part in ("first_way", "advised", "kernel")
        )
        self.picked: str | None = everything.get("covariance", {}).get(name)
        self.most = float(self.truth["most"])
        self.plans: dict[tuple[str, str], np.ndarray] = {}
        for task, stop, seed, before, rest in self.truth["plans"]:
            steps = self.plans.setdefault((task, stop), np.full(len(SEEDS), self.most))
            steps[seed] = self.most if rest is None else before + rest
        self.direct = self.limited(self.truth["direct"])

    def limited(self, steps: list[float | None]) -> np.ndarray:
        """Steps; the limit if the goal was not reached."""
        return np.array([self.most if s is None else min(s, self.most) for s in steps])

    def plan(self, task: str, stop: str) -> np.ndarray:
        """Steps of a plan on every seed."""
        return self.plans.get((task, stop), np.full(len(SEEDS), self.most))

    @property
    def names(self) -> list[str]:
        """Candidates."""
        return list(self.pool.candidates)

    @property
    def fixed(self) -> dict[tuple[str, str], np.ndarray]:
        """Every fixed plan: a candidate and a stop, the target restarted, and the target."""
        found = {key: steps for key, steps in self.plans.items() if key[0] != MIXED}
        return {**found, (TARGET, ""): self.direct}

    @property
    def best(self) -> float:
        """Mean steps of the best fixed plan."""
        return min(float(steps.mean()) for steps in self.fixed.values())

    @property
    def restarted(self) -> float:
        """Mean steps of direct training with one restart; of direct training where SGD never got to the restart."""
        return float(self.plan(*RESTART).mean())

    @property
    def solvable(self) -> bool:
        """Whether any fixed plan reached the goal."""
        return self.best < self.most

    def learned_first(self) -> np.ndarray:
        """The candidate learned first on each seed, as known afterwards, until learned."""
        learned = np.array([self.limited(self.truth["learned"][name]) for name in self.names])
        return np.array([self.plan(self.names[int(k)], "1")[s] for s, k in enumerate(learned.argmin(0))])

    def covariance(self) -> np.ndarray:
        """The candidate whose choice has the largest covariance with its inputs, to 80%."""
        return self.plan(self.picked, "80%") if self.picked else np.full(len(SEEDS), np.nan)

    def s1(self) -> np.ndarray:
        """The candidate whose own tangent-kernel time is shortest, to 1.5 times learned."""
        if self.kernel is None:
            return np.full(len(SEEDS), np.nan)
        picks = [self.names[int(np.argmin(row))] for row in self.kernel]
        return np.array([self.plan(name, "1.5")[s] for s, name in enumerate(picks)])

    def ceiling(self) -> np.ndarray:
        """On each seed the plan that was best on the others: what a repeat of everything would tell."""
        plans = np.array(list(self.fixed.values()))
        found = []
        for s in range(len(SEEDS)):
            others = [k for k in range(len(SEEDS)) if k != s]
            found.append(plans[int(plans[:, others].mean(1).argmin()), s])
        return np.array(found)

    def ours(self) -> np.ndarray:
        """The advice carried out, with what its forward passes cost."""
        if self.helped is None:
            return np.full(len(SEEDS), np.nan)
        return self.limited(self.helped["steps"]) + FORWARD * (1 + len(self.names))

    def second_way(self) -> np.ndarray:
        """The way that was tuned on ten pools and did not hold on six others."""
        if self.second is None:
            return np.full(len(SEEDS), np.nan)
        return self.limited(self.second["steps"]) + FORWARD * (1 + len(self.names))

    def first_way(self) -> np.ndarray:
        """The way that was tuned on five pools and did not hold on the other five."""
        return np.full(len(SEEDS), np.nan) if self.first is None else self.limited(self.first)

    def random(self, stop: str) -> np.ndarray:
        """The mean over candidates."""
        return np.mean([self.plan(name, stop) for name in self.names], axis=0)

    def warned(self) -> bool:
        """Whether the advice warns on any seed, beyond what it says of itself every time."""
        return any(one["warned"] for one in self.helped["says"])


WAYS: dict[str, Callable[[Case], np.ndarray]] = {
    "the advice: the target, helped where it stalls": Case.ours,
    "the second way: soonest read first, until learned": Case.second_way,
    "the first way: two soonest read, mixed (Adam)": Case.first_way,
    "S1: tangent-kernel pick, 1.5 x learned": Case.s1,
    "all candidates mixed until learned": lambda case: case.plan(MIXED, "1"),
    "target and candidates mixed": lambda case: case.limited(case.truth["learned"][JOINT]),
    "learned first (hindsight), until learned": Case.learned_first,
    "random candidate until learned": lambda case: case.random("1"),
    "random candidate to 80%": lambda case: case.random("80%"),
    "largest covariance to 80%": Case.covariance,
    "direct with restart": lambda case: case.plan(*RESTART),
    "direct": lambda case: case.direct,
    "noise ceiling: best plan of the other seeds": Case.ceiling,
}
#: What the advice is compared with; the rest are its rivals or known only afterwards.
BASELINES = (
    "learned first (hindsight), until learned",
    "random candidate to 80%",
    "largest covariance to 80%",
    "direct with restart",
    "direct",
)
OURS, CEILING = next(iter(WAYS)), next(reversed(WAYS))


def rows(preset: str | None = None, from_file: bool = False) -> Iterator[tuple[str, str, str]]:
    """The table, from the stored truth."""
    everything = stored()
    cases = [Case(key, everything) for key in everything["truth"]]
    if not cases:
        yield f"no stored truth ({RESULTS.name}): run python -m benchmarks.skill_truth, then skill_advised", "", ""
        return
    yield "tuned on sixteen drawn pools, then frozen and judged on ten pools of public environments", "", ""
    unsolved = [case for case in cases if not case.solvable]
    names = ", ".join(f"{case.pool.name}/{case.cell}/{case.rule}" for case in unsolved)
    yield f"left out, because no plan reached the goal: {names or 'none'}", "", ""
    waiting = sum(case.helped is None for case in cases)
    yield f"cases with a truth in which the advice has not been carried out, left out: {waiting}", "", ""
    cases = [case for case in cases if case.solvable and case.helped is not None]
    yield "regret: steps / best fixed plan, mean and worst pool; total: / direct with restart, geometric", "", ""
    for title, pools in (("environments, not tuned on", HELD_OUT), ("tuning pools", TUNING)):
        for rule in ("adam", "sgd"):
            yield from _table(title, [case for case in cases if case.pool in pools and case.rule == rule], rule)
    held = [case for case in cases if case.pool in HELD_OUT]
    yield "environments, the advice by cell and optimiser", HEADER, ""
    for cell in ("tanh", "rate", "gru"):
        for rule in ("adam", "sgd"):
            some = [case for case in held if (case.cell, case.rule) == (cell, rule)]
            if some:
                yield f"  {cell}, {rule} ({len(some)} pools)", _line(some, OURS), ""
    shares = [float(case.ours().mean()) / case.restarted for case in held if case.rule == "adam"]
    yield (
        "  adam: the least and the most of a single case, of direct with restart",
        f"{min(shares):.2f} {max(shares):.2f}",
        "",
    )
    named = [case for case in held if case.pool in NAMED]
    yield f"  the six tasks of the first complaint ({len(named)} cases)", _line(named, OURS), ""
    yield "every pool: the advice (warned: in how many of its cases)", HEADER, ""
    for pool in (*HELD_OUT, *TUNING):
        some = [case for case in cases if case.pool is pool]
        if not some:
            continue
        means = {way: _total(some, way) for way in (OURS, *BASELINES)}
        best = min(BASELINES, key=means.__getitem__)
        behind = means[OURS] >= means[best]
        warned = sum(case.warned() for case in some)
        note = f"{'BEHIND ' if behind else ''}{best} ({means[best]:.2f}); warned {warned}/{len(some)}"
        yield f"  {pool.name}{'' if pool in TUNING else ' (environment)'}", _line(some, OURS), note
    behind_cases = [case for case in cases if _behind(case)]
    warned = sum(case.warned() for case in behind_cases)
    silent = sum(not case.warned() for case in cases)
    yield (
        "cases where a baseline is ahead by more than a tenth, and of these warned",
        f"{len(behind_cases)}, {warned}",
        f"not warned at all: {silent} of {len(cases)}",
    )
    said = [one["seconds"] for case in cases for one in case.helped["says"]]
    yield "advice: processor seconds, median and most", f"{np.median(said):.2f} {max(said):.2f}", "goal < 2 s"
    share = [FORWARD * (1 + len(c.names)) / c.direct.mean() for c in held]
    yield "advice: forward passes as a share of direct training, median", f"{np.median(share):.1%}", "goal < 5%"
    spent = sum(case["seconds"] for case in everything["truth"].values()) / 60
    yield "processor time of the truth", f"{spent:.0f} min", "python -m benchmarks.skill_truth"


def _table(title: str, chosen: list[Case], rule: str) -> Iterator[tuple[str, str, str]]:
    """Every way on some cases."""
    if not chosen:
        return
    many = len({case.pool.name for case in chosen})
    yield f"{title}: {many} pools, {len(chosen)} cases of {rule} (n: known in fewer)", HEADER, ""
    for way in WAYS:
        known = sum(bool(np.isfinite(WAYS[way](case).mean())) for case in chosen)
        if not known:
            continue
        goal = "goal 1.15 1.50 0.75 1.10" if way == OURS and chosen[0].pool in HELD_OUT else ""
        fewer = f" (n = {known})" if known < len(chosen) else ""
        yield f"  {way}{fewer}", _line(chosen, way), goal


def _behind(case: Case) -> bool:
    best = min(float(WAYS[way](case).mean()) for way in BASELINES)
    return float(case.ours().mean()) > 1.1 * best


HEADER = "regret  worst  total  worst"


def _total(cases: list[Case], way: str) -> float:
    return _geometric([float(WAYS[way](case).mean()) / case.restarted for case in cases])


def _geometric(values: list[float]) -> float:
    return math.exp(float(np.mean(np.log(values)))) if values else math.nan


def _line(cases: list[Case], way: str) -> str:
    """Regret over all and of the worst pool; total over all and of the worst pool."""
    found = [(case, WAYS[way](case).mean()) for case in cases]
    found = [(case, steps) for case, steps in found if np.isfinite(steps)]
    if not found:
        return "-"
    regrets: dict[str, list[float]] = {}
    totals: dict[str, list[float]] = {}
    for case, steps in found:
        regrets.setdefault(case.pool.name, []).append(float(steps) / case.best)
        totals.setdefault(case.pool.name, []).append(float(steps) / case.restarted)
    numbers = (
        np.mean([value for values in regrets.values() for value in values]),
        max(np.mean(values) for values in regrets.values()),
        _geometric([value for values in totals.values() for value in values]),
        max(_geometric(values) for values in totals.values()),
    )
    return "".join(f"{number:7.2f}" for number in numbers)
