"""The adviser: from a model, a target and candidates to advice."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
import xarray as xr
from torch import nn

from learncast.errors import InvalidSpec
from learncast.progress import Progress, silent
from learncast.simulate.advice import DIRECT, PROMISES, Advice, ranked
from learncast.simulate.advice_validity import CONDITIONS, bent
from learncast.simulate.plan_forecast import Forecaster, PlanForecast, remaining, start_loss
from learncast.simulate.plan_table import PlanTable
from learncast.simulate.race import Race, half_squared_error, judged, run_race
from learncast.simulate.run import training_provenance
from learncast.simulate.surrogate import LinearSurrogate, linear_surrogate
from learncast.simulate.trial_pool import TrialPool
from learncast.simulate.update_rule import UpdateRule
from learncast.trajectory import described, spec_hash
from learncast.validation import FloatArray, between, count, positive

#: Steps of a race unless told otherwise, as a multiple of the surrogate's steps of direct training, which come out
#: two to three times short for saturating units.
RACE_SHARE = 30


def advise(
    model: nn.Module,
    target: Any,
    candidates: Any,
    *,
    optimiser: Any = "adam",
    learning_rate: float | None = None,
    accuracy: float = 0.95,
    loss: float | None = None,
    stops: Sequence[float] = (0.5, 0.8, 0.95),
    cap: float = 0.8,
    batch: int | None = 256,
    pilot: bool = False,
    seeds: int = 3,
    budget: int | None = None,
    most_steps: int = 20_000,
    seed: int = 0,
    progress: Progress = silent,
    echo: Callable[[str], object] = print,
) -> Advice:
    """Advise which task to train a model on first, and when to stop, to learn a target soonest.

    Plans are compared by exact descent of the model's linear surrogate, in the model's own parameters and by its own
    optimiser; nothing but their order is promised. An accuracy is the share of the loss above the least that is gone:
    0 at the model's start and 1 at the loss of the best linear map.

    Parameters
    ----------
    model : nn.Module
        nn.RNN, nn.GRU or nn.LSTM with a linear readout, before training. It is not changed.
    target : Task, pair (inputs, targets), function of (trials, rng), DataLoader or Dataset
    candidates : list of such, or mapping from names to such
        Tasks that could be trained first.
    optimiser : str, torch optimiser, its class, or a function from parameters to one
    learning_rate : float, optional
        With a name or a class; an optimiser that exists has its own.
    accuracy : float
        At which the target counts as learned; or
    loss : float, optional
        the loss at which it does: half the squared error, summed over outputs and readout steps.
    stops : sequence of float
        Accuracies at which pretraining may end.
    cap : float
        Later stops are ranked and not recommended: their forecast is less sure, and they cost more when wrong.
    batch : int or None
        Trials per step; None for all recorded trials or a loader's own batches.
    pilot : bool
        Whether to race the shortlist, and no pretraining, on the real model.
    seeds, budget : int
        Most seeds of that race, and the gradient steps it may take altogether.
    most_steps : int
        Where the surrogate's direct training is given up.
    seed : int
        Of the batches.
    progress : callable
        Called with the share of the work done.
    echo : callable
        Called with the estimated cost before the work begins.
    """
    choice = _Choice.of(stops, cap, accuracy)
    count("most_steps", most_steps, why="it bounds the descent")
    surrogate = linear_surrogate(model)
    rule = UpdateRule.of(optimiser, learning_rate, model)
    pool = TrialPool.of(target, candidates, surrogate, seed=seed)
    for member in (pool.target, *pool.candidates):
        member.source.checked_batch(batch)
    goals = _Goals.of(model, surrogate, pool, choice, loss)
    forecaster = Forecaster(surrogate, pool, rule, batch=batch, goal=goals.surrogate, most_steps=most_steps, seed=seed)
    direct = forecaster.direct()
    steps = count("budget", budget, why="it counts gradient steps") if budget is not None else _race_budget(direct)
    estimate = forecaster.cost(direct, choice.stops) + (_race_cost(model, pool, rule, batch, steps) if pilot else "")
    echo(estimate)
    part = 0.5 if pilot else 1.0
    forecast = forecaster.plans(choice.stops, direct, progress=lambda share: progress(part * share))
    table = PlanTable.of(forecast, pool, goals.stops, choice.stops, choice.cap)
    raced = None
    if pilot:
        raced = _raced(model, table, pool, goals, rule, batch, steps, seeds, lambda share: progress((1 + share) / 2))
    progress(1.0)
    return _packed(model, surrogate, pool, rule, table, goals, forecast, estimate, raced, seed)


@dataclass(frozen=True)
class _Choice:
    stops: tuple[float, ...]
    cap: float
    accuracy: float

    @classmethod
    def of(cls, stops: Sequence[float], cap: float, accuracy: float) -> _Choice:
        made = cls(
            tuple(sorted({between("stop", s, 0.0, 1.0, why="it is an accuracy") for s in stops})),
            between("cap", cap, 0.0, 1.0, why="it is an accuracy"),
            between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the share of loss that remains"),
        )
        if not any(s <= made.cap for s in made.stops):
            raise InvalidSpec(
                required=f"some stop must be within the cap of {cap:g}",
                got=f"{tuple(stops)}",
                why="no pretraining could be recommended",
                remedy="add an earlier stop, or raise the cap",
            )
        return made


@dataclass(frozen=True)
class _Goals:
    """Losses at which stages end: of the surrogate on the target, and of the real model."""

    surrogate: float
    target: float
    stops: FloatArray

    @classmethod
    def of(
        cls, model: nn.Module, surrogate: LinearSurrogate, pool: TrialPool, choice: _Choice, loss: float | None
    ) -> _Goals:
        own = copy.deepcopy(model)
        dtype = next(own.parameters()).dtype
        real = [judged(own, one.source, dtype) for one in (pool.target, *pool.candidates)]
        least, start = pool.target.moments.least, start_loss(surrogate, pool.target)
        stops = np.array(
            [
                [remaining(r, one.moments.least, s) for s in choice.stops]
                for r, one in zip(real[1:], pool.candidates, strict=True)
            ]
        )
        if loss is None:
            return cls(remaining(start, least, choice.accuracy), remaining(real[0], least, choice.accuracy), stops)
        goal = positive("loss", loss, why="no sampled loss falls to nothing")
        if not least < goal < start:
            raise InvalidSpec(
                required=f"loss must lie between {least:.4g}, the least of any linear map, and {start:.4g}, where the "
                "model starts",
                got=f"{goal:g}",
                why="the surrogate learns the target when its loss falls to it",
                remedy="choose a loss between them, or an accuracy",
            )
        return cls(goal, goal, stops)


def _race_budget(direct: float) -> int:
    return 10_000 if math.isinf(direct) else max(200, RACE_SHARE * math.ceil(direct))


def _race_cost(model: nn.Module, pool: TrialPool, rule: UpdateRule, batch: int | None, steps: int) -> str:
    own = copy.deepcopy(model).train()
    dtype = next(own.parameters()).dtype
    optimiser = rule.made({n: p for n, p in own.named_parameters() if p.requires_grad})
    seconds = []
    with torch.random.fork_rng(devices=[]):
        for k in range(2):
            begun = time.perf_counter()
            half_squared_error(own, *pool.target.source.batch(batch, (0, 0), k, dtype)).backward()  # type: ignore[no-untyped-call]
            optimiser.step()
            seconds.append(time.perf_counter() - begun)
    return f"; pilot race: at most {steps} gradient steps, about {steps * min(seconds):.0f} s"


def _raced(
    model: nn.Module,
    table: PlanTable,
    pool: TrialPool,
    goals: _Goals,
    rule: UpdateRule,
    batch: int | None,
    budget: int,
    seeds: int,
    progress: Progress,
) -> Race:
    members = {one.name: one for one in pool.candidates}
    last = (pool.target.source, goals.target)
    plans: dict[str, list[Any]] = {}
    for name in dict.fromkeys([*table.shortlist, DIRECT]):
        k = table.names.index(name)
        first = [] if name == DIRECT else [(members[table.tasks[k]].source, float(table.losses[k]))]
        plans[name] = [*first, last]
    return run_race(model, plans, rule, batch=batch, budget=budget, seeds=seeds, progress=progress)


def _packed(
    model: nn.Module,
    surrogate: LinearSurrogate,
    pool: TrialPool,
    rule: UpdateRule,
    table: PlanTable,
    goals: _Goals,
    forecast: PlanForecast,
    estimate: str,
    raced: Race | None,
    seed: int,
) -> Advice:
    measured = {
        "linear_at_start": bent(model, surrogate, pool.target),
        "surrogate_learns_target": float(math.isinf(forecast.direct)),
        "smooth_descent": float(surrogate.kind == "relu" and not rule.adaptive),
    }
    failed = [name for name in CONDITIONS if measured[name] > CONDITIONS[name].allowed]
    warnings = [f"{name}: {CONDITIONS[name].otherwise}; {CONDITIONS[name].remedy}." for name in failed]
    forecast_class = "outside" if any(CONDITIONS[name].binding for name in failed) else "surrogate"
    winner = None if raced is None else raced.winner
    order = np.argsort(table.scores, kind="stable")
    variables = {
        "task": (np.array(table.tasks, dtype=str), "task trained first", "1"),
        "stop": (table.stops, "accuracy at which its training ends", "1"),
        "stop_loss": (table.losses, "loss of the model at which its training ends", "target^2"),
        "score": (table.scores, "forecast time relative to training directly", "1"),
        "rank": (ranked(table.scores), "place in the ranking", "1"),
        "within_cap": (np.asarray(table.within, dtype=bool), "whether it may be recommended", "1"),
    }
    dataset = xr.Dataset(
        {name: ("plan", values[order], described(text, unit)) for name, (values, text, unit) in variables.items()},
        coords={"plan": np.array(table.names)[order]},
        attrs={
            "target": pool.target.name,
            "target_loss": goals.target,
            "kind": surrogate.kind,
            "optimiser": rule.name,
            "learning_rate": rule.learning_rate,
            "recommended": winner or table.shortlist[0],
            "shortlist": "\n".join(table.shortlist),
            "forecast_class": forecast_class,
            "promise": PROMISES[forecast_class],
            "warnings": "\n".join(warnings),
            "cost_estimate": estimate,
            **{f"validity_{name}": value for name, value in measured.items()},
        },
    )
    if raced is not None:
        dataset = dataset.merge(raced.dataset).assign_attrs({**dataset.attrs, **raced.dataset.attrs})
    hashes = [one.task.hash for one in (pool.target, *pool.candidates)]
    digest = spec_hash(
        *hashes, *(value.numpy() for value in surrogate.parameters.values()), rule.name, rule.learning_rate
    )
    sources = {one.name: one.source for one in (pool.target, *pool.candidates)}
    return Advice(dataset, training_provenance(digest, seed), sources)
