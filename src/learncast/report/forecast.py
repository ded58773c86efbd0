"""Report of `learncast forecast`: how many steps until this network has learned this task?"""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from dataclasses import asdict, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast import Forecast, Goal, InvalidSpec, OutOfTime, Stage, Status, Steps, UnsupportedModel
from learncast._core.progress import deadline, until
from learncast._core.validation import FloatArray
from learncast.display import Plot, Table, format_count, format_interval, format_number
from learncast.networks.activated import Activated
from learncast.planning.defaults import chosen_table
from learncast.planning.forecast import on_trials
from learncast.planning.forecast_numbers import curve_values
from learncast.planning.generalise.generalise import DependentTrials, generalise
from learncast.planning.generalise.learners import PooledLearner, learner_for
from learncast.planning.generalise.result import Generalisation
from learncast.planning.methods.method import LIMIT, Method
from learncast.planning.summary import settling_rate
from learncast.procedure.goals import DATA_GOAL
from learncast.report.generalise import held_out_values
from learncast.report.recurrence import LearnedRecurrence
from learncast.report.report import (
    Report,
    as_count,
    batch_values,
    data_notes,
    data_tables,
    goal_values,
    method_note,
    outcome_values,
    picture,
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
#: Why a number is left out.
TIME_LIMIT = "the time limit was reached. Allow more seconds"


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
    run, late = made.run, ""
    try:
        _ = made.resampled
    except OutOfTime:  # the count itself is an answer
        made, late = replace(made, resample=False), f"No 95% interval: {TIME_LIMIT}"
        made.__dict__["run"] = run
    with until(math.inf if late else deadline()):
        return of_forecast(made, times, horizons=study.horizons, name=study.name, study=study.resolved(), late=late)


def of_forecast(
    made: Forecast,
    times: FloatArray | None = None,
    *,
    horizons: Sequence[int] = (),
    name: str = "",
    study: str = "",
    late: str = "",
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
    late : str
        What the time limit left out; the held-out loss is then left out too.
    """
    m, (place,), chosen, trust = made.method, made.places, made.target, made.trust
    goal = made.requested[0].goal
    assert isinstance(goal, Goal)
    learned, flow = made.known_direct or m.learning_time(place, goal), m.flow(place, m.start)
    steps, refusal = _steps_in_batches(made)
    rows = m.mode_rows(place, goal)
    recurrence = LearnedRecurrence.of(made, flow, horizons)
    first, notes = data_notes(m, place)
    remarks = [*flow.remarks, *recurrence.remarks, *filter(None, [late])]
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
            {
                **row,
                **({"descent_steps": as_count(row["descent_steps"])} if "descent_steps" in row else {}),
                **recurrence.of_mode(k),
            }
            for k, row in enumerate(rows)
        ],
        **recurrence.values,
        "bottleneck_loss": flow.bottleneck_loss,
        "curve": curve_values(made.full_batch),
        **({} if made.classes is None else {"classes": asdict(made.classes)}),
        **({"chosen": [asdict(choice) for choice in made.chosen]} if made.chosen else {}),
    }
    other = made.without_bias
    if other is not None:
        count, best = as_count(other.steps.descent), other.best_r2
        values["without_bias"] = {"descent_steps": count, "best_r2": best, "best_r2_with_bias": made.best_r2}
        reached = f"and R² can reach {best:.3g} instead of {made.best_r2:.3g}"
        remarks.append(f"Without biases training takes {other.steps.count} full-batch steps, {reached}")
    values["remarks"] = [*remarks, *notes]
    if any(a.name == LIMIT for a in trust.failed) and made.safe_rate is not None:
        values["safe_rate"] = made.safe_rate.values
        refusal += f" {made.unstable}{made.safe_rate.sentence}"
    span = np.linspace(0.0, learned.horizon, 400 if m.name == "modes" else 120)
    tables = [
        *chosen_table(made.chosen),
        _table(f'Learning "{chosen.name}" to {goal.text}', m.goal_text(place, goal), rows, remarks),
        *([] if made.classes is None else [made.classes.table]),
        *recurrence.tables,
        *data_tables(chosen, notes),
    ]
    held_out, unknown = (None, "") if late else _held_out(m, chosen)
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
        curve, optimum = made.full_batch.learning_curve(points=240), [row["optimum"] for row in rows]
        marked, title = steps if refusal else made.drawn_steps, f'Learning "{chosen.name}"'
        if not math.isfinite(steps.descent) and not math.isfinite(steps.tried):
            title += ", gradient flow"
        course = Plot.of("learning_curve", curve, steps=marked, title=title)
        if not m.has_flow:
            return picture(course.on, width=4.2, height=3.0)
        modes = Plot.of("mode_strengths", flow.at(span).dataset, optimum=optimum, title="Strength of every mode")
        return picture(course.on, modes.on, width=3.9, height=2.9)

    lead = first + _lead(chosen.name, goal, made if not refusal else made.full_batch, m, place)
    note = method_note(m, trust, place) if trust.holds else ""
    return Report(
        kind="forecast",
        title=f'{name}: forecast of "{chosen.name}"' if name else f"{chosen.name}: forecast",
        lead=lead + refusal + _bottleneck(flow.bottleneck_loss) + recurrence.sentence + note,
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


def _held_out(method: Method, task: Task) -> tuple[Generalisation | None, str]:
    """Held-out loss of `learncast.generalise` for stored trials and a fixed scalar recurrence, or why there is none."""
    if task.recorded_trials is None or task.recording is None:
        return None, ""
    training, network = method.training.with_(batch=None), method.network
    try:
        if isinstance(network, Activated) or not isinstance(learner_for(task, network, training), PooledLearner):
            return None, "`learncast generalise` forecasts the held-out loss."
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DependentTrials)  # it is among the remarks
            return generalise(task, network, training), ""
    except OutOfTime:
        return None, f"No held-out loss: {TIME_LIMIT}."
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
    numbers = ("recurrence", "weighted_cross", "weighted_input", "optimum", "initial")
    tiny = ROUND_OFF * max((abs(row["optimum"]) for row in rows), default=0.0)

    def described(row: dict[str, Any]) -> tuple[str, ...]:
        known = (_known(row.get(key, math.nan), tiny if key == "optimum" else 0.0) for key in numbers)
        return (*known, *_steps(row), row["status"])

    cells = []
    for same, group in groupby(rows, key=described):  # equal modes share a row
        modes = [row["mode"] + 1 for row in group]
        cells.append(("–".join(map(str, dict.fromkeys((modes[0], modes[-1])))), *same))
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


def _known(value: float, tiny: float) -> str:
    if math.isnan(value):
        return ""
    return "0" if abs(value) < tiny else f"{value:.4g}"


def _lead(name: str, goal: Goal, made: Forecast, method: Method, place: int) -> str:
    """The result in one sentence."""
    trust, steps, task = made.trust, made.steps, f'"{name}"'
    flow, descent = steps.flow, steps.descent
    if not trust.holds:
        count = f"{format_number(flow)} flow steps to {goal.text}"
        rest = count if math.isfinite(flow) else "no finite number of steps"
        note = method_note(method, trust, place)
        return f"{note} The {'flow' if method.applies else 'approximation'} takes {rest}."
    if steps.status is Status.not_within and made.batches is None:
        return f"{task} {steps.outcome}: it does not reach {goal.text}."
    if method.nothing_to_learn(place, goal):
        return f"{task} has nothing to learn: no map of its inputs has a smaller loss than answering zero."
    if math.isnan(flow) and not math.isfinite(descent):
        return f"It is unknown whether {task} reaches {goal.text}: {steps.status.value}."
    if math.isinf(flow) and not math.isfinite(descent):
        why = method.why_never(place, goal) or f"it {steps.status.value}"
        return f"{task} never reaches {goal.text}: {why}."
    if made.batches is not None and made.batches.by_chance:
        full = f"Full batches reach {goal.text} in {format_count(made.full_batch.steps.descent)} steps."
        return f"{task}: {made.batches.sentence} {full}"
    if not math.isfinite(descent):
        text = "descent is too long to count"
        if not math.isnan(descent):
            most = settling_rate(method, place, made.trust)
            text = Status.diverged.value + ("" if math.isnan(most) else f"; below {most:.2g} it is sure to settle")
        return f"The gradient flow of {task} reaches {goal.text} in {format_number(flow)} steps; {text}."
    certain = steps.interval is None or steps.low == steps.high  # nothing was estimated from trials
    within = "" if certain else f"95% interval {format_interval(steps.interval)}; "
    unit = "gradient step" if descent == 1 and made.batches is None else "gradient steps"
    spread, batches = "", ""
    if made.batches is not None:
        spread, full = f" ± {format_count(steps.spread)}", format_count(made.full_batch.steps.descent)
        runs = f"mean and standard deviation of {made.batches.runs} runs"
        batches = f"{made.batches.drawn}, {runs}; full batches: {full}; "
    by_flow = f"{within}gradient flow: {format_number(flow)}"
    known = by_flow if method.has_flow else f"{made.training.optimizer}, counted"
    count = f"{format_count(descent)}{spread} {unit} ({batches}{known})"
    return f"{task} reaches {goal.text} in {count}."


def _bottleneck(loss: float) -> str:
    return f" There are fewer hidden units than modes: a loss of {loss:.3g} cannot be learned." if loss > 0 else ""


def _trajectory_table(dataset: xr.Dataset) -> Table:
    picks, notes = spread_rows(dataset.sizes["time"], MOST_ROWS)
    some, number = dataset.isel(time=picks), "{:.6g}".format
    strengths = some["strength"].transpose("mode", "time").values
    columns = {
        "step": (some["time"].values, "{:g}".format),
        **{f"strength {k}": (row, number) for k, row in enumerate(strengths, 1)},
        "loss": (some["loss"].values, number),
    }
    return Table.of("Trajectory of the flow", columns, notes)
