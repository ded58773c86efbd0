"""The result: when to stop, what held-out loss to expect, and whether training on overfits."""

from __future__ import annotations

import math
import os
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, positive
from learncast.display import Displayable, HtmlRepr, Plot, Reported, Table, format_count
from learncast.planning.defaults import Choice, chosen_table
from learncast.planning.generalise.curve import NORMAL, HeldOutCurve, HeldOutProblem, alike, loss_factor
from learncast.planning.generalise.folds import Labels
from learncast.planning.generalise.learners import PooledLearner
from learncast.planning.generalise.subsets import Trials, raw_trials, same_trials
from learncast.planning.methods.method import LIMIT
from learncast.results import STEPS, Provenance, described, load_dataset, save_dataset, spec_hash, variables
from learncast.tasks.best_map import Correlations
from learncast.tasks.task import Task
from learncast.theory.assumptions import Assumption, Trust

if TYPE_CHECKING:
    import xarray as xr

    from learncast.planning.generalise.more_trials import Expected, TrialCurve
    from learncast.planning.generalise.transfer import Transfer

#: Share of the held-out loss below which a change does not matter.
LITTLE = 0.05
#: Ratio of trials to inputs between which held-out losses are least certain.
FEW = (0.7, 1.5)
#: Correlation of the inputs of neighbouring trials from which on they depend on each other, and its standard errors.
DEPENDENT, SURE = 0.1, 3.0
#: Share of the first training loss below which a rise is rounding.
RISE = 1e-9

#: Dimensions, values and attributes of quantities by name.
Variables = dict[str, tuple[Any, ...]]


class Contents(NamedTuple):
    """Contents of a dataset, which is made of them only where it is needed: xarray takes long to load."""

    variables: Variables
    coords: Variables
    attrs: dict[str, Any]


@dataclass(frozen=True, eq=False, repr=False)
class Generalisation(Displayable, Reported):
    """When to stop training, and the held-out loss to expect.

    Attributes
    ----------
    contents : Contents
        All numbers; `dataset` is made of them.
    provenance : Provenance
        Version, settings and hashes from which the numbers come.
    problem : HeldOutProblem or None
        What was asked; None if the result was read from a file.
    found : HeldOutCurve or None
        The curve with its errors and states.
    transfer : Transfer or None
        What training on a source first is worth, if one was given.
    chosen : tuple of Choice
        Settings that were not given, with their values and how to change them.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> rng = np.random.default_rng(0)
    >>> inputs = rng.standard_normal((60, 1, 20))
    >>> targets = inputs[:, 0, :2] + 2 * rng.standard_normal((60, 2))
    >>> network = lc.TwoLayer.random(20, 8, 2, scale=0.1, rng=rng)
    >>> g = lc.generalise(lc.Task.from_samples(inputs, targets), network, learning_rate=0.05, most_steps=1000)
    >>> g.overfits, round(g.rise, 1), g.modes["signal"].values
    ('unclear', 1.4, array([ True, False]))
    >>> [round(number, 1) for number in g.trials(120)]
    [4.4, 3.0, 5.8]
    """

    contents: Contents
    provenance: Provenance
    problem: HeldOutProblem | None = None
    found: HeldOutCurve | None = None
    transfer: Transfer | None = None
    chosen: tuple[Choice, ...] = ()

    @cached_property
    def dataset(self) -> xr.Dataset:
        """All numbers."""
        import xarray as xr

        return xr.Dataset(*self.contents)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write all numbers to NetCDF."""
        return save_dataset(self.dataset, path, kind="generalise", provenance=self.provenance)

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Generalisation:
        """Read numbers that `save` wrote."""
        dataset, provenance = load_dataset(path, kind="generalise")
        parts = [{str(n): (v.dims, v.values, v.attrs) for n, v in part.items()} for part in (dataset, dataset.coords)]
        return cls(Contents(parts[0], parts[1], dataset.attrs), provenance)

    def values(self, name: str) -> FloatArray:
        """Values of a quantity; those of curves over ``steps``, those of modes over ``mode``."""
        own = self.contents.coords if name == "steps" else self.contents.variables
        return np.asarray(own[name][1])

    def fact(self, name: str) -> Any:
        """Value of an attribute of the dataset."""
        return self.contents.attrs[name]

    def _pair(self, name: str) -> tuple[float, float]:
        return float(self.values(f"{name}_low")), float(self.values(f"{name}_high"))

    @property
    def stop(self) -> int:
        """Step of the least held-out loss."""
        return int(self.values("stop"))

    @property
    def stop_set(self) -> tuple[int, int]:
        """First and last of the stops whose loss does not differ from the least beyond the noise."""
        low, high = self._pair("stop")
        return int(low), int(high)

    @property
    def loss(self) -> float:
        """Held-out loss at the stop."""
        return float(self.values("loss"))

    @property
    def loss_interval(self) -> tuple[float, float]:
        """95% interval of the held-out loss."""
        return self._pair("loss")

    @property
    def rise(self) -> float:
        """Held-out loss after the last step over the loss at the stop."""
        return float(self.values("rise"))

    @property
    def rise_interval(self) -> tuple[float, float]:
        """95% interval of the rise."""
        return self._pair("rise")

    @property
    def overfits(self) -> str:
        """Whether training on raises the held-out loss: "yes", "no" or "unclear".

        It is "no" only if test statistics are known exactly and the loss still falls at the last step.
        """
        return str(self.fact("overfits"))

    @property
    def most_steps(self) -> int:
        """Last step."""
        return int(self.values("steps")[-1])

    @property
    def remarks(self) -> tuple[str, ...]:
        """Notes on the data and on training."""
        return tuple(filter(None, str(self.fact("remarks")).split("\n")))

    @property
    def curve(self) -> xr.Dataset:
        """Training and held-out loss, the ends of its 95% interval, R² and explained share, over steps."""
        return self.dataset[["train", "held_out", "low", "high", "r2", "explained"]]

    @property
    def modes(self) -> xr.Dataset:
        """Strength of each mode, whether it is above the edge of noise, and the step at which half of it is learned.

        A mode without strength, such as the sum of centred labels, has no such step: nan.
        """
        return self.dataset[["strength", "signal", "learned"]]

    @property
    def trust(self) -> Trust:
        """Class of the forecast: the held-out loss of given test trials is exact, that of folds is an estimate.

        It is outside if the training loss rises between stops because the learning rate is too large.
        """
        measured = self.contents.attrs.get(LIMIT)
        return Trust(() if measured is None else (Assumption(LIMIT, float(measured)),), str(self.fact("promise")))

    @property
    def asked(self) -> HeldOutProblem:
        """What was asked."""
        if self.problem is None:
            raise InvalidSpec("A result that was read from a file has no trials. Compute it again.", field="path")
        return self.problem

    @cached_property
    def trial_curve(self) -> TrialCurve:
        """Held-out loss against the number of trials, fitted on subsets of them."""
        from learncast.planning.generalise.more_trials import trial_curve

        stops, start = tuple(self.values("steps").tolist()), float(self.values("held_out")[0])
        error = math.log(self.loss_interval[1] / self.loss) / NORMAL * self.loss
        return trial_curve(self.asked, stops, start, self.loss, error)

    def trials(self, number: int) -> Expected:
        """Held-out loss at the best stop that is expected from a number of trials, with its 95% band."""
        return self.trial_curve.loss_of(count("trials", number))

    def trials_for(self, *, loss: float) -> Expected:
        """Number of trials from which a held-out loss is expected; infinite if never, nan if it cannot be claimed."""
        return self.trial_curve.trials_for(positive("loss", loss))

    @property
    def more_trials(self) -> str:
        """Whether the trials are enough: what twice as many are expected to change, or why that is unknown."""
        number = 2 * int(self.fact("trials"))
        try:
            expected = self.trials(number)
        except InvalidSpec as error:
            return f"Whether more trials would help is unknown: {error}"
        share = 1 - expected.value / self.loss if self.loss > 0 else 0.0
        verdict = "The trials are about enough" if share < LITTLE else "More trials are expected to help"
        change = "less than 1%" if abs(share) < 0.005 else f"{abs(share):.0%}"
        return (
            f"{verdict}: twice as many ({number:,}) {'lower' if share >= 0 else 'raise'} the held-out loss by "
            f"{change}, to {expected.value:.3g} (95% band {_between((expected.low, expected.high))})."
        )

    def noise(
        self,
        *,
        input: float | None = None,
        hidden: float | None = None,
        weights: float | None = None,
        session: Task | None = None,
        correlation: float = 0.0,
    ) -> xr.Dataset:
        """Loss that noise adds along training, and the best stop with it.

        Parameters
        ----------
        input, hidden, weights : float, optional
            Standard deviation of the noise in every input and step, in every hidden unit and step, and in every input
            and output weight.
        session : Task, optional
            Another session, in which the trained network is used.
        correlation : float
            Correlation of the noise of inputs or units at neighbouring steps; its powers at larger distances.

        Returns
        -------
        Dataset
            Added losses over steps, their ``total`` with the held-out loss, and the best ``stop``.
        """
        from learncast.planning.generalise.robustness import added_losses

        given = {"input": input, "hidden": hidden, "weights": weights}
        sizes = {name: float(size) for name, size in given.items() if size is not None}
        problem = self.asked
        assert self.found is not None
        return added_losses(problem, self.dataset["held_out"], self.found.states, sizes, session, correlation)

    @property
    def table(self) -> Table:
        """The numbers with their intervals."""
        rows = [
            ("stop after", f"{self.stop:,} steps", "{:,} to {:,} are as good".format(*self.stop_set)),
            ("held-out loss", f"{self.loss:.3g}", _between(self.loss_interval)),
        ]
        if self.stop < self.most_steps:
            rise = f"its rise until step {self.most_steps:,}, as a factor"
            rows.append((rise, f"{self.rise:.3g}", _between(self.rise_interval)))
        return Table("Held-out loss", ("", "estimate", "range"), rows, self.remarks)

    @property
    def sentence(self) -> str:
        """The result in one sentence."""
        low, high = self.stop_set
        others = "" if low == high else f" Stops from {low:,} to {high:,} are as good within the noise."
        loss = f"the held-out loss is {self.loss:.3g} (95% interval {_between(self.loss_interval)})"
        unsure = " These trials do not show whether it overfits." if self.overfits == "unclear" else ""
        if high == self.most_steps and low < self.values("steps")[-2:][0]:  # more than the last stop and its neighbour
            return f"Any stop from step {low:,} on is as good within the noise: {loss}.{unsure}"
        if self.stop == self.most_steps:
            return f"At step {self.stop:,}, the last, {loss} and still falls.{unsure}"
        change = "changes it by a factor of {:.3g}" if self.rise_interval[0] <= 1 else "raises it {:.3g} times"
        rise = f"Training on to {self.most_steps:,} {change.format(self.rise)} ({_between(self.rise_interval)})."
        if not math.isfinite(self.rise):
            rise = f"Descent diverges before step {self.most_steps:,}."
        about = "" if low == high else "about "
        advice = f"Stop after {about}{format_count(self.stop)} steps" if self.stop else "Do not train"
        return f"{advice}: {loss}.{others} {rise}{unsure}"

    def _html_repr(self) -> HtmlRepr:
        return HtmlRepr("Generalisation", self.sentence, [*chosen_table(self.chosen), self.table], self.trust.standing)

    def _plot(self) -> Plot:
        return Plot.of("held_out_curve", self.dataset, title="Held-out loss")

    def __repr__(self) -> str:
        return f"<Generalisation: {self.sentence}>"


def _between(interval: tuple[float, float]) -> str:
    return f"{interval[0]:.3g} to {interval[1]:.3g}"


def result_of(problem: HeldOutProblem, found: HeldOutCurve, stop: int, remarks: list[str]) -> Generalisation:
    """Collect the numbers of a held-out curve."""
    place = found.stops.index(stop)
    curve, loss = found.curve, float(found.curve[place])
    error = found.loss_error(place)
    rise = float(curve[-1] / loss) if loss > 0 else math.nan
    rise_ends = found.rise_interval(place)
    exact = problem.test is not None and not problem.samples.has_trials
    overfits = "yes" if rise_ends[0] > 1 and math.isfinite(rise) else "no" if exact else "unclear"
    least = problem.least_loss()
    with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
        half, factor = loss_factor(found.band / curve), loss_factor(error / loss) if loss > 0 else 1.0
        columns = {
            "train": (found.train, "training loss", "target^2"),
            "held_out": (curve, "held-out loss", "target^2"),
            "low": (curve / half, "held-out loss, lower end", "target^2"),
            "high": (curve * half, "held-out loss, upper end", "target^2"),
            "r2": (1 - curve / found.zero, "held-out R²", "1"),
            "explained": ((found.zero - curve) / (found.zero - least), "share of the explainable loss", "1"),
        }
    estimates = {
        "stop": (stop, *alike(found, place), STEPS), "loss": (loss, loss / factor, loss * factor, "target^2"),
        "rise": (rise, *rise_ends, "1"),
    }  # fmt: skip
    scalars = {
        name + end: (float(number), name + end.replace("_", ", "), units)
        for name, (*ends, units) in estimates.items()
        for end, number in zip(("", "_low", "_high"), ends, strict=True)
    }
    scalars["zero_loss"] = (found.zero, "held-out loss of the answer 0", "target^2")
    scalars["least_loss"] = (least, "least held-out loss", "target^2")
    numbers = variables("steps", columns) | variables((), scalars) | _modes(problem, found)
    coords: Variables = {"steps": ("steps", np.array(found.stops), described("training time", STEPS))}
    attrs = {
        "task": problem.task.name,
        "trials": problem.trials,
        "held_out": "test trials" if problem.test is not None else f"{problem.samples.number} folds",
        "overfits": overfits,
        "promise": "exact" if exact and problem.learner.linear else "estimated",
        "remarks": "\n".join(remarks),
    }
    rises = (np.diff(found.train) > RISE * found.train[0]).any() and problem.training.batch is None
    sharp = problem.learner.sharpness(problem.samples.moments(problem.kept), found.states) if rises else math.nan
    if not math.isnan(sharp):
        attrs[LIMIT] = problem.learner.learning_rate * sharp
    parts = (*found.stops[-1:], problem.folds, None if problem.test is None else problem.test.hash)
    own = spec_hash(problem.task.hash, problem.network.hash, problem.training.hash, *map(repr, parts))
    origin = Provenance("descent", (), own, problem.folds.seed)
    return Generalisation(Contents(numbers, coords, attrs), origin, problem, found)


def _modes(problem: HeldOutProblem, found: HeldOutCurve) -> Variables:
    """Modes of the target: strengths, edge of noise from the number of trials, and steps at which half is learned.

    Implements: generalise Eq. (6), against the strengths of drawn noise
    """
    learner = problem.learner
    names = ("strength", "signal", "learned")
    if not isinstance(learner, PooledLearner):
        return {name: ("mode", np.empty(0)) for name in names} | {"edge": ((), math.nan)}
    power, cross = problem.samples.moments(problem.kept)
    root = Correlations.of(power).root
    left, strength, right = np.linalg.svd(cross @ root, full_matrices=False)
    along = np.einsum("mk,smn,kn->sk", left, learner.maps(found.states) @ power @ root, right)
    half = along >= strength / 2
    learned = np.where(half.any(axis=0), np.array(found.stops, dtype=float)[half.argmax(axis=0)], np.inf)
    learned = np.where(strength > 1e-12 * strength[0], learned, math.nan)  # nothing to learn but round-off
    noise, rank = problem.fit
    if math.isnan(noise):  # at most the targets' power
        noise = problem.task.target_power
    outputs, readouts = problem.task.outputs, problem.task.cross_covariance.shape[2]
    variance = noise / (outputs * readouts)
    edge = math.sqrt(variance / problem.trials) * (math.sqrt(rank) + math.sqrt(outputs)) if problem.trials else 0.0
    modes = {
        "strength": (strength, "strength of the mode", "target"),
        "signal": (strength > edge, "whether the mode is above the edge of noise", "1"),
        "learned": (learned, "step at which half of the mode is learned", STEPS),
    }
    text = "largest strength of noise expected from the number of trials"
    return variables("mode", modes) | variables((), {"edge": (edge, text, "target")})


def notes(problem: HeldOutProblem, found: HeldOutCurve, stop: int) -> list[str]:
    """Notes on the data and on training."""
    lines = []
    trials = problem.trials or 0
    directions = problem.fit[1] if problem.learner.any_map else 0
    if FEW[0] * directions < trials < FEW[1] * directions:
        lines.append(
            f"There are about as many trials ({trials}) as input directions ({directions}): the held-out "
            "loss is least certain there."
        )
    if not np.isfinite(found.curve[-1]):
        last = found.stops[int(np.flatnonzero(np.isfinite(found.curve))[-1])]
        lines.append(f"Gradient descent without some folds diverges after {last:,} steps. Use a lower learning rate.")
    if stop == 0:
        lines.append("No training improves the held-out loss of the untrained network.")
    repeated = _repeated(problem)
    if repeated:
        lines.append(f"{repeated:,} test trials are also training trials, so the held-out loss is too low.")
    dependence = _dependence(problem)
    if dependence > 0:
        lines.append(
            f"Neighbouring trials depend on each other (correlation {dependence:.2g} of their inputs), so the held-out "
            "loss may be too low. Hold out blocks of neighbouring trials."
        )
    return lines


def _repeated(problem: HeldOutProblem) -> int:
    """Number of test trials that are training trials."""
    given = [raw_trials(task) for task in (problem.test, problem.task) if task is not None]
    stored = [trials for trials in given if trials is not None]
    if len(stored) < 2:
        return 0
    values = [np.concatenate([x.reshape(len(x), -1) for x in (one.inputs, one.targets)], axis=1) for one in stored]
    return int(np.count_nonzero(same_trials(*values) >= 0))


def _dependence(problem: HeldOutProblem) -> float:
    """Correlation of the inputs of neighbouring trials, within classes; 0 if it is small or not significant.

    Folds of single trials are too optimistic if neighbours have similar inputs. Correlated noise alone does no harm.
    """
    samples = problem.samples
    if problem.test is not None or not isinstance(samples, Trials) or problem.units.max() + 1 < len(problem.units):
        return 0.0
    flat = samples.windows.reshape(len(samples.folds), -1)
    classes = class_numbers(problem.task)
    groups = np.zeros(len(flat), dtype=np.intp) if classes is None else classes
    sums = np.zeros((groups.max() + 1, flat.shape[1]))
    np.add.at(sums, groups, flat)
    flat = flat - (sums / np.maximum(np.bincount(groups), 1)[:, None])[groups]
    products = np.einsum("pv,pv->p", flat[1:], flat[:-1])
    size, spread = float((flat[1:] ** 2).sum()), math.sqrt(float((products**2).sum()))
    if not size or products.sum() <= SURE * spread:
        return 0.0
    correlation = float(products.sum()) / size
    return correlation if correlation > DEPENDENT else 0.0


def class_numbers(task: Task) -> Labels | None:
    """Return the class of each trial, if the targets are labels at the end."""
    trials, rule = task.recorded_trials, task.recording
    if trials is None or rule is None or rule.classes is None or trials.targets.shape[1] > 1:
        return None
    return np.asarray(trials.targets[:, 0].argmax(axis=1))
