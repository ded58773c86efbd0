"""The exact learning of a shallow linear network, for comparison with a deep one."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from learncast.dynamics.solution import checked_times
from learncast.errors import InvalidSpec
from learncast.tasks.task import Task
from learncast.trajectory import STEPS, described
from learncast.validation import positive, real_array


def shallow(task: Task, start: Any, times: Any, *, learning_rate: float) -> xr.Dataset:
    """Weights and loss of y = W x under gradient flow: W(t) = W* + (W_0 - W*) exp(-C t), for any input correlation C.

    Parameters
    ----------
    task : Task
        A static task.
    start : (outputs, inputs)
        W_0.
    times : array_like
        Gradient steps.
    learning_rate : float

    Returns
    -------
    xarray.Dataset
        ``network_function`` (time, row, column), ``excess_loss``.
    """
    rate = positive("learning_rate", learning_rate, why="training moves against the gradient")
    steps = checked_times(times)
    W0 = real_array("start", start, ndim=2)
    if task.steps != 1 or W0.shape != (task.outputs, task.inputs):
        raise InvalidSpec(
            required=f"a static task and a start of shape ({task.outputs}, {task.inputs})",
            got=f"{task.steps} steps and shape {W0.shape}",
            why="a shallow network is one matrix from inputs to outputs",
            remedy="use tasks.static and match the start to it",
        )
    C = task.input_covariance.dense()[0, :, 0, :]
    S = task.cross_covariance.dense()[0, :, 0, :].T
    values, vectors = np.linalg.eigh(C)
    values = np.clip(values, 0.0, None)
    live = values > 1e-14 * values.max(initial=0.0)
    best = np.where(live, (S @ vectors) / np.where(live, values, 1.0), W0 @ vectors)
    # A direction without input keeps its start; at infinite time 0 * inf must stay 0.
    exponent = np.where(live, np.outer(np.minimum(steps, 1e300), values) * rate, 0.0)
    gap = (W0 @ vectors - best) * np.exp(-exponent)[:, None, :]
    excess = 0.5 * (gap**2 * values).sum(axis=(1, 2))
    return xr.Dataset(
        {
            "network_function": (("time", "row", "column"), (best + gap) @ vectors.T, described("weights W", "1")),
            "excess_loss": ("time", excess, described("loss above the optimum", "target^2")),
        },
        coords={"time": ("time", steps, described("training time", STEPS))},
    )
