"""Carrying a plan out: in a training loop of one's own, or in Lightning."""

from learncast.procedure.stage import Stage
from learncast.procedure.training_loop import CurriculumCallback, TrainingLoop

__all__ = ["CurriculumCallback", "Stage", "TrainingLoop"]


def __dir__() -> list[str]:
    return list(__all__)
