"""Who learns: networks as frozen weights."""

from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer

#: Any network whose learning can be forecast.
Network = LinearRNN | TwoLayer | Activated

__all__ = ["Activated", "LinearRNN", "Network", "TwoLayer"]


def __dir__() -> list[str]:
    return list(__all__)
