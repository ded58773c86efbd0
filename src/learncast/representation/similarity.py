"""What the hidden layer of a two-layer linear network represents, and how its tangent kernel moves."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy.sparse.linalg import LinearOperator, eigsh

from learncast.dynamics.solution import Solution, checked_times
from learncast.dynamics.two_layer import TwoLayerSolution, checked_two_layer
from learncast.errors import InvalidSpec
from learncast.tasks.covariance import MEMORY_LIMIT
from learncast.trajectory import described
from learncast.validation import FloatArray, count, real_array


def hidden_similarity(solution: Solution, times: Any, inputs: Any, targets: Any) -> xr.Dataset:
    """Similarity of samples in the hidden layer, seen from the inputs and from the targets.

    Implements: braun2022 Eq. (8)

    Parameters
    ----------
    solution : Solution
        Of a two-layer network.
    times : array_like
        Gradient steps.
    inputs : (samples, inputs)
    targets : (samples, outputs)

    Returns
    -------
    xarray.Dataset
        ``hidden_similarity_input`` X^T W1^T W1 X and ``hidden_similarity_output`` Y^T (W2 W2^T)^+ Y over (time, sample,
        sample_other). The two agree only once the task is learned.
    """
    exact = checked_two_layer(solution)
    X, Y = _samples(exact, inputs), real_array("targets", targets, ndim=2)
    if Y.shape != (len(X), exact.problem.second.shape[0]):
        raise InvalidSpec(
            required=f"targets must be ({len(X)} samples, {exact.problem.second.shape[0]} outputs)",
            got=f"shape {Y.shape}",
            why="each sample has its target",
            remedy="match targets to inputs, samples first",
        )
    _require_room(len(checked_times(times)) * len(X) ** 2 * 2, "the similarities")
    trajectory = exact.at(times)
    seen_from_input = np.einsum("pn,tnm,qm->tpq", X, trajectory["input_gram"].values, X, optimize=True)
    inverse = np.linalg.pinv(trajectory["output_gram"].values, hermitian=True)
    seen_from_target = np.einsum("pn,tnm,qm->tpq", Y, inverse, Y, optimize=True)
    over = ("time", "sample", "sample_other")
    return xr.Dataset(
        {
            "hidden_similarity_input": (over, seen_from_input, described("hidden similarity from the inputs", "1")),
            "hidden_similarity_output": (over, seen_from_target, described("hidden similarity from the targets", "1")),
        },
        coords={"time": trajectory.time},
    )


def tangent_kernel(solution: Solution, time: float, inputs: Any) -> FloatArray:
    """Neural tangent kernel at one time, (outputs * samples, outputs * samples), outputs slow and samples fast.

    K = I (x) X^T W1^T W1 X + W2 W2^T (x) X^T X, with samples as the columns of X.

    Implements: braun2022 Eq. (9)
    """
    exact = checked_two_layer(solution)
    X = _samples(exact, inputs)
    size = exact.problem.second.shape[0] * len(X)
    _require_room(size**2, "the kernel", remedy="use tangent_kernel_summary, which does not form it")
    from_first, from_second, overlap = _factors(exact, [time], X)
    outputs = np.eye(len(from_second[0]))
    return np.kron(outputs, from_first[0]) + np.kron(from_second[0], overlap)


def tangent_kernel_summary(solution: Solution, times: Any, inputs: Any, *, eigenvalues: int = 3) -> xr.Dataset:
    """Trace, largest eigenvalues, movement and alignment of the tangent kernel, without forming it.

    Parameters
    ----------
    solution : Solution
    times : array_like
        Gradient steps.
    inputs : (samples, inputs)
    eigenvalues : int
        How many of the largest; 0 for none.

    Returns
    -------
    xarray.Dataset
        ``trace``, ``largest`` (time, rank), ``movement`` |K_t - K_0| / |K_0| and ``misalignment`` 1 - cos(K_t, K_0),
        in the Frobenius product.
    """
    exact = checked_two_layer(solution)
    X = _samples(exact, inputs)
    number = count("eigenvalues", eigenvalues, least=0, why="it counts eigenvalues")
    steps = checked_times(times)
    if not len(X):
        raise InvalidSpec(
            required="at least one sample must be given",
            got="none",
            why="the kernel is between samples",
            remedy="pass inputs as (samples, inputs)",
        )
    _require_room(2 * len(steps) * len(X) ** 2, "the kernel's factors")
    A, B, overlap = _factors(exact, steps, X)
    A0, B0, _ = _factors(exact, [0.0], X)
    outputs = B.shape[-1]
    product = _product(A, B, A0, B0, overlap)
    size, start = _product(A, B, A, B, overlap), _product(A0, B0, A0, B0, overlap)[0]
    moved = A - A0, B - B0
    whole = start if start > 0 else 1.0  # silent samples have no kernel to move
    movement = np.sqrt(np.maximum(_product(*moved, *moved, overlap), 0.0) / whole)
    turned = np.where(size * start > 0, 1 - product / np.sqrt(np.where(size * start > 0, size * start, 1.0)), 0.0)
    trace = outputs * np.trace(A, axis1=1, axis2=2) + np.trace(B, axis1=1, axis2=2) * np.trace(overlap)
    variables: dict[str, Any] = {
        "trace": ("time", trace, described("trace of the tangent kernel", "1")),
        "movement": ("time", movement, described("relative change of the tangent kernel", "1")),
        "misalignment": ("time", turned, described("turn of the tangent kernel", "1")),
    }
    number = min(number, outputs * len(X))
    if number:
        largest = np.stack([_largest(a, b, overlap, number) for a, b in zip(A, B, strict=True)])
        variables["largest"] = (("time", "rank"), largest, described("largest eigenvalues", "1"))
    return xr.Dataset(variables, coords={"time": exact.at(steps).time})


def representation_distance(solution: Solution, *, time: float = np.inf) -> xr.Dataset:
    """How far the weights' similarities are from the task's own: 0 is rich, large is lazy.

    A rich network ends with W1^T W1 = V S V^T and W2 W2^T = U S U^T, the task's singular structure; a lazy one keeps
    that of its start. Distances are relative to the task's.

    Implements: braun2022 Eq. (10), the task's singular vectors

    Returns
    -------
    xarray.Dataset
        ``input_distance`` and ``output_distance``.
    """
    exact = checked_two_layer(solution)
    end = exact.at([time])
    U, V = exact.mode_vectors
    S = exact.optimum
    distances = {}
    for name, vectors, gram in (("input", V, end["input_gram"]), ("output", U, end["output_gram"])):
        own = (vectors * S) @ vectors.T
        gap = float(np.linalg.norm(gram.values[0] - own) / (np.linalg.norm(own) or 1.0))
        distances[f"{name}_distance"] = ((), gap, described(f"distance of the {name} similarity from the task's", "1"))
    return xr.Dataset(distances)


def _samples(exact: TwoLayerSolution, inputs: Any) -> FloatArray:
    X = real_array("inputs", inputs, ndim=2)
    if X.shape[1] != exact.problem.first.shape[1]:
        raise InvalidSpec(
            required=f"inputs must be (samples, {exact.problem.first.shape[1]})",
            got=f"shape {X.shape}",
            why="each row is one sample for the network",
            remedy="transpose them: samples come first here",
        )
    return X


def _factors(exact: TwoLayerSolution, times: Any, X: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    """X^T W1^T W1 X and W2 W2^T over time, and X^T X."""
    trajectory = exact.at(times)
    first = np.einsum("pn,tnm,qm->tpq", X, trajectory["input_gram"].values, X, optimize=True)
    return first, trajectory["output_gram"].values, X @ X.T


def _product(A: FloatArray, B: FloatArray, C: FloatArray, D: FloatArray, overlap: FloatArray) -> FloatArray:
    """Frobenius product of I (x) A + B (x) overlap with I (x) C + D (x) overlap, over time."""
    m = B.shape[-1]

    def inner(x: FloatArray, y: FloatArray) -> FloatArray:
        return np.asarray((x * y).sum(axis=(-2, -1)))

    def trace(x: FloatArray) -> FloatArray:
        return np.trace(x, axis1=-2, axis2=-1)

    cross = trace(D) * inner(A, overlap) + trace(B) * inner(C, overlap)
    return m * inner(A, C) + cross + inner(B, D) * float((overlap**2).sum())


def _largest(A: FloatArray, B: FloatArray, overlap: FloatArray, number: int) -> FloatArray:
    m, p = len(B), len(A)

    def times(vector: FloatArray) -> FloatArray:
        grid = vector.reshape(m, p)
        return np.asarray(grid @ A + B @ grid @ overlap).ravel()

    if m * p <= max(64, number + 1):
        return np.linalg.eigvalsh(np.kron(np.eye(m), A) + np.kron(B, overlap))[::-1][:number]
    operator = LinearOperator((m * p, m * p), matvec=times, dtype=float)
    # A fixed start: the answer must not depend on a hidden random state.
    found = eigsh(operator, k=number, which="LA", return_eigenvectors=False, v0=np.ones(m * p))
    return np.sort(np.asarray(found))[::-1]


def _require_room(numbers: int, what: str, *, remedy: str = "use fewer samples or times") -> None:
    if 8 * numbers > MEMORY_LIMIT:
        raise InvalidSpec(
            required=f"{what} must fit in {MEMORY_LIMIT / 2**30:.3g} GiB",
            got=f"{8 * numbers / 2**30:.3g} GiB",
            why="forming it would exhaust memory",
            remedy=remedy,
        )
