"""A plan in plain words, and why a curriculum helps or hurts: the paper's three terms with a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.validation import FloatArray, one_of
from learncast.display import format_count
from learncast.results import Status

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
    "given up": "; the best found in the time given, a better one may exist",
    "robust": "; the stop is the best on average over resampled data",
}


#: Share of resamplings that an interval leaves out at each end.
TAIL = 0.025


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


def descended(number: float, status: Status) -> str:
    """Descent steps for people; a descent that diverges is not the same as one that never arrives."""
    return "diverges" if status is Status.diverged and math.isinf(number) else format_count(number)


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
        flow = steps(plan.direct.flow_steps) if plan.direct.flow_steps >= 1 else "less than a step"
        return (
            f"Gradient descent diverges on {target} at this learning rate, whatever comes before; below "
            f"{plan.ground.largest_rate(plan.ground.target):.2g} it is sure to settle. The flow takes {flow}."
        )
    flow = f"; the flow takes {_flow(plan.flow.best.total)}" if _differs(plan) else ""
    if not plan.pretrains:
        alone = f"Do not pretrain: train {target} directly, {steps(plan.direct_steps)}{_unit(plan)}{flow}."
        return f"{alone} No candidate pays at any stop."
    if not plan.worthwhile:
        return (
            f"Train {target} directly, {steps(plan.direct_steps)}{_unit(plan)}{flow}: pretraining hardly pays. At best "
            f"it saves {_saved(plan)}: {_stages(plan)}."
        )
    # The amount the share is of must be the plan's whole, which one stage alone already tells.
    already = round(plan.stage_steps()[-1]) == 0
    if not math.isfinite(plan.direct_total):
        return f"{_capital(_stages(plan))}: directly {target} is never learned."
    told = already and len(best.outcomes) == 2 and not plan.terms.priced
    whole = "" if told else f" {_amount(plan, plan.total)} in all,"
    share = fraction(plan.total, plan.direct_total)
    unit = (
        f"the cost of {plan.direct_total:,.4g}" if plan.terms.priced else f"the {steps(plan.direct_total)}{_unit(plan)}"
    )
    return f"{_capital(_stages(plan))}:{whole} {share} of {unit} of direct training{flow}."


def _saved(plan: Plan) -> str:
    return f"a cost of {plan.saving:,.3g}" if plan.terms.priced else steps(plan.saving)


def _capital(sentence: str) -> str:
    return sentence[:1].upper() + sentence[1:]


def _stages(plan: Plan) -> str:
    """What to train on and until when, stage by stage."""
    target, counts, said = plan.target.name, plan.stage_steps(), []
    for k, (o, n) in enumerate(zip(plan.best.outcomes[:-1], counts, strict=False)):
        verb = "pretrain on" if k == 0 else "then on"
        # So early that no accuracy tells when, steps do.
        stop = f"until {percent(o.accuracy)} ({steps(n)})" if o.accuracy >= 0.01 else f"for {steps(n)}"
        said.append(f"{verb} {o.stage.task.name} {stop}")
    already = round(counts[-1]) == 0
    end = f" and {target} is already learned" if already else f", then train {target} for {steps(counts[-1])}"
    return ", ".join(said) + end


def _flow(total: float) -> str:
    return f"{total:,.4g}" if math.isfinite(total) else "for ever"


def _differs(plan: Plan) -> bool:
    """Whether the flow's best plan costs so much less or more that a reader of the theory would wonder."""
    own, flow = plan.total, plan.flow.best.total
    return plan.counted and not plan.ground.batched and math.isfinite(flow) and abs(own - flow) > 0.02 * own + 2


def _interval(plan: Plan) -> str:
    replicas = plan.best.replicas
    if replicas is not None and plan.trust.holds:
        known = replicas.flow if np.isnan(replicas.descent).all() else replicas.descent
        lost = int(np.isinf(known.sum(axis=0)).sum())
        if lost > TAIL * known.shape[1]:
            return (
                f"In {lost} of {known.shape[1]} resamplings of the data it is never learned: the data do not settle it."
            )
    if plan.saving_interval is None or not plan.pretrains or any(map(math.isnan, plan.saving_interval)):
        return ""
    low, high = plan.saving_interval
    if high - low < 0.5:  # nothing in the plan was estimated
        return ""
    text = f"With the data at hand it saves between {low:,.0f} and {high:,.0f} steps (95% interval)"
    return f"{text}, so it may not pay." if low <= 0 else f"{text}."


def _alternative(plan: Plan) -> str:
    """What learning the first task in full would cost more."""
    if not plan.worthwhile:
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
    found = plan.fragile if plan.worthwhile else None
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
    return one_of(what, name, tuple(names))


#: What every plan of a class takes for granted beyond its measured conditions.
_ASSUMED = {
    "exact": "assumes full-batch gradient descent at this learning rate on half the mean squared error",
    "integrated": "assumes full-batch gradient descent at this learning rate on half the mean squared error",
    "response": "assumes a recurrence that stays fixed, and gradient descent on half the mean squared error",
    "surrogate": "assumes that the network learns tasks in the order its linear part does",
    "outside": "treat the numbers as approximate",
}


@dataclass(frozen=True)
class Explanation:
    """The three terms of the printed speedup, for the mode that is slowest to learn directly.

    Their sum times 1 / (2 learning_rate beta_yx) of the target is the printed speedup. They explain; they do not
    count: the sum equals the exact speedup only when both tasks are approached from below.

    Attributes
    ----------
    mode : int
    initial_scale : float
        ln|u2*/u0 - 1|: what direct training must cover from its small start.
    cross_ratio : float
        What the first task spends instead, weighed by beta_yx of the second over the first.
    closeness : float
        -ln|u2*/u1 - 1|: how near the first task's end u1 lies to the second's optimum; infinite on it.
    printed_speedup_steps : float
    sentence : str
    """

    mode: int
    initial_scale: float
    cross_ratio: float
    closeness: float
    printed_speedup_steps: float
    sentence: str

    def as_dict(self) -> dict[str, Any]:
        """Plain values for JSON."""
        return dict(self.__dict__)


def speedup_terms(
    start: Any, first: tuple[Any, Any], second: tuple[Any, Any], tolerance: Any
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Three terms whose sum is 2 beta_yx(2) / gamma times the printed speedup.

    Implements: curriculum2025 Eq. (16)
    Implements: curriculum2025 Eq. (46), the same printed again

    Parameters
    ----------
    start : array_like
        u_0.
    first, second : (beta_yx, beta_xx)
        Weighted strengths of the two tasks.
    tolerance : array_like
        eps of the first task.
    """
    u0, eps = np.asarray(start, dtype=float), np.asarray(tolerance, dtype=float)
    b1, B1, b2, B2 = (np.asarray(v, dtype=float) for v in (*first, *second))
    with np.errstate(divide="ignore", invalid="ignore"):
        u1, u2 = b1 / B1, b2 / B2
        initial_scale = np.log(np.abs(u2 / u0 - 1))
        cross_ratio = b2 / b1 * np.log(np.abs(eps * u0 / ((1 - eps) * (u1 - u0))))
    return initial_scale, cross_ratio, closeness(u1, u2, eps)


def closeness(first_optimum: Any, second_optimum: Any, tolerance: Any) -> FloatArray:
    """-ln|u2* / ((1 - eps) u1*) - 1|: infinite when the first task stops on the second's optimum.

    Implements: curriculum2025 Eq. (17)
    """
    u1, u2, eps = (np.asarray(v, dtype=float) for v in (first_optimum, second_optimum, tolerance))
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray(-np.log(np.abs(u2 / ((1 - eps) * u1) - 1)))


def singular_accuracy(first_optimum: Any, second_optimum: Any) -> FloatArray:
    """Accuracy on the first task at which its end is the second's optimum, u2*/u1*; nan beyond (0, 1)."""
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.asarray(second_optimum, dtype=float) / np.asarray(first_optimum, dtype=float)
    return np.where((ratio > 0) & (ratio < 1), ratio, np.nan)


def explain(
    *,
    mode: int,
    start: float,
    end: float,
    first: tuple[float, float],
    second: tuple[float, float],
    tolerance: float,
    target_tolerance: float,
    learning_rate: float,
    names: tuple[str, str],
) -> Explanation:
    """Explain what one intermediate task does to one mode."""
    scale, crossing, near = (float(term) for term in speedup_terms(start, first, second, tolerance))
    with np.errstate(invalid="ignore", divide="ignore"):
        speedup = float(np.float64(scale + crossing + near) / (2 * learning_rate * second[0]))
    sentence = _sentence(end, first, second, target_tolerance, names)
    return Explanation(mode, scale, crossing, near, speedup, sentence)


def _sentence(
    end: float,
    first: tuple[float, float],
    second: tuple[float, float],
    target_tolerance: float,
    names: tuple[str, str],
) -> str:
    one, two = names
    if second[0] == 0 or second[1] == 0:
        return f"{two} asks nothing of this mode"
    ratio, best = first[0] / second[0], second[0] / second[1]
    if ratio <= 0:
        return f"{one} pulls this mode away from {two}"
    if abs(ratio - 1) < 1e-12:
        pace = f"{one} starts as fast as {two}"
    elif ratio > 1:
        pace = f"{one} starts {ratio:.3g} times faster than {two}"
    else:
        pace = f"{one} starts {1 / ratio:.3g} times slower than {two}"
    if abs(end - best) <= target_tolerance * abs(best) * (1 + 1e-9):
        place = f"and ends inside the tolerance of {two}, which then needs no training"
    elif abs(end) < abs(best):
        place = f"and ends at {end / best:.1%} of the way to {two}'s optimum"
    else:
        place = f"and overshoots to {end / best:.1%} of {two}'s optimum, which must be unlearned"
    return f"{pace} {place}"
