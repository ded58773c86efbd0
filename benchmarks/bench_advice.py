"""Advice for decisions on pools that it was not tuned on: steps to 85% right held-out decisions, pilots included."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from benchmarks.advice_runs import FACTORS, GIVEN, MOST, SEEDS, procedure_hash, stored
from benchmarks.decision_networks import LOOK
from benchmarks.decision_pools import CRITERION
from learncast.training import Remaining

#: Looks at which the remaining steps are estimated.
ASKED = (4, 8, 16, 32, 64)


def steps_of(taken: Sequence[int | None]) -> list[float]:
    """Steps; the limit if the goal was not reached."""
    return [MOST if steps is None else min(steps, MOST) for steps in taken]


def geometric(ratios: Sequence[float]) -> float:
    """Geometric mean."""
    return float(np.exp(np.mean(np.log(ratios)))) if len(ratios) else math.nan


def flat(each: dict[str, list[float]]) -> list[float]:
    """All ratios of all pools."""
    return [ratio for ratios in each.values() for ratio in ratios]


class Part:
    """All trainings of one optimiser and width."""

    def __init__(self, everything: dict[str, Any], rule: str, units: int) -> None:
        end = f"/{rule}/{units}"
        self.advised = {k: v for k, v in everything["advised"].items() if k.endswith(end)}
        self.fixed = {k: v for k, v in everything["fixed"].items() if k.endswith(end) and k in self.advised}
        self.others = {k: v for k, v in everything.get("baselines", {}).items() if k in self.fixed}
        self.advised = {k: v for k, v in self.advised.items() if k in self.fixed}

    def reference(self, key: str, seed: int) -> float:
        """Steps of the best fixed rate, picked on another seed."""
        ladder = {f: steps_of(self.fixed[key][f"{f:g} clipped"]) for f in FACTORS}
        other = SEEDS[(SEEDS.index(seed) + 1) % len(SEEDS)]
        best = min(FACTORS, key=lambda f: ladder[f][SEEDS.index(other)])
        return ladder[best][SEEDS.index(seed)]

    def rows(self, given: float | None = None) -> Iterator[tuple[str, dict[str, Any]]]:
        """Every advised training, of one given rate or all."""
        for key, rows in self.advised.items():
            for row in rows:
                if given is None or row["given"] == given:
                    yield key, row

    def to_best(self, given: float | None = None) -> dict[str, list[float]]:
        """Steps as advised over those of the best fixed rate, by pool."""
        found: dict[str, list[float]] = {}
        for key, row in self.rows(given):
            ratio = steps_of([row["steps"]])[0] / self.reference(key, row["seed"])
            found.setdefault(key.split("/")[0], []).append(ratio)
        return found

    def to_direct(self, given: float) -> list[float]:
        """Steps as advised over those of direct training at the given rate."""
        return [steps_of([row["steps"]])[0] / self.direct(key, given)[row["seed"]] for key, row in self.rows(given)]

    def direct(self, key: str, given: float) -> list[float]:
        """Steps of direct training at the given rate, without clipping."""
        return steps_of(self.fixed[key][f"{given:g}"])

    def missed(self, given: float) -> tuple[int, int, int]:
        """Trainings that did not reach the goal as advised, directly, and all."""
        own = [row["steps"] is None for _, row in self.rows(given)]
        other = [self.direct(key, given)[row["seed"]] >= MOST for key, row in self.rows(given)]
        return sum(own), sum(other), len(own)

    def baseline(self, name: str) -> list[float]:
        """Steps of another procedure at the usual rate, over those of direct training at that rate."""
        taken: Callable[[str], list[float]]
        if name in ("restart", "mixing", "largest covariance first"):
            taken = lambda key: steps_of(self.others[key][name])  # noqa: E731
        elif name == "best fixed rate":
            taken = lambda key: [self.reference(key, seed) for seed in SEEDS]  # noqa: E731
        else:
            taken = lambda key: steps_of(self.fixed[key][name])  # noqa: E731
        keys = self.others if name in ("restart", "mixing", "largest covariance first") else self.fixed
        return [a / b for key in keys for a, b in zip(taken(key), self.direct(key, 1.0), strict=True)]


def rows() -> Iterator[tuple[str, str, str]]:
    """Print the table from stored trainings; python -m benchmarks.advice_runs trains what is not stored."""
    everything = stored()
    same = "the same" if everything["procedure"] == procedure_hash() else "changed since"
    yield "procedure when it was judged", everything["procedure"], same
    for rule, units in (("adam", 32), ("adam", 128), ("sgd", 32)):
        part = Part(everything, rule, units)
        if not part.advised:
            continue
        yield f"{rule}, {units} units: {len(part.advised)} pools and cells, 3 seeds", "", ""
        each = part.to_best()
        by_rate = " ".join(f"{geometric(flat(part.to_best(g))):.2f}" for g in GIVEN)
        yield "  / best fixed rate picked on another seed, given x0.1 x1 x5", by_rate, "<= 1.2"
        worst = max(each, key=lambda name: geometric(each[name]))
        yield f"    worst pool ({worst})", f"{geometric(each[worst]):.2f}", "<= 1.8"
        yield "    share of cases above 2", f"{np.mean(np.array(flat(each)) > 2):.0%}", "<= 10%"
        goal = {("adam", 32): "<= .35 .6 .95", ("adam", 128): "<= 1.05 at x1"}.get((rule, units), "")
        yield "  / direct at the given rate", " ".join(f"{geometric(part.to_direct(g)):.2f}" for g in GIVEN), goal
        missed = [part.missed(g) for g in GIVEN]
        told = " ".join(f"{own}({other})" for own, other, _ in missed)
        yield f"  not reached (direct) of {missed[0][2]}", told, "no more than direct"
        yield from helped_rows(part)
        if part.others:
            for name in (
                "restart",
                "mixing",
                "largest covariance first",
                "3.3 clipped",
                "6.7 clipped",
                "best fixed rate",
            ):
                yield f"  {name}, / direct at the usual rate", f"{geometric(part.baseline(name)):.2f}", ""
    yield from remaining_rows(everything)


def helped_rows(part: Part) -> Iterator[tuple[str, str, str]]:
    """How often easier tasks were mixed in, whether that rescued the target, and hard targets."""
    helped = [(key, row) for key, row in part.rows() if len(row["stages"]) == 3 and row["stages"][1] > 0]
    rescued = sum(row["steps"] is not None and part.reference(key, row["seed"]) >= MOST for key, row in helped)
    lost = sum(row["steps"] is None and part.reference(key, row["seed"]) < MOST for key, row in helped)
    yield "  helped; rescued (best fixed rate fails); lost (it does not)", f"{len(helped)} {rescued} {lost}", ">= 4:1"
    hard = [row["steps"] is not None for key, row in part.rows(1.0) if key.startswith("parity/")]
    yield "  parity learned", f"{sum(hard)} of {len(hard)}", ">= 7 of 9"
    tanh = [row["steps"] is None for key, row in part.rows() if "/tanh/" in key]
    yield "  tanh: not reached", f"{np.mean(tanh):.0%}", "<= 15%" if "128" in next(iter(part.fixed)) else ""
    factors = [row["factor"] for _, row in part.rows()]
    pilots = [row["pilots"] for _, row in part.rows()]
    yield (
        "  chosen rate / usual rate (median), steps of pilots (median)",
        f"{np.median(factors):.2g} {np.median(pilots):g}",
        "",
    )


def remaining_rows(everything: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    """Errors and intervals of the estimated remaining steps."""
    pairs = [
        (Remaining.from_earlier(before or MOST, done=0, limit=MOST, reached=before is not None), steps)
        for found in everything["fixed"].values()
        for taken in found.values()
        for before, steps in zip([*taken[1:], taken[0]], taken, strict=True)
    ]
    yield from _errors("remaining steps from an earlier run (another seed)", pairs, "<= .35 .74-.90 <= 3")
    pairs = []
    for found in everything["curves"].values():
        least = found["chance"]
        for taken, looks in zip(found["steps"], found["looks"], strict=True):
            shares = [(value - least) / (CRITERION - least) for value in looks]
            for number in (n for n in ASKED if n < len(looks)):
                steps = [LOOK * k for k in range(number)]
                left = Remaining.from_curve(steps, shares[:number], limit=MOST)
                if left is not None:
                    pairs.append((left, taken and taken - steps[-1]))
    yield from _errors("remaining steps from the curve", pairs, "- .72-.90 <= 14")


def _errors(label: str, pairs: list[tuple[Remaining, int | None]], goal: str) -> Iterator[tuple[str, str, str]]:
    known = [(left, steps) for left, steps in pairs if steps and math.isfinite(left.median)]
    if known:
        error = np.median([abs(math.log2(left.median / steps)) for left, steps in known])
        inside = np.mean([left.low <= steps <= left.high for left, steps in known])
        width = np.median([left.high / left.low for left, _ in known])
        told = f"{error:.2f} {inside:.2f} {width:.1f}"
        yield f"{label}: median |log2 error|, coverage, width ({len(known)})", told, goal
