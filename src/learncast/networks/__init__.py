"""Networks that learn, described by their weights."""

from learncast.networks.activated import Activated
from learncast.networks.deep import Deep
from learncast.networks.linear_rnn import Alignment, LinearRNN
from learncast.networks.two_layer import TwoLayer

#: Every kind of network that learncast describes.
Network = LinearRNN | TwoLayer | Deep | Activated

__all__ = ["Activated", "Alignment", "Deep", "LinearRNN", "Network", "TwoLayer"]


def __dir__() -> list[str]:
    return list(__all__)
