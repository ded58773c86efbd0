"""Methods, forecasts, plans, phase portraits and forgetting.

The entry points are `learncast.forecast`, `follow`, `plan`, `forget`, `phase` and `agreement`.
"""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "agreement": "convergence_order",
        "batches": "BatchSteps",
        "designer": "Design design",
        "explanation": "Explanation closeness explain singular_accuracy speedup_terms",
        "forecast": "Forecast StageForecast follow",
        "forget": "IrregularSwitch",
        "front": "Front forgetting_front",
        "methods.choice": "method_for",
        "methods.method": "Method ResampledSteps",
        "phase": "PortraitTimes portrait_times",
        "plan": "Candidate Plan SavedPlan loop_of",
        "planner": "plan_with",
        "schedules.path": "Path cheapest_path fastest_path",
        "search": "Route",
        "terms": "PoolTerms Terms",
    },
)
