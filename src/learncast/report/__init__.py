"""Reports of every command, as terminal tables, JSON, HTML pages and files."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "advise": "advise_report model_advise_report",
        "check": "check_report",
        "forecast": "forecast_report",
        "forget": "forget_report",
        "generalise": "generalise_report held_out_report",
        "phase": "phase_report",
        "plan": "plan_report",
        "report": "Report report_of",
        "window": "model_window_report window_report",
    },
    inner={"plan": "draw_plan"},
)
