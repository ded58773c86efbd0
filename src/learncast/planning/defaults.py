"""The settings of a question that is asked of data alone: network and learning rate."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from numpy.typing import ArrayLike

from learncast._core.errors import check_keywords
from learncast.display import Table
from learncast.networks import Network
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.learning_rate import suggest_rate
from learncast.planning.methods.choice import default_learn
from learncast.procedure.goals import DATA_GOAL
from learncast.procedure.stage import Stage
from learncast.tasks.recorded.files import data_keywords, from_data
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


def task_and_network(
    task: Task | ArrayLike | str | os.PathLike[str],
    network: Network | ArrayLike | None,
    data: dict[str, Any],
    known: Sequence[str],
) -> tuple[Task, Network | None]:
    """Return a task, of trials if these are given, and the network; an array in its place holds the targets.

    Parameters
    ----------
    task, network
        Of `learncast.forecast`.
    data : dict
        Options of recorded trials.
    known : sequence of str
        Other keywords of the question.
    """
    given = network if isinstance(network, Network) else None
    targets = network if given is None else None
    check_keywords(data, (*known, *(() if isinstance(task, Task) else data_keywords(task, targets))))
    if not isinstance(task, Task):
        return from_data(task, **(data if targets is None else {"targets": targets, **data})), given
    if targets is not None:
        default_learn(targets)  # raises
    return task, given


def chosen_network(task: Task, question: str) -> tuple[Network, Choice]:
    """Return the default network for a task, and the choice of it in a question such as "forecast"."""
    made = default_network(task)
    change = f"lc.{question}((inputs, targets), network)"
    return made, Choice("network", network_call(made), "default for these sizes", change)


def chosen_rate(stage: Stage, network: Network, method: str = "auto", seed: int = 0) -> tuple[float, Choice]:
    """Return half the largest safe learning rate of a stage, and the choice of it."""
    limited = Stage(stage.task, DATA_GOAL) if stage.goal.needs_training else stage
    found = suggest_rate([limited], network, method=method, seed=seed)
    return found.learning_rate, Choice("learning rate", f"{found.learning_rate:.3g}", found.why, "learning_rate=...")


def network_call(network: LinearRNN | TwoLayer) -> str:
    """Return the Python call that makes a default network."""
    memory = f", recurrence={network.scalar_recurrence!r}" if isinstance(network, LinearRNN) else ""
    sizes = f"{network.inputs}, {network.hidden_size}, {network.outputs}"
    return f'lc.{type(network).__name__}.random({sizes}, scale="torch"{memory})'
