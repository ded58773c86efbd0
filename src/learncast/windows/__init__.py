"""How far back the gradient of a trained recurrent model carries a signal that N sequences show.

`window` diagnoses a model; `Measurement`, `DetectionRule` and `Batching` hold its options. The packages below are
`layers` (gates and derivatives of a layer), `transport` (how far gradients are carried back) and `detection` (which
lags have a signal above the noise). Names load on first use, because some need torch.
"""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "cells": "LSTM ConstGate DiagGate PaperGRU SharedGate",
        "diagnosis": "window",
        "monitor": "WindowMonitor",
        "options": "Batching DetectionRule Measurement",
        "result": "Window",
    },
)
