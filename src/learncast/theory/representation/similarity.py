"""Representations of a linear network during learning: similarities, tangent kernel, modes."""

from __future__ import annotations

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from scipy.spatial.distance import cdist

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.validation import FloatArray, real_array
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.results import described
from learncast.theory.dynamics.balanced.two_layer import TwoLayerSolution, checked_two_layer
from learncast.theory.dynamics.learning_problem import AS_RECURRENT, LearningProblem, checked_learn
from learncast.theory.dynamics.solution import Solution, checked_time, checked_times
from learncast.theory.representation.lag_kernel import check_size, network_kernel


def hidden_similarity(solution: Solution, times: ArrayLike, inputs: ArrayLike, targets: ArrayLike) -> xr.Dataset:
    """Return the similarity of samples in the hidden layer, computed from the inputs and from the targets.

    Implements: braun2022 Eq. (8)

    Parameters
    ----------
    solution : Solution
        Solution for a two-layer network.
    times : array_like
        Gradient steps.
    inputs : (samples, inputs)
    targets : (samples, outputs)

    Returns
    -------
    xarray.Dataset
        ``hidden_similarity_input`` X^T W1^T W1 X and ``hidden_similarity_output`` Y^T (W2 W2^T)^+ Y over (time, sample,
        sample_other). The two agree when the task is learned.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.forecast(task, network, learning_rate=1e-2).solution
    >>> similarity = lc.theory.hidden_similarity(solution, [500, 1500], np.eye(2), np.diag([3.0, 1.0]))
    >>> similarity["hidden_similarity_input"].values.diagonal(axis1=1, axis2=2).round(2)
    array([[3.  , 0.04],
           [3.  , 1.  ]])
    >>> similarity["hidden_similarity_output"].values.diagonal(axis1=1, axis2=2).round(1)
    array([[ 3. , 28.5],
           [ 3. ,  1. ]])
    """
    exact = checked_two_layer(solution)
    X, Y = _samples(exact, inputs), real_array("targets", targets, ndim=2)
    if Y.shape != (len(X), exact.network.outputs):
        shape = (len(X), exact.network.outputs)
        raise InvalidSpec(f"targets must be (samples, outputs) {shape}, got shape {Y.shape}.", field="targets")
    check_size(len(checked_times(times)) * len(X) ** 2 * 2, "the similarities")
    trajectory = exact.at(times)
    inverse = np.linalg.pinv(trajectory["output_gram"].values, hermitian=True)
    parts = {"input": (X, trajectory["input_gram"].values), "output": (Y, inverse)}
    over = ("time", "sample", "sample_other")
    variables = {
        f"hidden_similarity_{side}": (
            over,
            np.einsum("pn,tnm,qm->tpq", samples, gram, samples, optimize=True),
            described(f"hidden similarity from the {side}s", "1"),
        )
        for side, (samples, gram) in parts.items()
    }
    return xr.Dataset(variables, coords={"time": trajectory.time})


def tangent_kernel(
    learner: Solution | LinearRNN | TwoLayer, time: float, inputs: ArrayLike, *, learn: tuple[str, ...] | None = None
) -> FloatArray:
    """Return the neural tangent kernel at one time; samples vary fastest in its rows and columns.

    For two layers K = I (x) X^T W1^T W1 X + W2 W2^T (x) X^T X, with samples as the columns of X. For a recurrent
    network it is the kernel of the last output (`network_kernel`).

    Implements: braun2022 Eq. (9)

    Parameters
    ----------
    learner : Solution, LinearRNN or TwoLayer
        A solution, or a network at time 0.
    time : float
        Gradient steps.
    inputs : (samples, inputs), or (samples, steps, inputs) for a recurrent network
    learn : tuple of str, optional
        Weights that learn; by default those of the solution, or all weights of a network.

    Returns
    -------
    array
        (outputs * samples, outputs * samples).

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.forecast(task, network, learning_rate=1e-2).solution
    >>> lc.theory.tangent_kernel(solution, 1500, np.eye(2)).round(2) + 0.0
    array([[6., 0., 0., 0.],
           [0., 4., 0., 0.],
           [0., 0., 4., 0.],
           [0., 0., 0., 2.]])
    """
    if not isinstance(learner, TwoLayerSolution) or learn is not None or np.ndim(inputs) == 3:
        return _kernel_between(*_network_of(learner, time, learn), inputs)
    exact, X = learner, _samples(learner, inputs)
    size = exact.network.outputs * len(X)
    check_size(size**2, "the kernel")
    trajectory = exact.at([time])
    return kernel_of_grams(trajectory["input_gram"].values[0], trajectory["output_gram"].values[0], X)


def kernel_of_grams(input_gram: FloatArray, output_gram: FloatArray, inputs: FloatArray) -> FloatArray:
    """Return the tangent kernel of a two-layer network from its Gram matrices, ordered as in `tangent_kernel`.

    Parameters
    ----------
    input_gram : (inputs, inputs)
        W1^T W1.
    output_gram : (outputs, outputs)
        W2 W2^T.
    inputs : (samples, inputs)

    Returns
    -------
    (outputs * samples, outputs * samples) array

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import kernel_of_grams
    >>> kernel_of_grams(np.diag([2.0, 1.0]), np.array([[3.0]]), np.eye(2))
    array([[5., 0.],
           [0., 4.]])
    """
    from_first = np.kron(np.eye(len(output_gram)), inputs @ input_gram @ inputs.T)
    return np.asarray(from_first + np.kron(output_gram, inputs @ inputs.T))


def _network_of(
    learner: Solution | LinearRNN | TwoLayer, time: float, learn: tuple[str, ...] | None
) -> tuple[LinearRNN | TwoLayer, tuple[str, ...]]:
    """Return the network at a time, and the names of the weights that learn."""
    network: object = learner
    if isinstance(learner, LinearRNN | TwoLayer):
        if checked_time(time) != 0:
            raise InvalidSpec(f"time must be 0 for a network, got {time:g}. Pass a solution.", field="time")
    else:
        network = learner.network_at(time)
        if learn is None:
            problem = getattr(learner, "problem", None)
            learn = problem.learn if isinstance(problem, LearningProblem) else ("first", "second")
    if not isinstance(network, LinearRNN | TwoLayer):
        raise UnsupportedModel(f"learner must be of a linear network, got {type(network).__name__}.", field="learner")
    if isinstance(network, LinearRNN) and learn == ("first", "second"):
        learn = ("input", "output")  # closed forms have a fixed recurrence
    return network, checked_learn(network, learn)


def _kernel_between(network: LinearRNN | TwoLayer, learn: tuple[str, ...], inputs: ArrayLike) -> FloatArray:
    """Return the kernel between trials; a two-layer network is a recurrent network of one step."""
    layered = isinstance(network, TwoLayer)
    X = real_array("inputs", inputs, ndim=2 if layered else 3)
    X = X[:, None] if layered else X
    names = tuple(AS_RECURRENT[name] for name in learn)
    kernel = network_kernel(network, steps=X.shape[1]).between(X, learn=names)
    size = network.outputs * len(X)
    return kernel.transpose(2, 0, 3, 1).reshape(size, size)


def representation_distance(solution: Solution, *, time: float = np.inf) -> xr.Dataset:
    """Return the distance of the weights' Gram matrices from those of the task: 0 is rich, large is lazy.

    A rich network ends with W1^T W1 = V S V^T and W2 W2^T = U S U^T, the singular structure of the task. A lazy network
    keeps that of its start. Distances are relative to the task's Gram matrices.

    Implements: braun2022 Eq. (10), the task's singular vectors

    Parameters
    ----------
    solution : Solution
        Solution for a two-layer network.
    time : float
        Gradient steps; the end of learning by default.

    Returns
    -------
    xarray.Dataset
        ``input_distance`` and ``output_distance``.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> task = lc.tasks.static(np.diag([3.0, 1.0]))
    >>> network = lc.TwoLayer.balanced(2, 3, 2, scale=0.01, rng=np.random.default_rng(0))
    >>> solution = lc.forecast(task, network, learning_rate=1e-2).solution
    >>> float(lc.theory.representation_distance(solution)["input_distance"].round(3))
    0.0
    """
    exact = checked_two_layer(solution)
    end = exact.at([time])
    U, V = exact.mode_vectors
    S = exact.optimum
    distances = {}
    for name, vectors, gram in (("input", V, end["input_gram"]), ("output", U, end["output_gram"])):
        rich = (vectors * S) @ vectors.T
        distance = float(np.linalg.norm(gram.values[0] - rich) / (np.linalg.norm(rich) or 1.0))
        distances[f"{name}_distance"] = (
            (),
            distance,
            described(f"distance of the {name} similarity from the task's", "1"),
        )
    return xr.Dataset(distances)


def _samples(exact: TwoLayerSolution, inputs: ArrayLike) -> FloatArray:
    X = real_array("inputs", inputs, ndim=2)
    if X.shape[1] != exact.network.inputs:
        raise InvalidSpec(f"inputs must be (samples, {exact.network.inputs}), got shape {X.shape}.", field="inputs")
    return X


def scaled_to_plane(
    points: FloatArray, rng: np.random.Generator, *, iterations: int = 200, nearness: float = 1.0
) -> tuple[FloatArray, float]:
    """Return a multidimensional scaling to the plane, and the share of squared distances that it does not represent.

    Sammon's stress, sum (d_ij - |z_i - z_j|)^2 / d_ij^nearness, is minimised by majorisation from classical scaling.
    Its weights keep neighbouring points together, so paths stay connected. Classical scaling keeps only two axes, which
    do not separate the leaves of a tree.

    Parameters
    ----------
    points : (points, dimensions)
    rng : numpy Generator
        Generator of the start of the iteration.
    iterations : int
    nearness : float
        Exponent of the weights; 1 for Sammon's. Many long paths in one map need more.

    Returns
    -------
    plane : (points, 2)
    share : float

    Examples
    --------
    >>> import numpy as np
    >>> from learncast.theory import scaled_to_plane
    >>> plane, share = scaled_to_plane(np.eye(4), np.random.default_rng(0))
    >>> plane.shape, bool(share < 0.1)
    ((4, 2), True)
    """
    z = real_array("points", points, ndim=2)
    centred = z - z.mean(axis=0)
    # The singular values of a tree are tied; a small part of every axis lets the iteration choose among them.
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2].T + 0.01 * rng.standard_normal((z.shape[1], 2))
    plane, distance, mean = centred @ axes, cdist(centred, centred), np.full((len(z), len(z)), 1 / len(z))
    # The weight of points that coincide would be infinite.
    weight = 1 / np.maximum(distance, 0.05 * distance.mean()) ** nearness
    np.fill_diagonal(weight, 0.0)
    inverse = np.linalg.inv(np.diag(weight.sum(axis=1)) - weight + mean) - mean
    for _ in range(iterations):
        pull = weight * distance / np.maximum(cdist(plane, plane), 1e-9)
        plane = inverse @ (pull.sum(axis=1)[:, None] * plane - pull @ plane)
    return plane, float(((distance - cdist(plane, plane)) ** 2).sum() / (distance**2).sum())
