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
    "CheapestPath": "planning.optimal",
    "ContinualLearning": "planning.forgetting",
    "Curriculum": "planning.curriculum",
    "Descent": "dynamics.descent",
    "Design": "planning.designer",
    "FastestPath": "planning.optimal",
    "InvalidSpec": "errors",
    "LearncastError": "errors",
    "LearningTime": "dynamics.solution",
    "LinearRNN": "networks.linear_rnn",
    "Modes": "dynamics.modes",
    "NotLearned": "errors",
    "Plan": "planning.planner",
    "Provenance": "trajectory",
    "Response": "dynamics.response",
    "Schedule": "planning.schedule",
    "SchemaMismatch": "errors",
    "Solution": "dynamics.solution",
    "Stage": "planning.curriculum",
    "Status": "trajectory",
    "Task": "tasks.task",
    "TrainingLoop": "planning.training_loop",
    "Trajectory": "trajectory",
    "TwoLayer": "networks.two_layer",
    "UnsupportedModel": "errors",
    "agreement": "planning.agreement",
    "best_schedule": "planning.search",
    "cheapest_path": "planning.optimal",
    "convergence_order": "planning.agreement",
    "descend": "dynamics.descent",
    "design": "planning.designer",
    "fastest_path": "planning.optimal",
    "follow": "planning.curriculum",
    "forgetting": "planning.forgetting",
    "forgetting_front": "planning.pareto",
    "gradient_flow": "dynamics.gradient_flow",
    "hidden_similarity": "dynamics.representation",
    "learn_in_sequence": "planning.forgetting",
    "modes": "dynamics.modes",
    "off_diagonal_strength": "dynamics.decoupling",
    "phase_portrait": "planning.phase",
    "plan": "planning.planner",
    "printed_time": "planning.timing",
    "rehearse": "planning.rehearsal",
    "representation_distance": "dynamics.representation",
    "response": "dynamics.response",
    "richness": "planning.richness",
    "shallow": "dynamics.shallow",
    "solve": "dynamics.exact",
    "solve_response": "dynamics.response_modes",
    "tangent_kernel": "dynamics.representation",
    "tangent_kernel_summary": "dynamics.representation",
    "time_to_learn": "planning.timing",
    "training_loop_of": "planning.training_loop",
}
_ROOMS = ("figures", "learnability", "papers", "simulate", "tasks")
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
    from learncast import figures, learnability, papers, simulate, tasks
    from learncast.dynamics.decoupling import off_diagonal_strength
    from learncast.dynamics.descent import Descent, descend
    from learncast.dynamics.exact import solve
    from learncast.dynamics.gradient_flow import gradient_flow
    from learncast.dynamics.modes import Modes, modes
    from learncast.dynamics.representation import (
        hidden_similarity,
        representation_distance,
        tangent_kernel,
        tangent_kernel_summary,
    )
    from learncast.dynamics.response import Response, response
    from learncast.dynamics.response_modes import solve_response
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
    from learncast.planning.curriculum import Curriculum, Stage, follow
    from learncast.planning.designer import Design, design
    from learncast.planning.forgetting import ContinualLearning, forgetting, learn_in_sequence
    from learncast.planning.optimal import CheapestPath, FastestPath, cheapest_path, fastest_path
    from learncast.planning.pareto import forgetting_front
    from learncast.planning.phase import phase_portrait
    from learncast.planning.planner import Plan, plan
    from learncast.planning.rehearsal import rehearse
    from learncast.planning.richness import richness
    from learncast.planning.schedule import Schedule
    from learncast.planning.search import best_schedule
    from learncast.planning.timing import printed_time, time_to_learn
    from learncast.planning.training_loop import TrainingLoop, training_loop_of
    from learncast.tasks.task import Task
    from learncast.trajectory import Provenance, Status, Trajectory
