"""A plan in plain words."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from learncast.planning.plans.recommendation import Plan

#: What may be promised, said of a plan.
_CLASSES = {
    "exact": "Exact for this network",
    "integrated": "Integrated to the solver's tolerance for this network",
    "response": "Measured on the network's own responses",
    "surrogate": "A ranking, not a count of steps",
    "outside": "The theory does not hold exactly here",
}

#: What a plan's proof means, at the end of a sentence.
_PROOFS = {
    "exact": "",
    "certified": "; no other order or stop is better by more than the gap asked for",
    "best found": "; the best found, a better one may exist",
    "robust": "; the stop is the best on average over resampled data",
}


def percent(accuracy: float) -> str:
    """An accuracy as a percentage: as many digits as tell it from 100%."""
    if not math.isfinite(accuracy):
        return "an unknown accuracy"
    digits = 0 if accuracy < 0.995 else 1 if accuracy < 0.9995 else 3
    text = f"{100 * accuracy:.{digits}f}"
    return f"{text.rstrip('0').rstrip('.') if '.' in text else text}%"


def steps(number: float) -> str:
    """A number of steps in words."""
    if math.isnan(number):
        return "an unknown number of steps"
    if math.isinf(number):
        return "no finite number of steps"
    whole = round(number)
    return "1 step" if whole == 1 else f"{whole:,} steps"


def fraction(part: float, whole: float) -> str:
    """A share in words where one fits, else a percentage."""
    share = part / whole if whole > 0 else math.nan
    if math.isnan(share):
        return "an unknown share"
    for name, value in (("a quarter", 0.25), ("a third", 1 / 3), ("half", 0.5), ("two thirds", 2 / 3)):
        if abs(share - value) < 0.01:
            return name
    return f"{100 * share:.0f}%"


def paragraph(plan: Plan) -> str:
    """The answer, what it saves, what the obvious alternative costs, and how far it can be trusted."""
    said = [_recommendation(plan), _interval(plan), _alternative(plan), _sensitivity(plan), _trust(plan)]
    return " ".join(sentence for sentence in said if sentence)


def _priced(plan: Plan) -> bool:
    """Whether cost and steps are two things."""
    return bool((plan.terms.cost != 1).any()) or plan.terms.switch_cost > 0


def _amount(plan: Plan, cost: float) -> str:
    return f"a cost of {cost:,.4g}" if _priced(plan) else steps(cost)


def _recommendation(plan: Plan) -> str:
    target, best = plan.target.name, plan.best
    if not math.isfinite(plan.total) and not math.isfinite(plan.direct_total):
        never = f"{target} is never learned, directly or after any candidate"
        return ": ".join((never, *plan.planner.remarks[:1])) + "."
    if math.isinf(plan.direct.descent_steps) and not plan.pretrains:
        return (
            f"Gradient descent diverges on {target} at this learning rate, whatever comes before: lower it. The flow "
            f"takes {steps(plan.direct.flow_steps)}."
        )
    if not plan.pretrains:
        return (
            f"Do not pretrain: train {target} directly, {steps(plan.direct.flow_steps)}. No candidate pays at any stop."
        )
    said = []
    for k, o in enumerate(best.outcomes[:-1]):
        verb = "Pretrain on" if k == 0 else "then on"
        # So early that no accuracy tells when, steps do.
        stop = (
            f"until {percent(o.accuracy)} ({steps(o.flow_steps)})"
            if o.accuracy >= 0.01
            else f"for {steps(o.flow_steps)}"
        )
        said.append(f"{verb} {o.stage.task.name} {stop}")
    last = best.outcomes[-1]
    already = round(last.flow_steps) == 0
    end = f" and {target} is already learned" if already else f", then train {target} for {steps(last.flow_steps)}"
    if not math.isfinite(plan.direct_total):
        return ", ".join(said) + end + f": directly {target} is never learned."
    # The amount the share is of must be the plan's whole, which one stage alone already tells.
    whole = "" if already and len(said) == 1 and not _priced(plan) else f" {_amount(plan, plan.total)} in all,"
    share = fraction(plan.total, plan.direct_total)
    unit = f"the {steps(plan.direct_total)}" if not _priced(plan) else f"the cost of {plan.direct_total:,.4g}"
    return ", ".join(said) + end + f":{whole} {share} of {unit} of direct training."


def _interval(plan: Plan) -> str:
    if plan.saving_interval is None or not plan.pretrains or any(map(math.isnan, plan.saving_interval)):
        return ""
    low, high = plan.saving_interval
    if high - low < 0.5:  # nothing in the plan was estimated
        return ""
    text = f"With the data at hand it saves between {low:,.0f} and {high:,.0f} steps (95% interval)"
    return f"{text}, so it may not pay." if low <= 0 else f"{text}."


def _alternative(plan: Plan) -> str:
    """What learning the first task in full would cost more."""
    first = plan.best.outcomes[0].stage.task
    full = next(
        (a for a in plan.alternatives if a.stages[0].task is first and a.stages[0].accuracy == plan.terms.accuracy),
        None,
    )
    if not plan.pretrains or first is plan.target or full is None or not math.isfinite(full.extra) or full.extra < 0.5:
        return ""
    more = f"{full.extra:,.4g}" if _priced(plan) else steps(full.extra)
    alone = "" if len(plan.best.outcomes) == 2 else f" on {first.name} alone"
    return f"Pretraining{alone} to {percent(plan.terms.accuracy)} would cost {more} more."


def _sensitivity(plan: Plan) -> str:
    near = {s.factor: s for s in plan.sensitivity if s.stage == 0}
    if not plan.pretrains or 0.9 not in near or not all(math.isfinite(near[f].extra) for f in (0.9, 1.1)):
        return ""
    early, late = near[0.9].extra, near[1.1].extra
    if min(early, late) < -0.5:  # a rule forbids the cheaper stop; it must not sound like advice
        return ""
    amounts = [f"{early:,.0f}" if _priced(plan) else steps(max(early, 0.0)), f"{late:,.0f}"]
    return f"Stopping 10% early costs {amounts[0]}, 10% late costs {amounts[1]}."


def _trust(plan: Plan) -> str:
    failed = [a for a in plan.assumptions if a.condition.binding and not a.holds]
    if failed:
        names = ", ".join(f"{a.name.replace('_', ' ')} ({a.measured:.2g})" for a in failed)
        return f"{_CLASSES['outside']}: {names}{_PROOFS[plan.proof]}."
    assumed = _ASSUMED[plan.forecast_class]
    return f"{_CLASSES[plan.forecast_class]}{_PROOFS[plan.proof]}; {assumed}."


#: What every plan of a class takes for granted beyond its measured conditions.
_ASSUMED = {
    "exact": "assumes full-batch gradient descent at this learning rate on half the mean squared error",
    "integrated": "assumes full-batch gradient descent at this learning rate on half the mean squared error",
    "response": "assumes a recurrence that stays fixed, and gradient descent on half the mean squared error",
    "surrogate": "assumes that the network learns tasks in the order its linear part does",
    "outside": "treat the numbers as approximate",
}
