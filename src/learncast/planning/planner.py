"""The planner: the method whose conditions hold, the best route by its search, and its stops in steps of descent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial

import numpy as np

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.progress import Progress, deadline, noticed, now, silent, time_limit, until
from learncast.networks import Network
from learncast.planning.candidate import Candidate
from learncast.planning.forecast import Forecast, require_conditions
from learncast.planning.generalise.held_out_plan import plan_held_out
from learncast.planning.methods.choice import method_for
from learncast.planning.methods.method import Method
from learncast.planning.methods.modes import ModeMethod
from learncast.planning.plan import Plan
from learncast.planning.schedules.exact import search_modes
from learncast.planning.schedules.whole_steps import WholeStepProblem
from learncast.planning.search import (
    UNTRIED,
    DescentSearch,
    FlowSearch,
    Route,
    SearchResult,
    cost_of,
    failures,
    in_time,
    usable_candidates,
)
from learncast.planning.terms import GENERALISE, PoolTerms, Terms, checked_pool
from learncast.procedure.goals import Accuracy, forecast_goal_of
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption
from learncast.theory.dynamics.solution import LearningTime
from learncast.theory.responses.trials import seed_of

#: Candidates whose stops are refined in whole steps: the best of larger pools by the flow.
REFINED = 24
#: Multiples of the stops of a plan from recorded data that are tried for the best mean; then finer ones around it.
SCALES = (0.0, 0.6, 0.75, 0.9, 1.0, 1.1, 1.25, 1.5)
FINER = (-0.06, -0.03, -0.015, 0.015, 0.03, 0.06)
#: Largest share by which these stops may raise the cost on the recorded trials.
ROBUST_COST = 0.1


@hinted
@noticed("searching plans")
def plan(
    target: Task,
    candidates: Sequence[Task],
    network: Network,
    training: Training | None = None,
    *,
    learning_rate: float | None = None,
    terms: Terms = Terms(),  # noqa: B008  frozen
    method: str = "auto",
    strict: bool = True,
    seconds: float | None = None,
    seed: int = 0,
    progress: Progress = silent,
) -> Plan:
    """Find the intermediate tasks and the stops that reach the target in the fewest steps, or at the least cost.

    Stops are whole steps of gradient descent, and `Plan.proof` says how good they are. If all tasks have the same
    modes, the best stop of one candidate is exact by the gradient flow, and so are those of several candidates if there
    is one mode; with several modes, a lower bound shows that no schedule is better. For other tasks there is no proof.
    Recorded tasks are resampled: the saving has an interval, and stops are the best on average over resampled
    statistics.

    Parameters
    ----------
    target : Task
        What must be learned in the end.
    candidates : sequence of Task
        Tasks that may be trained first.
    network : LinearRNN, TwoLayer, Deep or Activated
        The network before training.
    training : Training, optional
        Learning rate, weights that learn and other settings, such as ``Training(1e-3, batch=64)``.
    learning_rate : float, optional
        Shorthand for ``training=Training(learning_rate)``.
    terms : Terms
        Goal, number of stages, costs and limits, such as ``Terms(0.95, max_stages=3, switch_cost=20)``.
    method : {"auto", "modes", "two-layer", "pooled", "deep", "flow", "responses"}
        How the numbers are computed: by the first method whose conditions hold, or by the one named.
    strict : bool
        Raise if a condition of the theory fails, and recommend only candidates that meet all. Otherwise, with
        ``method="modes"``, candidates with a residual of up to 0.1 compete too. ``learncast plan`` always plans with
        ``strict=False``, and its option ``--strict`` only sets the exit code.
    seconds : float, optional
        Time limit of the search; the plan is then the best found so far, and says so.
    seed : int
        Seed of resampled statistics and of measured responses.
    progress : callable
        Called with the share of the work done.

    Returns
    -------
    Plan
        The recommended stages, what they save, every candidate, alternatives and how much each stop matters.

    Raises
    ------
    AssumptionViolated
        If a condition of the theory fails and `strict` is set.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> stronger = task.varied(target_strength=1.5).renamed("stronger targets")
    >>> lc.plan(task, [stronger], network, learning_rate=1e-3)
    <Plan for 'integration': stronger targets to 0.6621 (168 steps) -> integration to 0.9932 (0 steps); saves 163 of
    331 steps; exact>
    """
    if not isinstance(terms, Terms):
        raise InvalidSpec(f"terms must be learncast.Terms, got {type(terms).__name__}.", field="terms")
    pool = checked_pool(target, candidates) if terms.max_stages > 1 else []
    settings = Training.of(training, learning_rate)
    with time_limit(seconds):
        chosen = method_for([*pool, target], network, settings, method=method, seed=seed_of(seed))
        if terms.goal == GENERALISE:
            return plan_held_out(chosen, settings, terms, partial(plan_with, strict=False), progress=progress)
        return plan_with(chosen, terms, strict=strict, progress=progress)


def plan_with(method: Method, terms: Terms, *, strict: bool = True, progress: Progress = silent) -> Plan:
    """Plan with a method that was chosen already."""
    method = method.for_plans
    goal = forecast_goal_of(terms.goal, recorded=method.tasks[-1].recording is not None)
    terms = terms.with_(goal=goal)
    pool = (terms if method.target else terms.direct).over(method.target, goal)
    planner = _Planner(method, pool, strict, deadline())
    planner.direct_time  # noqa: B018  without direct training there is no answer
    if strict:
        require_conditions(Forecast(method, (Stage(method.tasks[-1], goal),), (method.target,)))
    with until(math.inf):  # from here on there is an answer: only the search is limited in time
        return planner.plan(progress)


@dataclass(frozen=True, eq=False)
class _Planner:
    method: Method
    terms: PoolTerms
    strict: bool
    end: float

    @cached_property
    def direct_time(self) -> LearningTime:
        """Direct training."""
        return self.method.precise.learning_time(self.method.target, self.terms.goal)

    @cached_property
    def descent(self) -> DescentSearch | None:
        """The search in steps of descent; None if descent is too long to count."""
        steps, method = self.direct_time.descent_steps, self.method
        too_many = math.isfinite(steps) and steps > method.most_counted(method.target, method.start)
        return None if math.isnan(steps) or too_many else DescentSearch(method, self.terms)

    @cached_property
    def direct(self) -> Route:
        """Direct training, in the steps that are reported."""
        flow = self.direct_time.flow_steps
        if self.descent is not None and math.isfinite(self.direct_time.descent_steps):
            return self.descent.price((), ())
        return Route((), (), flow, flow * float(self.terms.cost[-1]))

    @cached_property
    def usable(self) -> list[int]:
        """Candidates that may be recommended."""
        return usable_candidates(self.method, self.strict)

    @cached_property
    def whole_steps(self) -> WholeStepProblem | None:
        """The exact search in whole steps, where there is one."""
        if self.descent is None or not isinstance(self.method, ModeMethod):
            return None
        return WholeStepProblem.of(self.method, self.terms, self.usable)

    @cached_property
    def pairs(self) -> dict[int, Route] | None:
        """Best stop of each usable candidate, of all whole numbers of steps; None if these cannot all be compared."""
        if self.whole_steps is None:
            return None
        with until(self.end):
            routes = in_time(self.whole_steps.pairs, None)
        if routes is None or self.descent is None:
            return None
        found = dict.fromkeys(self.usable, self.direct)
        kept = [(k, int(route.durations[0])) for k, route in zip(self.usable, routes, strict=True) if route.order]
        if kept:
            tasks, stops = zip(*kept, strict=True)
            found |= dict(zip(tasks, self.descent.price_singles(tasks, stops), strict=True))
        return found

    def plan(self, progress: Progress) -> Plan:
        with until(self.end):
            found = self._search(lambda done: progress(0.8 * done))
        if not math.isfinite(found.route.total) and math.isfinite(found.direct.rest):
            raise InvalidSpec("No schedule that was tried meets the limits on accuracy and forgetting.", field="terms")
        candidates = self._candidates(found)
        in_sample, proof = self._best(found, candidates)
        best = in_sample
        if self.method.recorded and self.method.promise != "response" and best.order:
            with until(self.end):
                best = in_time(partial(self._robust, best), best)
            proof = "robust" if proof in ("exact", "certified") else proof
        if best is not in_sample:
            candidates = [self._restopped(c, best) if c.route is in_sample else c for c in candidates]
        if now() > self.end:
            proof = "out of time"
        candidates.sort(key=lambda c: (not c.usable, not c.refined, cost_of(c.route), cost_of(c.flow_route)))
        known = next((c for c in candidates if c.route is best), None)
        progress(1.0)
        return Plan(
            method=self.method,
            terms=self.terms,
            best=known.forecast if known else self._forecast(best),
            candidates=tuple(candidates),
            route=best,
            in_sample_route=in_sample,
            direct_route=self.direct,
            flow_route=found.route,
            direct_flow_route=found.direct,
            bound=found.lower_bound,
            proof=proof,
            counted=self.descent is not None,
            compares=proof != "out of time",
        )

    def _search(self, progress: Progress) -> SearchResult:
        """Search by modes with a proof, by counting descent if that is fast, else by the flow."""
        method, terms = self.method, self.terms
        if isinstance(method, ModeMethod):
            return search_modes(method, terms, self.strict, progress)
        search = DescentSearch(method, terms) if method.counts_many else FlowSearch(method, terms)
        return search.explore(self.usable, progress=progress)

    def _candidates(self, found: SearchResult) -> list[Candidate]:
        """Each candidate with its best stop in whole steps; of large pools, only the best by the flow are refined."""
        order = sorted(range(len(found.singles)), key=lambda k: cost_of(found.singles[k]))
        exact, first = self.pairs or {}, set(order[:REFINED])
        candidates = []
        for k, flow in enumerate(found.singles):
            refined = k in exact or k in first
            route = exact[k] if k in exact else self._counted(flow) if refined else flow
            candidates.append(
                Candidate(
                    task=self.method.tasks[k],
                    make_forecast=partial(self._forecast, route),
                    route=route,
                    flow_route=flow,
                    direct_route=self.direct,
                    terms=self.terms,
                    assumptions=self._conditions(k, flow),
                    failures=failures(self.method, k, self.strict),
                    refined=refined,
                )
            )
        return candidates

    def _conditions(self, task: int, route: Route) -> tuple[Assumption, ...]:
        """Conditions of training on a candidate up to its stop."""
        if not route.durations or math.isnan(route.durations[0]):
            return self.method.conditions(task)
        return self.method.flow(task, self.method.start).conditions_until(route.durations[0])

    def _in_pool(self, route: Route) -> Route:
        """A route of the usable candidates, with the tasks numbered as in the pool and counted by the method."""
        if not route.order or self.descent is None:
            return self.direct
        places = [*self.usable, self.method.target]
        return self.descent.price([places[k] for k in route.order], route.durations)

    def _restopped(self, candidate: Candidate, route: Route) -> Candidate:
        """A candidate with another stop."""
        if route.order != candidate.route.order:
            return candidate
        flow = route if candidate.flow_route is candidate.route else candidate.flow_route
        return replace(candidate, route=route, flow_route=flow, make_forecast=partial(self._forecast, route))

    def _counted(self, flow: Route) -> Route:
        """A route of the flow in whole steps of descent; direct training if that is better."""
        if flow is UNTRIED:
            return flow
        if self.descent is None or self.method.counts_many:
            return flow if flow.order else self.direct
        if not flow.order or not math.isfinite(flow.total):
            return self.direct
        whole = self.descent.price(flow.order, flow.durations)
        with until(self.end):
            route = in_time(partial(self.descent.refine, flow, self.direct), whole)
        return route if route.total < self.direct.total else self.direct

    def _best(self, found: SearchResult, candidates: list[Candidate]) -> tuple[Route, str]:
        """The cheapest route, and how good it is."""
        routes = [self.direct, *(c.route for c in candidates if c.helps and c.usable)]
        if len(found.route.order) > 1 or not self.terms.unrestricted:
            routes.append(self._counted(found.route) if found.route.order else self.direct)
        best = min(routes, key=cost_of)
        if self.pairs is None or self.whole_steps is None:
            return best, found.proof
        if self.terms.max_stages == 2:
            return best, "exact"
        with until(self.end):
            shortest = in_time(partial(self.whole_steps.cheapest, self.terms.max_stages, best.total), None)
        if shortest is None:
            return best, found.proof
        route = self._in_pool(shortest)
        return (route if route.total < best.total else best), "exact"

    def _forecast(self, route: Route) -> Forecast:
        """Forecast a route: each stage stops at the accuracy it reaches, which training can watch, else by steps."""
        method, state, stages = self.method, self.method.start, []
        whole = all(float(t).is_integer() for t in route.durations)
        for task, steps in zip(route.order, route.durations, strict=True):
            begin = state
            if whole:
                before, state = method.advance(task, begin[None], [max(int(steps) - 1, 0), int(steps)])[:, 0]
                last, reached = method.accuracy(task, np.stack([before, state])).tolist()
                # Threshold just below the final accuracy, so that the stage stops exactly here.
                reached -= 0.01 * abs(reached - last)
            else:
                state = method.after_flow(task, begin, steps)
                reached = float(method.accuracy(task, state[None])[0]) - 1e-12
            if task < len(self.terms.most):  # the first step at or above a limit lies above it
                reached = min(reached, float(self.terms.most[task]))
            stage = Stage(method.tasks[task], steps=steps)
            if 0.0 < reached < 1.0:
                goal = Accuracy(reached)
                again = float(method.steps_to(task, begin[None], goal)[0][0]) if whole else steps
                stage = Stage(method.tasks[task], goal) if again == steps else stage
            stages.append(stage)
        stages.append(Stage(method.tasks[-1], self.terms.goal))
        return Forecast(method, tuple(stages), (*route.order, method.target), known_direct=self.direct_time)

    def _robust(self, best: Route) -> Route:
        """Scale all stops by one factor to where the mean over resampled pools is least; 0 is direct training.

        On the recorded trials themselves, the scaled stops may cost little more than the best ones.
        """
        places = (*best.order, self.method.target)

        def scaled(scale: float) -> list[int]:
            return [max(round(scale * t), 1) if scale > 0 else 0 for t in best.durations]

        def means(scales: Sequence[float]) -> dict[float, tuple[float, float]]:
            """Share of resamples that never arrive, and mean cost of the others."""
            steps = self.method.resample_stops(best.order, [scaled(s) for s in scales], self.terms.goal)
            found = {}
            for scale, rows in zip(scales, steps, strict=True):
                totals = self.terms.price(places, rows)
                finite = totals[np.isfinite(totals)]
                found[scale] = (1.0 - len(finite) / len(totals), float(finite.mean()) if len(finite) else math.inf)
            return found

        tried = means(SCALES)
        middle = min(tried, key=lambda s: tried[s])
        if middle > 0:
            tried |= means([middle + step for step in FINER])
        for scale in sorted(tried, key=lambda s: tried[s]):
            route = self.direct if scale == 0 else best
            if scale not in (0.0, 1.0):
                route = DescentSearch(self.method, self.terms).price(best.order, scaled(scale))
            if route.total <= (1 + ROBUST_COST) * best.total:
                return route
        return best
