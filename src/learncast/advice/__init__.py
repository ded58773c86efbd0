"""Advice on pretraining for models whose training has no closed-form forecast."""

from learncast.advice.advice import Advice
from learncast.advice.adviser import advise
from learncast.advice.race import Race, run_race
from learncast.advice.request import AdviceTerms, Request

__all__ = ["Advice", "AdviceTerms", "Race", "Request", "advise", "run_race"]


def __dir__() -> list[str]:
    return list(__all__)
