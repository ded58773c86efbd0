"""The explorer: a local web application that shows forecasts while settings are changed."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "answers": "all_panels answer description",
        "app": "application serve",
        "chart": "Arrow Chart ChartAxis Overlay Series Trace",
        "export": "export_site",
        "jobs": "Computation JobQueue QueueFull",
        "panel": "Control Example GlossaryTerm Panel State control invalid_state",
        "panels.curriculum": "CurriculumState",
        "panels.generalise": "GeneraliseState held_out",
        "panels.prior_knowledge": "PriorKnowledgeState",
        "panels.drawn_series": "RecurrenceState",
        "panels.window": "window_panel windows_at",
        "uploads": "UPLOADS Uploads",
        "view": "FRAMES Note Reading View to_csv to_plain",
    },
)
