"""How weights move when a network is really trained, in torch."""

from typing import NoReturn

from learncast.simulate.ensembles import EnsembleRun, train_ensemble
from learncast.simulate.modules import as_module, gated_module
from learncast.simulate.run import TrainingRun
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau
from learncast.simulate.trainer import train, train_all, train_replicas, trained_in_time
from learncast.simulate.training import Training

__all__ = [
    "Accuracy",
    "EnsembleRun",
    "LossBelow",
    "Plateau",
    "Training",
    "TrainingRun",
    "as_module",
    "gated_module",
    "train",
    "train_all",
    "train_ensemble",
    "train_replicas",
    "trained_in_time",
]

_MOVED = {"advise": "advise", "Advice": "advice.Advice", "CurriculumCallback": "practice.CurriculumCallback"}


def __getattr__(name: str) -> NoReturn:
    if name in _MOVED:
        raise ImportError(f"learncast.simulate.{name} is learncast.{_MOVED[name]} now")
    raise AttributeError(f"module 'learncast.simulate' has no attribute {name!r}")
