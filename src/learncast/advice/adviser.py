"""How to train a model on a target soonest."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace

from torch import nn

from learncast._core.errors import InvalidSpec, hinted
from learncast._core.progress import Progress, noticed, silent
from learncast.advice.advice import DIRECT, EXPECTED, HELPED, Advice, AdvisedPlan, advice_of
from learncast.advice.help import HALFWAY, helped_stages, left_out, on_the_way
from learncast.advice.pilots import Pilots, find_rate
from learncast.advice.ranking import USUAL_SHARE, rank_plans
from learncast.advice.request import AdviceTerms, Request
from learncast.procedure.goals import Explained, Goal, Loss
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training
from learncast.training.goals import DecisionAccuracy, TrialGoal
from learncast.training.sources import Trials
from learncast.training.torch_state import own_threads
from learncast.training.updates import scaled

#: Norm at which gradients are clipped if the training does not say.
CLIP = 0.3


@hinted
@noticed("trying learning rates")
def advise(
    model: nn.Module,
    target: Trials,
    candidates: Mapping[str, Trials] | Iterable[Trials] = (),
    training: Training | None = None,
    *,
    goal: Goal | float = USUAL_SHARE,
    terms: AdviceTerms = AdviceTerms(),  # noqa: B008  frozen
    progress: Progress = silent,
) -> Advice:
    """Advise how to train a model on a target soonest.

    For goals on decisions (`DecisionAccuracy`, `Measured`), pilots of five steps find the learning rate that the model
    bears on the target, and the target is trained at that rate. Where it stalls, easier tasks are mixed in until it is
    half way. For goals on the loss with candidates, tasks to train first are ranked by the model's linear surrogate, at
    the given rate. Without candidates, only the rate is looked for.

    Parameters
    ----------
    model : nn.Module
        Before training; it is not changed. To rank candidates for a goal on the loss, it must be nn.RNN, nn.GRU or
        nn.LSTM with a linear readout.
    target : Task, environment, pair (inputs, targets), function of (trials, rng), DataLoader or Dataset
        Describe labels, masks and layouts with `training.trials`.
    candidates : list of such, or mapping from names to such
        Easier tasks.
    training : Training
        How the model is trained. Its learning rate is where the pilots begin; parameter groups keep their proportions,
        and schedules are followed.
    goal : Goal or float
        When the target counts as learned: `DecisionAccuracy`, `Measured`, `Loss` or `Explained`. A number means
        `Explained`: the share of the model's excess loss over the best linear map that has been removed.
    terms : AdviceTerms
        Whether pilots are run, and stops and limits of the ranking.
    progress : callable
        Called with the share of the work done.

    Returns
    -------
    Advice
        The learning rate, the plan and its stages; `Advice.train` carries it out.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(512, 8, 1, generator=torch.Generator().manual_seed(0))
    >>> def labels(values):
    ...     return (values.sum(1)[:, 0] > 0).long()
    >>> target = lc.training.trials((inputs, labels(inputs)), held_out=0.25, name="sign of the sum")
    >>> easy = lc.training.trials((inputs + 0.5 * inputs.mean(1, keepdim=True).sign(), labels(inputs)), name="clear")
    >>> model = lc.training.gated_module("gru", hidden_size=8, outputs=2)
    >>> training = lc.Training(1e-3, optimizer="adam", batch=32, loss="cross_entropy")
    >>> advice = lc.advise(model, target, [easy], training, goal=lc.training.DecisionAccuracy(0.9))
    >>> advice.learning_rate > 4e-3, advice.helpers
    (True, ('clear',))
    >>> advice.train().status.name
    'ok'
    """
    if training is None:
        raise InvalidSpec("training must be a Training, e.g. Training(1e-3, optimizer='adam').", field="training")
    given = Request.of(model, target, candidates, training, goal=goal)
    ranked = bool(given.candidates) and not isinstance(given.goal, TrialGoal)
    if not ranked:
        given.check_fit()
    _check_goal(given)
    if ranked:
        # At the highest rate that a network bears its linear surrogate no longer describes it.
        return rank_plans(given, terms, progress=progress)
    request, pilots = given, None
    if terms.find_rate:
        settings = training if training.clip is not None else training.with_(clip=CLIP)
        with own_threads(1):
            pilots = find_rate(model, given.target, settings, progress=progress)
        # Training goes on from the best pilot.
        request = replace(given, training=scaled(settings, pilots.factor), model=pilots.module)
    advice = _rate_and_help(request, pilots)
    progress(1.0)
    return advice


def _check_goal(request: Request) -> None:
    """Refuse a goal that needs no learning."""
    goal, chance = request.goal, request.chance()
    if isinstance(goal, DecisionAccuracy) and math.isnan(chance):
        raise InvalidSpec(f"{request.target.name!r} has no decision: all its targets are left out.", field="goal")
    if isinstance(goal, TrialGoal) and goal.met(chance):
        raise InvalidSpec(
            f"goal must be beyond what a constant answer reaches ({chance:.3g}), got {goal.level:.3g}. Raise the goal, "
            "or exclude readouts without a decision by steps or ignore.",
            field="goal",
        )


def _rate_and_help(request: Request, pilots: Pilots | None) -> Advice:
    """Return advice on the learning rate, with help from candidates where the target stalls."""
    target, goal = request.target, request.goal
    if isinstance(goal, Explained):
        raise InvalidSpec("goal must be Loss, DecisionAccuracy or Measured if there are no candidates.", field="goal")
    words, expect = f'Train on "{target.name}" directly', EXPECTED[request.rule.adaptive]
    direct = AdvisedPlan((Stage(target, goal),), words)
    if isinstance(goal, Loss) or not request.candidates:
        helps = "none: no easier tasks were given."
        return advice_of(request, pilots, {DIRECT: direct}, shortlist=[DIRECT], help=helps, expect=expect)
    assert isinstance(goal, TrialGoal)
    unsuitable = left_out(request)
    helpers = [one for one in request.candidates if one.name not in unsuitable]
    names, plans, helps = [one.name for one in helpers], {DIRECT: direct}, "none: no candidate is suitable."
    if helpers:
        halfway = on_the_way(goal, request.chance(), HALFWAY)
        until = "it is learned" if halfway is None else f"it reaches {halfway.text}"
        plans = {HELPED: AdvisedPlan(tuple(helped_stages(request, helpers)), words), DIRECT: direct}
        easier = ", ".join(f'"{name}"' for name in names)
        helps = f"if it stalls, half of each batch comes from {easier} until {until}."
    helps += "".join(f' "{name}" is left out: {reason}.' for name, reason in unsuitable.items())
    return advice_of(request, pilots, plans, shortlist=list(plans), helpers=names, help=helps, expect=expect)
