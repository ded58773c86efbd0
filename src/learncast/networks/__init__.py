"""Who learns: networks as frozen weights."""

from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer

__all__ = ["Activated", "LinearRNN", "TwoLayer"]


def __dir__() -> list[str]:
    return list(__all__)
