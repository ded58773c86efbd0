"""Learning dynamics: gradient flow and gradient descent of linear and activated networks."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "responses.bootstrap": "bounds interval",
        "responses.features": "Features",
        "responses.modes": "ResponseModeSolution ResponseModes modes_of_responses solve_response",
        "responses.response": "Response response",
        "responses.solution": "ResponseFlowSolution ResponseSolution",
        "responses.table": "ResponseTable",
        "responses.trials": "TrialStream",
        "representation.alignment": "AlignmentTime misalignment time_to_align",
        "representation.regimes": "richness",
        "representation.similarity": "hidden_similarity off_diagonal_strength representation_distance tangent_kernel "
        "tangent_kernel_summary",
    },
)
