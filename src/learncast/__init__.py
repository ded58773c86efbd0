"""Forecast how a neural network will learn, before you train it.

The names below load on first use, so that importing learncast costs little and loads neither torch nor matplotlib.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0"

_HOME = {
    "Accuracy": "procedure.goals",
    "Activated": "networks.activated",
    "AssumptionViolated": "_core.errors",
    "Deep": "networks.deep",
    "Explained": "procedure.goals",
    "Forecast": "planning.forecast",
    "Goal": "procedure.goals",
    "InvalidSpec": "_core.errors",
    "LearncastError": "_core.errors",
    "LinearRNN": "networks.linear_rnn",
    "Loss": "procedure.goals",
    "NotLearned": "_core.errors",
    "OutOfTime": "_core.errors",
    "Plan": "planning.plan",
    "R2": "procedure.goals",
    "SchemaMismatch": "_core.errors",
    "Stage": "procedure.stage",
    "Status": "results",
    "Steps": "results",
    "Task": "tasks.task",
    "Terms": "planning.terms",
    "Training": "procedure.training",
    "Trajectory": "results",
    "TwoLayer": "networks.two_layer",
    "UnsupportedModel": "_core.errors",
    "advise": "advice.adviser",
    "check": "training.check",
    "descend": "theory.dynamics.descent",
    "follow": "planning.forecast",
    "forecast": "planning.forecast",
    "forget": "planning.forget",
    "generalise": "planning.generalise.generalise",
    "phase": "planning.phase",
    "plan": "planning.planner",
    "window": "windows",
}
_PACKAGES = ("advice", "figures", "papers", "planning", "sweep", "tasks", "theory", "training", "windows")
#: Packages and names that need torch.
_NEEDS_TORCH = ("advice", "advise", "check", "training", "window", "windows")
__all__ = [*sorted(_HOME), *_PACKAGES]


def __getattr__(name: str) -> Any:
    if name in _NEEDS_TORCH:
        from learncast._core.packages import torch_package

        torch_package(f"for learncast.{name}")
    if name in _HOME:
        value = getattr(import_module(f"learncast.{_HOME[name]}"), name)
        globals()[name] = value
        return value
    if name in _PACKAGES:
        return import_module(f"learncast.{name}")
    from learncast._core.errors import habit, suggestion

    did = habit(name, __all__) or suggestion(name, tuple(__all__))
    raise AttributeError(f"module 'learncast' has no attribute {name!r}. {did}".rstrip(), name=name)


def __dir__() -> list[str]:
    return [*__all__, "__version__"]


if TYPE_CHECKING:  # explicit re-exports, so that type checkers know these names
    from learncast import advice as advice
    from learncast import figures as figures
    from learncast import papers as papers
    from learncast import planning as planning
    from learncast import sweep as sweep
    from learncast import tasks as tasks
    from learncast import theory as theory
    from learncast import training as training
    from learncast import windows as windows
    from learncast._core.errors import AssumptionViolated as AssumptionViolated
    from learncast._core.errors import InvalidSpec as InvalidSpec
    from learncast._core.errors import LearncastError as LearncastError
    from learncast._core.errors import NotLearned as NotLearned
    from learncast._core.errors import OutOfTime as OutOfTime
    from learncast._core.errors import SchemaMismatch as SchemaMismatch
    from learncast._core.errors import UnsupportedModel as UnsupportedModel
    from learncast.advice.adviser import advise as advise
    from learncast.networks.activated import Activated as Activated
    from learncast.networks.deep import Deep as Deep
    from learncast.networks.linear_rnn import LinearRNN as LinearRNN
    from learncast.networks.two_layer import TwoLayer as TwoLayer
    from learncast.planning.forecast import Forecast as Forecast
    from learncast.planning.forecast import follow as follow
    from learncast.planning.forecast import forecast as forecast
    from learncast.planning.forget import forget as forget
    from learncast.planning.generalise.generalise import generalise as generalise
    from learncast.planning.phase import phase as phase
    from learncast.planning.plan import Plan as Plan
    from learncast.planning.planner import plan as plan
    from learncast.planning.terms import Terms as Terms
    from learncast.procedure.goals import R2 as R2
    from learncast.procedure.goals import Accuracy as Accuracy
    from learncast.procedure.goals import Explained as Explained
    from learncast.procedure.goals import Goal as Goal
    from learncast.procedure.goals import Loss as Loss
    from learncast.procedure.stage import Stage as Stage
    from learncast.procedure.training import Training as Training
    from learncast.results import Status as Status
    from learncast.results import Steps as Steps
    from learncast.results import Trajectory as Trajectory
    from learncast.tasks.task import Task as Task
    from learncast.theory.dynamics.descent import descend as descend
    from learncast.training.check import check as check
    from learncast.windows.diagnosis import window as window
