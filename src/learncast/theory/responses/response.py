"""The responses of nonlinear units with a fixed recurrence, as statistics measured on trials."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from learncast.theory.responses.table import Table
from learncast.theory.responses.trials import Trials, check_channels, trials_of

if TYPE_CHECKING:
    import xarray as xr

__all__ = ["Response", "response"]

#: Statistics of response features, as a file names them.
FEATURES = ("cross", "power", "target_power")

#: Trials drawn by default: on the paper's integration task the interval of step counts is then below 1%.
TRIALS = {"relu": 2**16, "tanh": 2**14}


@dataclass(frozen=True, eq=False, repr=False)
class Response:
    """What a nonlinear network's units answer to a task, in the few numbers that their learning depends on.

    With one input channel and a diagonal recurrence that stays fixed, a ReLU unit of input weight a answers
    h = |a| z, where the *response feature* z = relu(b z + sign(a) x) does not depend on |a|. So the loss needs
    E[y z] and E[z z'] alone, for both signs of each recurrence b. A tanh unit's answer h(a) changes shape with a:
    E[y h(a)] and E[h(a)^2] are tabulated (`Table`).

    Attributes
    ----------
    network : Activated
        The network before training.
    trials : Trials
        On what the statistics were measured.
    statistics : Features or Table
        Means, followed by their bootstrap replicas.

    Examples
    --------
    How well a statistic is known is in its interval. A network that has moved needs no new measurement:

    >>> import learncast as lc
    >>> from learncast.theory.responses.response import response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> found = response(task, network, trials=2000)
    >>> found.dataset["cross"].values.round(2), found.dataset["cross_low"].values.round(2)
    (array([[ 3.83, -3.83]]), array([[ 3.76, -3.89]]))
    >>> later = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.5, hidden_size=1), "relu")
    >>> found.moved(later).statistics is found.statistics
    True
    """

    network: Activated
    trials: Trials
    statistics: Features | Table

    @property
    def name(self) -> str:
        """Name of the task or trials."""
        return self.trials.name

    @property
    def features(self) -> Features:
        """The statistics of ReLU units."""
        assert isinstance(self.statistics, Features)
        return self.statistics

    @property
    def replicas(self) -> int:
        """Number of bootstrap replicas."""
        return len(self.statistics.target_power) - 1

    @property
    def dataset(self) -> xr.Dataset:
        """Every statistic with its interval and its replicas, labelled; of a table, as far as it has been asked for."""
        import xarray as xr

        variables = self.statistics.panels() if isinstance(self.statistics, Table) else {}
        for name, (dimensions, values, text, units) in self.statistics.listed().items():
            low, high = interval(values[0], values[1:], signed=True)
            variables[name] = (dimensions, values[0], described(text, units))
            variables[f"{name}_low"] = (dimensions, low, described(f"{text}, low end of its interval", units))
            variables[f"{name}_high"] = (dimensions, high, described(f"{text}, high end of its interval", units))
            variables[f"{name}_replicas"] = (
                ("replica", *dimensions),
                values[1:],
                described(f"{text}, bootstrap replicas", units),
            )
        return xr.Dataset(
            variables,
            coords=self.statistics.coordinates(),
            attrs={
                "task": self.name,
                "trials": self.trials.number,
                "interval_level": LEVEL,
                "activation": self.network.activation,
            },
        )

    @cached_property
    def hash(self) -> str:
        """Short hash of the trials and the network."""
        return spec_hash(self.trials.hash, self.network.hash, self.replicas)

    @property
    def provenance(self) -> Provenance:
        """Where the numbers come from."""
        drawn = not isinstance(self.trials.source, tuple)
        return Provenance("measured", (), self.hash, self.trials.seed if drawn else None)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the statistics to NetCDF."""
        return save_dataset(self.dataset, path, kind="response", provenance=self.provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str], source: Any, network: Activated) -> Response:
        """Read statistics that `save` wrote instead of measuring them again.

        Parameters
        ----------
        path : path
        source, network
            What they were measured on, as for `response`: a file holds neither. Others are refused.
        """
        dataset, provenance = load_dataset(path, kind="response")
        check_network(network)
        with readable(Path(path), kind="a whole response", error=SchemaMismatch):
            number = None if isinstance(source, tuple | list) else int(dataset.attrs["trials"])
            stream = trials_of(source, number, 0, provenance.seed or 0)
            replicas = dataset.sizes["replica"]
            if spec_hash(stream.hash, network.hash, replicas) != provenance.spec_hash:
                raise SchemaMismatch(
                    f"{path} must hold responses of this network to these trials, got those of "
                    f"{dataset.attrs['activation']} units to {dataset.attrs['task']!r}. Pass the trials and the "
                    "network they were measured with, or measure again."
                )
            if network.activation == "relu":
                rows = [np.concatenate([dataset[n].values[None], dataset[f"{n}_replicas"].values]) for n in FEATURES]
                return cls(network, stream, Features(dataset["recurrence"].values[::2], *rows))
            resampling, recurrence = Resampling.of(stream, replicas), _recurrences(network)[0]
            ends = np.append(0.0, dataset["panel_end"].values)
            coefficients, error = dataset["coefficients"].values, float(dataset["interpolation_error"])
            return cls(
                network, stream, Table(stream, network, float(recurrence), resampling, ends, coefficients, error)
            )

    def moved(self, network: Activated) -> Response:
        """The same statistics for a network whose input and output weights have moved."""
        return Response(network, self.trials, self.statistics)

    def __repr__(self) -> str:
        return (
            f"<Response of {self.network.activation} units to {self.name!r}: {self.statistics.summary}, "
            f"{self.trials.number} trials, {self.replicas} replicas>"
        )


def response(
    source: Any,
    network: Activated,
    *,
    trials: int | None = None,
    rng: np.random.Generator | int = 0,
    bootstrap: int = 200,
) -> Response:
    """Measure the responses of a nonlinear network with a fixed diagonal recurrence.

    Trials are streamed, so that any number of them fits in memory; only the means of 256 groups are kept, and resampled
    for the intervals. The Gaussian trials of a Task are used with both signs (x -> -x, y -> -y), and what is known
    exactly of its second moments corrects the means (control variates).

    Parameters
    ----------
    source : Task, callable or (inputs, targets)
        A task, whose Gaussian trials are drawn; a function sampler(trials, rng) -> (inputs, targets); or recorded
        inputs (trials, steps, 1) and targets (trials, outputs) or (trials, steps, outputs), used as they are.
    network : Activated
        A LinearRNN's weights with a nonlinearity: one input, diagonal recurrence.
    trials : int, optional
        Trials to draw; 65536 for ReLU and 16384 for tanh by default.
    rng : numpy.random.Generator or int
        Generator or seed. Sources measured with one seed see the same noise, so that their differences are sharp.
    bootstrap : int
        Replicas of the statistics.

    Returns
    -------
    Response
        The statistics that learning depends on, with replicas.

    Raises
    ------
    UnsupportedModel
        If units' responses change with what others learn: several inputs, units that drive each other, several tanh
        units.

    Examples
    --------
    Trials of a task, or recorded ones. A recording of 400 tells less than 2000 drawn trials, and its times say so:

    >>> import numpy as np
    >>> from learncast.theory.responses.modes import solve_response
    >>> import learncast as lc
    >>> from learncast.theory.responses.response import response
    >>> task = lc.tasks.integration(steps=20)
    >>> network = lc.Activated(lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=1), "relu")
    >>> inputs = np.random.default_rng(0).standard_normal((400, 20, 1))
    >>> for source, trials in ((task, 2000), ((inputs, inputs.sum(axis=1)), None)):
    ...     print(solve_response(response(source, network, trials=trials), learning_rate=1e-3).time_to(0.9))
    <LearningTime to 0.9: 1056.08 flow steps (1042.63 to 1073.58), 1057 descent steps, ok>
    <LearningTime to 0.9: 920.721 flow steps (719.268 to 1250.33), 922 descent steps, ok>
    """
    check_network(network)
    stream = trials_of(source, trials, TRIALS[network.activation], rng)
    if stream.outputs != network.outputs:
        raise InvalidSpec(
            f"{stream.name!r} must have the network's {network.outputs} outputs, got {stream.outputs}. Match "
            "the network's outputs to the task's."
        )
    replicas = count("bootstrap", bootstrap, least=2)
    resampling = Resampling.of(stream, replicas)
    recurrence = _recurrences(network)
    if network.activation == "relu":
        return Response(network, stream, measured_features(stream, np.unique(recurrence), resampling))
    return Response(network, stream, Table(stream, network, float(recurrence[0]), resampling))


def _recurrences(network: Activated) -> FloatArray:
    """Recurrence of each unit that can learn."""
    return np.diagonal(linear_weights(network).recurrent_weights)[active_units(network)]


def linear_weights(network: Activated) -> LinearRNN:
    """The recurrent network's weights."""
    assert isinstance(network.network, LinearRNN)
    return network.network


def active_units(network: Activated) -> NDArray[np.intp]:
    """Indices of the units that can learn.

    A ReLU unit without input weight is silent, and neither of its weights has a slope (that of relu at 0 is 0, as in
    every framework); a tanh unit without input weight learns through its output weight.
    """
    w = linear_weights(network)
    reached = (w.input_weights != 0).any(axis=1)
    if network.activation != "relu":
        reached = reached | (w.output_weights != 0).any(axis=0)
    return np.flatnonzero(reached)


def check_network(network: Any) -> None:
    """Refuse networks whose units' responses change with what they learn."""
    if not isinstance(network, Activated) or not isinstance(network.network, LinearRNN):
        raise UnsupportedModel(
            required="the response-feature theory needs an Activated LinearRNN",
            got=type(network).__name__ if not isinstance(network, Activated) else "an Activated TwoLayer",
            why="it is about recurrent units with a nonlinearity",
            remedy="describe it as learncast.Activated(LinearRNN(...), 'relu')",
        )
    w = network.network
    check_channels(w.inputs)
    if not np.array_equal(w.recurrent_weights, np.diag(np.diagonal(w.recurrent_weights))):
        raise UnsupportedModel(
            "the recurrence must be diagonal, got hidden units that drive each other. Train it "
            "(learncast.training), or forecast the linear network."
        )
    active = active_units(network)
    if not len(active):
        raise InvalidSpec("at least one hidden unit must have an input weight, got none.")
    if network.activation != "relu" and len(active) > 1:
        raise UnsupportedModel(
            f"{network.activation} networks of one active unit can be forecast, got {len(active)} active "
            "units. Train it (learncast.training), use one unit, or use relu."
        )
