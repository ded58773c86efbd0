"""Which pretraining gets the network that I train to my goal soonest?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learncast._core.progress import Progress, silent
from learncast.report.report import Report
from learncast.study.study_file import to_toml, without_none

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from learncast.advice.advice import Advice
    from learncast.study.advice_study import AdviceStudy

#: Plans in the table.
MOST_PLANS = 15


def advise_report(
    study: AdviceStudy, *, options: Mapping[str, object] | None = None, progress: Progress = silent
) -> Report:
    """Advise on a study's model, trials and goal."""
    return _answered(study.question(), study.name, study.resolved(), options or {}, progress)


def model_advise_report(
    place: str, *, options: Mapping[str, object] | None = None, progress: Progress = silent
) -> Report:
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
    from learncast.windows.stored_model import builder_error, call_builder

    purpose = "return a dictionary with model, target and candidates"
    found = call_builder(place, purpose)
    if not isinstance(found, Mapping):
        raise builder_error(place, purpose, type(found).__name__)
    if wrong := _wrong_keys(list(map(str, found))):
        raise builder_error(place, purpose, wrong)
    said = to_toml({"model": place, **without_none(dict(options or {}))})
    return _answered(dict(found), Path(place.rpartition(":")[0]).stem, said, options or {}, progress)


def _wrong_keys(given: Sequence[str]) -> str:
    """Name the keys that `learncast.advise` does not know and those that it misses; empty if there are none."""
    from learncast.advice.adviser import advise

    known = signature(advise).parameters
    unknown = [key for key in given if key not in known]
    missing = [name for name, one in known.items() if one.default is Parameter.empty and name not in given]
    got = [f"the unknown {', '.join(map(repr, unknown))}"] if unknown else []
    got += [f"no {', '.join(map(repr, missing))}"] if missing else []
    return " and ".join(got)


def _answered(
    question: dict[str, Any], name: str, study: str, options: Mapping[str, object], progress: Progress
) -> Report:
    from learncast.advice.adviser import advise
    from learncast.advice.request import AdviceTerms

    given = without_none(dict(options))
    if given:  # those of the command line are terms
        question = {**question, "terms": replace(question.get("terms", AdviceTerms()), **given)}
    return of_advice(advise(**question, progress=progress, log=silent), name=name, study=study)


def of_advice(found: Advice, *, name: str = "", study: str = "") -> Report:
    """Report an advice.

    Parameters
    ----------
    found : Advice
    name, study : str
        Name and content of the study; by default neither.
    """
    table = found.table.head(MOST_PLANS)
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
    return Report(
        kind="advise",
        title=f"{name}: what to train first" if name else "What to train first",
        lead=found.summary,
        trust=found.trust,
        values=values,
        tables=[replace(table, notes=[found.cost_estimate, *table.notes])],
        dataset=found.dataset,
        draw=lambda: _draw(found),
        provenance=found.provenance,
        study=study,
    )


def _draw(found: Advice) -> Figure:
    from learncast.figures import sheet

    return sheet(found.plot, width=7.0, height=4.0)
