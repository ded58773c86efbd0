"""The paper's solution of a two-layer network's flow, for comparison."""

from __future__ import annotations

import numpy as np

from learncast._core.validation import FloatArray
from learncast.networks.two_layer import TwoLayer


def paper_overlaps(cross_covariance: FloatArray, network: TwoLayer) -> tuple[FloatArray, FloatArray]:
    """Return B and C of assumption 3.1, from the singular vectors of the start's function and of the task.

    B is singular for half of all square zero-balanced starts: those whose det(W2 W1) has another sign than det S. They
    end on a saddle, and theorem 3.2 excludes them.
    """
    (U, _, V), (U_task, _, V_task) = (_compact(m) for m in (network.function, cross_covariance))
    return U.T @ U_task + V.T @ V_task, U.T @ U_task - V.T @ V_task


def paper_grams(cross_covariance: FloatArray, network: TwoLayer, time: float) -> FloatArray:
    """Return Q Q^T after some time (learning rate times steps) by eqs. (11) and (12) as they are in the paper.

    It needs an invertible B, full rank and no bottleneck, and amplifies rounding errors by about cond(B)^2.
    `BalancedFlow` has none of these limits.

    Implements: braun2022 Eq. (11), to the letter
    Implements: braun2022 Eq. (12), to the letter
    Assumes: whitened_input, balanced_weights
    """
    (U, s, V), (U_t, s_t, V_t) = (_compact(m) for m in (network.function, cross_covariance))
    B, C = paper_overlaps(cross_covariance, network)
    inverse, decay = np.linalg.inv(B), np.diag(np.exp(-s_t * time))
    rest_u, rest_v = (np.eye(len(W)) - W @ W.T for W in (U_t, V_t))  # U_perp U_perp^T and V_perp V_perp^T
    grown = decay @ decay - np.eye(len(s_t))
    middle = 4 * decay @ inverse @ np.diag(1 / s) @ inverse.T @ decay - grown @ np.diag(1 / s_t)
    middle -= decay @ inverse @ C @ grown @ np.diag(1 / s_t) @ C.T @ inverse.T @ decay
    middle += 4 * time * decay @ inverse @ (V.T @ rest_v @ V + U.T @ rest_u @ U) @ inverse.T @ decay
    turn = decay @ C.T @ inverse.T @ decay
    Z = np.vstack(
        [
            V_t @ (np.eye(len(s_t)) - turn) + 2 * rest_v @ V @ inverse.T @ decay,
            U_t @ (np.eye(len(s_t)) + turn) + 2 * rest_u @ U @ inverse.T @ decay,
        ]
    )
    return np.asarray(Z @ np.linalg.inv(middle) @ Z.T)


def _compact(matrix: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray]:
    U, s, Vt = np.linalg.svd(matrix, full_matrices=False)
    return U, s, Vt.T
