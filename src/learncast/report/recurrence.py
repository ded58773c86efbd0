"""Learned recurrence in a forecast report: order of learning, final stability, extrapolation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from learncast import Forecast, InvalidSpec, LinearRNN, NotLearned, Task
from learncast.display import Columns, Table, format_loss, format_number
from learncast.planning.methods.choice import default_learn
from learncast.report.report import fields
from learncast.theory.assumptions import EXACT
from learncast.theory.dynamics.modes import Modes, modes
from learncast.theory.dynamics.solution import Solution
from learncast.theory.recurrence.order import half_loss_time
from learncast.theory.recurrence.stability import family_extrapolation, largest_stable_rate
from learncast.theory.recurrence.tradeoff import zero_recurrence_warning

#: Distance of a spectral radius from 1 within which it counts as 1.
MARGIN = 1e-6


@dataclass(frozen=True)
class LearnedRecurrence:
    """Additional results for a learned recurrence; empty if the recurrence is fixed."""

    rows: list[dict[str, object]] = field(default_factory=list)
    values: dict[str, object] = field(default_factory=dict)
    tables: list[Table] = field(default_factory=list)
    remarks: list[str] = field(default_factory=list)
    sentence: str = ""

    def of_mode(self, mode: int) -> dict[str, object]:
        """Results for one mode."""
        return self.rows[mode] if mode < len(self.rows) else {}

    @classmethod
    def of(cls, made: Forecast, flow: Solution, horizons: Sequence[int]) -> LearnedRecurrence:
        """Compute order, end, stability and extrapolation."""
        task, network, learn = made.target, made.method.network, made.training.learn
        if not isinstance(network, LinearRNN) or learn is None or set(learn) == set(default_learn(network)):
            return cls()
        view = modes(task, network)
        aligned = max(view.alignment.start_residual, view.alignment.recurrence_residual) <= EXACT
        rows = _order(task, view, made.learning_rate, "recurrent" in learn) if aligned else []
        end = _end(flow, task, horizons, learn)
        remarks = _remarks(task, view, end) if aligned else []
        sentence = f" It ends with a {end['stability']} recurrence (spectral radius {end['spectral_radius']:.4g})."
        sentence = sentence if math.isfinite(cast(float, end["spectral_radius"])) else ""
        return cls(rows, {"learn": list(learn), "final": end}, _tables(task, rows, end), remarks, sentence)


def _order(task: Task, view: Modes, learning_rate: float, learned: bool) -> list[dict[str, object]]:
    """Half-loss times of each mode with fixed and with learned recurrence; lags newest first."""
    if task.targets != "end":
        return []
    n, weights = len(view), view.alignment
    lags, inputs = view.cross_strength[:, ::-1, 0], view.input_strength[:, ::-1, ::-1]
    start: dict[str, Any] = {"recurrence": view.recurrence, "learning_rate": learning_rate}
    start |= {"input_weight": weights.input_weight[:n], "output_weight": weights.output_weight[:n]}
    frozen = half_loss_time(lags, inputs, **start, learn_recurrence=False)
    free = half_loss_time(lags, inputs, **start, learn_recurrence=True) if learned else frozen
    places = np.argsort(np.argsort(free.steps, kind="stable")) + 1
    return [
        {
            "mode": k,
            "recurrence": view.recurrence[k],
            "initial": view.start[k],
            "half_loss_steps_frozen": float(frozen.steps[k]),
            "half_loss_steps": float(free.steps[k]),
            "status": str(free.status[k].name),
            "place": int(places[k]),
        }
        for k in range(n)
    ]


def _end(flow: Solution, task: Task, horizons: Sequence[int], learn: tuple[str, ...]) -> dict[str, object]:
    """End of training: loss, recurrence, stability, extrapolation and largest stable learning rate."""
    try:
        network = cast(LinearRNN, flow.network_at(math.inf))
    except NotLearned:
        return {"loss": math.nan, "recurrence": [], "spectral_radius": math.nan, "stability": "unknown"}
    eigenvalues = np.linalg.eigvals(network.recurrent_weights)
    radius = float(np.abs(eigenvalues).max())
    rate = largest_stable_rate(network, task, learn=learn)
    found: dict[str, object] = {
        "loss": float(flow.at([math.inf])["loss"][0]),
        "recurrence": sorted(np.real_if_close(eigenvalues).real.tolist(), reverse=True),
        "spectral_radius": radius,
        "stability": "marginal" if abs(radius - 1) <= MARGIN else "stable" if radius < 1 else "unstable",
        "largest_stable_learning_rate": rate.learning_rate,
        "largest_stable_learning_rate_status": rate.status.name,
    }
    if horizons:
        try:
            reach = fields(family_extrapolation(network, task, horizons), "loss unexplained")
        except InvalidSpec as error:
            reach = {"reason": str(error)}
        found["extrapolation"] = {"horizons": list(horizons), **reach}
    return found


def _remarks(task: Task, view: Modes, end: dict[str, object]) -> list[str]:
    found = []
    if task.targets == "end":
        for k in range(len(view)):
            warning = zero_recurrence_warning(view.cross_strength[k, ::-1, 0], recurrence=float(view.recurrence[k]))
            if warning:
                found.append(f"mode {k + 1}: {warning}")
    if end["stability"] == "unstable":
        found.append("the learned recurrence is unstable: activity grows on trials longer than those trained on")
    return found


def _tables(task: Task, rows: list[dict[str, Any]], end: dict[str, Any]) -> list[Table]:
    tables = []
    if rows:
        columns: Columns = {
            "mode": ([row["mode"] + 1 for row in rows], str),
            "order": ([row["place"] for row in rows], str),
            "half loss, b learned": ([row["half_loss_steps"] for row in rows], format_number),
            "half loss, b fixed": ([row["half_loss_steps_frozen"] for row in rows], format_number),
            "b at the start": ([row["recurrence"] for row in rows], "{:.4g}".format),
        }
        note = "Half loss: flow steps after which half of the mode's loss is gone; b: recurrence."
        tables.append(Table.of("What is learned first", columns, [note]))
    facts = [
        ("loss", format_loss(end["loss"], size=task.target_power)),
        ("recurrence (largest first)", ", ".join(f"{b:.4g}" for b in end["recurrence"][:8]) or "unknown"),
        ("spectral radius", f"{end['spectral_radius']:.6g} ({end['stability']})"),
    ]
    if "largest_stable_learning_rate" in end:
        facts.append(("largest stable learning rate", f"{end['largest_stable_learning_rate']:.4g}"))
    reach = end.get("extrapolation", {})
    for h, value in zip(reach.get("horizons", []), reach.get("loss", []), strict=False):
        facts.append((f"loss on trials of {h} steps", format_loss(float(value), size=task.target_power)))
    notes = [reach["reason"]] if "reason" in reach else []
    tables.append(Table(f'Where training on "{task.name}" ends', ("quantity", "value"), facts, notes))
    return tables
