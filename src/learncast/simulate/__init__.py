"""How weights move when a network is really trained, in torch."""

from learncast.simulate.advice import Advice
from learncast.simulate.adviser import advise
from learncast.simulate.ensembles import EnsembleRun, train_ensemble
from learncast.simulate.lightning import CurriculumCallback
from learncast.simulate.modules import as_module, gated_module
from learncast.simulate.replicas import train_all, train_replicas
from learncast.simulate.run import TrainingRun
from learncast.simulate.stopping import Accuracy, LossBelow, Plateau
from learncast.simulate.trainer import train
from learncast.simulate.training import Training

__all__ = [
    "Accuracy",
    "Advice",
    "CurriculumCallback",
    "EnsembleRun",
    "LossBelow",
    "Plateau",
    "Training",
    "TrainingRun",
    "advise",
    "as_module",
    "gated_module",
    "train",
    "train_all",
    "train_ensemble",
    "train_replicas",
]
