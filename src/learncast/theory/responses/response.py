"""The responses of nonlinear units with fixed recurrence: statistics measured on trials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from learncast._core.errors import InvalidSpec, SchemaMismatch, UnsupportedModel
from learncast._core.limits import readable
from learncast._core.validation import FloatArray, count
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.results import Provenance, described, load_dataset, save_dataset, spec_hash
from learncast.theory.responses.bootstrap import LEVEL, Resampling, interval
from learncast.theory.responses.features import Features, measured_features
from learncast.theory.responses.table import ResponseTable
from learncast.theory.responses.trials import Source, TrialStream, check_channels, trial_stream

if TYPE_CHECKING:
    import xarray as xr

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
    Every statistic has an interval. A network with other weights needs no new measurement:

    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> measured = lc.theory.response(task, network, trials=2000)
    >>> measured.dataset["cross"].values.round(2), measured.dataset["cross_low"].values.round(2)
    (array([[ 3.83, -3.83]]), array([[ 3.76, -3.9 ]]))
    >>> later = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.5, hidden_size=1), "relu")
    >>> measured.moved(later).statistics is measured.statistics
    True
    """

    network: Activated
    trials: TrialStream
    statistics: Features | ResponseTable

    @property
    def name(self) -> str:
        """Name of the task or trials."""
        return self.trials.name

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
        return self.trials.gaussian and self.trials.as_task.recipe is None

    @property
    def dataset(self) -> xr.Dataset:
        """Every statistic with its interval and its resamples; a table as far as it has been measured."""
        import xarray as xr

        variables: dict[str, object] = {}
        if isinstance(self.statistics, ResponseTable):
            table, axes = self.statistics, ("panel", "node", "moment", "row")
            variables = {
                "panel_end": ("panel", table.ends[1:], described("input weight at which a panel ends", "1")),
                "coefficients": (axes, table.coefficients, described("Chebyshev coefficients of each panel", "1")),
                "interpolation_error": ((), table.accuracy, described("relative error of the interpolation", "1")),
            }
        for name, (over, values, text, units) in self.statistics.variables().items():
            low, high = interval(values[0], values[1:], signed=True)
            variables |= {
                name: (over, values[0], described(text, units)),
                f"{name}_low": (over, low, described(f"{text}, lower end of the interval", units)),
                f"{name}_high": (over, high, described(f"{text}, upper end of the interval", units)),
                f"{name}_resamples": (("resample", *over), values[1:], described(f"{text}, resamples", units)),
            }
        attrs = {"task": self.name, "trials": self.trials.number, "activation": self.network.activation}
        return xr.Dataset(variables, self.statistics.coordinates(), {**attrs, "interval_level": LEVEL})

    @cached_property
    def hash(self) -> str:
        """Short hash of the trials and the network."""
        return spec_hash(self.trials.hash, self.network.hash, self.resamples)

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        recorded = self.trials.recorded is not None
        return Provenance("measured", (), self.hash, None if recorded else self.trials.seed)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the statistics to NetCDF."""
        return save_dataset(self.dataset, path, kind="response", provenance=self.provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str], source: Source, network: Activated) -> Response:
        """Read statistics that `save` wrote.

        Parameters
        ----------
        path : path
        source, network
            Trials and network of the measurement, as for `response`. The file holds neither, and must match both.
        """
        dataset, provenance = load_dataset(path, kind="response")
        check_network(network)
        with readable(Path(path), kind="a complete response", error=SchemaMismatch):
            number = None if provenance.seed is None else int(dataset.attrs["trials"])
            stream = trial_stream(source, number, 0, provenance.seed or 0)
            resamples = dataset.sizes["resample"]
            if spec_hash(stream.hash, network.hash, resamples) != provenance.spec_hash:
                raise SchemaMismatch(
                    f"{path} must hold responses of this network to these trials, got {dataset.attrs['activation']} "
                    f"units and {dataset.attrs['task']!r} or other weights."
                )
            statistics: Features | ResponseTable
            if network.activation == "relu":
                names = ("cross", "power", "target_power")
                rows = [np.concatenate([dataset[n].values[None], dataset[f"{n}_resamples"].values]) for n in names]
                statistics = Features(dataset["recurrence"].values[::2], *rows)
            else:
                statistics = ResponseTable(
                    stream,
                    network,
                    float(_recurrences(network)[0]),
                    Resampling.of(stream, resamples),
                    np.append(0.0, dataset["panel_end"].values),
                    dataset["coefficients"].values,
                    float(dataset["interpolation_error"]),
                )
            return cls(network, stream, statistics)

    def moved(self, network: Activated) -> Response:
        """Return these statistics with a network of other input and output weights."""
        return Response(network, self.trials, self.statistics)

    def __repr__(self) -> str:
        return (
            f"<Response of {self.network.activation} units to {self.name!r}: {self.statistics.summary}, "
            f"{self.trials.number} trials, {self.resamples} resamples>"
        )


def response(
    source: Source,
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
    source : Task, callable or (inputs, targets)
        A task, of which the recorded trials are read or, if there are none, Gaussian trials with its moments are
        drawn; a function sampler(trials, rng) -> (inputs, targets); or recorded inputs (trials, steps, 1) and targets
        (trials, outputs) or (trials, steps, outputs).
    network : Activated
        A LinearRNN's weights with a nonlinearity: one input, diagonal recurrence.
    trials : int, optional
        Number of Gaussian trials to draw; 65536 for ReLU and 16384 for tanh by default.
    rng : numpy.random.Generator or int
        Generator or seed. Sources measured with the same seed share their noise, so their differences are precise.
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
    >>> for source, trials in ((task, 2000), ((inputs, inputs.sum(axis=1)), None)):
    ...     print(solve_response(response(source, network, trials=trials), learning_rate=1e-3).time_to(0.9))
    <LearningTime to 0.9: 1056.08 flow steps, 1057 descent steps (1040 to 1074), ok>
    <LearningTime to 0.9: 920.721 flow steps, 922 descent steps (679 to 1239), ok>
    """
    check_network(network)
    stream = trial_stream(source, trials, TRIALS[network.activation], rng)
    if stream.outputs != network.outputs:
        raise InvalidSpec(
            f"{stream.name!r} must have the network's {network.outputs} outputs, got {stream.outputs}.", field="source"
        )
    resampling = Resampling.of(stream, count("bootstrap", bootstrap, least=2))
    recurrence = _recurrences(network)
    if network.activation == "relu":
        return Response(network, stream, measured_features(stream, np.unique(recurrence), resampling))
    return Response(network, stream, ResponseTable(stream, network, float(recurrence[0]), resampling))


def _recurrences(network: Activated) -> FloatArray:
    """Recurrence of each unit that can learn."""
    return np.diagonal(linear_weights(network).recurrent_weights)[active_units(network)]


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


def check_network(network: object) -> None:
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
    if network.activation != "relu" and len(active) > 1:
        raise UnsupportedModel(
            f"{network.activation} networks must have one active unit, got {len(active)}. {instead}", field="network"
        )
