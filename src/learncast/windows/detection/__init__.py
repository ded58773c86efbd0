"""The detection of a lag's gradient signal in the noise between sequences."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "detection": "Detection aggregated detect",
        "requirement": "INFORMATION LongestLags envelope_floor learnable_window least_ratio mean_alignment "
        "predicted_window required_by_envelope required_sequences sample_exponent signal_to_noise window_of",
        "signs": "matched_statistic",
        "tail_index": "MINIMUM_SAMPLES fit_tail_index stable_quantiles",
    },
)
