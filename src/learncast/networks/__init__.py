"""Who learns: networks as frozen weights."""

from learncast.networks.linear_rnn import LinearRNN

__all__ = ["LinearRNN"]
