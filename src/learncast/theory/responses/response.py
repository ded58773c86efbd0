"""The responses of nonlinear units with fixed recurrence: statistics measured on trials."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import count
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.results import Provenance, spec_hash
from learncast.tasks.task import Task
from learncast.theory.responses.bootstrap import Resampling
from learncast.theory.responses.features import Features, measured_features
from learncast.theory.responses.table import ResponseTable
from learncast.theory.responses.trials import TrialStream, check_channels

__all__ = ["Response", "response"]

#: Trials drawn by default: the interval of step counts is then below 1% on the paper's integration task.
TRIALS = {"relu": 2**16, "tanh": 2**14}


@dataclass(frozen=True, eq=False, repr=False)
class Response:
    """Responses of a nonlinear network's units to a task, as the few statistics that learning depends on.

    With one input channel and a fixed diagonal recurrence, a ReLU unit of input weight a has the activity h = |a| z,
    where the *response feature* z = relu(b z + sign(a) x) does not depend on |a|. The loss then depends only on E[y z]
    and E[z z'], for both signs of each recurrence b. The activity h(a) of a tanh unit changes shape with a, so
    E[y h(a)] and E[h(a)^2] are tabulated (`ResponseTable`).

    Attributes
    ----------
    network : Activated
        The network before training.
    trials : TrialStream
        Trials on which the statistics were measured.
    statistics : Features or ResponseTable
        Means, followed by their bootstrap resamples.

    Examples
    --------
    Every statistic has resamples:

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> measured = lc.theory.response(task, network, trials=2000)
    >>> measured.features.cross[0].round(2), measured.resamples
    (array([[ 3.83, -3.83]]), 200)
    """

    network: Activated
    trials: TrialStream
    statistics: Features | ResponseTable

    @property
    def name(self) -> str:
        """Name of the task."""
        return self.trials.task.name

    @property
    def features(self) -> Features:
        """Statistics of ReLU units."""
        assert isinstance(self.statistics, Features)
        return self.statistics

    @property
    def resamples(self) -> int:
        """Number of bootstrap resamples."""
        return len(self.statistics.target_power) - 1

    @property
    def assumes_gaussian(self) -> bool:
        """Whether Gaussian trials stand for a task of which only the moments are known; families are Gaussian."""
        return self.trials.gaussian and self.trials.task.recipe is None

    @cached_property
    def hash(self) -> str:
        """Short hash of the trials and the network."""
        return spec_hash(self.trials.hash, self.network.hash, self.resamples)

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        recorded = self.trials.recorded is not None
        return Provenance("measured", (), self.hash, None if recorded else self.trials.seed)

    def moved(self, network: Activated) -> Response:
        """Return these statistics with a network of other input and output weights."""
        return Response(network, self.trials, self.statistics)

    def __repr__(self) -> str:
        return (
            f"<Response of {self.network.activation} units to {self.name!r}: {self.trials.number} trials, "
            f"{self.resamples} resamples>"
        )


def response(
    task: Task,
    network: Activated,
    *,
    trials: int | None = None,
    rng: np.random.Generator | int = 0,
    bootstrap: int = 200,
) -> Response:
    """Measure the responses of a nonlinear network with a fixed diagonal recurrence.

    Trials are streamed, so any number of them fits in memory. Only the sums over 256 groups are kept, and resampled for
    the intervals. Recorded trials that were centred or scaled are centred and scaled again in every resample. Gaussian
    trials count with both signs (x -> -x, y -> -y), and the task's exact second moments correct the means (control
    variates).

    Parameters
    ----------
    task : Task
        Task with one input. Its recorded trials are read or, if there are none, Gaussian trials with its moments are
        drawn.
    network : Activated
        A LinearRNN's weights with a nonlinearity: one input, diagonal recurrence.
    trials : int, optional
        Number of Gaussian trials to draw; 65536 for ReLU and 16384 for tanh by default.
    rng : numpy.random.Generator or int
        Generator or seed. Tasks measured with the same seed share their noise, so their differences are precise.
    bootstrap : int
        Number of resamples.

    Returns
    -------
    Response
        The statistics that learning depends on, with resamples.

    Raises
    ------
    UnsupportedModel
        If the responses of units change while other units learn: several inputs, coupled units, several tanh units.

    Examples
    --------
    A recording of 400 trials gives wider intervals than 2000 trials of a task:

    >>> import numpy as np
    >>> import learncast as lc
    >>> from learncast.theory import response, solve_response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> inputs = np.random.default_rng(0).standard_normal((400, 20, 1))
    >>> recorded = lc.Task.from_samples(inputs, inputs.sum(axis=1))
    >>> for one, trials in ((task, 2000), (recorded, None)):
    ...     print(solve_response(response(one, network, trials=trials), learning_rate=1e-3).time_to(0.9))
    <LearningTime to 0.9: 1056.08 flow steps, 1057 descent steps (1040 to 1074), ok>
    <LearningTime to 0.9: 920.721 flow steps, 922 descent steps (682 to 1245), ok>
    """
    check_network(network)
    stream = TrialStream.of(task, trials, TRIALS[network.activation], rng)
    if task.outputs != network.outputs:
        raise InvalidSpec(
            f"{task.name!r} must have the network's {network.outputs} outputs, got {task.outputs}.", field="task"
        )
    resampling = Resampling.of(stream, count("bootstrap", bootstrap, least=2))
    recurrence = np.diagonal(linear_weights(network).recurrent_weights)[active_units(network)]
    if network.activation == "relu":
        return Response(network, stream, measured_features(stream, np.unique(recurrence), resampling))
    return Response(network, stream, ResponseTable(stream, network, float(recurrence[0]), resampling))


def linear_weights(network: Activated) -> LinearRNN:
    """Return the weights of an activated recurrent network."""
    assert isinstance(network.network, LinearRNN)
    return network.network


def active_units(network: Activated) -> NDArray[np.intp]:
    """Return the indices of the units that can learn.

    A ReLU unit without input weight is silent, and the gradient of both its weights is 0 (relu'(0) is 0, as in every
    framework). A tanh unit without input weight learns through its output weight.
    """
    w = linear_weights(network)
    reached = (w.input_weights != 0).any(axis=1)
    if network.activation != "relu":
        reached = reached | (w.output_weights != 0).any(axis=0)
    return np.flatnonzero(reached)


def check_network(network: object, *, most_tanh_units: int | None = 1) -> None:
    """Require a network whose responses do not change with what its units learn."""
    if not isinstance(network, Activated) or not isinstance(network.network, LinearRNN):
        inner = getattr(network, "network", network)
        raise UnsupportedModel(
            f"network must be an Activated LinearRNN, got {'an Activated ' if inner is not network else ''}"
            f"{type(inner).__name__}.",
            field="network",
        )
    w = network.network
    check_channels("network", w.inputs)
    instead = "Train the network, or forecast the linear one."
    if not np.array_equal(w.recurrent_weights, np.diag(np.diagonal(w.recurrent_weights))):
        raise UnsupportedModel(f"The recurrence must be diagonal, got coupled units. {instead}", field="network")
    active = active_units(network)
    if not len(active):
        raise InvalidSpec("At least one hidden unit must have an input weight.", field="network")
    if network.activation != "relu" and most_tanh_units is not None and len(active) > most_tanh_units:
        raise UnsupportedModel(
            f"{network.activation} networks must have one active unit, got {len(active)}. {instead}", field="network"
        )
