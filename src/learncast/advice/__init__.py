"""Advice on training models that have no closed-form forecast."""

from learncast.advice.advice import Advice
from learncast.advice.adviser import advise
from learncast.advice.pilots import Pilots, find_rate
from learncast.advice.request import AdviceTerms, Request

__all__ = ["Advice", "AdviceTerms", "Pilots", "Request", "advise", "find_rate"]


def __dir__() -> list[str]:
    return list(__all__)
