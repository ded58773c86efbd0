"""Knowledge reversed and revised, and the saddle on the way: the data of braun2022's figures 6A, B, E and F."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.dynamics.gradient_flow import gradient_flow
from learncast.dynamics.pooled import PooledProblem
from learncast.dynamics.shallow import shallow
from learncast.dynamics.two_layer import TwoLayerSolution
from learncast.networks.two_layer import TwoLayer
from learncast.papers.runs import Compute, PaperRun
from learncast.papers.two_layer_descent import RATE, Pairs, over_steps, random_pairs, regular_start, training
from learncast.papers.two_layer_kingdom import ITEMS, item_pairs, living_kingdom, revisions
from learncast.papers.two_layer_training import Trainer, once, share_of
from learncast.planning.solving import solve
from learncast.progress import Progress, silent
from learncast.trajectory import STEPS, Status, described

#: Noise on every weight when the task is switched: it decides when training leaves the saddle.
KICK = 1e-6
#: Learning rate of the reversal.
SLOW = 0.01
#: Sizes of the noise and draws of it in 6A, by preset.
SIZES, DRAWS = {"smoke": 4, "full": 10}, {"smoke": 2, "full": 5}
#: The most steps after which a network may leave the saddle.
PATIENCE = 12000


def reversal_runs(preset: str) -> list[PaperRun]:
    """What `reversal` needs."""
    return [PaperRun(train_reversal, {"sizes": SIZES[preset], "draws": DRAWS[preset]})]


@once
def reversal(preset: str, progress: Progress, compute: Compute) -> xr.Dataset:
    """Figure 6A: a task wholly learned, then its opposite; and how long the saddle holds after noise of any size."""
    [found] = compute(reversal_runs(preset), progress=progress)
    return found


def train_reversal(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """The reversal, with so many sizes of noise and draws of each."""
    rng = np.random.default_rng(8)
    x, y = random_pairs(3, 2, rng)
    task = tasks.from_pairs(x, y, name="task")
    start = TwoLayer.balanced(3, 5, 2, scale=0.02, rng=rng)
    both = [task, tasks.reversed(task, name="reversed")]
    plan: dict[str, Any] = {"learning_rate": SLOW, "steps": 3000, "every": 10}
    learn = Trainer([(x, y), (x, -y)], **plan, progress=share_of(progress, 0, 0.3))
    found = training(both, start, settled=True, kick=KICK, rng=rng, learn=learn, **plan)
    learned = cast(TwoLayer, solve(task, start, learning_rate=SLOW).network_at(np.inf))
    held = _escapes((x, -y), both[1], learned, settings, rng, share_of(progress, 0.3, 1))
    return found.assign(escape_step=_escape(found, found["loss"].isel(task=1))).merge(held)


def _escapes(
    pairs: Pairs,
    task: tasks.Task,
    learned: TwoLayer,
    settings: Mapping[str, Any],
    rng: np.random.Generator,
    progress: Progress,
) -> xr.Dataset:
    """Steps from the switch until half of the saddle's loss is left, after noise on the weights that were learned."""
    from learncast.simulate.ensembles import train_ensemble

    sizes, draws = np.geomspace(1e-2, 1e-8, settings["sizes"]), settings["draws"]
    first, second = (rng.standard_normal((draws, *w.shape)) for w in (learned.first, learned.second))
    noisy = [
        TwoLayer(learned.first + size * a, learned.second + size * b)
        for a, b in zip(first, second, strict=True)
        for size in sizes
    ]
    least = PooledProblem.of(task, learned).least_loss
    # The saddle of the reversal is at weights of 0, where all of the task's loss is left.
    half = 0.5 * (0.5 * task.target_power - least)
    plan: dict[str, Any] = {"learning_rate": SLOW, "steps": PATIENCE, "until": least + half, "every": PATIENCE}
    run = train_ensemble(pairs, [*noisy, learned], **plan, progress=progress)
    measured = [float(n) if s is Status.ok else np.inf for n, s in zip(run.steps, run.status, strict=True)]
    steps = {
        "measured": (measured[:-1], "training"),
        "integrated": ([flow_step(task, n, least + half, SLOW) for n in noisy], "flow, integrated"),
        "balanced": ([_as_if_balanced(task, n).time_to_loss(half) for n in noisy], "flow, as if balanced"),
    }
    variables: dict[str, Any] = {}
    for key, (values, text) in steps.items():
        table = np.reshape(np.asarray(values), (draws, len(sizes)))
        variables[f"{key}_escape"] = (("draw", "noise"), table, described(f"time on the saddle, {text}", STEPS))
    variables["unkicked_escape"] = ((), measured[-1], described("time on the saddle without noise", STEPS))
    variables["one_layer_step"] = ((), _one_layer(), described("time of one layer to the same loss", STEPS))
    return xr.Dataset(variables, coords={"noise": ("noise", sizes, described("noise on every weight", "1"))})


def _as_if_balanced(task: tasks.Task, network: TwoLayer) -> TwoLayerSolution:
    """The closed form from weights that noise has put out of balance by as much."""
    return TwoLayerSolution(PooledProblem.of(task, network), network, SLOW, separatrix_tolerance=0)


def flow_step(task: tasks.Task, network: TwoLayer, loss: float, rate: float) -> float:
    """First whole step at which the integrated flow's loss is at most `loss`; infinite if beyond `PATIENCE`."""
    flow = gradient_flow(task, network, learning_rate=rate)
    low = 0
    for spacing in (100, 1):
        steps = low + spacing * np.arange(PATIENCE // 100 + 1)
        # The loss never rises under the flow.
        found = np.flatnonzero(flow.at(steps)["loss"].values <= loss)
        if not found.size:
            return float("inf")
        low = int(steps[max(found[0] - 1, 0)])
    return float(steps[found[0]])


def _escape(found: xr.Dataset, loss: xr.DataArray) -> xr.DataArray:
    """First step of the last stage at which training has left half of the loss on which the flow ends; nan for none."""
    saddle = float(loss.sel(source="theory")[-1])
    left = (loss.sel(source="descent") < saddle / 2) & (found["stage"] == 1)
    step = float(found["time"][left.values.argmax()]) if saddle > 1e-3 and bool(left.any()) else np.nan
    return xr.DataArray(step, attrs=described("time at which training leaves the saddle", STEPS))


def shallow_reversal() -> xr.Dataset:
    """Figure 6B: the same by one layer, W += rate (S - W)."""
    task, rate, every, steps = tasks.from_pairs(*random_pairs(3, 2, np.random.default_rng(8))), SLOW, 5, 1000
    weights, stages = np.zeros((2, 3)), []
    for k, goal in enumerate((task, tasks.reversed(task, name="reversed"))):
        exact = shallow(goal, weights, np.arange(0, steps + 1, every), learning_rate=rate)["network_function"]
        S, path = goal.cross_covariance.dense()[0, :, 0, :].T, [weights]
        for _ in range(steps):
            path.append(path[-1] + rate * (S - path[-1]))
        weights = path[-1]
        both = xr.concat([exact.copy(data=np.stack(path[::every])), exact], dim="source")
        stages.append(both.assign_coords(time=both["time"] + k * steps, stage=("time", [k] * both.sizes["time"])))
    joined = xr.concat(stages, dim="time")
    named = joined.assign_coords(over_steps(joined["time"])).assign_attrs(described("network function W", "1"))
    return named.to_dataset(name="network_function").assign(
        one_layer_step=((), _one_layer(), described("time to half of the loss without weights", STEPS))
    )


def _one_layer() -> float:
    """Steps after the switch in which one layer, from S to -S, has half of the loss at 0: |2 S r^n|^2 <= |S|^2 / 2."""
    return float(np.ceil(np.log(8) / (-2 * np.log1p(-SLOW))))


def revision_runs(preset: str) -> list[PaperRun]:
    """What `revised` needs, the same in every preset."""
    return [PaperRun(train_revision, {"panel": k}) for k in range(2)]


@once
def revised(preset: str, progress: Progress, compute: Compute) -> xr.Dataset:
    """Figure 6E to H: small weights, the living kingdom, then the swap; large weights, then the colours (`panel`)."""
    panels = compute(revision_runs(preset), progress=progress)
    joined = xr.concat(panels, dim="panel").assign_coords(panel=["two fish swapped", "colour hierarchy"])
    return joined.assign_coords(over_steps(joined["time"]))


def train_revision(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """One panel: the living kingdom learned, then its revision."""
    k, tree = settings["panel"], living_kingdom()
    rate, scale, revision = (0.01, RATE)[k], (0.003, 0.25)[k], revisions()[k]
    rng, both = np.random.default_rng(9 + k), [tree, revision]
    start = regular_start([tree], 16, rng, scale=scale, learning_rate=rate)
    plan: dict[str, Any] = {"learning_rate": rate, "steps": 6000, "every": 20}
    learn = Trainer([item_pairs(t) for t in both], **plan, progress=progress)
    found = training(both, start, settled=True, kick=KICK, rng=rng, learn=learn, **plan)
    current = found["loss"].values[:, np.arange(found.sizes["time"]), found["stage"].values]
    found["loss_in_training"] = (("source", "time"), current, described("loss in training", "target^2"))
    outputs = np.sqrt(len(ITEMS)) * found["network_function"].isel(column=k).drop_attrs()
    found["item_output"] = outputs.assign_attrs(described("output for one item", "target"))
    found["escape_step"] = _escape(found, found["loss_in_training"])
    half = float(found["loss_in_training"].sel(source="theory")[-1]) / 2
    told = flow_step(revision, learn.starts[1], half, rate) if np.isfinite(found["escape_step"]) else np.nan
    found["told_escape_step"] = ((), told + 6000, described("the same, told by the integrated flow", STEPS))
    return found.drop_vars("task")
