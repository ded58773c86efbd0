"""Pools of neurogym's environments, on which nothing is tuned: what an advice is worth on tasks that others wrote."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from benchmarks.skill_decisions import DECISION, Draw, Pool, Trials

#: Milliseconds of a step; every decision lasts the same number of steps, at the end of its trial.
STEP = 100
#: Trials made of an environment, and how many of them are trained on; the others are judged by.
MADE, TRAINED = 12_000, 11_000


class Trialled:
    """Trials of one environment, made once when they are first asked for and then drawn with replacement.

    Parameters
    ----------
    name : str
        As neurogym registers it.
    timing : mapping
        Milliseconds of each period, or a function of a random generator.
    changed : mapping
        Attributes set after the environment is made, for what its arguments do not offer.
    """

    def __init__(
        self, name: str, timing: Mapping[str, Any], *, changed: Mapping[str, Any] | None = None, **options: Any
    ) -> None:
        self.name, self.timing, self.changed, self.options = name, dict(timing), dict(changed or {}), options

        self.steps = 0

    def __call__(self, rng: np.random.Generator, n: int) -> Trials:
        x, y = self.made()
        rows = rng.integers(0, TRAINED, n)
        return x[rows], y[rows]

    def held_out(self, rng: np.random.Generator, n: int) -> Trials:
        """Trials that are never trained on."""
        x, y = self.made()
        rows = TRAINED + rng.integers(0, MADE - TRAINED, n)
        return x[rows], y[rows]

    @property
    def longest(self) -> int:
        """Steps of its longest trial."""
        return max(len(y) for _, y in self.seen())

    @cache  # noqa: B019 - pools live as long as the program
    def seen(self) -> list[Trials]:
        """Trials as the environment gives them, of unequal length."""
        import neurogym

        timing = {"decision": STEP * DECISION, **self.timing}
        env = neurogym.make(f"{self.name}-v0", dt=STEP, timing=timing, **self.options).unwrapped
        for key, value in self.changed.items():
            setattr(env, key, value)
        env.reset(seed=0)
        env.seed(0)
        found = []
        for _ in range(MADE):
            env.new_trial()
            found.append((env.ob.astype(np.float32), env.gt.astype(np.int64)))
        return found

    @cache  # noqa: B019 - as above
    def made(self) -> Trials:
        """All trials, put off by more fixation so that those of a pool are equally long and end together."""
        steps = max(self.steps, self.longest)
        x = np.zeros((MADE, steps, self.seen()[0][0].shape[1]), dtype=np.float32)
        y = np.zeros((MADE, steps), dtype=np.int64)
        x[:, :, 0] = 1.0  # fixation
        for k, (seen, asked) in enumerate(self.seen()):
            x[k, steps - len(asked) :], y[k, steps - len(asked) :] = seen, asked
        return x, y


def _one_of(*durations: int) -> Callable[[], int]:
    rng = np.random.default_rng(durations)
    return lambda: int(rng.choice(durations))


def _pool(name: str, loss: str, steps: int, target: Trialled, inputs: int, labels: int, **candidates: Trialled) -> Pool:
    for one in (target, *candidates.values()):
        one.steps = steps
    easier: dict[str, Draw] = {key.replace("_", " "): draw for key, draw in candidates.items()}
    return Pool(name, target, easier, loss, inputs, labels)


_PERCEPTUAL = {"fixation": 200, "stimulus": 1000, "delay": 0}
_CONTEXT = {"fixation": 200, "stimulus": 800, "delay": 300}
_COMPARED = {"fixation": 200, "stimulus1": 300, "delay": 500, "stimulus2": 300}
_MATCHED = {"fixation": 200, "sample": 300, "delay": 500, "test": 300}
_SENSED = {"fixation": 200, "stimulus": 700}
_TIMED = {"fixation": 200, "stim1": _one_of(300, 500), "delay1": 300, "stim2": _one_of(200, 400, 600)}
_PULSED = {"fixation": 200, **{f"cue{k}": 100 for k in range(6)}, **{f"bin{k}": 0 for k in range(6)}}
_DELAYED = {"fixation": 200, "stimulus": 600, "delay": 400}
_REACHED = {"fixation": 200, "stimulus": 300, "delay": 400}
_WEIGHED = {"fixation": 200, "delay": 200, **{f"stimulus{k}": 200 for k in range(4)}}

#: The six tasks by which an earlier advice was found wanting.
NAMED = (
    _pool(
        "perceptual",
        "cross_entropy",
        15,
        Trialled("PerceptualDecisionMaking", _PERCEPTUAL, cohs=[6.4, 12.8, 25.6, 51.2]),
        3,
        3,
        strong=Trialled("PerceptualDecisionMaking", _PERCEPTUAL, cohs=[51.2, 100.0]),
        strong_and_short=Trialled("PerceptualDecisionMaking", {**_PERCEPTUAL, "stimulus": 300}, cohs=[51.2, 100.0]),
        no_noise=Trialled("PerceptualDecisionMaking", _PERCEPTUAL, cohs=[6.4, 12.8, 25.6, 51.2], sigma=0.1),
    ),
    _pool(
        "context-dependent",
        "cross_entropy",
        16,
        Trialled("ContextDecisionMaking", _CONTEXT, use_expl_context=True, changed={"cohs": [15, 30, 50]}),
        7,
        3,
        strong=Trialled("ContextDecisionMaking", _CONTEXT, use_expl_context=True, changed={"cohs": [100]}),
        no_delay=Trialled(
            "ContextDecisionMaking", {**_CONTEXT, "delay": 0}, use_expl_context=True, changed={"cohs": [15, 30, 50]}
        ),
        no_noise=Trialled(
            "ContextDecisionMaking", _CONTEXT, use_expl_context=True, sigma=0.1, changed={"cohs": [15, 30, 50]}
        ),
    ),
    _pool(
        "delayed comparison",
        "cross_entropy",
        16,
        Trialled("DelayComparison", _COMPARED),
        2,
        3,
        far_apart=Trialled("DelayComparison", _COMPARED, vpairs=[(30, 10), (34, 14)]),
        no_delay=Trialled("DelayComparison", {**_COMPARED, "delay": 0}),
        no_noise=Trialled("DelayComparison", _COMPARED, sigma=0.1),
    ),
    _pool(
        "match to sample",
        "cross_entropy",
        16,
        Trialled("DelayMatchSample", _MATCHED),
        3,
        3,
        no_delay=Trialled("DelayMatchSample", {**_MATCHED, "delay": 0}),
        short_delay=Trialled("DelayMatchSample", {**_MATCHED, "delay": 200}),
        no_noise=Trialled("DelayMatchSample", _MATCHED, sigma=0.1),
    ),
    _pool(
        "multisensory",
        "cross_entropy",
        12,
        Trialled("MultiSensoryIntegration", _SENSED, changed={"cohs": [15, 30, 50]}),
        5,
        3,
        strong=Trialled("MultiSensoryIntegration", _SENSED, changed={"cohs": [100]}),
        short_and_strong=Trialled("MultiSensoryIntegration", {**_SENSED, "stimulus": 300}, changed={"cohs": [100]}),
        no_noise=Trialled("MultiSensoryIntegration", _SENSED, sigma=0.1, changed={"cohs": [15, 30, 50]}),
    ),
    _pool(
        "interval discrimination",
        "cross_entropy",
        22,
        Trialled("IntervalDiscrimination", {**_TIMED, "delay2": 200}),
        3,
        3,
        extremes=Trialled(
            "IntervalDiscrimination",
            {**_TIMED, "stim1": _one_of(200, 700), "stim2": _one_of(400, 500), "delay2": 200},
        ),
        no_delay_after=Trialled("IntervalDiscrimination", {**_TIMED, "delay2": 0}),
        first_alone=Trialled("IntervalDiscrimination", {**_TIMED, "stim2": _one_of(400), "delay1": 100, "delay2": 100}),
    ),
)
#: Others of the same collection.
OTHERS = (
    _pool(
        "pulses",
        "cross_entropy",
        11,
        Trialled("PulseDecisionMaking", _PULSED, p_pulse=(0.3, 0.7)),
        3,
        3,
        clear=Trialled("PulseDecisionMaking", _PULSED, p_pulse=(0.05, 0.95)),
        clearer=Trialled("PulseDecisionMaking", _PULSED, p_pulse=(0.15, 0.85)),
        one_side=Trialled("PulseDecisionMaking", _PULSED, p_pulse=(0.0, 0.7)),
    ),
    _pool(
        "delayed response",
        "squared",
        15,
        Trialled("PerceptualDecisionMakingDelayResponse", _DELAYED, changed={"cohs": [6.4, 12.8, 25.6]}),
        3,
        3,
        strong=Trialled("PerceptualDecisionMakingDelayResponse", _DELAYED, changed={"cohs": [51.2, 100.0]}),
        no_delay=Trialled(
            "PerceptualDecisionMakingDelayResponse", {**_DELAYED, "delay": 0}, changed={"cohs": [6.4, 12.8, 25.6]}
        ),
        strong_no_delay=Trialled(
            "PerceptualDecisionMakingDelayResponse", {**_DELAYED, "delay": 0}, changed={"cohs": [51.2, 100.0]}
        ),
    ),
    _pool(
        "anti-reach",
        "squared",
        12,
        Trialled("AntiReach", _REACHED, dim_ring=6),
        7,
        7,
        no_delay=Trialled("AntiReach", {**_REACHED, "delay": 0}, dim_ring=6),
        pro=Trialled("AntiReach", _REACHED, dim_ring=6, anti=False),
        pro_no_delay=Trialled("AntiReach", {**_REACHED, "delay": 0}, dim_ring=6, anti=False),
    ),
    _pool(
        "probabilistic",
        "cross_entropy",
        15,
        Trialled("ProbabilisticReasoning", _WEIGHED, shape_weight=[-2, -1, -0.7, 0.7, 1, 2]),
        25,
        3,
        certain=Trialled("ProbabilisticReasoning", _WEIGHED, shape_weight=[-10, -5, -3, 3, 5, 10]),
        no_delay=Trialled("ProbabilisticReasoning", {**_WEIGHED, "delay": 0}, shape_weight=[-2, -1, -0.7, 0.7, 1, 2]),
        quick=Trialled(
            "ProbabilisticReasoning",
            {"fixation": 200, "delay": 0, **{f"stimulus{k}": 100 for k in range(4)}},
            shape_weight=[-10, -5, -3, 3, 5, 10],
        ),
    ),
)
ENVIRONMENTS = (*NAMED, *OTHERS)
