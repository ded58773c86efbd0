"""Methods, forecasts, plans, phase portraits and forgetting.

The entry points are `learncast.forecast`, `follow`, `plan`, `generalise`, `forget` and `phase`.
"""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "forecast": "Forecast follow",
        "front": "Front",
        "generalise.folds": "Folds",
        "generalise.result": "Generalisation",
        "methods.choice": "method_for",
        "plan": "Plan loop_of",
        "terms": "Terms",
    },
    inner={
        "batches": "BatchSteps",
        "explanation": "Explanation closeness explain singular_accuracy speedup_terms",
        "run": "StageForecast",
        "forget": "IrregularSwitch",
        "generalise.generalise": "DependentTrials",
        "generalise.held_out_plan": "HeldOutPlan",
        "generalise.transfer": "Transfer",
        "generalise.more_trials": "Expected TrialCurve",
        "generalise.curve": "HeldOutProblem",
        "methods.method": "Method ResampledSteps",
        "portrait": "PortraitTimes portrait_times",
        "candidate": "Candidate Costs",
        "planner": "plan_with",
        "search": "Route",
        "terms": "PoolTerms",
    },
)
