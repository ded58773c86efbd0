"""The summary of a plan in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from learncast.results import CLASS_WORDS, PROOFS, Status
from learncast.theory.dynamics.solution import settles

if TYPE_CHECKING:
    from learncast.planning.methods.method import Method
    from learncast.planning.plan import Plan
    from learncast.theory.assumptions import Trust

#: Share of resamples that an interval leaves out at each end.
TAIL = 0.025


def percent(accuracy: float) -> str:
    """Format an accuracy as a percentage with enough digits to differ from 100%."""
    if not math.isfinite(accuracy):
        return "an unknown accuracy"
    digits = 0 if accuracy < 0.995 else 1 if accuracy < 0.9995 else 3
    text = f"{100 * accuracy:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def steps_text(number: float) -> str:
    """Format a number of steps."""
    if math.isnan(number):
        return "an unknown number of steps"
    if math.isinf(number):
        return "no finite number of steps"
    return "1 step" if round(number) == 1 else f"{round(number):,} steps"


def paragraph(plan: Plan) -> str:
    """Write the recommendation, its saving, the obvious alternative, its sensitivity and how far to trust it."""
    return " ".join(answer_and_rest(plan))


def answer_and_rest(plan: Plan) -> tuple[str, str]:
    """Write the recommendation with what makes it uncertain, then everything else."""
    answer = [recommendation(plan), _interval(plan), _on_average(plan)]
    rest = [_in_sample(plan), _excluded(plan), _alternative(plan), _sensitivity(plan), _trust(plan)]
    first, second = (" ".join(sentence for sentence in part if sentence) for part in (answer, rest))
    return first, second


def _amount(plan: Plan, cost: float) -> str:
    return f"a cost of {cost:,.4g}" if plan.terms.priced else steps_text(cost)


def _takes(plan: Plan, cost: float) -> str:
    return f"costs {cost:,.4g}" if plan.terms.priced else f"takes {steps_text(cost)}"


def _unit(plan: Plan) -> str:
    return "" if plan.counted else " of the flow (descent is too long to count)"


def settling_rate(method: Method, task: int, trust: Trust) -> float:
    """Learning rate below which descent settles on a task, by the curvature at the start and up to the stop."""
    return float(np.fmin(method.largest_rate(task), method.settling_rate(trust.assumptions)))


def recommendation(plan: Plan) -> str:
    """Say what to train, for how long, and what direct training takes."""
    target, direct = f'"{plan.target.name}"', plan.direct
    if not math.isfinite(plan.total) and (math.isinf(direct.flow) or direct.status is Status.not_within):
        tried = ", directly or after any candidate" if plan.candidates else ""
        why = plan.method.remarks[:1] if direct.status is Status.not_learned else ()
        return ": ".join((f"{target} {direct.outcome}{tried}", *why)) + "."
    reached = math.isfinite(plan.total) and (plan.pretrains or math.isfinite(plan.direct_steps))
    if not reached or not (plan.counted or settles(plan.trust.assumptions)):
        flow = steps_text(direct.flow) if direct.flow >= 1 else "less than a step"
        most = settling_rate(plan.method, plan.method.target, plan.trust)
        verb = "diverges" if direct.status is Status.diverged else "does not settle"
        return (
            f"Gradient descent {verb} on {target} at this learning rate; below {most:.2g} it is sure to settle. "
            f"The flow takes {flow}."
        )
    if not plan.pretrains:
        direct_steps = f"{steps_text(plan.direct_steps)}{_unit(plan)}"
        useless = bool(plan.candidates) and not any(c.helps for c in plan.candidates)  # one stage has no candidates
        none = " No candidate pays at any stop." if useless else ""
        if none and plan.proof == "out of time":
            none = " No stop that was tried in time pays."
        return f"Train {target} directly: {direct_steps}.{none}"
    if not plan.worthwhile:
        saved = f"a cost of {plan.saving:,.3g}" if plan.terms.priced else steps_text(plan.saving)
        return (
            f"Train {target} directly: {steps_text(plan.direct_steps)}{_unit(plan)}. Pretraining hardly pays: at "
            f"best it saves {saved} ({_stages(plan)})."
        )
    stages = _stages(plan)
    if not math.isfinite(plan.direct_total):
        return f"{stages[:1].upper()}{stages[1:]}. Directly, {target} {direct.outcome}."
    last = round(plan.stage_steps()[-1])
    stands = last == 0 and len(plan.best.stages) == 2 and not plan.terms.priced
    amount = f"cost is {plan.total:,.4g}" if plan.terms.priced else f"is {steps_text(plan.total)}"
    total = "" if stands else f" The total {amount}."
    direct_text = f"{_takes(plan, plan.direct_total)}{_unit(plan)}"
    return f"{stages[:1].upper()}{stages[1:]}.{total} Training {target} directly {direct_text}."


def _stages(plan: Plan) -> str:
    """What to train and until when, stage by stage."""
    counts, parts = plan.stage_steps(), []
    meaning = ": the share of the way to its best output"
    for k, (s, n) in enumerate(zip(plan.best.stages[:-1], counts, strict=False)):
        verb, stop = "train" if k == 0 else "then", ""
        if s.accuracy >= 0.01:  # an earlier stop is named by its steps only
            stop, meaning = f" ({percent(s.accuracy)} learned{meaning})", ""
        parts.append(f'{verb} "{s.task.name}" for {steps_text(n)}{stop}')
    if round(counts[-1]) == 0:
        return ", ".join(parts) + f', then stop: "{plan.target.name}" is already learned'
    return ", ".join(parts) + f', then "{plan.target.name}" for {steps_text(counts[-1])}'


def _interval(plan: Plan) -> str:
    resampled = plan.best.resampled
    if resampled is not None and plan.trust.holds:
        late = int(np.isinf(resampled.stages.sum(axis=0)).sum())
        if late > TAIL * resampled.stages.shape[1]:
            return f"In {late} of {resampled.stages.shape[1]} resamples of the data it is not learned in time."
    if plan.saving_interval is None or not plan.pretrains:
        return ""
    low, high = plan.saving_interval
    if high - low < 0.5 and not plan.may_not_pay:  # nothing in the plan was estimated
        return ""
    unit = "in cost" if plan.terms.priced else "steps"
    ends = [end for end in (low, high) if math.isfinite(end)]
    if len(ends) == 2:
        text = f"With these data it saves between {low:,.0f} and {high:,.0f} {unit} (95% interval)"
    elif ends:
        text = f"With these data it saves at {'least' if ends[0] == low else 'most'} {ends[0]:,.0f} {unit}"
    else:
        text = "With these data the saving is unknown"
    return f"{text}, so it may not pay." if plan.may_not_pay else f"{text}."


def chosen_on_average(plan: Plan) -> bool:
    """Whether other stages are cheaper on these data, but not on average over resamples."""
    return plan.in_sample_route.total != plan.total and math.isfinite(plan.in_sample_route.total)


def _on_average(plan: Plan) -> str:
    return "It is chosen for the average over resamples of the data." if chosen_on_average(plan) else ""


def _in_sample(plan: Plan) -> str:
    """The cheapest stages on these data, if others are recommended because they are better on average."""
    route = plan.in_sample_route
    if not chosen_on_average(plan):
        return ""
    stages = ", then ".join(
        f'"{plan.method.tasks[k].name}" for {steps_text(n)}' for k, n in zip(route.order, route.durations, strict=True)
    )
    return f"On these data alone, {stages} would be the cheapest ({_amount(plan, route.total)} in all)."


def _excluded(plan: Plan) -> str:
    """The best candidate that is left out because a condition fails, if it would be cheaper."""
    left_out = (c for c in plan.candidates if c.failures and c.helps and c.total < plan.in_sample_route.total)
    best = min(left_out, key=lambda c: c.total, default=None)
    if best is None:
        return ""
    return f'"{best.task.name}" ({_amount(plan, best.total)} in all) is left out: {best.why["sentence"]}.'


def _alternative(plan: Plan) -> str:
    """Cost of learning the first task in full instead."""
    first = plan.best.stages[0].task
    full = next((a for a in plan.alternatives if a.stages[0].task is first and a.in_full), None)
    if not plan.worthwhile or full is None or not math.isfinite(full.extra) or full.extra < 0.5:
        return ""
    more = f"{full.extra:,.4g}" if plan.terms.priced else steps_text(full.extra)
    only = "" if len(plan.best.stages) == 2 else "only "
    return f'Training {only}"{first.name}" to {plan.goal_text} first would cost {more} more.'


def _sensitivity(plan: Plan) -> str:
    shifts = plan.fragile if plan.worthwhile else None
    if shifts is None or not all(math.isfinite(s.extra) for s in shifts):
        return ""
    early, late = (s.extra for s in shifts)
    if min(early, late) < -0.5:  # a limit forbids the cheaper stop; this must not read like advice
        return ""
    what = "" if len(plan.route.order) == 1 else f' "{shifts[0].task}"'
    if plan.terms.priced:
        return f"Stopping{what} 10% early raises the cost by {early:,.0f}, 10% late by {late:,.0f}."
    return f"Stopping{what} 10% early costs {steps_text(max(early, 0.0))}, 10% late costs {late:,.0f}."


def _trust(plan: Plan) -> str:
    proof = PROOFS[plan.proof]["clause"]
    if not plan.trust.holds:
        return f"{CLASS_WORDS['outside']['of_plan']}: {plan.trust.names}{proof}."
    words = CLASS_WORDS[plan.forecast_class]
    title, assumed = words["of_plan"], words["assumes"]
    return f"{title}{proof}; {assumed}."
