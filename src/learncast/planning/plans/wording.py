"""A plan in plain words."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from learncast.validation import one_of

if TYPE_CHECKING:
    from learncast.planning.plans.recommendation import Plan

#: What may be promised, said of a plan.
_CLASSES = {
    "exact": "Exact for this network",
    "integrated": "Counted on the statistics of these tasks for this network",
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


def _amount(plan: Plan, cost: float) -> str:
    return f"a cost of {cost:,.4g}" if plan.terms.priced else steps(cost)


def _unit(plan: Plan) -> str:
    """What is counted, where it is not what people run."""
    return "" if plan.counted else " of the flow (descent is too long to count)"


def _recommendation(plan: Plan) -> str:
    target, best = plan.target.name, plan.best
    if not math.isfinite(plan.total) and math.isinf(plan.direct.flow_steps):
        never = f"{target} is never learned, directly or after any candidate"
        return ": ".join((never, *plan.ground.remarks[:1])) + "."
    if not math.isfinite(plan.total) or not plan.ground.stable_on(plan.ground.target):
        return (
            f"Gradient descent diverges on {target} at this learning rate, whatever comes before; below "
            f"{plan.ground.largest_rate(plan.ground.target):.2g} it is sure to settle. The flow takes "
            f"{steps(plan.direct.flow_steps)}."
        )
    flow = f"; the flow takes {_flow(plan.flow.best.total)}" if _differs(plan) else ""
    if not plan.pretrains:
        alone = f"Do not pretrain: train {target} directly, {steps(plan.direct_steps)}{_unit(plan)}{flow}."
        return f"{alone} No candidate pays at any stop."
    said = []
    counts = plan.stage_steps()
    for k, (o, n) in enumerate(zip(best.outcomes[:-1], counts, strict=False)):
        verb = "Pretrain on" if k == 0 else "then on"
        # So early that no accuracy tells when, steps do.
        stop = f"until {percent(o.accuracy)} ({steps(n)})" if o.accuracy >= 0.01 else f"for {steps(n)}"
        said.append(f"{verb} {o.stage.task.name} {stop}")
    already = round(counts[-1]) == 0
    end = f" and {target} is already learned" if already else f", then train {target} for {steps(counts[-1])}"
    if not math.isfinite(plan.direct_total):
        return ", ".join(said) + end + f": directly {target} is never learned."
    # The amount the share is of must be the plan's whole, which one stage alone already tells.
    whole = "" if already and len(said) == 1 and not plan.terms.priced else f" {_amount(plan, plan.total)} in all,"
    share = fraction(plan.total, plan.direct_total)
    unit = (
        f"the cost of {plan.direct_total:,.4g}" if plan.terms.priced else f"the {steps(plan.direct_total)}{_unit(plan)}"
    )
    return ", ".join(said) + end + f":{whole} {share} of {unit} of direct training{flow}."


def _flow(total: float) -> str:
    return f"{total:,.4g}" if math.isfinite(total) else "for ever"


def _differs(plan: Plan) -> bool:
    """Whether the flow's best plan costs so much less or more that a reader of the theory would wonder."""
    own, flow = plan.total, plan.flow.best.total
    return plan.counted and not plan.ground.batched and math.isfinite(flow) and abs(own - flow) > 0.02 * own + 2


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
    if not plan.pretrains:
        return ""
    first = plan.best.outcomes[0].stage.task
    full = next(
        (a for a in plan.alternatives if a.stages[0].task is first and a.stages[0].accuracy == plan.terms.accuracy),
        None,
    )
    if full is None or not math.isfinite(full.extra) or full.extra < 0.5:
        return ""
    more = f"{full.extra:,.4g}" if plan.terms.priced else steps(full.extra)
    alone = "" if len(plan.best.outcomes) == 2 else f" on {first.name} alone"
    return f"Pretraining{alone} to {percent(plan.terms.accuracy)} would cost {more} more."


def _sensitivity(plan: Plan) -> str:
    found = plan.fragile if plan.pretrains else None
    if found is None or not all(math.isfinite(s.extra) for s in found):
        return ""
    early, late = (s.extra for s in found)
    if min(early, late) < -0.5:  # a rule forbids the cheaper stop; it must not sound like advice
        return ""
    amounts = [f"{early:,.0f}" if plan.terms.priced else steps(max(early, 0.0)), f"{late:,.0f}"]
    what = "" if len(plan.route.order) == 1 else f" {found[0].task}"
    return f"Stopping{what} 10% early costs {amounts[0]}, 10% late costs {amounts[1]}."


def _trust(plan: Plan) -> str:
    if not plan.trust.holds:
        return f"{_CLASSES['outside']}: {plan.trust.names}{_PROOFS[plan.proof]}."
    assumed = _ASSUMED[plan.forecast_class]
    return f"{_CLASSES[plan.forecast_class]}{_PROOFS[plan.proof]}; {assumed}."


def known(what: str, name: str, names: Sequence[str]) -> str:
    """A name that must be one of some."""
    return one_of(what, name, tuple(names), why="these are the candidates")


#: What every plan of a class takes for granted beyond its measured conditions.
_ASSUMED = {
    "exact": "assumes full-batch gradient descent at this learning rate on half the mean squared error",
    "integrated": "assumes full-batch gradient descent at this learning rate on half the mean squared error",
    "response": "assumes a recurrence that stays fixed, and gradient descent on half the mean squared error",
    "surrogate": "assumes that the network learns tasks in the order its linear part does",
    "outside": "treat the numbers as approximate",
}
