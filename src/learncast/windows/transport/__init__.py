"""How far back gradients are carried: transport factors, base rates, and their decay with the lag."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "accumulator": "Transport lag_sums mean_transport pooled",
        "base_rate": "base_rates parameter_rates",
        "decay": "Exponential Logarithmic PowerLaw TemperedPowerLaw fit_decay power_of_lag unit_time_scales",
        "derivative": "ExactTransport exact_transport forward_gradients one_step_jacobians push_forward sensitivities "
        "state_sensitivities unit_directions",
        "factor": "transport_factors",
    },
)
