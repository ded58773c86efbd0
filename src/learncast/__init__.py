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


if TYPE_CHECKING:  # under their own names: type checkers then know them as offered here
    from learncast import figures as figures
    from learncast import learnability as learnability
    from learncast import papers as papers
    from learncast import planning as planning
    from learncast import representation as representation
    from learncast import simulate as simulate
    from learncast import sweep as sweep
    from learncast import tasks as tasks
    from learncast.advice.adviser import advise as advise
    from learncast.dynamics.descent import descend as descend
    from learncast.dynamics.solution import Solution as Solution
    from learncast.errors import AssumptionViolated as AssumptionViolated
    from learncast.errors import InvalidSpec as InvalidSpec
    from learncast.errors import LearncastError as LearncastError
    from learncast.errors import NotLearned as NotLearned
    from learncast.errors import SchemaMismatch as SchemaMismatch
    from learncast.errors import UnsupportedModel as UnsupportedModel
    from learncast.networks.activated import Activated as Activated
    from learncast.networks.linear_rnn import LinearRNN as LinearRNN
    from learncast.networks.two_layer import TwoLayer as TwoLayer
    from learncast.planning.agreement import agreement as agreement
    from learncast.planning.curriculum import Curriculum as Curriculum
    from learncast.planning.curriculum import follow as follow
    from learncast.planning.forgetting import forgetting as forgetting
    from learncast.planning.phase import phase_portrait as phase_portrait
    from learncast.planning.plans.planner import plan as plan
    from learncast.planning.plans.recommendation import Plan as Plan
    from learncast.planning.solving import solve as solve
    from learncast.planning.solving import time_to_learn as time_to_learn
    from learncast.planning.terms import Terms as Terms
    from learncast.practice.stage import Stage as Stage
    from learncast.tasks.task import Task as Task
    from learncast.trajectory import Status as Status
    from learncast.trajectory import Trajectory as Trajectory
