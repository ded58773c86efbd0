"""The network and the goal of a forecast that is asked for data alone."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from learncast.display import Table
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.tasks.task import Task

#: Fewest hidden units of the default network.
HIDDEN = 64


@dataclass(frozen=True)
class Choice:
    """A setting that was not given: its value, why, and how to change it."""

    setting: str
    value: str
    why: str
    change: str

    @property
    def line(self) -> str:
        """The choice in one line."""
        return f"{self.setting}: {self.value} ({self.why}). Change: {self.change}"


def chosen_table(chosen: Sequence[Choice]) -> list[Table]:
    """Return a table of the settings that were not given, in a list; an empty list if all were given."""
    rows = [(c.setting, f"{c.value} ({c.why})", c.change) for c in chosen]
    return [Table("Chosen settings", ("setting", "value", "change with"), rows)] if rows else []


def default_network(
    task: Task,
    *,
    hidden_size: int | None = None,
    recurrence: float | None = None,
    scale: float | str = "torch",
    seed: int = 0,
) -> LinearRNN | TwoLayer:
    """Return the network that is forecast if none is given.

    A linear RNN, or a two-layer network if trials have one step. It has 64 hidden units, or as many as the smaller of
    inputs and outputs if they are more, and starts from weights as torch draws them. The recurrence is fixed at
    1 - 1/steps: the network remembers about one trial.

    Parameters
    ----------
    task : Task
    hidden_size, recurrence, scale, seed
        Values other than these.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.planning.defaults import default_network
    >>> default_network(lc.tasks.integration(steps=50))
    <LinearRNN: 1 input, 64 hidden, 1 output; spectral radius 0.98>
    """
    units = max(HIDDEN, min(task.inputs, task.outputs)) if hidden_size is None else hidden_size
    if task.steps == 1:
        return TwoLayer.random(task.inputs, units, task.outputs, scale=scale, rng=seed)
    memory = 1 - 1 / task.steps if recurrence is None else recurrence
    return LinearRNN.random(task.inputs, units, task.outputs, scale=scale, recurrence=memory, rng=seed)


def network_call(network: LinearRNN | TwoLayer) -> str:
    """Return the Python call that makes a default network."""
    memory = f", recurrence={network.scalar_recurrence!r}" if isinstance(network, LinearRNN) else ""
    sizes = f"{network.inputs}, {network.hidden_size}, {network.outputs}"
    return f'lc.{type(network).__name__}.random({sizes}, scale="torch"{memory})'
