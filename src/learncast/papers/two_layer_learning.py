"""Learning one task from different starts: the data of braun2022's figures 1, 2A, B, 3 and 4."""

from __future__ import annotations

from functools import cache
from typing import cast

import numpy as np
import xarray as xr

from learncast.dynamics.two_layer import checked_two_layer
from learncast.networks.two_layer import TwoLayer
from learncast.papers.two_layer_descent import RATE, descend, over_steps, random_task, regular_start, training
from learncast.papers.two_layer_kingdom import living_kingdom
from learncast.planning.solving import solve
from learncast.representation.decoupling import peak_time, two_mode_coupling
from learncast.representation.similarity import tangent_kernel
from learncast.trajectory import STEPS, described
from learncast.validation import FloatArray

STARTS = {"3C": "small random", "3D": "large random", "3E": "large zero-balanced"}
SCALES = {"small": 0.02, "intermediate": 0.3, "large": 1.5}
TARGETS = {"4D": ((1.5, 0.8), (0.3, 1.2)), "4E": ((2.0, 0.0), (0.0, 1.0)), "4F": ((1.5, 0.0), (0.0, 1.5))}


def outputs_from(panel: str) -> xr.Dataset:
    """Figure 1: one task from small, from large and from already learned weights."""
    rng = np.random.default_rng(1)
    before, task = (random_task(3, 2, rng, name=name) for name in ("earlier task", "task"))
    network = TwoLayer.balanced(3, 5, 2, scale={"1B": 0.02, "1C": 0.8, "1D": 0.02}[panel], rng=rng)
    if panel == "1D":
        network = cast(TwoLayer, solve(before, network, learning_rate=RATE).network_at(np.inf))
    return training([task], network, learning_rate=RATE, steps=4000, every=20)


def everything_from(panel: str) -> xr.Dataset:
    """Figure 2A, B: all that the solution gives, the tangent kernel of three items too."""
    rng = np.random.default_rng(2)
    task, items = random_task(3, 2, rng), np.sqrt(3) * np.eye(3)
    network = TwoLayer.balanced(3, 4, 2, scale=0.02 if panel == "2A" else 0.8, rng=rng)
    found = training([task], network, learning_rate=RATE, steps=4000, every=40)
    solution = checked_two_layer(solve(task, network, learning_rate=RATE))
    run = descend(solution.problem.cross, network.first, network.second, learning_rate=RATE, steps=4000, every=40)
    kernels = [
        [_kernel_by_derivatives(a, b, items) for a, b in zip(run.first, run.second, strict=True)],
        [tangent_kernel(solution, float(step), items) for step in run.steps],
    ]
    over = ("source", "time", "output", "output_other")
    return found.assign(tangent_kernel=(over, np.array(kernels), described("tangent kernel", "1")))


def _kernel_by_derivatives(first: FloatArray, second: FloatArray, items: FloatArray) -> FloatArray:
    """J J^T with J the derivatives of all outputs by all weights, written out."""
    outputs, rows = len(second), len(second) * len(items)
    by_first = np.einsum("oh,pi->ophi", second, items).reshape(rows, -1)
    by_second = np.einsum("oq,ph->opqh", np.eye(outputs), items @ first.T).reshape(rows, -1)
    return np.asarray(by_first @ by_first.T + by_second @ by_second.T)


@cache
def regimes() -> xr.Dataset:
    """Figure 3C to F: the hierarchy from small random, large random and large balanced weights."""
    rng, tree, rate = np.random.default_rng(4), living_kingdom(), 0.005
    starts = [TwoLayer.random(8, 32, 8, scale=scale, rng=rng) for scale in (0.002, 0.35)]
    starts.append(regular_start([tree], 32, rng, scale=0.35, learning_rate=rate))
    exact = checked_two_layer(solve(tree, starts[2], learning_rate=rate))
    first, second, S = np.stack([n.first for n in starts]), np.stack([n.second for n in starts]), exact.problem.cross
    run = descend(S, first, second, learning_rate=rate, steps=4000, every=2)
    loss = 0.5 * ((run.functions - S) ** 2).sum(axis=(-2, -1))
    # Only the balanced start has a theory.
    predicted = np.full(loss.shape, np.nan)
    predicted[:, 2] = exact.at(run.steps)["excess_loss"]
    U, s, Vt = np.linalg.svd(S)
    own = np.vstack([Vt.T, U]) * np.sqrt(s)
    shares, grams = np.stack([loss / loss[0], predicted / loss[0]]), ("start", "row", "column")
    return xr.Dataset(
        {
            "loss": (("source", "time", "start"), shares, described("loss, share of the start's", "1")),
            "start_gram": (grams, run.grams[0], described("Q Q^T at the start", "1")),
            "end_gram": (grams, run.grams[-1], described("after training", "1")),
            "task_gram": (("row", "column"), own @ own.T, described("the task's own", "1")),
            "limit_gram": (("row", "column"), exact.flow.grams(np.inf), described("limit of the balanced flow", "1")),
            "final_loss": (("start",), loss[-1], described("final loss", "target^2")),
        },
        coords=over_steps(run.steps) | {"start": list(STARTS.values())},
    )


def decoupling_from(panel: str) -> xr.Dataset:
    """Figure 4: A^T A in the singular basis of a 2 x 2 target, from one shape of start at several sizes."""
    scales = {"intermediate": 0.3} if panel == "4A" else SCALES
    S = np.array(TARGETS["4E" if panel == "4A" else panel])
    U, s, Vt = np.linalg.svd(S)
    A = np.array(list(scales.values()))[:, None, None] * np.array([[0.9, 0.5], [-0.1, 0.7]])
    run = descend(S, A @ Vt, U @ np.swapaxes(A, 1, 2), learning_rate=RATE, steps=4000, every=5)
    trained = U.T @ run.functions @ Vt.T
    gram = np.swapaxes(A, 1, 2) @ A
    a1, a2, b = gram[:, 0, 0], gram[:, 1, 1], gram[:, 0, 1]
    exact = two_mode_coupling(RATE * run.steps[:, None], a1, a2, b, (s[0], s[1]))
    within = np.stack([np.diagonal(trained, axis1=-2, axis2=-1), np.stack(exact[:2], axis=-1)])
    between = np.stack([trained[..., 0, 1], exact[2]])
    tied = np.isclose(s[0], s[1])
    peaks = [peak_time(*start, s[0]) / RATE if tied else np.nan for start in zip(a1, a2, b, strict=True)]
    return xr.Dataset(
        {
            "diagonal": (("source", "time", "scale", "mode"), within, described("A^T A within modes", "1")),
            "coupling": (("source", "time", "scale"), between, described("A^T A between modes", "1")),
            "peak_step": (("scale",), peaks, described("predicted time of the largest coupling", STEPS)),
        },
        coords=over_steps(run.steps) | {"scale": list(scales)},
    )
