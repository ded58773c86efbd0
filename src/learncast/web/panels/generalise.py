"""The generalise panel: when to stop, and what loss new trials will have."""

from __future__ import annotations

import math
import warnings
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.planning.defaults import default_network
from learncast.planning.generalise.generalise import generalise
from learncast.planning.generalise.result import Generalisation
from learncast.study.study_file import to_toml
from learncast.tasks.task import Task
from learncast.web.chart import Chart, ChartAxis, Series, Trace
from learncast.web.panel import Panel, State, control, help_texts, settings_line
from learncast.web.panels.own_data import RATES, opening, tasks_of
from learncast.web.uploads import UPLOADS
from learncast.web.view import Note, Reading, View

_OUTPUTS, _HIDDEN = 2, 8
#: Most trials of which subsets are learned while a control moves.
SUBSETS = 500
_data = partial(control, group="Trials", when={"data": ("null",)})
_training = partial(control, group="Training")
#: Condition of the controls that dropped trials do without: their network and last step are those of the command.
_made = partial(_training, when={"data": ("null",)})


class GeneraliseState(State):
    """Settings of the generalise panel."""

    trials: float = _data(60.0, "trials", (20.0, 2000.0), 0.02, scale="log", unit="trials")
    inputs: int = _data(30, "inputs", (1, 40), 1.0)
    signal: int = _data(1, "signal directions", (0, _OUTPUTS), 1.0)
    noise: float = _data(2.0, "noise", (0.0, 10.0), 0.1)
    steps: int = _data(5, "steps in a trial", (1, 20), 1.0, unit="steps")
    recurrence: float = _training(0.9, "recurrence", (-0.95, 0.95), 0.01, allowed=(-1.0, 1.0))
    scale: float = _made(0.03, "initial weights", (0.001, 1.0), 0.02, scale="log")
    learning_rate: float = _training(0.01, "learning rate", (1e-4, 0.1), 0.02, scale="log", allowed=RATES)
    most_steps: float = _made(3000.0, "last step", (10.0, 10_000.0), 0.02, scale="log", unit="steps")
    folds: int = _training(10, "folds", (3, 10), 1.0)
    seed: int = _training(5, "seed", (0, 100), 1.0)
    data: str | None = control(None, "dropped trials", kind="hidden", lengths=(0, 64))


def _tasks(state: GeneraliseState) -> tuple[Task, Task | None]:
    """The dropped trials, or drawn trials and their population."""
    if state.data is not None:
        return tasks_of(state.data)[0], None
    rng, n, T = np.random.default_rng(state.seed), state.inputs, state.steps
    rank = min(state.signal, n)
    teacher = rng.standard_normal((_OUTPUTS, rank)) @ rng.standard_normal((rank, n)) / math.sqrt(n)
    decay = 0.9 ** np.arange(T - 1, -1, -1.0)
    x = rng.standard_normal((round(state.trials), T, n))
    y = np.einsum("t,ptn,mn->pm", decay, x, teacher) + state.noise * rng.standard_normal((len(x), _OUTPUTS))
    power = np.einsum("ts,ij->tisj", np.eye(T), np.eye(n))
    target = (decay**2).sum() * teacher @ teacher.T + state.noise**2 * np.eye(_OUTPUTS)
    return Task.from_samples(x, y, name="drawn trials"), Task(power, decay[:, None, None] * teacher.T, target)


@lru_cache(maxsize=4)  # 6 MB each; the view of more is kept
def held_out(state: GeneraliseState) -> tuple[Generalisation, Generalisation | None]:
    """Return the held-out loss from folds, and that of the population if it is known."""
    task, population = _tasks(state)
    most = None if population is None else round(state.most_steps)
    ask = partial(generalise, task, _network(state, task), learning_rate=state.learning_rate, most_steps=most)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the remarks are shown
        return ask(folds=state.folds), None if population is None else ask(test=population)


def _network(state: GeneraliseState, task: Task) -> LinearRNN | TwoLayer:
    """The network of the drawn trials, or the command's default for dropped trials."""
    if state.data is not None:
        return default_network(task, **_default(state, task))
    size = {"recurrence": state.recurrence, "scale": state.scale}
    return LinearRNN.random(task.inputs, _HIDDEN, task.outputs, rng=state.seed, **size)


def _default(state: GeneraliseState, task: Task) -> dict[str, Any]:
    return {"seed": state.seed, **({} if task.steps == 1 else {"recurrence": state.recurrence})}


def _view(state: GeneraliseState) -> View:
    found, truth = held_out(state)
    curve = found.curve.isel(steps=slice(1, None))
    curve, steps = curve.where(np.isfinite(curve)), curve["steps"].values.astype(float)
    traces = [
        Trace("band", "null", "95% interval", steps, curve["low"].values, curve["high"].values),
        Trace("line", "data", "held out", steps, curve["held_out"].values),
        Trace("line", "dashed", "training", steps, curve["train"].values, series=Series.OTHER),
    ]
    if truth is not None:
        exact = truth.curve["held_out"].isel(steps=slice(1, None))
        values = exact.where(np.isfinite(exact)).values
        traces.append(Trace("line", "theory", "population", exact["steps"].values, values))
    traces.append(Trace("points", "best", "best stop", np.array([max(found.stop, 1)]), np.array([found.loss])))
    low, high = (float(max(end, 1)) for end in found.stop_set)
    axes = ChartAxis("training time", "steps", "log"), ChartAxis("loss", "target^2")
    shades = ((low, high, "as good within the noise", Series.OTHER),)
    chart = Chart("held_out", "Loss on new trials", *axes, tuple(traces), shades=shades, main=True)
    lead, _, rest = found.sentence.partition(". ")
    few = int(found.fact("trials")) <= SUBSETS
    enough = found.more_trials if few else "`learncast generalise` tells whether more trials would help."
    notes = (Note(enough), *(Note(text, "warning") for text in found.remarks))
    answer = f"{lead.removesuffix('.')}."
    return View((chart, _modes(found)), found.trust, _readings(found, truth), notes, rest, answer=answer)


def _modes(found: Generalisation) -> Chart:
    strength = found.modes["strength"].values
    names = tuple(f"mode {k + 1}" for k in range(len(strength)))
    edge = np.full(len(strength), float(found.values("edge")))
    traces = (
        Trace("bars", "data", "strength", names, strength),
        Trace("line", "threshold", "edge of noise", names, edge),
    )
    return Chart("modes", "Signal and noise", ChartAxis("mode"), ChartAxis("strength", "target"), traces)


def _readings(found: Generalisation, truth: Generalisation | None) -> tuple[Reading, ...]:
    readings = [
        Reading.steps("best stop", float(found.stop), (float(found.stop_set[0]), float(found.stop_set[1]))),
        Reading("held-out loss", found.loss, "target^2", _ranged(found.loss, found.loss_interval)),
        Reading("rise", found.rise, "1", _ranged(found.rise, found.rise_interval)),
        Reading("overfits", {"yes": 1.0, "no": 0.0}.get(found.overfits, math.nan), "1", found.overfits),
    ]
    if truth is not None:
        readings += [
            Reading.steps("best stop, population", float(truth.stop)),
            Reading("least loss, population", truth.loss, "target^2", f"{truth.loss:.3g}"),
        ]
    return tuple(readings)


def _ranged(value: float, interval: tuple[float, float]) -> str:
    return f"{value:.3g} ({interval[0]:.3g} to {interval[1]:.3g})"


def _study(state: GeneraliseState) -> str:
    """Return the study of `learncast generalise` for dropped trials, or the settings of drawn ones."""
    settings = settings_line("generalise", state) + "\n"
    if state.data is None:
        return f"# learncast generalise STUDY.toml\n{settings}# The trials are drawn. Drop a file for a study.\n"
    name, (task, *_) = UPLOADS.file(state.data)[0], tasks_of(state.data)
    tables = {
        "name": Path(name).stem,
        "network": {"kind": "default", **_default(state, task)},
        "training": {"learning_rate": state.learning_rate},
        "target": {"data": name},
        "generalise": {"folds": state.folds},
    }
    return f"# learncast generalise this-file.toml\n{settings}# Save this file next to {name!r}.\n{to_toml(tables)}"


def _open_trials(token: str) -> Panel:
    """Return the panel for dropped trials."""
    changes, look = opening(token)
    return PANEL.opened("Your trials", f"{look} Grey stops are as good within the noise.", {**changes, "seed": 0})


PANEL = Panel(
    name="generalise",
    **help_texts("generalise"),
    state=GeneraliseState,
    parts={"held_out": lru_cache(maxsize=64)(_view)},
    study=_study,
    drops="trials in a .npz or .csv file, with inputs and targets",
    open_file=_open_trials,
)
