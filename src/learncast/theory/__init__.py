"""Learning dynamics: gradient flow and gradient descent of linear and activated networks."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "dynamics.solution": "LearningTime Solution status_of worst_status",
        "representation.alignment": "AlignmentTime misalignment time_to_align",
        "representation.regimes": "richness",
        "representation.similarity": "hidden_similarity off_diagonal_strength representation_distance tangent_kernel "
        "tangent_kernel_summary",
    },
)
