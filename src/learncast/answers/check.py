"""Is the theory right here? Theory, integrated flow, exact descent and real training beside each other."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast.answers.answer import Answer, counted, shown, whole
from learncast.answers.forecast import CLOSED_FORMS
from learncast.dynamics.descent import descend
from learncast.dynamics.gradient_flow import gradient_flow
from learncast.dynamics.learning_problem import LearningProblem
from learncast.dynamics.solution import Solution
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.agreement import agreement, step_statistics
from learncast.planning.curricula.curriculum import Curriculum, Stage, follow
from learncast.planning.curricula.rehearsal import rehearse
from learncast.planning.curricula.terrain import LinearTerrain
from learncast.planning.plans.planner import plan
from learncast.planning.plans.recommendation import Plan
from learncast.planning.plans.terrain_planner import TerrainPlanner
from learncast.planning.solving import solve
from learncast.progress import Progress, silent
from learncast.report import Table
from learncast.study import Study
from learncast.trajectory import Provenance, described, spec_hash
from learncast.validation import count, positive

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Share of the prediction by which measured steps may differ, by class of forecast.
TOLERANCES = {"exact": 0.05, "integrated": 0.05, "response": 0.1, "outside": 0.1}
#: Multiple of the predicted steps after which a run is given up, and the least it is given.
PATIENCE, LEAST = 10, 2000
#: Candidates that are trained, the best of the plan.
MOST_CANDIDATES = 6


@dataclass(frozen=True, eq=False)
class _Row:
    """One training plan: what was predicted and what was measured."""

    name: str
    theory: Curriculum | Solution
    flow: float
    descent: float
    predicted: float
    predicted_descent: float
    interval: tuple[float, float] | None
    runs: Sequence[Any]
    steps: dict[str, Any]

    def verdict(self, tolerance: float) -> str:
        """Whether measured steps agree with the prediction, or the runs cannot tell."""
        deviation = abs(float(self.steps["steps_deviation"][1]))
        mean, low, high = (float(self.steps[key][1]) for key in ("measured_mean", "measured_low", "measured_high"))
        if math.isinf(mean) and math.isinf(self.predicted):
            return "agrees"
        if math.isnan(deviation):
            return "differs"
        if deviation <= tolerance:
            return "agrees"
        least, most = self.interval or (self.predicted_descent, self.predicted_descent)
        return "cannot tell" if low <= most and least <= high else "differs"


def checked(
    study: Study,
    *,
    seeds: int = 5,
    tolerance: float | None = None,
    processes: int | None = None,
    progress: Progress = silent,
) -> Answer:
    """Train the study's network for real, directly and through every candidate, and compare with the forecast."""
    count("seeds", seeds, least=2, why="a standard deviation needs two runs")
    if tolerance is not None:
        positive("tolerance", tolerance, why="training is noisy")
    staged = study.plannable
    rows = _curricula(study, seeds, processes, progress) if staged else _direct(study, seeds, processes, progress)
    tolerance = TOLERANCES[rows[0].theory.forecast_class] if tolerance is None else tolerance
    verdicts = {row.name: row.verdict(tolerance) for row in rows}
    failed = [name for name, verdict in verdicts.items() if verdict == "differs"]
    theory = rows[0].theory
    return Answer(
        kind="check",
        title=f"{study.name}: check",
        lead=_lead(rows, verdicts, tolerance, seeds),
        forecast_class=theory.forecast_class,
        values={
            "learning_rate": study.learning_rate,
            "accuracy": study.accuracy,
            "batch": study.batch,
            "seeds": seeds,
            "tolerance": tolerance,
            "agrees": not failed,
            "rows": [_values(row, verdicts[row.name]) for row in rows],
        },
        tables=[_table(rows, verdicts, tolerance)],
        assumptions=theory.assumptions,
        dataset=_dataset(rows),
        draw=partial(_draw, rows, study),
        provenance=Provenance("training", theory.provenance.citations, spec_hash(theory.provenance.spec_hash, seeds)),
        study=study.resolved(),
        passed=not failed,
    )


def _curricula(study: Study, seeds: int, processes: int | None, progress: Progress) -> list[_Row]:
    """Direct training and the best curriculum through every candidate."""
    from learncast import simulate

    rate, network = study.learning_rate, study.recurrent_network
    last = Stage(study.target, accuracy=study.accuracy)
    curricula = {"direct training": [last]}
    if study.candidates:
        found = plan(study.target, study.candidates, network, learning_rate=rate, accuracy=study.accuracy, strict=False)
        if isinstance(found.planner, TerrainPlanner) and isinstance(found.planner.terrain, LinearTerrain):
            return _traced(found, found.planner.terrain, study, seeds, processes, progress)
        for candidate in found.candidates[:MOST_CANDIDATES]:
            # A candidate that does not help is checked too, at a stop where the theory has something to say.
            stop = candidate.accuracy if candidate.helps else 0.8
            curricula[f"{candidate.task.name} to {stop:.4g}"] = [Stage(candidate.task, accuracy=stop), last]
    settings = simulate.Training(rate, batch=study.batch, learn=("input", "output"), record=("strength",))
    forecasts = {name: follow(stages, network, learning_rate=rate, strict=False) for name, stages in curricula.items()}
    jobs = [
        (
            stages,
            network,
            settings.with_(seed=seed, most_steps=_most(forecasts[name].descent_steps)),
            [m.optimum for m in forecasts[name].modes],
        )
        for name, stages in curricula.items()
        for seed in range(seeds)
    ]
    runs = simulate.train_all(jobs, processes=processes, progress=progress)
    rows = []
    for k, (name, stages) in enumerate(curricula.items()):
        theory, own = forecasts[name], runs[k * seeds : (k + 1) * seeds]
        numerical = [math.nan, math.nan]
        if isinstance(network, LinearRNN):
            limit = _most(theory.descent_steps)
            numerical = [
                rehearse(stages, network, learning_rate=rate, by=by, most_steps=limit).steps
                for by in ("flow", "descent")
            ]
        measured = np.array([run.steps if run.status.name == "ok" else math.inf for run in own])
        rows.append(
            _Row(
                name,
                theory,
                numerical[0],
                numerical[1],
                theory.flow_steps,
                theory.descent_steps,
                _interval(theory),
                own,
                step_statistics(theory.flow_steps, theory.descent_steps, measured),
            )
        )
    return rows


def _traced(
    found: Plan, terrain: LinearTerrain, study: Study, seeds: int, processes: int | None, progress: Progress
) -> list[_Row]:
    """The same for tasks without common modes: each stage is trained until its loss is as low as the plan asks."""
    from learncast import simulate

    last = Stage(study.target, accuracy=study.accuracy)
    theories: dict[str, Curriculum] = {"direct training": found.planner.follow([last])}
    for candidate in found.candidates[:MOST_CANDIDATES]:
        stop = candidate.accuracy if candidate.helps else 0.8
        theories[f"{candidate.task.name} to {stop:.4g}"] = found.planner.follow(
            [Stage(candidate.task, accuracy=stop), last]
        )
    places = {id(task): k for k, task in enumerate(terrain.tasks)}

    def goal(stage: Stage) -> Any:
        place = places[id(stage.task)]
        assert stage.accuracy is not None
        return simulate.LossBelow(terrain.problems[place].least_loss + terrain.goal(place, stage.accuracy))

    settings = simulate.Training(study.learning_rate, batch=study.batch, learn=terrain.learn, record=("strength",))
    jobs = [
        (
            [(o.stage.task, goal(o.stage)) for o in theory.outcomes],
            study.linear_network,
            settings.with_(seed=seed, most_steps=_most(theory.descent_steps)),
            None,
        )
        for theory in theories.values()
        for seed in range(seeds)
    ]
    runs = simulate.train_all(jobs, processes=processes, progress=progress)
    rows = []
    for k, (name, theory) in enumerate(theories.items()):
        own = runs[k * seeds : (k + 1) * seeds]
        measured = np.array([run.steps if run.status.name == "ok" else math.inf for run in own])
        flow, descent = theory.flow_steps, theory.descent_steps
        steps = step_statistics(flow, descent, measured)
        rows.append(_Row(name, theory, flow, descent, flow, descent, None, own, steps))
    return rows


def _most(predicted: float) -> int:
    """Steps after which a run is given up."""
    return LEAST if not math.isfinite(predicted) else max(LEAST, math.ceil(PATIENCE * predicted))


def _interval(theory: Curriculum) -> tuple[float, float] | None:
    """Interval of the predicted steps, where the forecast rests on samples."""
    found = getattr(theory, "descent_interval", None)
    return None if found is None else (float(found[0]), float(found[1]))


def _direct(study: Study, seeds: int, processes: int | None, progress: Progress) -> list[_Row]:
    """Direct training of any linear network, to the loss at which the accuracy is reached."""
    from learncast import simulate

    rate, network, learn = study.learning_rate, study.linear_network, study.learn
    problem = LearningProblem.of(study.target, network, learn)
    make = partial(solve, strict=False) if learn in CLOSED_FORMS else partial(gradient_flow, learn=learn)
    theory = make(study.target, network, learning_rate=rate)
    when = theory.time_to(study.accuracy)
    limit = _most(when.flow_steps)
    run = descend(study.target, network, learning_rate=rate, until=study.accuracy, learn=learn, most_steps=limit)
    exact = run.time_to(study.accuracy)
    goal = problem.least_loss + problem.target_excess(study.accuracy)
    until = simulate.LossBelow(goal)
    training = simulate.Training(rate, batch=study.batch, learn=learn, until=until, most_steps=limit)
    jobs = [(study.target, network, training.with_(seed=seed), None) for seed in range(seeds)]
    runs = simulate.train_all(jobs, processes=processes, progress=progress)
    measured = np.array([run.steps if run.status.name == "ok" else math.inf for run in runs])
    steps = step_statistics(when.flow_steps, exact.descent_steps, measured)
    row = _Row(
        "direct training",
        theory,
        when.flow_steps,
        exact.descent_steps,
        when.flow_steps,
        exact.descent_steps,
        None,
        runs,
        steps,
    )
    return [row]


def _lead(rows: list[_Row], verdicts: dict[str, str], tolerance: float, seeds: int) -> str:
    off = [name for name, verdict in verdicts.items() if verdict == "differs"]
    worst = max(rows, key=lambda row: np.nan_to_num(abs(float(row.steps["steps_deviation"][1])), nan=math.inf))
    deviation = float(worst.steps["steps_deviation"][1])
    if off:
        return f"Training differs from the forecast by more than {tolerance:.0%}: {', '.join(off)}."
    return (
        f"Training agrees with the forecast in all {len(rows)} plans ({seeds} seeds each); the largest deviation of "
        f"mean steps is {deviation:+.1%}, for {worst.name}."
    )


def _values(row: _Row, verdict: str) -> dict[str, Any]:
    number = {key: float(value[1]) for key, value in row.steps.items() if key != "measured_steps"}
    return {
        "plan": row.name,
        "predicted_flow_steps": row.predicted,
        "predicted_descent_steps": counted(row.predicted_descent),
        "predicted_interval": row.interval,
        "integrated_flow_steps": row.flow,
        "exact_descent_steps": counted(row.descent),
        "measured_steps": [counted(float(n)) for n in row.steps["measured_steps"][1]],
        "measured_mean": number["measured_mean"],
        "measured_sd": number["measured_sd"],
        "measured_interval": [number["measured_low"], number["measured_high"]],
        "deviation": number["steps_deviation"],
        "verdict": verdict,
    }


def _table(rows: list[_Row], verdicts: dict[str, str], tolerance: float) -> Table:
    cells = [
        (
            row.name,
            _predicted(row),
            shown(row.flow, 1),
            shown(row.descent, 0),
            _measured(row),
            _deviation(row),
            verdicts[row.name],
        )
        for row in rows
    ]
    columns = ("plan", "predicted", "flow", "descent", "trained", "off by", "verdict")
    notes = [
        "predicted: steps by theory, with the 95% interval of a forecast that rests on samples; flow and descent: the "
        "same run through numerically on exact statistics; trained: mean ± standard deviation over seeds.",
        f"agrees: mean steps within {tolerance:.0%} of the prediction; cannot tell: further off, but the prediction "
        "lies in the 95% interval of the mean.",
    ]
    return Table("Gradient steps, predicted and measured", columns, cells, notes)


def _measured(row: _Row) -> str:
    mean, spread = (float(row.steps[key][1]) for key in ("measured_mean", "measured_sd"))
    return f"{shown(mean, 1)} ± {spread:.1f}" if math.isfinite(mean) else "not reached"


def _deviation(row: _Row) -> str:
    deviation = float(row.steps["steps_deviation"][1])
    return f"{deviation:+.1%}" if math.isfinite(deviation) else "unknown"


def _predicted(row: _Row) -> str:
    steps = row.predicted if math.isnan(row.predicted_descent) else row.predicted_descent
    return (
        whole(steps) if row.interval is None else f"{whole(steps)} ({whole(row.interval[0])}-{whole(row.interval[1])})"
    )


def _dataset(rows: list[_Row]) -> xr.Dataset:
    names = [row.name for row in rows]
    keys = [key for key in rows[0].steps if key != "measured_steps"]
    variables: dict[str, Any] = {
        key: ("plan", [float(row.steps[key][1]) for row in rows], rows[0].steps[key][2]) for key in keys
    }
    measured = np.stack([row.steps["measured_steps"][1] for row in rows])
    variables["measured_steps"] = (("plan", "seed"), measured, rows[0].steps["measured_steps"][2])
    for key, values in (("integrated_flow_steps", "flow"), ("exact_descent_steps", "descent")):
        text = described(key.replace("_", " "), "gradient steps")
        variables[key] = ("plan", [getattr(row, values) for row in rows], text)
    gaps = [_largest_gap(row) for row in rows]
    text = described("largest deviation of mean strength or loss from theory, share of its largest value", "1")
    variables["largest_deviation"] = ("plan", gaps, text)
    return xr.Dataset(variables, coords={"plan": ("plan", names), "seed": ("seed", np.arange(measured.shape[1]))})


def _largest_gap(row: _Row) -> float:
    found = agreement(row.theory, list(row.runs))
    return max((float(found[key]) for key in found.data_vars if str(key).endswith("_largest")), default=math.nan)


def _draw(rows: list[_Row], study: Study) -> Figure:
    from learncast.figures import page, predicted_and_measured, training_over_theory

    figure, axes = page(1, 2, width=5.4, height=3.8)
    shown_rows = [rows[0], *rows[1:2]]
    for row, colour in zip(shown_rows, (1, 0), strict=False):
        longest = max(float(run.time.values[-1]) for run in row.runs)
        times = np.linspace(0.0, 1.1 * longest, 400)
        runs, title = [run.dataset for run in row.runs], f"Training over theory: {study.target.name}"
        training_over_theory(row.theory.at(times).dataset, runs, axes[0], name=row.name, colour=colour, title=title)
    predicted_and_measured(_dataset(rows), axes[1], title="Steps, predicted and measured")
    return figure
