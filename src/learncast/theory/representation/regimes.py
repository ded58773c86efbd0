"""Rich and lazy regimes: the final representation of a two-layer network as a function of its start."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import product

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike

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
    inputs: ArrayLike | None = None,
    progress: Progress = silent,
) -> xr.Dataset:
    """Solve the learning of a static task exactly from balanced starts of several scales and imbalances.

    Parameters
    ----------
    task : Task
        Static task with whitened inputs.
    hidden_size : int
    scales : (scales,)
        Scales of the starts, see `TwoLayer.balanced`.
    imbalances : (imbalances,)
        lambda of the starts; 0 is possible for all layer sizes.
    learning_rate, accuracy : float
    starts : int
        Number of random starts for each pair.
    rng : numpy Generator
    inputs : (samples, inputs), optional
        Samples for the tangent kernel; unit inputs by default.
    progress : callable

    Returns
    -------
    xarray.Dataset over (scale, imbalance, start)
        ``input_distance`` and ``output_distance`` of the final weights' similarities from the task's own (0 is rich),
        ``kernel_movement`` and ``kernel_misalignment`` of the tangent kernel from start to end (0 is lazy), and
        ``flow_steps`` to the accuracy, infinite for starts that end on a saddle; ``stable`` if descent at this learning
        rate can follow the flow.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> dataset = lc.theory.richness(
    ...     task, hidden_size=3, scales=[0.01, 1.0], learning_rate=1e-2, rng=np.random.default_rng(0)
    ... )
    >>> (dataset["input_distance"] < 0.01).values.ravel()
    array([ True, False])
    """
    sizes = real_array("scales", scales, ndim=1)
    lambdas = real_array("imbalances", imbalances, ndim=1)
    number = count("starts", starts)
    if not len(sizes) or not len(lambdas):
        raise InvalidSpec(f"scales and imbalances must not be empty, got {len(sizes)} and {len(lambdas)}.")
    samples = np.eye(task.inputs) if inputs is None else inputs
    meaning = {
        "input_distance": "distance of the input similarity",
        "output_distance": "distance of the output similarity",
        "kernel_movement": "relative change of the tangent kernel",
        "kernel_misalignment": "misalignment of the tangent kernel",
        "stable": "descent can follow the flow",
        "flow_steps": "flow steps to the accuracy",
    }
    grid = list(product(sizes.tolist(), lambdas.tolist(), range(number)))
    rows = []
    for scale, imbalance, _ in grid:
        network = TwoLayer.balanced(task.inputs, hidden_size, task.outputs, scale=scale, imbalance=imbalance, rng=rng)
        solution = TwoLayerSolution(PooledProblem.of(task, network), network, learning_rate, None)
        # The flow is exact at any learning rate; `stable` says whether descent can follow it.
        require(a for a in solution.assumptions if a.name != "stable_learning_rate")
        distance = representation_distance(solution)
        kernel = tangent_kernel_summary(solution, [np.inf], samples, eigenvalues=0)
        measured = distance["input_distance"], distance["output_distance"], kernel["movement"], kernel["misalignment"]
        rows.append((*(value.item() for value in measured), solution.holds, solution.time_to(accuracy).flow_steps))
        progress(len(rows) / len(grid))
    values = np.array(rows).T.reshape(len(meaning), len(sizes), len(lambdas), number)
    over = ("scale", "imbalance", "start")
    dataset = xr.Dataset(
        {
            name: (over, value, described(text, "1"))
            for (name, text), value in zip(meaning.items(), values, strict=True)
        },
        coords={"scale": sizes, "imbalance": lambdas, "start": np.arange(number)},
        attrs={"task": task.name, "learning_rate": learning_rate, "accuracy": accuracy},
    )
    dataset["flow_steps"].attrs["units"] = STEPS
    return dataset.assign(stable=dataset["stable"].astype(bool))
