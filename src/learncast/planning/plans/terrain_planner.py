"""Planning over a terrain: rotated tasks, learned recurrence, unaligned starts and measured responses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np

from learncast.assumptions import require
from learncast.dynamics.sampled_modes import can_be_resampled
from learncast.dynamics.solution import LearningTime
from learncast.errors import InvalidSpec
from learncast.planning.curricula.curriculum import Curriculum, Stage
from learncast.planning.curricula.replicas import ReplicaSteps
from learncast.planning.curricula.response_curriculum import follow_integrated
from learncast.planning.curricula.terrain import LinearTerrain, ResponseTerrain, Terrain
from learncast.planning.curricula.traced_curriculum import TracedCurriculum, trace
from learncast.planning.plans.candidate import Candidate, last_if_unknown
from learncast.planning.plans.exploration import Exploration, Route, explore
from learncast.planning.plans.mode_planner import Ranked
from learncast.planning.terms import Terms
from learncast.progress import Progress, silent
from learncast.responses.bootstrap import bounds
from learncast.tasks.resampling import resampled
from learncast.validation import FloatArray

#: Resampled pools on which a recommended plan is followed again.
REPLICAS = 40
#: Fewer of them on which stops are chosen anew, and what the stops are multiplied by.
TRIED_REPLICAS = 12
SCALES = (0.0, 0.6, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5)


@dataclass(frozen=True, eq=False)
class TerrainPlanner:
    """Tasks without common modes, planned by trying.

    Attributes
    ----------
    terrain : Terrain
        The pool and, last, the target.
    seed : int
        Of the resampling of recorded tasks.
    """

    terrain: Terrain
    terms: Terms
    strict: bool
    seed: int

    def follow(self, stages: Sequence[Stage]) -> Curriculum:
        """Follow stages of these tasks; the target, to its accuracy, comes last."""
        if isinstance(self.terrain, ResponseTerrain):
            return follow_integrated(stages, self.terrain.start, self.terms.learning_rate, self.terrain.seed)
        known = {id(task): k for k, task in enumerate(self.terrain.tasks)}
        direct = self._direct if len(stages) > 1 else None
        return trace(stages, [known[id(s.task)] for s in stages], self.terrain, direct=direct)

    def ranked(self, progress: Progress = silent) -> Ranked:
        """Try every candidate alone, then sequences grown from the best."""
        if self.strict:
            require(self.terrain.assumptions)
        direct, singles, best, search = explore(
            self.terrain, self.terms, self.terms.max_stages, progress=lambda done: progress(0.9 * done)
        )
        if not math.isfinite(best.total) and math.isfinite(direct.rest):
            raise InvalidSpec(
                required="some schedule must meet the limits on accuracy and forgetting",
                got="none that was tried",
                why="the target cannot be learned without breaking them",
                remedy="relax least_accuracy, most_accuracy or most_excess_loss",
            )
        found = [self._candidate(k, route, direct) for k, route in enumerate(singles)]
        ranked = tuple(sorted(found, key=lambda c: last_if_unknown(c.total)))
        best = self._robust(search, best, direct) if self._recorded else best
        known = next((c for c, route in zip(found, singles, strict=True) if route is best), None)
        curriculum = known.curriculum if known else self._with_interval(self.follow(self._stages(best)), best)
        progress(1.0)
        return Ranked(ranked, self._direct, curriculum, best.total, direct.total, math.nan, "best found")

    @property
    def remarks(self) -> tuple[str, ...]:
        """What a reader should know of training on the target alone, beyond its numbers."""
        return self.terrain.course(self.terrain.target, self.terrain.start).remarks

    @property
    def _last_stage(self) -> Stage:
        return Stage(self.terrain.tasks[-1], accuracy=self.terms.accuracy)

    @cached_property
    def _direct(self) -> LearningTime:
        found = self.follow([self._last_stage]).direct
        assert found is not None  # the target is asked for an accuracy
        return found

    def _stages(self, route: Route) -> list[Stage]:
        """Stages of a route: by the accuracy at which each stops, which training can watch, else by steps."""
        network, stages = self.terrain.start, []
        for task, time in zip(route.order, route.durations, strict=True):
            network = self.terrain.course(task, network).network_at(time)
            reached = self.terrain.accuracy(task, network)
            rule: dict[str, float] = {"accuracy": reached} if 0.0 < reached < 1.0 else {"steps": time}
            stages.append(Stage(self.terrain.tasks[task], **rule))
        return [*stages, self._last_stage]

    def _candidate(self, place: int, route: Route, direct: Route) -> Candidate:
        stages = self._stages(route)
        curriculum = self.follow(stages)
        task = self.terrain.tasks[place]
        stop = route.durations[0] if route.order else 0.0
        reached = curriculum.outcomes[0].accuracy if route.order else self.terrain.accuracy(place, self.terrain.start)
        return Candidate(
            task=task,
            target=self.terrain.tasks[-1],
            stop_steps=stop,
            accuracy=reached,
            flow_steps=route.steps,
            descent_steps=curriculum.descent_steps,
            total=route.total,
            direct_total=direct.total,
            expected=route.total,
            direct=self._direct,
            assumptions=self.terrain.assumptions,
            followed=partial(self._with_interval, curriculum, route),
            reason=_reason,
        )

    @property
    def _recorded(self) -> bool:
        return isinstance(self.terrain, LinearTerrain) and any(map(can_be_resampled, self.terrain.tasks))

    @cached_property
    def _replicas(self) -> list[Exploration]:
        """The same search on resampled pools."""
        terrain = self.terrain
        assert isinstance(terrain, LinearTerrain)
        rng = np.random.default_rng(self.seed)
        pools = [
            [resampled(task, rng) if can_be_resampled(task) else task for task in terrain.tasks]
            for _ in range(REPLICAS)
        ]
        return [
            Exploration(type(terrain)(pool, terrain.start, terrain.learning_rate, terrain.learn), self.terms)
            for pool in pools
        ]

    def _robust(self, search: Exploration, best: Route, direct: Route) -> Route:
        """Scale all stops alike to where the mean over resampled pools is least; to nothing where that is best."""
        if not best.order:
            return best
        means = []
        for scale in SCALES:
            durations = [scale * t for t in best.durations]
            totals = np.array([r.priced(best.order, durations).total for r in self._replicas[:TRIED_REPLICAS]])
            kept = totals[np.isfinite(totals)]
            means.append((1.0 - len(kept) / len(totals), float(kept.mean()) if len(kept) else 0.0))
        scale = SCALES[min(range(len(SCALES)), key=lambda k: means[k])]
        return search.priced(best.order, [scale * t for t in best.durations]) if scale > 0 else direct

    def _with_interval(self, curriculum: Curriculum, route: Route) -> Curriculum:
        """The curriculum with what resampled pools make of the same stops."""
        if not self._recorded or not isinstance(curriculum, TracedCurriculum):
            return curriculum
        flows, alone = [], []
        for replica in self._replicas:
            again = replica.priced(route.order, route.durations)
            flows.append([*route.durations, again.rest if not math.isnan(again.rest) else math.inf])
            alone.append(replica.priced((), ()).rest)
        flow: FloatArray = np.array(flows).T
        steps = ReplicaSteps(flow, np.full(flow.shape, np.nan), np.array(alone))
        ends = bounds(flow.T).T
        return curriculum.with_replicas(steps, [(float(low), float(high)) for low, high in ends])


def _reason(candidate: Candidate) -> dict[str, Any]:
    """What a trial can say: how much is saved, and where the candidate leaves the target."""
    if not candidate.helps:
        return {"sentence": candidate.no_help}
    share = candidate.flow_steps / candidate.direct.flow_steps if candidate.direct.flow_steps > 0 else math.nan
    rest = candidate.flow_steps - candidate.stop_steps
    return {
        "sentence": f"{candidate.stop_steps:.4g} steps of {candidate.task.name} leave {rest:.4g} of the "
        f"{candidate.direct.flow_steps:.4g} that {candidate.target.name} takes alone",
        "share_of_direct": share,
    }
