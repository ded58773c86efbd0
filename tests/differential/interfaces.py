"""The three interfaces: Python, the command line and the web app get a problem and return an `Answer`."""

from __future__ import annotations

import asyncio
import io
import json
import signal
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import xarray as xr
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app
from learncast.web import application

from .problems import Problem, Stop, Trials, Weights

MOST_SECONDS = 20.0
GOALS = {"accuracy": lc.Accuracy, "explained": lc.Explained, "loss": lc.Loss, "r2": lc.R2}


@dataclass(frozen=True)
class Answer:
    """What an interface said: numbers, or why there are none."""

    steps: tuple[float, ...] = ()
    total: float = np.nan
    direct: float = np.nan
    names: tuple[str, ...] = ()
    losses: tuple[tuple[float, ...], ...] = ()
    interval: tuple[float, float] = (np.nan, np.nan)
    batch_mean: float = np.nan
    batch_spread: float = np.nan
    batch_runs: int = 0
    method: str = ""
    forecast_class: str = ""
    refused: str = ""
    crashed: str = ""
    late: bool = False
    seconds: float = 0.0

    def __post_init__(self) -> None:
        if self.forecast_class == "outside" and not self.refused:
            object.__setattr__(self, "refused", "class outside")


class Late(BaseException):
    """No answer within the limit of CPU seconds."""


@contextmanager
def within(seconds: float) -> Iterator[None]:
    """Raise `Late` after this many CPU seconds."""

    def stop(*_: object) -> None:
        raise Late

    before = signal.signal(signal.SIGPROF, stop)
    signal.setitimer(signal.ITIMER_PROF, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def ask(problem: Problem, interface: str) -> Answer:
    """Ask one interface, without its warnings, and measure CPU seconds."""
    begin = time.process_time()
    try:
        with warnings.catch_warnings(), within(MOST_SECONDS):
            warnings.simplefilter("ignore")
            answer = {"python": python, "command": command, "web": web}[interface](problem)
    except Late:
        answer = Answer(late=True)
    except lc.LearncastError as error:
        answer = Answer(refused=str(error))
    except Exception as error:
        answer = Answer(crashed=f"{type(error).__name__}: {error}")
    return replace(answer, seconds=time.process_time() - begin)


# Python


def python(problem: Problem) -> Answer:
    """Ask the library."""
    tasks, network = [task_of(one) for one in problem.tasks], network_of(problem.weights)
    learn = ("input", "recurrent", "output") if problem.learn_recurrence else None
    training = lc.Training(problem.learning_rate, learn=learn, batch=problem.batch, shuffle=problem.shuffled)
    stops = problem.stops
    if problem.question == "plan":
        terms = lc.Terms(
            goal=goal_of(stops[-1]),
            max_stages=problem.max_stages,
            costs=problem.costs or 1.0,
            switch_cost=problem.switch_cost,
        )
        plan = lc.plan(tasks[-1], tasks[:-1], network, training, terms=terms)
        return Answer(
            steps=tuple(map(float, plan.stage_steps())),
            total=plan.total,
            direct=plan.direct_total,
            names=tuple(stage.task.name for stage in plan.stages),
            forecast_class=plan.forecast_class,
        )
    if problem.question == "forget":
        result = lc.forget(tasks, network, training, steps=[stop.value for stop in stops])
        return Answer(losses=rows_of(result.losses().values), forecast_class=result.forecast_class)
    if problem.question == "follow":
        stages = [
            lc.Stage(task, steps=stop.value) if stop.rule == "steps" else lc.Stage(task, goal_of(stop))
            for task, stop in zip(tasks, stops, strict=True)
        ]
        result = lc.follow(stages, network, training)
        steps = tuple(float(stage.steps.value) for stage in result.stages)
        return Answer(steps=steps, losses=rows_of(result.losses().values), forecast_class=result.forecast_class)
    result = lc.forecast(tasks[-1], network, training, goal_of(stops[-1]))
    answer = Answer(
        steps=(float(result.steps.value),),
        interval=result.steps.interval or (np.nan, np.nan),
        method=result.method.name,
        forecast_class=result.forecast_class,
    )
    if problem.batch is not None:
        noisy = result.in_batches(problem.batch, shuffle=problem.shuffled)
        answer = replace(answer, batch_mean=noisy.mean, batch_spread=noisy.spread, batch_runs=noisy.runs)
    return answer


def goal_of(stop: Stop) -> lc.Goal:
    """The goal of a stage."""
    return GOALS[stop.rule](stop.value)


def network_of(weights: Weights) -> Any:
    """The network of the library."""
    if weights.between:
        memory = None if weights.recurrent is None else weights.scalar
        return lc.Deep((weights.first, *weights.between, weights.second), memory)
    if weights.recurrent is None:
        network: Any = lc.TwoLayer(weights.first, weights.second)
    else:
        network = lc.LinearRNN(weights.first, weights.recurrent, weights.second)
    return network if weights.activation == "linear" else lc.Activated(network, weights.activation)


def task_of(trials: Trials) -> lc.Task:
    """The task, from the form in which the trials come."""
    x, y, name = trials.inputs, trials.targets, trials.name
    if trials.form == "pairs":
        return lc.tasks.from_pairs(trials.padded()[:, 0], y, name=name, classes=trials.classes)
    if trials.form == "table":
        return lc.tasks.from_table(table_of(trials), name=name, at=at_of(trials))
    if trials.form == "batches":
        parts = [(x[k : k + 7], y[k : k + 7]) for k in range(0, len(x), 7)]
        return lc.tasks.from_batches(parts, name=name, classes=trials.classes)
    if trials.form == "statistics":
        return lc.Task(*moments(trials), name=name)
    if trials.form == "xarray":
        x = xr.DataArray(x, dims=("trial", "time", "channel"), name="rates")
        y = xr.DataArray(y, dims=("trial", "output") if y.ndim == 2 else ("trial", "time", "output"), name="choice")
    if trials.form == "lengths":
        padded, lengths = padded_after(trials)
        return lc.Task.from_samples(padded, y, name=name, lengths=lengths, classes=trials.classes)
    options = {"mask": trials.mask, "centre": trials.centre, "scale": trials.scale}
    return lc.Task.from_samples(x, y, name=name, classes=trials.classes, **options)


def table_of(trials: Trials) -> pd.DataFrame:
    """One row for every trial and step, in mixed order."""
    y = np.asarray(trials.targets, float)
    rows = [
        (k, t, *x_t, *(y[k, t] if y.ndim == 3 else y[k]))
        for k, x in enumerate(trials.inputs)
        for t, x_t in enumerate(x)
    ]
    inputs = [f"input_{c}" for c in range(trials.inputs[0].shape[1])]
    columns = ["trial", "step", *inputs, *(f"target_{c}" for c in range(y.shape[-1]))]
    return pd.DataFrame(rows, columns=columns).sample(frac=1.0, random_state=0)


def at_of(trials: Trials) -> str:
    """When the trials have a target."""
    return "every_step" if np.ndim(trials.targets) == 3 else "end"


def moments(trials: Trials) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Second moments of inputs, of inputs with targets, and of targets at the end."""
    x, y = trials.padded(), trials.answers()[:, 0]
    return tuple(
        np.einsum(f"{a},{b}->{(a + b).replace('n', '')}", p, q) / len(x)
        for a, p, b, q in (("ntc", x, "nsd", x), ("ntc", x, "no", y), ("no", y, "np", y))
    )


def padded_after(trials: Trials) -> tuple[np.ndarray, np.ndarray]:
    """Inputs padded at the end, as `lengths` expects them, and the lengths."""
    lengths = np.array(list(map(len, trials.inputs)))
    return np.stack([np.pad(x, ((0, lengths.max() - len(x)), (0, 0))) for x in trials.inputs]), lengths


def rows_of(values: np.ndarray) -> tuple[tuple[float, ...], ...]:
    """A table of numbers."""
    return tuple(tuple(map(float, row)) for row in values)


# Command line


def command(problem: Problem) -> Answer:
    """Ask the command line, with a study and its files in a new folder."""
    question = problem.question if problem.question in ("plan", "forget") else "forecast"
    with tempfile.TemporaryDirectory() as folder:
        study = Path(folder) / "study.toml"
        study.write_text(study_of(problem, Path(folder)), encoding="utf-8")
        status, values = run(question, str(study), "--json")
    if status == 2:
        return Answer(refused=values)
    found = dict(numbers(json.loads(values)))
    extra = {"method": found["method"], "forecast_class": found["class"]}
    if question == "forget":
        return Answer(losses=rows_of(np.array(found["loss"], float)), **extra)
    if question == "plan":
        stages = found["best"]["stages"]
        return Answer(
            steps=tuple(float(stage["descent_steps"]) for stage in stages),
            names=tuple(stage["task"] for stage in stages),
            total=found["best"]["total"],
            direct=found["direct"]["total"],
            **extra,
        )
    noisy = found.get("in_batches", {})
    return Answer(
        steps=(steps_of(found),),
        interval=tuple(found.get("interval") or (np.nan, np.nan)),
        batch_mean=noisy.get("mean_steps", np.nan),
        batch_spread=noisy.get("spread", np.nan),
        batch_runs=noisy.get("runs", 0),
        **extra,
    )


def run(*arguments: str) -> tuple[int, str]:
    """Run a command in this process: its exit code, and its answer or its error."""
    result = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, list(arguments))
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return result.exit_code, result.stderr.strip() if result.exit_code == 2 else result.stdout


def numbers(values: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """The values of an answer, with "nan" and "inf" as numbers."""
    for key, value in values.items():
        if isinstance(value, dict):
            yield key, dict(numbers(value))
        else:
            yield key, float(value) if value in ("nan", "inf", "-inf") else value


def steps_of(found: dict[str, Any]) -> float:
    """Descent steps, or flow steps if descent is too long to count."""
    steps = found["descent_steps"]
    return float(found["flow_steps"] if steps is None or steps != steps else steps)


def study_of(problem: Problem, folder: Path) -> str:
    """The study file of a problem; weights and trials are saved next to it."""
    w = problem.weights
    network: dict[str, object]
    if w.between:
        layers = {f"layer{k}": one for k, one in enumerate((w.first, *w.between, w.second), 1)}
        memory = {} if w.recurrent is None else {"recurrence": w.scalar}
        network = {"kind": "deep", "layers": len(layers), "weights": "net.npz", **memory}
        np.savez(folder / "net.npz", **layers)
    elif w.recurrent is None:
        network = {"kind": "two-layer", "weights": "net.npz", "activation": w.activation}
        np.savez(folder / "net.npz", first=w.first, second=w.second)
    else:
        network = {"kind": "linear-rnn", "weights": "net.npz", "activation": w.activation}
        np.savez(folder / "net.npz", input_weights=w.first, recurrent_weights=w.recurrent, output_weights=w.second)
    training: dict[str, object] = {"learning_rate": problem.learning_rate}
    if problem.question != "forget":
        training[problem.stops[-1].rule] = problem.stops[-1].value
    if problem.question == "plan":
        training |= {"max_stages": problem.max_stages, "switch_cost": problem.switch_cost}
    if problem.learn_recurrence:
        training["learn"] = ["input", "recurrent", "output"]
    if problem.batch is not None:
        training |= {"batch": problem.batch, "shuffle": problem.shuffled}
    text = section("[network]", network) + section("[training]", training)
    for k, trials in enumerate(problem.tasks):
        keys = saved(trials, folder, f"task{k}")
        if problem.question == "forget":
            text += section("[[sequence]]", keys | {"train_steps": problem.stops[k].value})
            continue
        if problem.costs:
            keys["cost"] = problem.costs[k]
        text += section("[target]" if trials is problem.target else "[[candidates]]", keys)
    return text


def section(head: str, values: dict[str, object]) -> str:
    """A table of a TOML file."""
    return "\n".join([head, *(f"{key} = {json.dumps(value)}" for key, value in values.items())]) + "\n\n"


def saved(trials: Trials, folder: Path, file: str) -> dict[str, object]:
    """Save trials in a file of their form and return the keys of a study that read it."""
    keys: dict[str, object] = {"name": trials.name, "centre": trials.centre, "scale": trials.scale}
    labels = np.ndim(trials.targets) == 1
    if trials.classes is not None:
        keys["classes"] = trials.classes
    if trials.form in ("table", "list") and not labels:
        table = table_of(trials)
        table = table if trials.form == "table" else table.sort_index()  # resamples follow the order of the rows
        table.to_csv(folder / f"{file}.csv", index=False)
        return keys | {"data": f"{file}.csv", "at": at_of(trials)}
    if trials.form == "statistics":
        del keys["centre"], keys["scale"]
    arrays = {"labels" if labels else "targets": np.asarray(trials.targets)}
    if trials.form == "statistics":
        arrays = dict(zip(("input_covariance", "cross_covariance", "target_covariance"), moments(trials), strict=True))
    elif trials.form in ("lengths", "list"):
        arrays["inputs"], arrays["lengths"] = padded_after(trials)
    else:
        arrays["inputs"] = trials.padded()[:, 0] if trials.form == "pairs" else np.asarray(trials.inputs)
    if trials.mask is not None:
        arrays["mask"] = trials.mask.astype(float)
    np.savez(folder / f"{file}.npz", **arrays)
    return keys | {"data": f"{file}.npz"}


# Web app


def web(problem: Problem) -> Answer:
    """Ask the web app, in this process: a panel with the problem's settings, and the study that it exports."""

    async def conversation() -> Answer:
        transport = httpx.ASGITransport(app=application())
        async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1", timeout=120) as client:
            return await PANELS[str(problem.web["panel"])](problem, client)

    try:
        return asyncio.run(conversation())
    except httpx.HTTPStatusError as error:
        if error.response.status_code != 422:
            raise
        return Answer(refused=error.response.json()["error"])


async def posted(client: httpx.AsyncClient, path: str, **content: Any) -> httpx.Response:
    """The response to a request; an error status raises."""
    return (await client.post(f"/api/{path}", **content)).raise_for_status()


def reading(view: dict[str, Any], label: str) -> float:
    """A number that the page shows."""
    value = next(one["value"] for one in view["readings"] if one["label"] == label)
    return np.inf if value is None else float(value)


async def uploaded(problem: Problem, client: httpx.AsyncClient) -> Answer:
    """Drop trials on the curriculum panel; the exported study must give the same steps."""
    file = io.BytesIO()
    trials = problem.target
    np.savez(file, inputs=np.asarray(trials.inputs), targets=np.asarray(trials.targets))
    headers = {"x-name": "mine.npz", "content-type": "application/octet-stream"}
    opened = (await posted(client, "curriculum/file", content=file.getvalue(), headers=headers)).json()
    state = opened["examples"][0]["changes"] | problem.web["state"]
    view = (await posted(client, "curriculum/portrait", json=state)).json()
    direct = reading(view, "direct training")
    study = (await posted(client, "curriculum/study", json=state)).text
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "mine.npz").write_bytes(file.getvalue())
        (Path(folder) / "study.toml").write_text(study, encoding="utf-8")
        status, values = await asyncio.to_thread(run, "forecast", f"{folder}/study.toml", "--json")
    exported = steps_of(dict(numbers(json.loads(values)))) if status == 0 else np.nan
    if exported != direct:
        raise AssertionError(f"the page shows {direct} steps, its exported study gives {exported}: {values[:200]}")
    return Answer(steps=(direct,), forecast_class=view["validity"]["kind"])


async def pinned(problem: Problem, client: httpx.AsyncClient) -> Answer:
    """Pin a first task of the curriculum panel."""
    view = (await posted(client, "curriculum/pinned", json=problem.web["state"])).json()
    steps = reading(view, "first task"), reading(view, "target after it")
    return Answer(steps=steps, direct=reading(view, "direct training"), forecast_class=view["validity"]["kind"])


async def prior(problem: Problem, client: httpx.AsyncClient) -> Answer:
    """Two static tasks in sequence on the prior knowledge panel."""
    view = (await posted(client, "prior-knowledge/learning", json=problem.web["state"])).json()
    steps = problem.stops[0].value, reading(view, "task B is learned in")
    direct = reading(view, "task B without prior knowledge")
    return Answer(steps=steps, direct=direct, forecast_class=view["validity"]["kind"])


PANELS: dict[str, Callable[..., Any]] = {"upload": uploaded, "pinned": pinned, "prior": prior}
