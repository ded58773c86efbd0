"""The planner: the way to plan whose conditions hold, and the plan it finds."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from learncast.dynamics.sampled_modes import with_replicas
from learncast.errors import InvalidSpec, UnsupportedModel
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.curricula.terrain import ResponseTerrain, Terrain
from learncast.planning.curricula.traced_curriculum import WAYS, linear_terrain, separate
from learncast.planning.plans.mode_planner import ModePlanner
from learncast.planning.plans.recommendation import Plan
from learncast.planning.plans.terrain_planner import TerrainPlanner
from learncast.planning.solving import LEARNABLE
from learncast.planning.terms import Terms, checked_pool, checked_terms
from learncast.progress import Progress, silent
from learncast.responses.modes import has_one_response, modes_seen_by
from learncast.responses.response import check_network
from learncast.responses.trials import seed_of
from learncast.tasks.task import Task
from learncast.validation import count, one_of


def plan(
    target: Task,
    candidates: Sequence[Task],
    network: LinearRNN | TwoLayer | Activated,
    *,
    learning_rate: float,
    accuracy: float = 0.99,
    goal: str | None = None,
    max_stages: int = 2,
    costs: Any = 1.0,
    switch_cost: float = 0.0,
    least_accuracy: Any = None,
    most_accuracy: Any = None,
    most_excess_loss: Any = None,
    learn: tuple[str, ...] | None = None,
    by: str = "auto",
    strict: bool = True,
    progress: Progress = silent,
    rng: np.random.Generator | int = 0,
) -> Plan:
    """Find the intermediate tasks and the stops that reach the target soonest, or at the least cost.

    Where every task and the network fall apart into common modes, stops are exact, and longer schedules exact (one
    mode) or certified (several). Tasks of any geometry on a two-layer network, or on a linear RNN that is one, go
    through its exact flow; any other linear network, start or choice of learned weights through the integrated flow;
    nonlinear units of fixed recurrence through their measured responses. These are searched, and the result says so.

    Recorded tasks are resampled, and what is saved carries an interval. Stops are then those that are best on average
    over resampled statistics (proof "robust", or "best found" without modes); by modes that is so for one stage before
    the target at equal costs, while schedules under rules, costs or more stages take the estimates as they are.

    Parameters
    ----------
    target : Task
        What must be learned in the end.
    candidates : sequence of Task
        Tasks that may be trained first.
    network : LinearRNN, TwoLayer or Activated
        The network before training.
    learning_rate : float
    accuracy : float
        Accuracy the target must reach; 1 is reached at infinite time only.
    goal : {"modes", "loss"}, optional
        Whether every mode must be that accurate (the default where there are modes) or the loss as a whole.
    max_stages : int
        Stages at most, the target included; 1 trains the target directly.
    costs : float or (candidates + 1,)
        Cost of a step on each candidate and, last, on the target.
    switch_cost : float
        Cost of each change of task, in the same unit.
    least_accuracy, most_accuracy : float or (candidates,), optional
        Accuracy on its own task at which a candidate's stage may stop; nan where it is free.
    most_excess_loss : (candidates,), optional
        Excess loss of each candidate allowed at the end: a limit on what is forgotten. A candidate's place in the
        ranking minds its own limit; the recommended plan minds all.
    learn : tuple of str, optional
        Weights that learn; input and output weights (both layers) by default.
    by : {"auto", "modes", "two-layer", "flow"}
        How to find it: the first of these whose conditions hold, or the one named.
    strict : bool
        Raise when a condition of the theory fails, and recommend only candidates that meet all. Otherwise, with
        ``by="modes"``, candidates within a residual of 0.1 compete too, and the plan says which condition is not exact.
    progress : callable
        Called with the share of the work done.
    rng : numpy.random.Generator or int
        Generator or seed of resampled statistics and of the trials on which responses are measured.
    """
    if not isinstance(network, LinearRNN | TwoLayer | Activated):
        raise UnsupportedModel(
            required="the network must be a LinearRNN, a TwoLayer or an Activated LinearRNN",
            got=type(network).__name__,
            why="a plan is made from a network's weights",
            remedy="describe it as learncast.LinearRNN(...); for a torch module ask learncast.simulate.advise",
        )
    stages = count("max_stages", max_stages, why="the target itself is one stage")
    pool = checked_pool(target, candidates) if stages > 1 else []
    terms = checked_terms(
        len(pool),
        learning_rate=learning_rate,
        accuracy=accuracy,
        goal=goal or "modes",
        max_stages=stages,
        costs=costs if pool else 1.0,
        switch_cost=switch_cost,
        least_accuracy=least_accuracy if pool else None,
        most_accuracy=most_accuracy if pool else None,
        most_excess_loss=most_excess_loss if pool else None,
    )
    one_of("by", by, WAYS, why="these are the ways to plan")
    planner = _planner(target, pool, network, terms, goal, learn, by, strict, seed_of(rng))
    return plan_by(planner, target, network, progress)


def plan_by(
    planner: ModePlanner | TerrainPlanner,
    target: Task,
    network: LinearRNN | TwoLayer | Activated,
    progress: Progress = silent,
) -> Plan:
    """The plan of a planner that is ready, such as one whose tasks have been taken apart already."""
    found = planner.ranked(progress)
    return Plan(
        target,
        found.direct,
        found.candidates,
        found.best,
        found.total,
        found.direct_total,
        found.lower_bound,
        found.proof,
        network,
        planner.terms.learning_rate,
        planner.terms,
        planner,
    )


def _planner(
    target: Task,
    pool: list[Task],
    network: LinearRNN | TwoLayer | Activated,
    terms: Terms,
    goal: str | None,
    learn: tuple[str, ...] | None,
    by: str,
    strict: bool,
    seed: int,
) -> ModePlanner | TerrainPlanner:
    """Choose the way to plan whose conditions hold."""
    tasks = (*pool, target)
    terrain: Terrain | None
    if isinstance(network, Activated):
        terrain = _response_terrain(tasks, network, terms, learn, by, seed)
    else:
        terrain = linear_terrain(tasks, network, terms.learning_rate, learn, by, otherwise_flow=True)
    if terrain is None:
        assert isinstance(network, LinearRNN | Activated)
        drawn = np.random.default_rng(seed)
        modes = [with_replicas(m, drawn) for m in modes_seen_by(network, [target, *pool], seed)]
        return ModePlanner(modes[0], tuple(modes[1:]), network, terms, strict)
    if goal == "modes":
        raise InvalidSpec(
            required='goal must be "loss" where tasks have no common modes',
            got='"modes"',
            why="there is nothing else to be accurate",
            remedy="leave goal out",
        )
    return TerrainPlanner(terrain, replace(terms, goal="loss"), strict, seed)


def _response_terrain(
    tasks: tuple[Task, ...], network: Activated, terms: Terms, learn: tuple[str, ...] | None, by: str, seed: int
) -> Terrain | None:
    """The responses of nonlinear units; None where they share one, which is a mode."""
    fixed = learn is None or set(learn) == set(LEARNABLE[Activated])
    if not fixed or by == "two-layer":
        raise InvalidSpec(
            required="nonlinear units are planned with a fixed recurrence, through their responses",
            got=f"learn={learn!r}" if not fixed else 'by="two-layer"',
            why="no theory tells how a nonlinear network learns its recurrence",
            remedy="leave it out, or rank plans with learncast.simulate.advise",
        )
    check_network(network)
    if by in ("auto", "modes") and has_one_response(network):
        modes = modes_seen_by(network, [tasks[-1], *tasks[:-1]], seed)
        if by == "modes" or separate(modes):
            return None
    if by == "modes":
        raise UnsupportedModel(
            required='by="modes" needs ReLU units of one recurrence and one sign',
            got=f"{network.activation} units that share no response",
            why="their learning is more than one mode",
            remedy='use by="auto"',
        )
    return ResponseTerrain(tasks, network, terms.learning_rate, seed)
