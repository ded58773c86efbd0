"""How does a network learn its recurrence too, and how far can what it learns be trusted on longer trials?"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import numpy as np

from learncast.answers.answer import Answer, shown
from learncast.assumptions import EXACT
from learncast.dynamics.gradient_flow import FlowSolution, gradient_flow
from learncast.dynamics.modes import Modes, modes
from learncast.errors import InvalidSpec, NotLearned
from learncast.networks.linear_rnn import LinearRNN
from learncast.recurrence.order import half_loss_time
from learncast.recurrence.stability import family_extrapolation, largest_stable_rate
from learncast.recurrence.tradeoff import zero_recurrence_warning
from learncast.report import Table
from learncast.study import Study
from learncast.tasks.task import Task
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Distance of a spectral radius from 1 within which it counts as 1.
MARGIN = 1e-6


def integrated_forecast(study: Study, chosen: Task, times: FloatArray | None) -> Answer:
    """Integrate the flow of the weights that learn, and tell order, end, stability and reach of what is learned."""
    study.linear_network, study.recurrent_network  # noqa: B018  either refuses what is not asked about here
    network, learn = study.weights, study.learn
    assert isinstance(network, LinearRNN)
    view = modes(chosen, network)
    aligned = max(view.alignment.start_residual, view.alignment.recurrence_residual) <= EXACT
    # An aligned network never leaves the hidden directions of its modes: the others need not be integrated.
    small = _reduced(network, view) if aligned else network
    flow = gradient_flow(chosen, small, learning_rate=study.learning_rate, learn=learn)
    learned = flow.time_to(study.accuracy)
    rows = _order(chosen, view, study.learning_rate, "recurrent" in learn) if aligned else []
    end = _end(flow, chosen, study.horizons, learn)
    remarks = _remarks(chosen, view, end) if aligned else []
    horizon = 1.25 * learned.flow_steps if math.isfinite(learned.flow_steps) and learned.flow_steps > 0 else 1000.0
    trajectory = flow.at(np.linspace(0.0, horizon, 200) if times is None else times)
    values: dict[str, Any] = {
        "task": chosen.name,
        "learning_rate": study.learning_rate,
        "accuracy": study.accuracy,
        "learn": list(learn),
        "flow_steps": learned.flow_steps,
        "descent_steps": learned.descent_steps,
        "status": learned.status.name,
        "modes": rows,
        "final": end,
        "remarks": remarks,
    }
    if times is not None:
        values["trajectory"] = {
            "time": times,
            "strength": trajectory["strength"].values.T,
            "loss": trajectory["loss"].values,
        }

    def draw() -> Figure:
        from learncast.figures import mode_strengths, page

        figure, (ax,) = page(width=6.5, height=3.8)
        mode_strengths(flow.at(np.linspace(0.0, horizon, 200)).dataset, ax, title=f"How {chosen.name} is learned")
        return figure

    return Answer(
        kind="forecast",
        title=f"{study.name}: forecast",
        lead=_lead(chosen.name, study.accuracy, learned.flow_steps, learned.status.value, end),
        forecast_class=flow.forecast_class,
        values=values,
        tables=_tables(chosen, rows, end, remarks),
        assumptions=(),
        dataset=trajectory.dataset,
        draw=draw,
        provenance=flow.provenance,
        study=study.resolved(),
    )


def _reduced(network: LinearRNN, view: Modes) -> LinearRNN:
    R = view.alignment.directions
    return LinearRNN(R.T @ network.input_weights, R.T @ network.recurrent_weights @ R, network.output_weights @ R)


def _order(task: Task, view: Modes, learning_rate: float, learned: bool) -> list[dict[str, Any]]:
    """Half-loss times of each mode with its recurrence frozen and learned; by lag, newest first."""
    if task.targets != "end":
        return []
    rows = []
    for k in range(len(view)):
        lags = view.cross_strength[k, ::-1, 0]
        inputs = view.input_strength[k, ::-1, ::-1]
        start = {
            "recurrence": view.recurrence[k],
            "input_weight": view.alignment.input_weight[k],
            "output_weight": view.alignment.output_weight[k],
            "learning_rate": learning_rate,
        }
        frozen = half_loss_time(lags, inputs, **start, learn_recurrence=False)
        free = half_loss_time(lags, inputs, **start, learn_recurrence=True) if learned else frozen
        rows.append(
            {
                "mode": k,
                "recurrence": view.recurrence[k],
                "initial": view.start[k],
                "half_loss_steps_frozen": float(frozen.steps),
                "half_loss_steps": float(free.steps),
                "status": str(np.ravel(free.status)[0].name),
            }
        )
    order = np.argsort([row["half_loss_steps"] for row in rows], kind="stable")
    for place, k in enumerate(order):
        rows[k]["place"] = place + 1
    return rows


def _end(flow: FlowSolution, task: Task, horizons: tuple[int, ...], learn: tuple[str, ...]) -> dict[str, Any]:
    """Where training ends: loss, recurrence, stability, reach and the learning rate it allows."""
    try:
        network = flow.network_at(math.inf)
    except NotLearned:
        return {"loss": math.nan, "recurrence": [], "spectral_radius": math.nan, "stability": "unknown"}
    assert isinstance(network, LinearRNN)
    eigenvalues = np.linalg.eigvals(network.recurrent_weights)
    radius = float(np.abs(eigenvalues).max())
    rate = largest_stable_rate(network, task, learn=learn)
    found: dict[str, Any] = {
        "loss": float(flow.at([math.inf])["loss"][0]),
        "recurrence": sorted(np.real_if_close(eigenvalues).real.tolist(), reverse=True),
        "spectral_radius": radius,
        "stability": "marginal" if abs(radius - 1) <= MARGIN else "stable" if radius < 1 else "unstable",
        "largest_stable_learning_rate": rate.learning_rate,
        "largest_stable_learning_rate_status": rate.status.name,
    }
    if horizons:
        try:
            reach = family_extrapolation(network, task, horizons)
        except InvalidSpec as error:
            found["extrapolation"] = {"horizons": list(horizons), "reason": str(error)}
        else:
            found["extrapolation"] = {"horizons": list(horizons), "loss": reach.loss, "unexplained": reach.unexplained}
    return found


def _remarks(task: Task, view: Modes, end: dict[str, Any]) -> list[str]:
    found = []
    if task.targets == "end":
        for k in range(len(view)):
            warning = zero_recurrence_warning(view.cross_strength[k, ::-1, 0], recurrence=float(view.recurrence[k]))
            if warning:
                found.append(f"mode {k}: {warning}")
    if end["stability"] == "unstable":
        found.append("the learned recurrence is unstable: activity grows on trials longer than those trained on")
    return found


def _lead(name: str, accuracy: float, steps: float, status: str, end: dict[str, Any]) -> str:
    if not math.isfinite(steps):
        return f"{name} is not learned to {accuracy:.4g}: it {status}."
    return (
        f"{name} is learned to {accuracy:.4g} of what this flow comes to in {shown(steps)} flow steps, with a "
        f"{end['stability']} recurrence (spectral radius {end['spectral_radius']:.4g})."
    )


def _tables(task: Task, rows: list[dict[str, Any]], end: dict[str, Any], remarks: list[str]) -> list[Table]:
    tables = []
    if rows:
        columns = (
            "mode",
            "learned as number",
            "half loss, b learned",
            "half loss, b frozen",
            "b at the start",
            "status",
        )
        cells = [
            (
                str(row["mode"]),
                str(row["place"]),
                shown(row["half_loss_steps"]),
                shown(row["half_loss_steps_frozen"]),
                f"{row['recurrence']:.4g}",
                row["status"],
            )
            for row in rows
        ]
        tables.append(Table("What is learned first", columns, cells, [f"{remark}." for remark in remarks]))
    facts = [
        ("loss", _loss(end["loss"])),
        ("recurrence (largest first)", ", ".join(f"{b:.4g}" for b in end["recurrence"][:8]) or "unknown"),
        ("spectral radius", f"{end['spectral_radius']:.6g} ({end['stability']})"),
    ]
    if "largest_stable_learning_rate" in end:
        facts.append(("largest stable learning rate", f"{end['largest_stable_learning_rate']:.4g}"))
    reach = end.get("extrapolation", {})
    for h, value in zip(reach.get("horizons", []), reach.get("loss", []), strict=False):
        facts.append((f"loss at {h} steps", _loss(float(value))))
    notes = [reach["reason"]] if "reason" in reach else []
    tables.append(Table(f"Where training on {task.name} ends", ("quantity", "value"), facts, notes))
    return tables


def _loss(value: float) -> str:
    """A loss for people; what rounding leaves of zero is zero."""
    return f"{0.0 if abs(value) < 1e-12 else value:.6g}"
