"""Forecast how a neural network will learn, before you train it.

The names below load on first use, so that importing learncast costs little and loads neither torch nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Activated": "networks.activated",
    "AssumptionViolated": "errors",
    "CheapestPath": "planning.schedules.optimal",
    "ContinualLearning": "planning.forgetting",
    "Curriculum": "planning.curricula.curriculum",
    "Descent": "dynamics.descent",
    "Design": "planning.schedules.designer",
    "FastestPath": "planning.schedules.optimal",
    "InvalidSpec": "errors",
    "LearncastError": "errors",
    "LearningTime": "dynamics.solution",
    "LinearRNN": "networks.linear_rnn",
    "Modes": "dynamics.modes",
    "NotLearned": "errors",
    "Plan": "planning.plans.recommendation",
    "Provenance": "trajectory",
    "Response": "responses.response",
    "Schedule": "planning.schedules.schedule",
    "SchemaMismatch": "errors",
    "Solution": "dynamics.solution",
    "Stage": "planning.curricula.curriculum",
    "Status": "trajectory",
    "Task": "tasks.task",
    "TrainingLoop": "planning.plans.training_loop",
    "Trajectory": "trajectory",
    "TwoLayer": "networks.two_layer",
    "UnsupportedModel": "errors",
    "agreement": "planning.agreement",
    "best_schedule": "planning.schedules.search",
    "cheapest_path": "planning.schedules.optimal",
    "convergence_order": "planning.agreement",
    "descend": "dynamics.descent",
    "design": "planning.schedules.designer",
    "fastest_path": "planning.schedules.optimal",
    "follow": "planning.curricula.curriculum",
    "forgetting": "planning.forgetting",
    "forgetting_front": "planning.schedules.pareto",
    "gradient_flow": "dynamics.gradient_flow",
    "hidden_similarity": "representation.similarity",
    "learn_in_sequence": "planning.forgetting",
    "modes": "dynamics.modes",
    "off_diagonal_strength": "representation.decoupling",
    "phase_portrait": "planning.phase",
    "plan": "planning.plans.planner",
    "printed_time": "planning.timing",
    "rehearse": "planning.curricula.rehearsal",
    "representation_distance": "representation.similarity",
    "response": "responses.response",
    "richness": "representation.richness",
    "shallow": "dynamics.shallow",
    "solve": "planning.solving",
    "solve_response": "responses.modes",
    "tangent_kernel": "representation.similarity",
    "tangent_kernel_summary": "representation.similarity",
    "time_to_learn": "planning.timing",
    "training_loop_of": "planning.plans.training_loop",
}
_ROOMS = ("figures", "learnability", "papers", "simulate", "sweep", "tasks")
#: Rooms that need torch.
_TRAINED = ("learnability", "simulate")

__all__ = [*sorted(_HOME), *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _HOME:
        value = getattr(import_module(f"learncast.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        if name in _TRAINED and find_spec("torch") is None:
            raise _without_torch(name)
        return import_module(f"learncast.{name}")
    raise AttributeError(f"module 'learncast' has no attribute {name!r}")


def _without_torch(room: str) -> Exception:
    from learncast.errors import InvalidSpec

    return InvalidSpec(
        required=f"torch must be installed for learncast.{room}",
        got="no such package",
        why="networks are trained with it",
        remedy="pip install 'learncast[torch]'",
    )


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from learncast import figures, learnability, papers, simulate, sweep, tasks
    from learncast.dynamics.descent import Descent, descend
    from learncast.dynamics.gradient_flow import gradient_flow
    from learncast.dynamics.modes import Modes, modes
    from learncast.dynamics.shallow import shallow
    from learncast.dynamics.solution import LearningTime, Solution
    from learncast.errors import (
        AssumptionViolated,
        InvalidSpec,
        LearncastError,
        NotLearned,
        SchemaMismatch,
        UnsupportedModel,
    )
    from learncast.networks.activated import Activated
    from learncast.networks.linear_rnn import LinearRNN
    from learncast.networks.two_layer import TwoLayer
    from learncast.planning.agreement import agreement, convergence_order
    from learncast.planning.curricula.curriculum import Curriculum, Stage, follow
    from learncast.planning.curricula.rehearsal import rehearse
    from learncast.planning.forgetting import ContinualLearning, forgetting, learn_in_sequence
    from learncast.planning.phase import phase_portrait
    from learncast.planning.plans.planner import plan
    from learncast.planning.plans.recommendation import Plan
    from learncast.planning.plans.training_loop import TrainingLoop, training_loop_of
    from learncast.planning.schedules.designer import Design, design
    from learncast.planning.schedules.optimal import CheapestPath, FastestPath, cheapest_path, fastest_path
    from learncast.planning.schedules.pareto import forgetting_front
    from learncast.planning.schedules.schedule import Schedule
    from learncast.planning.schedules.search import best_schedule
    from learncast.planning.solving import solve
    from learncast.planning.timing import printed_time, time_to_learn
    from learncast.representation.decoupling import off_diagonal_strength
    from learncast.representation.richness import richness
    from learncast.representation.similarity import (
        hidden_similarity,
        representation_distance,
        tangent_kernel,
        tangent_kernel_summary,
    )
    from learncast.responses.modes import solve_response
    from learncast.responses.response import Response, response
    from learncast.tasks.task import Task
    from learncast.trajectory import Provenance, Status, Trajectory
