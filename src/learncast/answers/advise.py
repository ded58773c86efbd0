"""Which pretraining gets the network that I train to my goal soonest?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learncast.answers.answer import Answer
from learncast.errors import InvalidSpec
from learncast.progress import Progress, silent
from learncast.study.study_file import to_toml, without_none

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from learncast.advice.advice import Advice
    from learncast.study.advice_study import AdviceStudy

#: Plans in the table.
MOST_PLANS = 15


def advised(study: AdviceStudy, *, options: Mapping[str, Any] | None = None, progress: Progress = silent) -> Answer:
    """Advise on a study's model, trials and goal."""
    return _answered(study.question(), study.name, study.resolved(), options or {}, progress)


def stored_advice(place: str, *, options: Mapping[str, Any] | None = None, progress: Progress = silent) -> Answer:
    """Advise on what a person's own file builds, which means executing it.

    Parameters
    ----------
    place : str
        ``file.py:function``, which returns the keywords of `learncast.advise` as a dictionary: model, target and
        candidates at least.
    options : mapping, optional
        Keywords that replace those of the function.
    progress : callable
    """
    from learncast.learnability.stored_model import executed

    found = executed(place)
    if not isinstance(found, Mapping) or not {"model", "target", "candidates"} <= set(found):
        got = ", ".join(map(str, found)) if isinstance(found, Mapping) else type(found).__name__
        raise InvalidSpec(
            required=f"{place} must return a dictionary with model, target and candidates",
            got=got or "an empty one",
            why="these are what advice is about",
            remedy='return {"model": model, "target": trials, "candidates": {"easy": ...}, "goal": ...}',
        )
    said = to_toml({"model": place, **without_none(dict(options or {}))})
    return _answered(dict(found), Path(place.rpartition(":")[0]).stem, said, options or {}, progress)


def _answered(
    question: dict[str, Any], name: str, study: str, options: Mapping[str, Any], progress: Progress
) -> Answer:
    from learncast.advice.adviser import advise

    said: list[str] = []
    known = {**question, **without_none(dict(options)), "progress": progress, "echo": said.append}
    try:
        found = advise(**known)
    except TypeError as error:
        if "unexpected keyword argument" not in str(error):
            raise
        raise InvalidSpec(
            required="the function must return keywords of learncast.advise",
            got=str(error),
            why="an unknown one would be ignored silently",
            remedy="see help(learncast.advise)",
        ) from error
    return _answer(found, name, study)


def _answer(found: Advice, name: str, study: str) -> Answer:
    table = found.table.few(MOST_PLANS)
    values = {
        "recommended": found.recommended,
        "shortlist": list(found.shortlist),
        "goal": found.dataset.attrs["goal"],
        "chance": found.dataset.attrs["chance"],
        "summary": found.summary,
        "warnings": list(found.warnings),
        "plans": [
            {"plan": str(plan), "score": float(score)}
            for plan, score in zip(found.dataset["plan"].values, found.dataset["score"].values, strict=True)
        ],
        "optimizer": found.dataset.attrs["optimizer"],
        "optimizer_between_stages": found.dataset.attrs["optimizer_between_stages"],
    }
    return Answer(
        kind="advise",
        title=f"{name}: what to train first",
        lead=found.summary,
        trust=found.trust,
        values=values,
        tables=[replace(table, notes=[found.cost_estimate, *table.notes])],
        dataset=found.dataset,
        draw=lambda: draw_advice(found),
        provenance=found.provenance,
        study=study,
    )


def draw_advice(found: Advice) -> Figure:
    """The plans' forecasts side by side."""
    from learncast.figures import sheet

    return sheet(found.plot, width=7.0, height=4.0)
