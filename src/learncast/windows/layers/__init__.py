"""Recurrent layers and their replay: gates and derivatives at every step, from one forward pass."""

from learncast._core.lazy import exported

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "recording": "Capture capture replays",
        "recurrent_layer": "RecurrentLayer recurrent_layers",
        "replay": "Replay",
        "stepped": "SteppedLayer",
    },
)
