"""Training of networks in torch."""

from learncast.procedure.goals import Plateau
from learncast.procedure.training import Training
from learncast.training.cells import LinearRecurrentUnit, MinimalGRU, RateRNN, SteppedCell
from learncast.training.goals import DecisionAccuracy, Measured
from learncast.training.loop import CurriculumCallback, Loop
from learncast.training.losses import CrossEntropy, HalfSquaredError, LossFunction, MeanSquaredError, OwnLoss
from learncast.training.modules import TimeFirst, as_module, gated_module
from learncast.training.plan_loop import plan_loop
from learncast.training.remaining import Earlier, Remaining
from learncast.training.rules import Learned, Lookahead, Stalled
from learncast.training.run import Execution, Records, TrainingRun
from learncast.training.sources import Source, trials
from learncast.training.trainer import TrainingJob, train, train_all, train_in_time
from learncast.training.updates import OptimizerLike, Updates

__all__ = [
    "CrossEntropy", "CurriculumCallback", "DecisionAccuracy", "Earlier", "Execution",
    "HalfSquaredError", "Learned", "LinearRecurrentUnit", "Lookahead", "Loop", "LossFunction", "MeanSquaredError",
    "Measured", "MinimalGRU", "OptimizerLike", "OwnLoss", "Plateau", "RateRNN", "Records", "Remaining", "Source",
    "Stalled", "SteppedCell", "TimeFirst", "Training", "TrainingJob", "TrainingRun", "Updates", "as_module",
    "gated_module", "plan_loop", "train", "train_all", "train_in_time", "trials",
]  # fmt: skip


def __dir__() -> list[str]:
    return list(__all__)
