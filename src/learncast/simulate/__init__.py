"""How weights move when a network is really trained, in torch."""

from typing import NoReturn

from learncast.simulate.cells import LinearRecurrentUnit, MinimalGRU, RateRNN, SteppedCell
from learncast.simulate.ensembles import EnsembleRun, train_ensemble
from learncast.simulate.goal_loop import GoalLoop
from learncast.simulate.goals import DecisionAccuracy, Goal, LossBelow, Measured
from learncast.simulate.losses import CrossEntropy, HalfSquaredError, Loss, MeanSquaredError, OwnLoss
from learncast.simulate.modules import TimeFirst, as_module, gated_module
from learncast.simulate.run import TrainingRun
from learncast.simulate.sources import trials
from learncast.simulate.stopping import Accuracy, Learned, Plateau, Stalled
from learncast.simulate.trainer import train, train_all, train_replicas, trained_in_time
from learncast.simulate.training import Training

__all__ = [
    "Accuracy",
    "CrossEntropy",
    "DecisionAccuracy",
    "EnsembleRun",
    "Goal",
    "GoalLoop",
    "HalfSquaredError",
    "Learned",
    "LinearRecurrentUnit",
    "Loss",
    "LossBelow",
    "MeanSquaredError",
    "Measured",
    "MinimalGRU",
    "OwnLoss",
    "Plateau",
    "RateRNN",
    "Stalled",
    "SteppedCell",
    "TimeFirst",
    "Training",
    "TrainingRun",
    "as_module",
    "gated_module",
    "train",
    "train_all",
    "train_ensemble",
    "train_replicas",
    "trained_in_time",
    "trials",
]

_MOVED = {"advise": "advise", "Advice": "advice.Advice", "CurriculumCallback": "practice.CurriculumCallback"}


def __getattr__(name: str) -> NoReturn:
    if name in _MOVED:
        raise ImportError(f"learncast.simulate.{name} is learncast.{_MOVED[name]} now")
    raise AttributeError(f"module 'learncast.simulate' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
