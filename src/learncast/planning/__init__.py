"""Methods, forecasts, plans, phase portraits and forgetting."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "agreement": "agreement convergence_order",
        "batches": "BatchSteps",
        "design": "Design design",
        "explanation": "Explanation closeness explain singular_accuracy speedup_terms",
        "forecast": "Forecast StageForecast follow forecast",
        "forget": "IrregularSwitch forget",
        "front": "Front forgetting_front",
        "methods.choice": "method_for",
        "methods.method": "Method ResampledSteps",
        "phase": "PortraitTimes phase portrait_times",
        "plan": "Candidate Plan SavedPlan loop_of",
        "planner": "plan plan_with",
        "schedules.path": "Path cheapest_path fastest_path",
        "search": "Route",
        "stop_portrait": "stop_portrait",
        "terms": "PoolTerms Terms",
    },
)
