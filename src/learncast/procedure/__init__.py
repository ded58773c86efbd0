"""The training procedure: settings, goals and stages, shared by forecasts and training."""

from learncast.procedure.goals import R2, Accuracy, Explained, Goal, Loss, Plateau, Rule
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training

__all__ = ["R2", "Accuracy", "Explained", "Goal", "Loss", "Plateau", "Rule", "Stage", "Training"]


def __dir__() -> list[str]:
    return list(__all__)
