"""How many steps until this network has learned this task, mode by mode?"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.answers.answer import Answer, between, counted, descended, shown, whole
from learncast.answers.integrated import integrated_forecast
from learncast.dynamics.linear_rnn import ModeSolution
from learncast.dynamics.solution import LearningTime, Solution
from learncast.dynamics.two_layer import TwoLayerSolution
from learncast.planning.solving import solve
from learncast.planning.timing import time_to_learn
from learncast.report import Table
from learncast.study import Study
from learncast.trajectory import Status
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure


#: Weights for which there is a closed form; any others are integrated.
CLOSED_FORMS = (("input", "output"), ("first", "second"))

LEGEND = "b: recurrence; u0 and u*: strength at the start and at the optimum; flow and descent: gradient steps."


def forecast(study: Study, *, task: str | None = None, times: FloatArray | None = None) -> Answer:
    """Forecast the learning of the target, or of a named candidate."""
    chosen = study.target if task is None else study.task(task)
    if study.learn not in CLOSED_FORMS:
        return integrated_forecast(study, chosen, times)
    solution = solve(chosen, study.network, learning_rate=study.learning_rate, strict=False)
    learned = time_to_learn(solution, study.accuracy)
    rows = _mode_rows(solution, learned)
    values: dict[str, Any] = {
        "task": chosen.name,
        "learning_rate": study.learning_rate,
        "accuracy": study.accuracy,
        "flow_steps": learned.flow_steps,
        "descent_steps": counted(learned.descent_steps),
        "status": learned.status.name,
        **({} if learned.interval is None else {"interval": list(learned.interval)}),
        "modes": [{**row, "descent_steps": counted(row["descent_steps"])} for row in rows],
        "remarks": list(solution.remarks),
    }
    horizon = _horizon(learned.mode_flow_steps)
    trajectory = solution.at(np.linspace(0.0, horizon, 400) if times is None else times)
    by_mode = _by_mode(trajectory.dataset)
    if times is not None:
        values["trajectory"] = {
            "time": times,
            "strength": by_mode["strength"].values.T,
            "loss": trajectory["loss"].values,
        }
    curve = _by_mode(solution.at(np.linspace(0.0, horizon, 400)).dataset)
    table = Table(
        f"Learning {chosen.name} to {study.accuracy:.4g}",
        ("mode", "b", "beta_yx", "beta_xx", "u*", "u0", "flow", "descent", "status"),
        [
            (
                str(row["mode"]),
                _known(row["recurrence"], 4),
                _known(row["weighted_cross"], 5),
                _known(row["weighted_input"], 5),
                _known(row["optimum"], 5),
                f"{row['initial']:.3g}",
                shown(row["flow_steps"]),
                descended(row["descent_steps"], Status[row["status"]]),
                row["status"],
            )
            for row in rows
        ],
        [LEGEND, *(f"{remark}." for remark in solution.remarks)],
    )
    tables = [table] if times is None else [table, _trajectory_table(by_mode)]

    def draw() -> Figure:
        from learncast.figures import mode_strengths, page

        figure, (ax,) = page(width=6.5, height=3.8)
        mode_strengths(
            curve,
            ax,
            optimum=xr.DataArray([row["optimum"] for row in rows], dims="mode"),
            title=f"How {chosen.name} is learned",
        )
        return figure

    return Answer(
        kind="forecast",
        title=f"{study.name}: forecast",
        lead=_lead(chosen.name, study.accuracy, learned),
        forecast_class=solution.forecast_class,
        values=values,
        tables=tables,
        assumptions=solution.assumptions,
        dataset=trajectory.dataset,
        draw=draw,
        provenance=solution.provenance,
        study=study.resolved(),
    )


def _mode_rows(solution: Solution, learned: LearningTime) -> list[dict[str, Any]]:
    """What there is to say of each mode; a network whose modes are coupled has no times of single modes."""
    if isinstance(solution, ModeSolution):
        m = solution.modes
        return [
            {
                "mode": k,
                "recurrence": m.recurrence[k],
                "weighted_cross": m.weighted_cross[k],
                "weighted_input": m.weighted_input[k],
                "optimum": m.optimum[k],
                "initial": m.start[k],
                "flow_steps": learned.mode_flow_steps[k],
                "descent_steps": learned.mode_descent_steps[k],
                "status": learned.mode_status[k].name,
            }
            for k in range(len(m))
        ]
    if not isinstance(solution, TwoLayerSolution):
        # Modes seen through tabulated or several responses: what they start and end with, and one time for all.
        start, end = _by_mode(solution.at([0.0, np.inf]).dataset)["strength"].values
        unknown = dict.fromkeys(
            ("recurrence", "weighted_cross", "weighted_input", "flow_steps", "descent_steps"), np.nan
        )
        return [
            {"mode": k, **unknown, "optimum": float(end[k]), "initial": float(start[k]), "status": learned.status.name}
            for k in range(len(start))
        ]
    start, end = solution.at([0.0, np.inf])["strength"].values
    p, lost = solution.problem, set(solution.flow.lost_modes.tolist())
    return [
        {
            "mode": k,
            "recurrence": p.recurrence,
            "weighted_cross": optimum * p.variance,
            "weighted_input": p.variance,
            "optimum": optimum,
            "initial": start[k],
            "final": end[k],
            "flow_steps": np.inf if k in lost else np.nan,
            "descent_steps": np.inf if k in lost else np.nan,
            "status": Status.not_learned.name if k in lost else learned.status.name,
        }
        for k, optimum in enumerate(solution.optimum)
    ]


def _known(value: float, digits: int) -> str:
    return "" if np.isnan(value) else f"{value:.{digits}g}"


def _by_mode(dataset: xr.Dataset) -> xr.Dataset:
    """Strengths over (time, mode), also where each output answers several responses."""
    strength = dataset["strength"]
    if "mode" in strength.dims:
        return dataset
    flat = strength.values.reshape(dataset.sizes["time"], -1)
    return xr.Dataset(
        {"strength": (("time", "mode"), flat, strength.attrs), "loss": dataset["loss"]},
        coords={"mode": ("mode", np.arange(flat.shape[1]))},
        attrs=dataset.attrs,
    )


def _horizon(steps: FloatArray) -> float:
    finite = steps[np.isfinite(steps)]
    return 1.25 * float(finite.max(initial=0.0)) or 1000.0


def _lead(name: str, accuracy: float, learned: LearningTime) -> str:
    flow, descent, status = learned.flow_steps, learned.descent_steps, learned.status.value
    if np.isfinite(flow) and np.isnan(descent):
        return f"{name} is learned to {accuracy:.4g} in {shown(flow)} flow steps, all modes together."
    if not np.isfinite(flow):
        return f"{name} is never learned to {accuracy:.4g}: it {status}."
    if not np.isfinite(descent):
        return f"Gradient flow learns {name} to {accuracy:.4g} in {shown(flow)} steps, but {status}."
    exactly = f"flow: {shown(flow)}{_bounds(learned)}"
    return f"{name} is learned to {accuracy:.4g} in {whole(descent)} gradient steps ({exactly})."


def _bounds(learned: LearningTime) -> str:
    return "" if learned.interval is None else f"; 95% interval {between(learned.interval)}"


#: Rows of a trajectory that a screen shows.
MOST_ROWS = 30


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
    return Table("Trajectory", ("step", *(f"strength {k}" for k in range(dataset.sizes["mode"])), "loss"), rows, notes)
