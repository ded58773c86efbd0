"""What to train first, for a model of which everything is trained."""

from learncast.advice.advice import Advice
from learncast.advice.adviser import advise

__all__ = ["Advice", "advise"]


def __dir__() -> list[str]:
    return list(__all__)
