"""Report of `learncast forecast`: how many steps until this network has learned this task?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from functools import partial
from itertools import groupby
from operator import itemgetter
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast import Forecast, Goal, InvalidSpec, Stage, Status, Steps, UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.display import Table, format_count, format_interval, format_number
from learncast.networks.activated import Activated
from learncast.planning.defaults import DATA_GOAL, chosen_table
from learncast.planning.forecast import on_trials
from learncast.planning.forecast_numbers import curve_values
from learncast.planning.generalise.generalise import DependentTrials, generalise
from learncast.planning.generalise.learners import PooledLearner, learner_for
from learncast.planning.generalise.result import Generalisation
from learncast.planning.methods.method import LIMIT, Method
from learncast.planning.summary import settling_rate
from learncast.report.generalise import held_out_values
from learncast.report.recurrence import LearnedRecurrence
from learncast.report.report import (
    Report,
    as_count,
    batch_values,
    data_notes,
    goal_values,
    method_note,
    outcome_values,
    spread_rows,
)
from learncast.study import Study
from learncast.tasks.task import Task

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

#: Explanations of the columns of a table of modes.
LEGEND = {
    "b": "b: recurrence",
    "beta_yx": "beta_yx and beta_xx: covariance of input and target, and of the input, weighted by b",
    "u*": "u0 and u*: strength at the start and at the optimum",
    "flow": "descent: steps of gradient descent; flow: the same for infinitely small steps",
}
#: Share of the largest strength below which a strength is round-off.
ROUND_OFF = 1e-12
#: Rows of a trajectory in a table.
MOST_ROWS = 30
#: Last step of the held-out loss: this multiple of the steps of the forecast, and at most so many.
BEYOND, HELD_OUT_STEPS = 4, 10_000


def forecast_report(
    study: Study, *, task: str | None = None, times: FloatArray | None = None, method: str = "auto"
) -> Report:
    """Forecast the learning of the target, or of a named candidate."""
    chosen = study.target if task is None else study.task(task)
    m = study.method(method, optimizers=True).precise
    place = m.place(chosen)
    on_recorded = study.goal.needs_training
    goal = DATA_GOAL if on_recorded else study.goal
    direct = None if on_recorded else m.learning_time(place, goal)
    made = Forecast(m, (Stage(chosen, goal),), (place,), known_direct=direct, chosen=study.chosen)
    if study.batch is not None and made.trust.holds:
        made = replace(made, batch=study.batch)
    made = on_trials(made, Stage(chosen, study.goal)) if on_recorded else made
    return of_forecast(made, times, horizons=study.horizons, name=study.name, study=study.resolved())


def of_forecast(
    made: Forecast, times: FloatArray | None = None, *, horizons: Sequence[int] = (), name: str = "", study: str = ""
) -> Report:
    """Report a forecast of one task that is trained to a goal.

    Parameters
    ----------
    made : Forecast
    times : array, optional
        Steps at which the trajectory is listed.
    horizons : sequence of int
        Lengths of longer trials, for a recurrence that is learned.
    name, study : str
        Name and content of the study; by default the task's name and nothing.
    """
    m, (place,), chosen, trust = made.method, made.places, made.target, made.trust
    goal = made.requested[0].goal
    assert isinstance(goal, Goal)
    learned, flow = made.known_direct or m.learning_time(place, goal), m.flow(place, m.start)
    steps, refusal = _steps_in_batches(made)
    rows = m.mode_rows(place, goal)
    recurrence = LearnedRecurrence.of(made, flow, horizons)
    first, notes = data_notes(m, place)
    remarks = [*flow.remarks, *recurrence.remarks, *notes]
    values: dict[str, object] = {
        "task": chosen.name,
        "learning_rate": made.training.learning_rate,
        **goal_values(goal),
        "method": m.name,
        **m.trial_values([place]),
        "flow_steps": steps.flow,
        "descent_steps": as_count(steps.descent),
        **outcome_values(steps),
        **({} if steps.interval is None else {"interval": list(steps.interval)}),
        **_batch_values(made, refusal),
        "modes": [
            {**row, "descent_steps": as_count(row.get("descent_steps", math.nan)), **recurrence.of_mode(k)}
            for k, row in enumerate(rows)
        ],
        **recurrence.values,
        "bottleneck_loss": flow.bottleneck_loss,
        "remarks": remarks,
    }
    values["curve"] = curve_values(made.full_batch)
    other = made.without_bias
    if other is not None:
        count, best = as_count(other.steps.descent), other.best_r2
        values["without_bias"] = {"descent_steps": count, "best_r2": best, "best_r2_with_bias": made.best_r2}
        reached = f"and R² can reach {best:.3g} instead of {made.best_r2:.3g}"
        remarks.append(f"Without biases training takes {other.steps.count} full-batch steps, {reached}")
    if made.classes is not None:
        values["classes"] = asdict(made.classes)
    if made.chosen:
        values["chosen"] = [asdict(choice) for choice in made.chosen]
    if any(a.name == LIMIT for a in trust.failed) and made.safe_rate is not None:
        values["safe_rate"] = made.safe_rate.values
        refusal += f" {made.unstable}{made.safe_rate.sentence}"
    span = np.linspace(0.0, learned.horizon, 400 if m.name == "modes" else 120)
    tables = [
        *chosen_table(made.chosen),
        _table(f'Learning "{chosen.name}" to {goal.text}', m.goal_text(place, goal), rows, remarks),
    ]
    tables += [] if made.classes is None else [made.classes.table]
    tables += recurrence.tables
    held_out, unknown = _held_out(m, chosen, learned.descent_steps)
    if unknown:
        tables.append(Table("Held-out loss", ("",), [(unknown,)]))
    if held_out is not None:
        values["held_out"] = held_out_values(held_out)
        tables.append(replace(held_out.table, notes=[held_out.sentence, *held_out.remarks]))
    if times is not None:
        data = flow.at(times).dataset
        values["trajectory"] = {"time": times, "strength": data["strength"].values.T, "loss": data["loss"].values}
        tables.append(_trajectory_table(data))

    def draw() -> Figure:
        from learncast.figures import learning_curve, mode_strengths, sheet

        optimum = [row["optimum"] for row in rows]
        course = partial(learning_curve, made.full_batch.learning_curve(points=240), title=f'Learning "{chosen.name}"')
        if not m.has_flow:
            return sheet(course, width=4.2, height=3.0)
        modes = partial(mode_strengths, flow.at(span).dataset, optimum=optimum, title="Strength of every mode")
        return sheet(course, modes, width=3.9, height=2.9)

    lead = first + _lead(chosen.name, goal, made if not refusal else made.full_batch, m, place)
    return Report(
        kind="forecast",
        title=f"{name or chosen.name}: forecast",
        lead=lead + refusal + _bottleneck(flow.bottleneck_loss) + recurrence.sentence,
        trust=trust,
        values=values,
        tables=tables,
        dataset=lambda: (
            flow.at(span if times is None else times).dataset if m.has_flow else made.full_batch.learning_curve()
        ),
        draw=draw,
        provenance=made.provenance,
        study=study,
    )


def _held_out(method: Method, task: Task, steps: float) -> tuple[Generalisation | None, str]:
    """Held-out loss of a task with stored trials and a fixed scalar recurrence, or the reason why there is none."""
    if task.recorded_trials is None or task.recording is None:
        return None, ""
    training, network = method.training.with_(batch=None), method.network
    most = max(min(HELD_OUT_STEPS, BEYOND * int(steps)), 1) if math.isfinite(steps) else HELD_OUT_STEPS
    try:
        if isinstance(network, Activated) or not isinstance(learner_for(task, network, training), PooledLearner):
            return None, "`learncast generalise` forecasts the held-out loss."
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DependentTrials)  # it is among the remarks
            return generalise(task, network, training, most_steps=most), ""
    except (InvalidSpec, UnsupportedModel) as error:
        return None, f"No held-out loss: {error}"


def _steps_in_batches(made: Forecast) -> tuple[Steps, str]:
    """Steps in the batches of the study; full-batch steps and the reason if batches cannot be simulated."""
    try:
        return made.steps, ""
    except (InvalidSpec, UnsupportedModel) as error:
        return made.full_batch.steps, f" These are full-batch steps. {error}"


def _batch_values(made: Forecast, refusal: str) -> dict[str, Any]:
    """JSON values of training in batches, if the study asks for them."""
    if made.batch is None:
        return {}
    batches = None if refusal else made.batches
    full = as_count(made.full_batch.steps.descent)
    return {"full_batch_steps": full, "in_batches": None if batches is None else batch_values(batches)}


def _table(title: str, meaning: str, rows: list[dict[str, Any]], remarks: list[str]) -> Table:
    every = ("mode", "b", "beta_yx", "beta_xx", "u*", "u0", "descent", "flow", "status")
    digits = {"recurrence": 4, "weighted_cross": 5, "weighted_input": 5, "optimum": 5, "initial": 3}
    tiny = ROUND_OFF * max((abs(row["optimum"]) for row in rows), default=0.0)
    described = [
        (
            *(_known(row.get(key, math.nan), n, tiny if key == "optimum" else 0.0) for key, n in digits.items()),
            *_steps(row),
            row["status"],
        )
        for row in rows
    ]
    cells = []
    for same, group in groupby(zip(described, rows, strict=True), key=itemgetter(0)):  # equal modes share a row
        numbers = [row["mode"] + 1 for _, row in group]
        cells.append(("–".join(map(str, dict.fromkeys((numbers[0], numbers[-1])))), *same))
    # Leave out what says nothing: modes that learn together have neither a recurrence nor steps of their own.
    used = [k for k in range(len(every)) if any(row[k] not in ("", Status.ok.name) for row in cells)]
    columns, cells = [every[k] for k in used], [tuple(row[k] for k in used) for row in cells]
    legend = "; ".join([*(words for column, words in LEGEND.items() if column in columns), meaning])
    return Table(title, columns, cells, [f"{r}." for r in (legend, *remarks)])


def _steps(row: dict[str, Any]) -> tuple[str, str]:
    """Steps of one mode; empty for modes that learn together."""
    if "flow_steps" not in row:
        return "", ""
    steps = Steps(row["descent_steps"], row["flow_steps"], status=Status[row["status"]])
    return steps.count, format_number(steps.flow)


def _known(value: float, digits: int, tiny: float = 0.0) -> str:
    if math.isnan(value):
        return ""
    return "0" if abs(value) < tiny else f"{value:.{digits}g}"


def _lead(name: str, goal: Goal, made: Forecast, method: Method, place: int) -> str:
    """The result in one sentence."""
    trust, steps, task = made.trust, made.steps, f'"{name}"'
    flow, descent = steps.flow, steps.descent
    note = method_note(method, trust, place)
    if not trust.holds:
        count = f"{format_number(flow)} flow steps to {goal.text}"
        rest = count if math.isfinite(flow) else "no finite number of steps"
        return f"{note} The {'flow' if method.applies else 'approximation'} takes {rest}."
    if steps.status is Status.not_within and made.batches is None:
        return f"{task} {steps.outcome}: it does not reach {goal.text}.{note}"
    if method.nothing_to_learn(place, goal):
        return f"{task} has nothing to learn: no map of its inputs has a smaller loss than answering zero.{note}"
    if math.isnan(flow) and not math.isfinite(descent):
        return f"It is unknown whether {task} reaches {goal.text}: {steps.status.value}.{note}"
    if math.isinf(flow) and not math.isfinite(descent):
        why = method.why_never(place, goal) or f"it {steps.status.value}"
        return f"{task} never reaches {goal.text}: {why}.{note}"
    if made.batches is not None and made.batches.by_chance:
        full = f"Full batches reach {goal.text} in {format_count(made.full_batch.steps.descent)} steps."
        return f"{task}: {made.batches.sentence} {full}{note}"
    if not math.isfinite(descent):
        text = (
            "descent is too long to count"
            if math.isnan(descent)
            else _divergence(settling_rate(method, place, made.trust))
        )
        return f"The gradient flow of {task} reaches {goal.text} in {format_number(flow)} steps; {text}.{note}"
    certain = steps.interval is None or steps.low == steps.high  # nothing was estimated from trials
    within = "" if certain else f"95% interval {format_interval(steps.interval)}; "
    spread, batches = "", ""
    if made.batches is not None:
        spread, full = f" ± {format_count(steps.spread)}", format_count(made.full_batch.steps.descent)
        batches = (
            f"{made.batches.drawn}, mean and standard deviation of {made.batches.runs} runs; full batches: {full}; "
        )
    by_flow = f"{within}gradient flow: {format_number(flow)}"
    known = by_flow if method.has_flow else f"{made.training.optimizer}, counted"
    count = f"{format_count(descent)}{spread} gradient steps ({batches}{known})"
    return f"{task} reaches {goal.text} in {count}.{note}"


def _bottleneck(loss: float) -> str:
    return f" There are fewer hidden units than modes: a loss of {loss:.3g} cannot be learned." if loss > 0 else ""


def _divergence(most: float) -> str:
    sure = "" if math.isnan(most) else f"; below {most:.2g} it is sure to settle"
    return f"{Status.diverged.value}{sure}"


def _trajectory_table(dataset: xr.Dataset) -> Table:
    picks, notes = spread_rows(dataset.sizes["time"], MOST_ROWS)
    rows = [
        (
            f"{float(dataset['time'][i]):g}",
            *(f"{float(u):.6g}" for u in dataset["strength"].values[i]),
            f"{float(dataset['loss'][i]):.6g}",
        )
        for i in picks
    ]
    columns = ("step", *(f"strength {k + 1}" for k in range(dataset.sizes["mode"])), "loss")
    return Table("Trajectory of the flow", columns, rows, notes)
