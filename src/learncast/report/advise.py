"""How do I train my own network on a target soonest?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any

from learncast._core.errors import OutOfTime
from learncast._core.progress import Progress, silent, within
from learncast.report.report import Report, fields, picture
from learncast.study.study_file import to_toml

if TYPE_CHECKING:
    from learncast.advice.advice import Advice
    from learncast.study.advice_study import AdviceStudy

#: Plans in the table.
MOST_PLANS = 15


def advise_report(
    study: AdviceStudy, *, train: bool = False, most_steps: int | None = None, progress: Progress = silent
) -> Report:
    """Advise on a study's model, trials and goal; with `train`, also carry the advice out."""
    return _answered(study.question(), study.name, study.resolved(), train, most_steps, progress)


def model_advise_report(
    place: str, *, train: bool = False, most_steps: int | None = None, progress: Progress = silent
) -> Report:
    """Advise on what a person's own file builds, which means executing it.

    Parameters
    ----------
    place : str
        ``file.py:function``, which returns the keywords of `learncast.advise` as a dictionary: model, target and
        training at least.
    train : bool
        Whether to carry the advice out.
    most_steps : int, optional
        Steps after which a stage of that training is given up, as of `Advice.train`.
    progress : callable
    """
    from learncast.windows.stored_model import builder_error, call_builder

    purpose = "return a dictionary with model, target and training"
    found = call_builder(place, purpose)
    if not isinstance(found, Mapping):
        raise builder_error(place, purpose, type(found).__name__)
    if wrong := _wrong_keys(list(map(str, found))):
        raise builder_error(place, purpose, wrong)
    name = Path(place.rpartition(":")[0]).stem
    return _answered(dict(found), name, to_toml({"model": place}), train, most_steps, progress)


def _wrong_keys(given: Sequence[str]) -> str:
    """Name the keys that `learncast.advise` does not know and those that it misses; empty if there are none."""
    from learncast.advice.adviser import advise

    unknown = [key for key in given if key not in signature(advise).parameters]
    missing = [name for name in ("model", "target", "training") if name not in given]
    got = [f"the unknown {', '.join(map(repr, unknown))}"] if unknown else []
    got += [f"no {', '.join(map(repr, missing))}"] if missing else []
    return " and ".join(got)


def _answered(
    question: dict[str, Any], name: str, study: str, train: bool, most_steps: int | None, progress: Progress
) -> Report:
    from learncast.advice.adviser import advise

    advice = advise(**question, progress=within(progress, 0, 2) if train else progress)
    if train:
        with suppress(OutOfTime):  # the advice itself is an answer
            advice = advice.carried_out(advice.train(most_steps=most_steps, progress=within(progress, 1, 2)))
    return of_advice(advice, name=name, study=study)


def of_advice(found: Advice, *, name: str = "", study: str = "") -> Report:
    """Report an advice.

    Parameters
    ----------
    found : Advice
    name, study : str
        Name and content of the study; by default neither.
    """
    data, a = found.dataset, found.dataset.attrs
    keys = ("given_rate", "goal", "chance", "optimizer", "optimizer_between_stages", "run_status", "run_steps")
    pilots = zip(data["pilot_rate"].values, data["pilot_loss"].mean("pilot_step").values, strict=True)
    plans = zip(data["plan"].values, data["score"].values, strict=True)
    values = {
        **fields(found, "recommended learning_rate pilot_steps helpers shortlist summary warnings"),
        **{key: a[key] for key in keys if key in a},
        "pilots": [{"learning_rate": float(rate), "loss": float(loss)} for rate, loss in pilots],
        "plans": [{"plan": str(plan), "score": float(score)} for plan, score in plans],
    }
    plans_table = [replace(found.table, rows=found.table.rows[:MOST_PLANS])] if found.validity else []
    return Report(
        kind="advise",
        title=f"{name}: how to train it soonest" if name else "How to train it soonest",
        lead=found.lines["do"],
        trust=found.trust,
        values=values,
        tables=[found.lines_table, *plans_table],
        dataset=found.dataset,
        draw=partial(picture, found.plot, width=7.0, height=4.0),
        provenance=found.provenance,
        study=study,
    )
