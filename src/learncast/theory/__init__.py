"""Learning dynamics: gradient flow and gradient descent of linear and activated networks."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "assumptions": "ASSUMPTIONS Assumption Condition Trust exact require worst",
        "dynamics.balanced.flow": "BalancedFlow",
        "dynamics.balanced.imbalance": "Imbalance",
        "dynamics.balanced.two_layer": "TwoLayerSolution shallow",
        "dynamics.descent": "BatchStatistics Descent descend",
        "dynamics.gradient_flow": "FlowSolution gradient_flow",
        "dynamics.learning_problem": "LearningProblem curvature lag_statistics pooled_curvature sharpest_curvature",
        "dynamics.mode_equation": "accuracy band_scale descent_correction descent_steps sharpness strength time_between "
        "time_to_band weights",
        "dynamics.modes": "ModeSolution Modes modes modes_of",
        "dynamics.pooled": "PooledProblem",
        "dynamics.recurrent_mode": "ModeTrajectory mode_flow mode_loss mode_trajectory",
        "dynamics.solution": "LearningTime Solution checked_times status_of worst_status",
        "dynamics.statistics": "LagStatistics loss_and_gradient",
        "dynamics.steps.mode_descent": "Problem",
        "dynamics.steps.optimizer": "Optimizer",
        "dynamics.steps.pooled_descent": "PooledDescent",
        "representation.alignment": "AlignmentTime misalignment time_to_align",
        "representation.regimes": "richness",
        "representation.similarity": "hidden_similarity off_diagonal_strength representation_distance tangent_kernel "
        "tangent_kernel_summary",
    },
)
