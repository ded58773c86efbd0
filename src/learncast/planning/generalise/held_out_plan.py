"""A plan whose stops are chosen for the held-out loss instead of speed."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import cached_property
from typing import Any

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast.display import Plot, Table, format_count
from learncast.planning.generalise.curve import held_out_losses, outer_rows
from learncast.planning.generalise.generalise import generalise, generalise_after
from learncast.planning.generalise.result import Generalisation
from learncast.planning.generalise.subsets import learn
from learncast.planning.generalise.transfer import source_path
from learncast.planning.methods.method import Method
from learncast.planning.plan import Plan
from learncast.planning.search import Route
from learncast.planning.terms import Terms
from learncast.procedure.goals import Loss
from learncast.procedure.stage import Stage
from learncast.procedure.training import Training

#: Share of a training loss that is round-off.
ROUND_OFF = 1e-9


@dataclass(frozen=True, eq=False, repr=False)
class HeldOutPlan(Plan):
    """A plan for the least held-out loss: one task before the target at most, each with its best stop.

    Attributes
    ----------
    held_out : Generalisation
        Direct training.
    after : tuple of Generalisation
        Training after each candidate, the least held-out loss first.
    fastest : Plan
        The plan that reaches the training loss of direct training at its best stop soonest.
    fastest_loss : float
        Held-out loss of that plan; nan if it has more than one task before the target.
    """

    held_out: Generalisation = None  # type: ignore[assignment]
    after: tuple[Generalisation, ...] = ()
    fastest: Plan = None  # type: ignore[assignment]
    fastest_loss: float = math.nan

    @property
    def chosen(self) -> Generalisation:
        """The recommended training: after the best candidate if it is sure to help, else direct."""
        return _recommended(self.held_out, self.after)

    @cached_property
    def summary(self) -> str:
        """The recommendation in a few sentences."""
        transfer, best = self.chosen.transfer, self.chosen
        low, high = best.loss_interval
        loss = f"held-out loss {best.loss:.3g} ({low:.3g} to {high:.3g})"
        if transfer is None:
            others = " ".join(g.transfer.sentence for g in self.after[:1] if g.transfer is not None)
            return f'Train "{self.target.name}" directly for {best.stop:,} steps: {loss}. {others}'.strip()
        return f'{transfer.sentence} Then train "{self.target.name}" for {best.stop:,} steps: {loss}.'

    def _plot(self) -> Plot:
        return self.chosen._plot()

    @property
    def trade_table(self) -> Table:
        """Steps and held-out loss of direct training, of the fastest plan and of this one."""
        rows = [
            ("direct training, best stop", self.direct_total, self.held_out.loss),
            ("fastest to that training loss", self.fastest.total, self.fastest_loss),
            ("least held-out loss", self.total, self.chosen.loss),
        ]
        cells = [(name, format_count(steps), "" if math.isnan(loss) else f"{loss:.4g}") for name, steps, loss in rows]
        return Table("Speed against held-out loss", ("plan", "cost in steps", "held-out loss"), cells)

    @property
    def ranking_table(self) -> Table:
        """All candidates, the least held-out loss first."""
        rows = [
            (t.source, f"{t.source_stop:,}", f"{g.stop:,}", f"{g.loss:.4g}", f"{t.gain:.1%}",
             "{:.1%} to {:.1%}".format(*t.gain_interval), t.verdict)
            for g in self.after if (t := g.transfer) is not None
        ]  # fmt: skip
        rows.append(("direct training", "", f"{self.held_out.stop:,}", f"{self.held_out.loss:.4g}", "", "", ""))
        columns = ("candidate", "steps on it", "then", "held-out loss", "gain", "95% interval", "verdict")
        return Table("All candidates, least held-out loss first", columns, rows)

    def __repr__(self) -> str:
        return f"<Plan for the held-out loss of {self.target.name!r}: {self.summary}>"


def _recommended(direct: Generalisation, after: Sequence[Generalisation]) -> Generalisation:
    sure = [g for g in after if g.transfer is not None and g.transfer.verdict == "helps"]
    return min(sure, key=lambda g: g.loss, default=direct)


def plan_held_out(
    method: Method,
    training: Training,
    terms: Terms,
    plan_for: Callable[[Method, Terms], Plan],
    *,
    progress: Progress = silent,
    **options: Any,
) -> HeldOutPlan:
    """Choose the candidate and the stops of the least held-out loss; `plan_for` plans for speed.

    Other options are those of `generalise`.
    """
    if any(getattr(terms, name) is not None for name in ("least_accuracy", "most_accuracy", "most_excess_loss")):
        raise InvalidSpec("Limits on stages need a plan for speed.", field="goal")
    target, pool = method.tasks[-1], method.tasks[:-1] if terms.max_stages > 1 else ()
    direct = generalise(target, method.network, training, **options)
    after = []
    for k, task in enumerate(pool):
        after.append(generalise_after(direct, task))
        progress(0.8 * (k + 1) / len(pool))
    after.sort(key=lambda g: g.loss)
    level = float(direct.curve["train"].sel(steps=direct.stop))
    fastest = plan_for(method, replace(terms, goal=Loss(level * (1 + ROUND_OFF))))
    chosen = _recommended(direct, after)
    stages = [Stage(target, steps=chosen.stop)]
    if chosen.transfer is not None:
        first = next(task for task in pool if task.name == chosen.transfer.source)
        stages.insert(0, Stage(first, steps=chosen.transfer.source_stop))
    places = [method.place(stage.task) for stage in stages]
    steps = [float(stage.steps or 0) for stage in stages]
    route = Route(tuple(places[:-1]), tuple(steps[:-1]), steps[-1], float(fastest.terms.price(places, steps)))
    alone = Route((), (), float(direct.stop), float(fastest.terms.price(places[-1:], [direct.stop])))
    own = {f.name: getattr(fastest, f.name) for f in fields(Plan)}
    own |= {"best": fastest.follow(stages), "route": route, "in_sample_route": route, "direct_route": alone}
    own |= {"proof": "best found", "bound": math.nan, "compares": False}
    progress(1.0)
    return HeldOutPlan(
        **own, held_out=direct, after=tuple(after), fastest=fastest, fastest_loss=_loss_of(direct, fastest)
    )


def _loss_of(direct: Generalisation, plan: Plan) -> float:
    """Held-out loss of a plan of at most two stages."""
    problem, steps = direct.asked, plan.stage_steps()
    if len(steps) > 2 or not all(map(math.isfinite, steps)):
        return math.nan
    test = problem.test is not None
    rows, starts = outer_rows(problem.samples, test), None
    if len(steps) == 2:
        task = plan.stages[0].task
        starts = list(source_path(problem, task, rows, [round(steps[0])])[0])
    losses = learn(problem.samples, rows, [round(steps[-1])], starts=starts).losses
    return float(held_out_losses(problem.samples, losses, test)[0])
