"""A curriculum of a nonlinear network where no closed form holds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import xarray as xr

from learncast.assumptions import Assumption
from learncast.dynamics.solution import checked_times
from learncast.networks.activated import Activated
from learncast.planning.curricula.curriculum import Curriculum, Stage, StageOutcome
from learncast.planning.curricula.explanation import Explanation
from learncast.planning.curricula.replicas import ReplicaSteps
from learncast.responses.problem import small_problem
from learncast.responses.response import response
from learncast.responses.sequence import Passage, pass_through
from learncast.responses.trials import seed_of
from learncast.trajectory import STEPS, Provenance, Trajectory, described, spec_hash
from learncast.validation import FloatArray


@dataclass(frozen=True, eq=False, repr=False)
class IntegratedCurriculum(Curriculum):
    """A curriculum of a nonlinear network whose responses are no single mode: integrated, with intervals.

    Attributes
    ----------
    passages : tuple of Passage
        The flow of every stage.
    """

    passages: tuple[Passage, ...] = ()

    @property
    def forecast_class(self) -> str:
        """What may be promised."""
        return "response"

    @property
    def assumptions(self) -> tuple[Assumption, ...]:
        """A flow on measured statistics assumes nothing more."""
        return ()

    @property
    def why(self) -> Explanation | None:
        """None: the three terms are of one mode."""
        return None

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        parts = [
            (p.solution.response.hash, repr(o.stage.accuracy), repr(o.stage.steps))
            for p, o in zip(self.passages, self.outcomes, strict=True)
        ]
        return Provenance(
            "flow", (), spec_hash(*parts, self.learning_rate), self.passages[0].solution.response.provenance.seed
        )

    def at(self, times: Any) -> Trajectory:
        """Strengths, weights and loss at times in gradient steps of the flow; ``stage`` says which task is trained."""
        steps = checked_times(times)
        ends = np.cumsum([o.flow_steps for o in self.outcomes])
        index = np.minimum(np.searchsorted(ends, steps, side="left"), len(ends) - 1)
        parts = []
        for k, time in zip(index, steps, strict=True):
            local = time - (ends[k - 1] if k else 0.0)
            parts.append(self.passages[k].solution.at(local).dataset)
        whole = xr.concat(parts, dim="time").assign_coords(
            time=("time", steps, described("training time", STEPS)),
            stage=("time", index, described("stage in training", "1")),
        )
        stages = " | ".join(o.stage.task.name for o in self.outcomes)
        whole.attrs = {"learning_rate": self.learning_rate, "stages": stages}
        return Trajectory(whole, self.provenance)


def follow_integrated(
    stages: Sequence[Stage], network: Activated, learning_rate: float, rng: np.random.Generator | int
) -> IntegratedCurriculum:
    """Follow the flow and the exact descent of a network whose responses are no single mode."""
    seed = seed_of(rng)
    measured = [response(stage.task, network, rng=seed) for stage in stages]
    passages = pass_through(measured, [(s.accuracy, s.steps) for s in stages], learning_rate)
    outcomes = []
    for stage, p in zip(stages, passages, strict=True):
        start, end = (
            np.ravel(p.solution.problem.strengths(small_problem(p.solution.response.moved(n))[1]))
            for n in (p.solution.response.network, p.end)
        )
        low, high = p.interval
        outcomes.append(
            StageOutcome(
                stage, p.flow_steps, p.descent_steps, start, end, p.accuracy, p.status, (float(low), float(high))
            )
        )
    accuracy = stages[-1].accuracy
    alone, direct = None, None
    if accuracy is not None:
        again = len(stages) > 1
        alone = pass_through(measured[-1:], [(accuracy, None)], learning_rate)[0] if again else passages[0]
        direct = alone.learning_time(accuracy)
    return IntegratedCurriculum(tuple(outcomes), direct, (), learning_rate, _steps_of(passages, alone), tuple(passages))


def _steps_of(passages: Sequence[Passage], direct: Passage | None) -> ReplicaSteps:
    """Steps of every replica: the estimate's, moved by what the replica takes longer."""

    def moved(passage: Passage, steps: float) -> FloatArray:
        if not (np.isfinite(steps) and np.isfinite(passage.spread[0])):
            return np.full(len(passage.spread) - 1, np.nan)
        others = np.where(np.isnan(passage.spread[1:]), np.inf, passage.spread[1:])  # given up: far too slow
        return np.maximum(steps + others - passage.spread[0], 0.0)

    return ReplicaSteps(
        np.stack([moved(p, p.flow_steps) for p in passages]),
        np.stack([np.ceil(moved(p, p.descent_steps)) for p in passages]),
        np.full(len(passages[0].spread) - 1, np.nan) if direct is None else moved(direct, direct.flow_steps),
    )
