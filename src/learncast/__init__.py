"""Forecast how a neural network will learn, before you train it.

The names below load on first use, so that importing learncast costs little and loads neither torch nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

_HOME = {
    "Activated": "networks.activated",
    "AssumptionViolated": "errors",
    "Curriculum": "planning.curriculum",
    "InvalidSpec": "errors",
    "LearncastError": "errors",
    "LinearRNN": "networks.linear_rnn",
    "NotLearned": "errors",
    "Plan": "planning.plans.recommendation",
    "SchemaMismatch": "errors",
    "Solution": "dynamics.solution",
    "Stage": "practice.stage",
    "Status": "trajectory",
    "Task": "tasks.task",
    "Terms": "planning.terms",
    "Trajectory": "trajectory",
    "TwoLayer": "networks.two_layer",
    "UnsupportedModel": "errors",
    "advise": "advice.adviser",
    "agreement": "planning.agreement",
    "descend": "dynamics.descent",
    "follow": "planning.curriculum",
    "forgetting": "planning.forgetting",
    "phase_portrait": "planning.phase",
    "plan": "planning.plans.planner",
    "solve": "planning.solving",
    "time_to_learn": "planning.solving",
}
_ROOMS = ("figures", "learnability", "papers", "planning", "representation", "simulate", "sweep", "tasks")
#: Rooms and names that need torch.
_TRAINED = ("advise", "learnability", "simulate")
#: Where names went that were found here before.
_MOVED = {
    "ContinualLearning": "Curriculum, which planning.in_sequence returns",
    "Descent": "dynamics.descent.Descent",
    "LearningTime": "dynamics.solution.LearningTime",
    "Modes": "dynamics.modes.Modes",
    "Provenance": "trajectory.Provenance",
    "Response": "responses.response.Response",
    "TrainingLoop": "practice.TrainingLoop, which plan.training_loop() makes",
    "forgetting_front": "planning.forgetting_front, or plan.front(task)",
    "gradient_flow": 'solve(..., by="flow"), or dynamics.gradient_flow.gradient_flow',
    "learn_in_sequence": "planning.in_sequence",
    "modes": "dynamics.modes.modes",
    "printed_time": "papers.printed_time",
    "response": "responses.response.response",
    "shallow": "dynamics.balanced.two_layer.shallow",
    "solve_response": "responses.modes.solve_response",
    "tangent_kernel": "representation.tangent_kernel",
}
#: Rooms into which other names went under their own name.
_WITHIN = {
    "planning": "CheapestPath Design FastestPath Schedule best_schedule cheapest_path convergence_order design "
    "fastest_path rehearse training_loop_of",
    "representation": "hidden_similarity off_diagonal_strength representation_distance richness tangent_kernel_summary",
}
_MOVED |= {name: f"{room}.{name}" for room, names in _WITHIN.items() for name in names.split()}

__all__ = [*sorted(_HOME), *_ROOMS]


def __getattr__(name: str) -> Any:
    if name in _TRAINED:
        from learncast.packages import torch_package

        torch_package(f"for learncast.{name}")
    if name in _HOME:
        value = getattr(import_module(f"learncast.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _ROOMS:
        return import_module(f"learncast.{name}")
    if name in _MOVED:
        raise AttributeError(f"learncast.{name} has moved: use learncast.{_MOVED[name]}")
    raise AttributeError(f"module 'learncast' has no attribute {name!r}")


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:
    from learncast import figures, learnability, papers, planning, representation, simulate, sweep, tasks
    from learncast.advice.adviser import advise
    from learncast.dynamics.descent import descend
    from learncast.dynamics.solution import Solution
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
    from learncast.planning.agreement import agreement
    from learncast.planning.curriculum import Curriculum, follow
    from learncast.planning.forgetting import forgetting
    from learncast.planning.phase import phase_portrait
    from learncast.planning.plans.planner import plan
    from learncast.planning.plans.recommendation import Plan
    from learncast.planning.solving import solve, time_to_learn
    from learncast.planning.terms import Terms
    from learncast.practice.stage import Stage
    from learncast.tasks.task import Task
    from learncast.trajectory import Status, Trajectory
