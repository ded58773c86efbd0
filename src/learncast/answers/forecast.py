"""How many steps until this network has learned this task, mode by mode?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray
from learncast.answers.answer import Answer, batch_values, counted, data_said, way_taken
from learncast.answers.recurrence import LearnedRecurrence
from learncast.card import Table, between, shown, whole
from learncast.planning.batches import in_batches
from learncast.planning.methods.ground import Ground
from learncast.planning.wording import descended
from learncast.results import Status
from learncast.study import Study
from learncast.theory.dynamics.solution import LearningTime

if TYPE_CHECKING:
    import xarray as xr
    from matplotlib.figure import Figure

#: What columns of a table of modes stand for.
LEGEND = {
    "b": "b: recurrence",
    "u*": "u0 and u*: strength at the start and at the optimum",
    "flow": "descent and flow: gradient steps",
}
#: Share of the largest strength below which one is round-off.
NOTHING = 1e-12
#: Rows of a trajectory that a screen shows.
MOST_ROWS = 30


def forecast(study: Study, *, task: str | None = None, times: FloatArray | None = None, by: str = "auto") -> Answer:
    """Forecast the learning of the target, or of a named candidate."""
    chosen = study.target if task is None else study.task(task)
    ground = study.ground(by).precise
    place = ground.place(chosen)
    trust = ground.trust_of([place])
    learned = ground.learning_time(place, study.accuracy)
    course = ground.course(place, ground.start)
    rows = ground.mode_rows(place, study.accuracy)
    free = LearnedRecurrence.of(study, chosen, course)
    first, allowed = data_said(ground, place)
    remarks = [*course.remarks, *course.bounds(study.accuracy), *free.remarks, *allowed]
    values: dict[str, Any] = {
        "task": chosen.name,
        "learning_rate": study.learning_rate,
        "accuracy": study.accuracy,
        "by": ground.by,
        "goal": ground.goal,
        "flow_steps": learned.flow_steps,
        "descent_steps": counted(learned.descent_steps),
        "status": learned.status.name,
        **({} if learned.interval is None else {"interval": list(learned.interval)}),
        "modes": [
            {**row, "descent_steps": counted(row.get("descent_steps", math.nan)), **free.of_mode(k)}
            for k, row in enumerate(rows)
        ],
        **free.values,
        "remarks": remarks,
    }
    shown_times = np.linspace(0.0, learned.horizon, 400 if ground.by == "modes" else 120)
    trajectory = course.at(shown_times if times is None else times)
    meaning = ground.meaning(place, study.accuracy)
    tables = [_table(f"Learning {chosen.name} to {study.accuracy:.4g}", meaning, rows, remarks), *free.tables]
    if times is not None:
        data = trajectory.dataset
        values["trajectory"] = {"time": times, "strength": data["strength"].values.T, "loss": data["loss"].values}
        tables.append(_trajectory_table(data))

    def draw() -> Figure:
        from learncast.figures import mode_strengths, page

        figure, (ax,) = page(width=6.5, height=3.8)
        optimum = [row["optimum"] for row in rows]
        mode_strengths(course.at(shown_times).dataset, ax, optimum=optimum, title=f"How {chosen.name} is learned")
        return figure

    lead = first + _lead(chosen.name, study.accuracy, learned, ground, place)
    if study.batch is not None and trust.holds and math.isfinite(learned.descent_steps):
        try:
            rule = (study.accuracy, None)
            batched = in_batches(ground, [place], [rule], [learned.descent_steps], batch=study.batch)
            values["in_batches"], lead = batch_values(batched), f"{lead} {batched.sentence}"
        except (InvalidSpec, UnsupportedModel) as refused:
            values["in_batches"], lead = (
                None,
                f"{lead} Steps in batches of {study.batch:,} cannot be forecast: {refused}",
            )
    return Answer(
        kind="forecast",
        title=f"{study.name}: forecast",
        lead=lead + free.sentence,
        trust=trust,
        values=values,
        tables=tables,
        dataset=trajectory.dataset,
        draw=draw,
        provenance=ground.provenance(place, study.accuracy),
        study=study.resolved(),
    )


def _table(title: str, meaning: str, rows: list[dict[str, Any]], remarks: list[str]) -> Table:
    every = ("mode", "b", "beta_yx", "beta_xx", "u*", "u0", "descent", "flow", "status")
    digits = {"recurrence": 4, "weighted_cross": 5, "weighted_input": 5, "optimum": 5, "initial": 3}
    nothing = NOTHING * max((abs(row["optimum"]) for row in rows), default=0.0)
    cells = [
        (
            str(row["mode"]),
            *(_known(row.get(key, math.nan), n, nothing if key == "optimum" else 0.0) for key, n in digits.items()),
            *_steps(row),
            row["status"],
        )
        for row in rows
    ]
    # Modes that learn together have neither a recurrence nor steps of their own.
    told = [k for k in range(len(every)) if any(row[k] for row in cells)]
    columns, cells = [every[k] for k in told], [tuple(row[k] for k in told) for row in cells]
    legend = "; ".join([*(words for column, words in LEGEND.items() if column in columns), meaning])
    return Table(title, columns, cells, [f"{r}." for r in (legend, *remarks)])


def _steps(row: dict[str, Any]) -> tuple[str, str]:
    """Steps of one mode; modes that learn together have none of their own."""
    if "flow_steps" not in row:
        return "", ""
    return descended(row["descent_steps"], Status[row["status"]]), shown(row["flow_steps"])


def _known(value: float, digits: int, nothing: float = 0.0) -> str:
    if math.isnan(value):
        return ""
    return "0" if abs(value) < nothing else f"{value:.{digits}g}"


def _lead(name: str, accuracy: float, learned: LearningTime, ground: Ground, place: int) -> str:
    """The answer in a sentence: what holds comes first, steps of descent before those of the flow."""
    trust = ground.trust_of([place])
    flow, descent, way = learned.flow_steps, learned.descent_steps, way_taken(ground, trust, place)
    if not trust.holds:
        rest = f"{shown(flow)} flow steps to {accuracy:.4g}" if math.isfinite(flow) else "never learned"
        return f"{way} By that approximation: {rest}." if not ground.fits else f"{way} The flow takes {rest}."
    if math.isnan(flow):
        return f"Whether {name} is learned to {accuracy:.4g} could not be told: {learned.status.value}.{way}"
    if math.isinf(flow):
        why = next(iter(ground.course(place, ground.start).remarks), f"it {learned.status.value}")
        return f"{name} is never learned to {accuracy:.4g}: {why}.{way}"
    if not math.isfinite(descent):
        text = "descent is too long to count" if math.isnan(descent) else _divergence(ground.largest_rate(place))
        return f"Gradient flow learns {name} to {accuracy:.4g} in {shown(flow)} steps; {text}.{way}"
    within = "" if learned.interval is None else f"; 95% interval {between(learned.interval)}"
    return f"{name} is learned to {accuracy:.4g} in {whole(descent)} gradient steps (flow: {shown(flow)}{within}).{way}"


def _divergence(most: float) -> str:
    sure = "" if math.isnan(most) else f"; below {most:.2g} it is sure to settle"
    return f"{Status.diverged.value}{sure}"


def _trajectory_table(dataset: xr.Dataset) -> Table:
    steps = dataset.sizes["time"]
    picks = np.unique(np.linspace(0, steps - 1, min(steps, MOST_ROWS)).round().astype(int))
    rows = [
        (
            f"{float(dataset['time'][i]):g}",
            *(f"{float(u):.6g}" for u in dataset["strength"].values[i]),
            f"{float(dataset['loss'][i]):.6g}",
        )
        for i in picks
    ]
    notes = () if len(picks) == steps else (f"{len(picks)} of {steps} times shown; all are in the files and --json.",)
    return Table(
        "Trajectory of the flow",
        ("step", *(f"strength {k}" for k in range(dataset.sizes["mode"])), "loss"),
        rows,
        notes,
    )
