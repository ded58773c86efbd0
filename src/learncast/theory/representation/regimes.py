"""Rich or lazy: how the start of a two-layer network decides what it ends up representing."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import xarray as xr

from learncast._core.errors import InvalidSpec
from learncast._core.progress import Progress, silent
from learncast._core.validation import count, real_array
from learncast.networks.two_layer import TwoLayer
from learncast.results import STEPS, described
from learncast.tasks.task import Task
from learncast.theory.assumptions import require
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution
from learncast.theory.dynamics.pooled import PooledProblem
from learncast.theory.representation.similarity import representation_distance, tangent_kernel_summary


def richness(
    task: Task,
    *,
    hidden_size: int,
    scales: Sequence[float],
    imbalances: Sequence[float] = (0.0,),
    learning_rate: float,
    accuracy: float = 0.99,
    starts: int = 1,
    rng: np.random.Generator,
    inputs: Any = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Learn a static task from balanced starts of many scales and imbalances, exactly.

    Parameters
    ----------
    task : Task
        Static, with whitened inputs.
    hidden_size : int
    scales : (scales,)
        Scale of the starts, see `TwoLayer.balanced`.
    imbalances : (imbalances,)
        lambda of the starts; zero suits any sizes.
    learning_rate, accuracy : float
    starts : int
        Random starts for each pair.
    rng : numpy Generator
    inputs : (samples, inputs), optional
        Samples for the tangent kernel; unit inputs by default.
    progress : callable

    Returns
    -------
    xarray.Dataset over (scale, imbalance, start)
        ``input_distance`` and ``output_distance`` of the final weights' similarities from the task's own (0 is rich),
        ``kernel_movement`` and ``kernel_misalignment`` of the tangent kernel from start to end (0 is lazy), and
        ``flow_steps`` to the accuracy, infinite for starts that end on a saddle; ``stable`` where descent at this
        learning rate can follow the flow.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> found = lc.theory.richness(
    ...     task, hidden_size=2, scales=[0.01, 1.0], learning_rate=1e-2, rng=np.random.default_rng(0)
    ... )
    >>> dict(found.sizes)["scale"]
    2
    """
    sizes = real_array("scales", scales, ndim=1)
    lambdas = real_array("imbalances", imbalances, ndim=1)
    number = count("starts", starts)
    if not len(sizes) or not len(lambdas):
        raise InvalidSpec(f"scales and imbalances must not be empty, got {len(sizes)} and {len(lambdas)}.")
    samples = np.eye(task.inputs) if inputs is None else inputs
    names = ("input_distance", "output_distance", "kernel_movement", "kernel_misalignment")
    found = {name: np.empty((len(sizes), len(lambdas), number)) for name in (*names, "flow_steps", "stable")}
    for done, place in enumerate(np.ndindex(len(sizes), len(lambdas), number)):
        network = TwoLayer.balanced(
            task.inputs,
            hidden_size,
            task.outputs,
            scale=float(sizes[place[0]]),
            imbalance=float(lambdas[place[1]]),
            rng=rng,
        )
        solution = TwoLayerSolution(PooledProblem.of(task, network), network, learning_rate, None)
        # The flow is exact at any learning rate; whether descent could follow it is told by `stable`.
        require(a for a in solution.assumptions if a.name != "stable_learning_rate")
        distance = representation_distance(solution)
        kernel = tangent_kernel_summary(solution, [np.inf], samples, eigenvalues=0)
        found["input_distance"][place] = float(distance["input_distance"])
        found["output_distance"][place] = float(distance["output_distance"])
        found["kernel_movement"][place] = float(kernel["movement"][0])
        found["kernel_misalignment"][place] = float(kernel["misalignment"][0])
        found["stable"][place] = solution.holds
        found["flow_steps"][place] = solution.time_to(accuracy).flow_steps
        progress((done + 1) / found["flow_steps"].size)
    texts = ("distance of the input similarity", "distance of the output similarity", "kernel movement", "kernel turn")
    over = ("scale", "imbalance", "start")
    return xr.Dataset(
        {name: (over, found[name], described(text, "1")) for name, text in zip(names, texts, strict=True)}
        | {
            "flow_steps": (over, found["flow_steps"], described("flow steps to the accuracy", STEPS)),
            "stable": (over, found["stable"].astype(bool), described("descent can follow the flow", "1")),
        },
        coords={"scale": sizes, "imbalance": lambdas, "start": np.arange(number)},
        attrs={"task": task.name, "learning_rate": learning_rate, "accuracy": accuracy},
    )
