"""Advice on training: a learning rate, help where the target stalls, and for goals on the loss a ranking of plans."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
import xarray as xr
from torch import nn

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import one_of
from learncast.advice.pilots import Pilots
from learncast.advice.request import EVALUATION, Request
from learncast.display import Displayable, HtmlRepr, Plot, Reported, Table, format_number
from learncast.procedure.stage import Stage
from learncast.results import Result, described, spec_hash
from learncast.theory.assumptions import Assumption, Trust, read_conditions
from learncast.training.loop import Loop
from learncast.training.run import Execution, Records, TrainingRun, training_provenance
from learncast.training.trainer import train
from learncast.training.updates import multiply_rates

#: Name of the plan without other tasks.
DIRECT = "no pretraining"
#: Name of the plan that mixes in other tasks where the target stalls.
HELPED = "help where it stalls"
#: Plans on the shortlist.
SHORTLIST = 3
#: What this procedure reached on pools of tasks that it was not tuned on (``python -m benchmarks advice``), by whether
#: the optimiser is adaptive.
EXPECTED = {
    True: "On nine unseen pools (Adam, 32 and 128 units) this took 0.4 to 0.7 of the steps of direct training, 0.9 to "
    "1.2 of those of the best fixed rate (worst pool 1.7); 3 to 7% of the goals were not reached.",
    False: "On nine unseen pools (SGD, 32 units) this took as many steps as direct training and 1.5 times those of the "
    "best fixed rate (worst pool 3.4); 35% of the goals were not reached, as with direct training. Adam did better.",
}


class AdvisedPlan(NamedTuple):
    """A plan: its stages, its score, and a description.

    From a surrogate also the first task, the share of the excess loss at which it ends, and the loss there.
    """

    stages: tuple[Stage[object], ...]
    words: str
    score: float = 1.0
    task: str = ""
    stop: float = math.nan
    stop_loss: float = math.nan


#: Conditions of advice.
CONDITIONS = read_conditions(Path(__file__).with_name("conditions.toml"))


class AdviceValidity(Assumption):
    """A measured condition of advice; `name` is a key of `CONDITIONS`."""

    conditions = CONDITIONS


@dataclass(frozen=True, eq=False, repr=False)
class Advice(Result, Reported, Displayable):
    """How to train a model on a target soonest.

    Attributes
    ----------
    dataset : Dataset
        ``pilot_rate`` and ``pilot_loss`` over the pilots. Over ``plan``, best first: ``words`` (the plan in a
        sentence) and ``score`` (forecast time relative to direct training). From a surrogate also ``task``, ``stop``
        (the share of the excess loss at which pretraining ends) and ``stop_loss``.
    provenance : Provenance
    request : Request or None
        The request, with the learning rate that was found and, for goals on decisions, the model after the best pilot;
        None after `load`.
    plans : dict of str to tuple of Stage
        The stages of each plan; empty after `load`.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> inputs = np.random.default_rng(0).standard_normal((64, 6, 1)).astype("float32")
    >>> model = lc.training.gated_module("rnn", hidden_size=4)
    >>> target, easy = (inputs, inputs.sum(axis=1)), (inputs, inputs[:, -1])
    >>> training = lc.Training(0.02, optimizer="adam")
    >>> advice = lc.advise(model, target, {"last input": easy}, training, goal=lc.Loss(1.0))
    >>> advice.learning_rate, advice.recommended in advice.shortlist, advice.dataset.sizes["plan"]
    (0.02, True, 5)
    >>> [stage.goal.text for stage in advice.stages("no pretraining")]
    ['loss 1']
    >>> advice.train("no pretraining").status.name
    'ok'
    """

    kind = "advice"

    request: Request | None = field(default=None, repr=False)
    plans: dict[str, tuple[Stage[object], ...]] = field(default_factory=dict, repr=False)

    @property
    def learning_rate(self) -> float:
        """The learning rate to train with; of the first parameter group."""
        return float(self.dataset.attrs["learning_rate"])

    @property
    def pilot_steps(self) -> int:
        """Gradient steps of the pilots."""
        return int(self.dataset.attrs["pilot_steps"])

    @property
    def helpers(self) -> tuple[str, ...]:
        """Tasks that are mixed in where the target stalls."""
        return _listed(self.dataset.attrs["helpers"])

    @property
    def recommended(self) -> str:
        """Name of the recommended plan."""
        return str(self.dataset.attrs["recommended"])

    @property
    def shortlist(self) -> tuple[str, ...]:
        """The best plans, at most three."""
        return _listed(self.dataset.attrs["shortlist"])

    @property
    def score(self) -> float:
        """Score of the recommended plan."""
        return float(self.dataset["score"].sel(plan=self.recommended))

    @property
    def forecast_class(self) -> str:
        """Class of the advice: "measured" for a rate and help, "surrogate" or "outside" for a ranking."""
        return self.trust.forecast_class

    @property
    def warnings(self) -> tuple[str, ...]:
        """Reasons for caution."""
        return _listed(self.dataset.attrs["warnings"])

    @property
    def validity(self) -> tuple[AdviceValidity, ...]:
        """The measured conditions of a ranking."""
        values = {name: self.dataset.attrs.get(f"validity_{name}") for name in CONDITIONS}
        return tuple(AdviceValidity(name, float(value)) for name, value in values.items() if value is not None)

    @property
    def trust(self) -> Trust:
        """How far the advice can be trusted."""
        return Trust(self.validity, "surrogate" if self.validity else "measured")

    @property
    def table(self) -> Table:
        """Every plan with its score, best first."""
        score = self.dataset["score"]
        rows = [(str(one["plan"].item()), format_number(float(one))) for one in score]
        return Table("Plans, best first", ("plan", str(score.attrs["long_name"])), rows)

    @property
    def lines(self) -> dict[str, str]:
        """The advice in short: what to do until which goal, the rate, help, cost and what to expect."""
        a = self.dataset.attrs
        given, rate = float(a["given_rate"]), self.learning_rate
        do = f"{self.dataset['words'].sel(plan=self.recommended).item()} at learning rate {rate:.3g}"
        found = f"{rate:.3g}, as given" if rate == given else f"{rate:.3g} instead of the given {given:.3g}"
        tried = f"; pilots compared {len(self.dataset['pilot_rate'])} rates" if self.pilot_steps else ""
        clipped = f", gradients clipped at norm {a['clip']:g}" if np.isfinite(a["clip"]) else ""
        cost = f"{self.pilot_steps} gradient steps for the pilots" if self.pilot_steps else "no pilots were run"
        if "run_steps" in a:
            each = zip(_listed(a["run_stages"]), a["run_stage_steps"], strict=True)
            stages = ", ".join(f'{steps} on "{name}"' for name, steps in each if steps)
            cost += f"; {a['run_steps']} of training ({stages}; {a['run_status']})"
        return {
            "do": f"{do}.",
            "goal": f"{a['goal']} on the target.",
            "rate": f"{found}{clipped}{tried}.",
            "help": str(a["help"]),
            "cost": f"{cost}.",
            "expect": str(a["expect"]),
        }

    def _html_repr(self) -> HtmlRepr:
        tables = [self.lines_table, *([self.table] if self.validity else [])]
        return HtmlRepr("Advice", self.lines["do"], tables, self.trust.standing, self.trust.table)

    @property
    def lines_table(self) -> Table:
        """Goal, rate, help, cost and expectation as a table."""
        return Table("In short", ("", ""), [(name, text) for name, text in self.lines.items() if name != "do"])

    def _plot(self) -> Plot:
        if "run_loss" in self.dataset:
            return Plot.of("advised_training", self.dataset)
        if self.validity:
            return Plot.of("plan_scores", self.dataset.where(np.isfinite(self.dataset["score"]), drop=True))
        return Plot.of("pilot_losses", self.dataset)

    def stages(self, plan: str | None = None) -> list[Stage[object]]:
        """Return the stages of a plan (by default the recommended one), for `training.train` or `training.Loop`."""
        plans = tuple(map(str, self.dataset["plan"].values))
        name = one_of("plan", self.recommended if plan is None else plan, plans)
        self._known_request()
        return list(self.plans[name])

    def train(
        self,
        plan: str | None = None,
        *,
        most_steps: int | None = None,
        record: Records | Sequence[str] = Records(("loss", "goal"), every=10, evaluation=EVALUATION),  # noqa: B008
        execution: Execution | None = None,
        earlier: TrainingRun | None = None,
        progress: Progress = silent,
    ) -> TrainingRun:
        """Train a copy of the model as advised; for goals on decisions, from the weights of the best pilot.

        Parameters
        ----------
        plan : str, optional
            The recommended one by default; ``"no pretraining"`` trains directly.
        most_steps : int, optional
            Steps after which a stage is given up; by default those of the training, but at most 20,000.
        record, execution, earlier, progress
            As of `training.train`; the precision is that of the model by default.

        Returns
        -------
        TrainingRun
            `module` is the trained model.
        """
        request, stages = self._known_request(), self.stages(plan)
        given = Execution(dtype=str(request.dtype).removeprefix("torch.")) if execution is None else execution
        most = min(request.training.most_steps, 20_000) if most_steps is None else most_steps
        training = request.training.with_(most_steps=most)
        return train(
            stages, request.model, training, record=record, execution=given, earlier=earlier, progress=progress
        )

    def carried_out(self, run: TrainingRun) -> Advice:
        """Return the advice with the curves of a training, so that reports and figures show what was done."""
        if not isinstance(run, TrainingRun):
            raise InvalidSpec(f"run must be a TrainingRun, got {type(run).__name__}.", field="run")
        curves = run.dataset[[name for name in ("loss", "goal") if name in run.dataset]].rename(time="run_step")
        attributes = {
            **self.dataset.attrs,
            "run_status": run.status.name,
            "run_steps": run.steps,
            "run_stages": str(run.dataset.attrs["stages"]).replace(" | ", "\n"),
            "run_stage_steps": list(run.stage_steps),
        }
        named = curves.rename({name: f"run_{name}" for name in curves.data_vars})
        return replace(self, dataset=self.dataset.merge(named).assign_attrs(attributes))

    def loop(
        self,
        model: nn.Module,
        optimizer: torch.optim.Optimizer | Sequence[torch.optim.Optimizer] | None = None,
        *,
        plan: str | None = None,
    ) -> Loop:
        """Return a loop that leads your own training through the stages of a plan.

        Parameters
        ----------
        model : nn.Module
            The model that you train.
        optimizer : torch optimiser or list of them, optional
            The rate of its first parameter group becomes the one found, and others keep their proportion. Its state is
            cleared between stages. Clip gradients yourself.
        plan : str, optional
            The recommended one by default.
        """
        optimizers = [] if optimizer is None else [*optimizer] if isinstance(optimizer, Sequence) else [optimizer]
        for one in optimizers:
            multiply_rates(one, self.learning_rate / float(one.param_groups[0]["lr"]))
        return Loop.of(self.stages(plan), model, self._known_request().training, optimizer=optimizers)

    def _known_request(self) -> Request:
        if self.request is None:
            raise InvalidSpec("Advice that was loaded from a file has no model and no trials.", field="request")
        return self.request

    @property
    def summary(self) -> str:
        """The advice in one paragraph."""
        a = self.lines
        parts = [
            a["do"],
            f"Goal: {a['goal']}",
            f"Rate: {a['rate']}",
            f"Help: {a['help']}",
            f"Cost: {a['cost']}",
            a["expect"],
        ]
        return " ".join([*parts, *self.warnings])

    def __repr__(self) -> str:
        return "\n".join(["<Advice", *(f"  {name}: {text}" for name, text in self.lines.items())]) + ">"


def _listed(text: object) -> tuple[str, ...]:
    return tuple(str(text).split("\n")) if text else ()


#: Meaning and unit of the columns of a table of plans.
COLUMNS = {
    "words": ("the plan in words", "1"),
    "task": ("task trained first", "1"),
    "stop": ("accuracy at which its training ends", "1"),
    "stop_loss": ("loss of the model at which its training ends", "target^2"),
}


def advice_of(
    request: Request,
    pilots: Pilots | None,
    plans: Mapping[str, AdvisedPlan],
    *,
    shortlist: Sequence[str],
    measured: Mapping[str, float] | None = None,
    warnings: Sequence[str] = (),
    helpers: Sequence[str] = (),
    **facts: object,
) -> Advice:
    """Return advice from pilots and plans, best first; `request` has the learning rate that was found.

    `measured` are the conditions of a surrogate's ranking.
    """
    rows = list(plans.values())
    used = COLUMNS if measured else list(COLUMNS)[:1]
    columns: dict[str, tuple[object, ...]] = {
        name: ("plan", [getattr(row, name) for row in rows], described(*COLUMNS[name])) for name in used
    }
    score = "forecast time relative to training directly"
    columns["score"] = ("plan", [row.score for row in rows], described(score, "1"))
    rule, factor = request.rule, 1.0 if pilots is None else pilots.factor
    given = rule.learning_rate / factor
    rates = np.zeros(0) if pilots is None else given * np.array(pilots.factors)
    losses = np.zeros((0, 0)) if pilots is None else pilots.losses
    columns["pilot_rate"] = ("pilot", rates, described("learning rate of a pilot", "1"))
    columns["pilot_loss"] = (("pilot", "pilot_step"), losses, described("training loss of a pilot", "1"))
    if pilots is not None and pilots.at_edge:
        unresolved = f"rate: the best pilot is at the edge of the rates tried, {rates.min():.2g} to {rates.max():.2g}"
        warnings = [*warnings, f"{unresolved}; give a learning rate nearer to a usual one."]
    attributes = {
        **request.facts,
        "given_rate": given,
        "factor": factor,
        "clip": math.nan if request.training.clip is None else request.training.clip,
        "pilot_steps": 0 if pilots is None else pilots.steps,
        "recommended": shortlist[0],
        "shortlist": "\n".join(shortlist),
        "helpers": "\n".join(helpers),
        "warnings": "\n".join([*warnings, *request.remarks]),
        **{f"validity_{name}": value for name, value in (measured or {}).items()},
        **facts,
    }
    weights = (value.detach().double().numpy() for value in request.model.parameters())
    digest = spec_hash(*(source.hash for source in request.sources), *weights, rule.name, rule.learning_rate)
    dataset = xr.Dataset(columns, coords={"plan": list(plans)}, attrs=attributes)
    stages = {name: row.stages for name, row in plans.items()}
    return Advice(dataset, training_provenance(digest, request.training.seed), request, stages)
