"""Learning dynamics: gradient flow and gradient descent of linear and activated networks."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "assumptions": "ASSUMPTIONS Assumption Condition Trust exact require worst",
        "dynamics.balanced.flow": "BalancedFlow",
        "dynamics.balanced.two_layer": "TwoLayerSolution shallow",
        "dynamics.deep": "deep_mode_time deep_mode_weight",
        "dynamics.descent": "Descent Optimizer descend",
        "dynamics.gradient_flow": "FlowSolution gradient_flow",
        "dynamics.learning_problem": "LearningProblem curvature lag_statistics",
        "dynamics.mode_equation": "accuracy band_scale sharpness strength time_between time_to_band weights",
        "dynamics.modes": "ModeSolution Modes modes modes_of",
        "dynamics.pooled": "PooledProblem",
        "dynamics.recurrent_mode": "Decade ModeStart ModeTrajectory long_run mode_flow mode_loss mode_trajectory "
        "weights_at",
        "dynamics.solution": "LearningTime Solution status_of worst_status",
        "dynamics.statistics": "LagStatistics loss_and_gradient",
        "responses.bootstrap": "bounds interval",
        "responses.features": "Features",
        "responses.modes": "ResponseModeSolution ResponseModes modes_of_responses solve_response",
        "responses.response": "Response response",
        "responses.solution": "ResponseFlowSolution ResponseSolution",
        "responses.table": "ResponseTable",
        "responses.trials": "TrialStream",
        "recurrence.feature_learning": "BlockChange FeatureLearning KernelChange feature_learning feedforward_control "
        "kernel_change unrolled",
        "recurrence.order": "HalfTimes Reversal crossing_time descent_half_loss_time half_loss_time "
        "half_strength_time order_reversal",
        "recurrence.optimum": "Optimum RecurrenceFit best_mode best_recurrence input_matrix",
        "recurrence.stability": "Extrapolation StableRate extrapolation family_extrapolation "
        "largest_stable_rate least_hidden_size outlier reach",
        "recurrence.tradeoff": "LossTerms RecurrenceTransition change_of_kind late_pulse_transition loss_terms "
        "transition two_pulse_transition zero_recurrence_warning",
        "representation.alignment": "AlignmentTime misalignment time_to_align",
        "representation.lag_kernel": "LagKernel network_kernel",
        "representation.coupling": "peak_time two_mode_coupling",
        "representation.similarity": "hidden_similarity kernel_of_grams representation_distance "
        "scaled_to_plane tangent_kernel",
    },
    inner={
        "dynamics.batch_draws": "Batches",
        "dynamics.learning_problem": "pooled_curvature sharpest_curvature",
        "dynamics.solution": "checked_times",
        "dynamics.steps.mode_descent": "Problem",
        "dynamics.steps.pooled_descent": "PooledDescent",
    },
)
