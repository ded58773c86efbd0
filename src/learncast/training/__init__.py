"""How weights move when a network is really trained, in torch."""

from typing import NoReturn

from learncast.training.cells import LinearRecurrentUnit, MinimalGRU, RateRNN, SteppedCell
from learncast.training.ensembles import EnsembleRun, train_ensemble
from learncast.training.goal_loop import GoalLoop
from learncast.training.goals import DecisionAccuracy, Goal, LossBelow, Measured
from learncast.training.losses import CrossEntropy, HalfSquaredError, Loss, MeanSquaredError, OwnLoss
from learncast.training.modules import TimeFirst, as_module, gated_module
from learncast.training.run import TrainingRun
from learncast.training.sources import trials
from learncast.training.stopping import Accuracy, Learned, Plateau, Stalled
from learncast.training.trainer import train, train_all, train_replicas, trained_in_time
from learncast.training.training import Training

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

_MOVED = {"advise": "advise", "Advice": "advice.Advice", "CurriculumCallback": "procedure.CurriculumCallback"}


def __getattr__(name: str) -> NoReturn:
    if name in _MOVED:
        raise ImportError(f"learncast.training.{name} is learncast.{_MOVED[name]} now")
    raise AttributeError(f"module 'learncast.training' has no attribute {name!r}")


def __dir__() -> list[str]:
    return list(__all__)
