"""The report of any result."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING

from learncast._core.errors import UnsupportedModel

if TYPE_CHECKING:
    from learncast.report.report import Report

#: Module and function that report each kind of result.
REPORTS = {
    "Advice": ("advise", "of_advice"),
    "Check": ("check", "of_check"),
    "Evolution": ("window", "of_evolution"),
    "Generalisation": ("generalise", "held_out_report"),
    "HeldOutPlan": ("plan", "of_plan"),
    "Plan": ("plan", "of_plan"),
    "Window": ("window", "of_window"),
}


def report_of(result: object) -> Report:
    """Return the report of a result: terminal tables, JSON, an HTML page and files.

    Parameters
    ----------
    result : Forecast, Plan, Generalisation, Check, Advice, Window or Evolution

    Returns
    -------
    Report

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.report import report_of
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> report = report_of(lc.forecast(task, network, learning_rate=1e-3))
    >>> report.kind, report.values["descent_steps"]
    ('forecast', 331)
    """
    from learncast.planning.forecast import Forecast

    if isinstance(result, Forecast):
        single = len(result.requested) == 1 and result.requested[0].goal is not None
        module, function = ("forecast", "of_forecast") if single else ("forget", "of_sequence")
    elif type(result).__name__ in REPORTS:
        module, function = REPORTS[type(result).__name__]
    else:
        raise UnsupportedModel(f"result must be one that has a report, got {type(result).__name__}.", field="result")
    made: Report = getattr(import_module(f"learncast.report.{module}"), function)(result)
    return made
