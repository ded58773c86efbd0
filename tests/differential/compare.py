"""Verdicts: an answer agrees with plain training, disagrees, is a refusal, a crash, or slow."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from .interfaces import MOST_SECONDS, Answer, ask
from .plain import Parameters, Plain, batch_steps, best_two_stages, mode_steps
from .problems import Problem, Stop

RUNS = 16
#: Questions that one plain training answers.
TIMED = ("forecast", "follow", "forget")


@dataclass(frozen=True)
class Verdict:
    """Outcome of one problem: agreed, disagreed, refused, crashed or slow; `beyond` if the limit decided it."""

    problem: Problem
    outcome: str
    detail: str = ""
    beyond: bool = False


def same_count(answer: float, truth: float, limit: int) -> bool:
    """Whether two counts agree within one step or 0.1%; a truth beyond the limit only excludes smaller counts."""
    if np.isfinite(truth):
        return abs(answer - truth) <= max(1.0, 1e-3 * truth)
    return not answer <= limit


def compare(problem: Problem) -> Verdict:
    """Ask every interface of the problem and compare the answers with each other and with plain training."""
    answers = {name: ask(problem, name) for name in problem.interfaces}
    for name, answer in answers.items():
        if answer.crashed:
            return Verdict(problem, "crashed", f"{name}: {answer.crashed}")
    if any(answer.late for answer in answers.values()):
        return Verdict(problem, "slow", f"no answer within {MOST_SECONDS:g} s")
    refused = {name: answer.refused for name, answer in answers.items() if answer.refused}
    if len(refused) == len(answers):
        return Verdict(problem, "refused", next(iter(refused.values())))
    if refused:
        return Verdict(problem, "disagreed", f"refused only by {refused}")
    first, *others = answers.values()
    for other in others:
        if not same_answer(first, other):
            return Verdict(problem, "disagreed", f"interfaces differ: {answers}")
    plain = Plain(problem)
    with np.errstate(all="ignore"):
        error, steps = CHECKS[problem.question](plain, first)
    if error:
        return Verdict(problem, "disagreed", error)
    beyond = not np.isfinite(steps)
    allowed = plain.seconds_of(problem.limit if beyond else steps) + 0.5
    slowest = max(("python", "command"), key=lambda name: answers[name].seconds if name in answers else 0.0)
    if problem.question in TIMED and slowest in answers and answers[slowest].seconds > allowed:
        detail = f"{slowest} took {answers[slowest].seconds:.2f} s, plain training and half a second {allowed:.2f} s"
        return Verdict(problem, "slow", detail, beyond)
    return Verdict(problem, "agreed", "", beyond)


def same_answer(one: Answer, other: Answer) -> bool:
    """Whether two interfaces give the same numbers."""
    for key in ("steps", "total", "direct", "losses", "batch_mean", "interval"):
        a, b = np.array(getattr(one, key), float), np.array(getattr(other, key), float)
        given = a.size and b.size and not (np.isnan(a).all() or np.isnan(b).all())
        if given and not (a.shape == b.shape and np.allclose(a, b, rtol=1e-9, equal_nan=True)):
            return False
    return not (one.names and other.names and one.names != other.names)


def check_forecast(plain: Plain, answer: Answer) -> tuple[str, float]:
    """Steps to the goal; accuracy counts per mode if the answer has modes."""
    problem = plain.problem
    stop = problem.stops[-1]
    truth = plain.train(plain.start, len(problem.tasks) - 1, stop, problem.limit)[0]
    agree = same_count(answer.steps[0], truth, problem.limit)
    if not agree and stop.rule == "accuracy" and answer.method in ("modes", "two-layer"):
        truth = mode_steps(plain, stop.value)
        agree = same_count(answer.steps[0], truth, problem.limit)
    if answer.forecast_class == "response":  # it promises an interval
        agree = agree or answer.interval[0] - 1 <= truth <= answer.interval[1] + 1
    detail = f"answer {answer.steps[0]:g} steps ({answer.method}, {answer.interval}), truth {truth:g}"
    return "" if agree else detail, truth


def check_stages(plain: Plain, answer: Answer) -> tuple[str, float]:
    """Steps of each stage, direct training, and the losses of all tasks after each stage."""
    problem, w = plain.problem, plain.start
    count, losses = [], [losses_at(plain, w)]
    for task, stop in enumerate(problem.stops):
        steps, w = plain.train(w, task, stop, problem.limit)
        count.append(steps)
        losses.append(losses_at(plain, w))
        if not np.isfinite(steps):
            break
    for told, truth in zip(answer.steps, count, strict=False):
        if not same_count(told, truth, problem.limit):
            return f"stages take {answer.steps}, truth {count}", sum(count)
    if np.isfinite(answer.direct):
        truth = plain.train(plain.start, len(problem.tasks) - 1, problem.stops[-1], problem.limit)[0]
        if not same_count(answer.direct, truth, problem.limit):
            return f"direct training takes {answer.direct}, truth {truth}", truth
    reached = np.array(losses)
    told = np.array(answer.losses)[: len(reached)] if answer.losses else reached
    if np.isfinite(sum(count)) and not np.allclose(told, reached, rtol=1e-3, atol=1e-9 * reached.max()):
        return f"losses {told.tolist()}, truth {reached.tolist()}", sum(count)
    return "", sum(count)


def losses_at(plain: Plain, w: Parameters) -> list[float]:
    """Loss of every task."""
    return [float(plain.loss(w, task)) for task in range(len(plain.rows))]


def check_plan(plain: Plain, answer: Answer) -> tuple[str, float]:
    """A plan has the steps and the cost that it reports, and no stop of one candidate is much cheaper.

    A plan of recorded trials is the best on average over resamples: for these trials it must come within 10% of the
    best.
    """
    problem, w, cost = plain.problem, plain.start, 0.0
    names = [task.name for task in problem.tasks]
    costs = problem.costs or (1.0,) * len(names)
    direct, best = best_two_stages(plain)
    if not same_count(answer.direct, direct, problem.limit):
        return f"direct training costs {answer.direct}, truth {direct}", direct
    if not np.isfinite(direct):
        return "", direct
    for k, (name, steps) in enumerate(zip(answer.names, answer.steps, strict=True)):
        w = plain.train(w, names.index(name), Stop("steps", steps), problem.limit)[1]
        cost += costs[names.index(name)] * steps + (problem.switch_cost if k else 0.0)
    if not same_count(answer.total, cost, problem.limit):
        return f"the plan {answer.names} {answer.steps} costs {cost}, reported {answer.total}", direct
    late = plain.train(w, len(names) - 1, problem.stops[-1], problem.limit)[0]
    if late > max(1.0, 1e-3 * direct):
        return f"the plan {answer.names} {answer.steps} needs {late} more steps", direct
    allowed = (1.001 if problem.target.form == "statistics" else 1.1) * best + 1
    if answer.total > allowed:
        return f"the plan {answer.names} {answer.steps} costs {answer.total}, the best {best}", direct
    return "", direct


def check_batches(plain: Plain, answer: Answer) -> tuple[str, float]:
    """The mean over runs in batches, within 4 standard errors and 2%, and their spread."""
    if not np.isfinite(answer.batch_mean):
        return "", np.inf
    truth = batch_steps(plain, RUNS, plain.problem.seed)
    if not np.isfinite(truth).all():
        return "", np.inf
    error = np.hypot(truth.std(ddof=1) / np.sqrt(RUNS), answer.batch_spread / np.sqrt(max(answer.batch_runs, 1)))
    agree = abs(answer.batch_mean - truth.mean()) <= 4 * error + 0.02 * truth.mean() + 1
    if truth.std() > 3:  # spreads of 24 and 16 runs differ by a factor of e once in 40,000
        agree &= bool(abs(np.log(answer.batch_spread / truth.std(ddof=1))) <= 1)
    told, found = f"{answer.batch_mean:.1f} ± {answer.batch_spread:.1f}", f"{truth.mean():.1f} ± {truth.std():.1f}"
    return "" if agree else f"batches take {told}, truth {found}", float(truth.mean())


def check_interval(plain: Plain, answer: Answer) -> tuple[str, float]:
    """Whether the interval covers the steps on the whole population; only the rate over many problems is judged."""
    problem = plain.problem
    assert problem.population is not None
    whole = Plain(replace(problem, tasks=(problem.population,)))
    truth = whole.train(whole.start, 0, problem.stops[-1], problem.limit)[0]
    low, high = answer.interval
    covered = not np.isfinite(low) or low - 1 <= truth <= high + 1
    return "" if covered else f"{low:g} to {high:g} misses {truth:g}", truth


CHECKS = {
    "forecast": check_forecast,
    "follow": check_stages,
    "forget": check_stages,
    "plan": check_plan,
    "batches": check_batches,
    "interval": check_interval,
}
