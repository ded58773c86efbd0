"""Modes in a rotated frame and their interactions: figure 1 of curriculum2025."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import xarray as xr

from learncast import figures
from learncast._core.validation import FloatArray
from learncast.figures.look import COLOURS, FIRST, TARGET
from learncast.papers.curriculum.samples import SAMPLES, curricula
from learncast.papers.paper import Numbers, short
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from matplotlib.axes import Axes


def mode_updates(
    input_modes: FloatArray,
    output_modes: FloatArray,
    recurrence: FloatArray,
    cross_strength: FloatArray,
    input_strength: FloatArray,
) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return the flow of input and output modes, split into the contributions of the own mode and of all others.

    With a_i, c_i the vectors of a mode over hidden units and H_t = diag(b^(T-t)),
    da_i/dtau = sum_t H_t c_i s_i(t) - sum_j sum_tt' (H_t c_j) (c_j . H_t' a_i) s_i(t, t'), and similarly
    dc_i/dtau = sum_t H_t a_i s_i(t) - sum_j sum_tt' (H_t a_j) (c_i . H_t' a_j) s_j(t, t'). The terms with j != i are
    the cross-mode terms. They vanish if the vectors of different modes are orthogonal for every power of b.

    Implements: curriculum2025 Eq. (33), with a factor of the recurrence for each hidden unit
    Implements: curriculum2025 Eq. (34), with the other modes' input strengths, which the paper omits

    Parameters
    ----------
    input_modes, output_modes : (modes, hidden)
        Columns of W_x and rows of W_y in the frame of the task's singular vectors.
    recurrence : (hidden,)
        Eigenvalues of W_h.
    cross_strength : (modes, steps)
    input_strength : (modes, steps, steps)

    Returns
    -------
    own_input, cross_input, own_output, cross_output : (modes, hidden)
        Minus the gradient of the loss with respect to the modes is the sum of own and cross.
    """
    a, c, steps = input_modes, output_modes, cross_strength.shape[1]
    powers = recurrence ** np.arange(steps)[::-1, None]  # (steps, hidden): b^(T-t)
    pull_a, pull_c = (np.einsum("th,ih,it->ih", powers, one, cross_strength) for one in (c, a))
    # Summed over pairs of times: the effect of mode j on mode i.
    push_a = np.einsum("th,jh,jk,uk,ik,itu->jih", powers, c, c, powers, a, input_strength, optimize=True)
    push_c = np.einsum("th,jh,ik,uk,jk,jtu->jih", powers, a, c, powers, a, input_strength, optimize=True)
    own = [pull - np.einsum("iih->ih", push) for pull, push in ((pull_a, push_a), (pull_c, push_c))]
    cross = [np.einsum("iih->ih", push) - push.sum(axis=0) for push in (push_a, push_c)]
    return own[0], cross[0], own[1], cross[1]


def two_ways() -> xr.Dataset:
    """Figure 1A: the time of direct training, and of training a first task and then the target."""
    both = [curricula(name) for name in SAMPLES]
    first, then = np.array([[one.steps.flow for one in each["curriculum"].stages] for each in both]).T
    direct = both[0]["direct"].steps.flow
    return xr.Dataset(
        {
            "first": ("value", first, described("time to learn the first task", STEPS)),
            "then": ("value", then, described("time to learn the target after it", STEPS)),
            "direct": ((), direct, described("time to learn the target directly", STEPS)),
        },
        coords={"value": [value for value, _ in SAMPLES.values()]},
    )


def draw_two_ways(dataset: xr.Dataset) -> figures.Figure:
    """Draw the times as stacked bars."""

    def draw(ax: Axes) -> None:
        names = ["target directly", *(f"first $s_{{yx}}$ = {value:g}" for value in dataset["value"].values)]
        rows = np.arange(len(names))
        ax.barh(0, float(dataset["direct"]), color=TARGET, height=0.6, label=r"$\tau_{0\to2}$, or $\tau_{1\to2}$")
        ax.barh(rows[1:], dataset["first"], color=FIRST, height=0.6, label=r"$\tau_{0\to1}$")
        ax.barh(rows[1:], dataset["then"], left=dataset["first"], color=TARGET, height=0.6)
        ax.axvline(float(dataset["direct"]), color="black", linestyle="--", linewidth=0.8, label="directly")
        ax.set_yticks(rows, names)
        ax.invert_yaxis()
        figures.key(ax, below=True, ncols=3)
        figures.label(ax, x="training time (gradient steps)", y="", title="directly, or by a curriculum")

    return figures.sheet(draw, width=3.5, height=1.9)


def two_way_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the times and the savings."""
    yield "target directly, flow steps", short(dataset["direct"])
    for k, value in enumerate(dataset["value"].values):
        both = [float(dataset[name][k]) for name in ("first", "then")]
        yield f"first s_yx = {value:g}: both stages, flow steps", short(both)
        yield f"first s_yx = {value:g}: steps saved", short(float(dataset["direct"]) - sum(both))


def rotated_frame(hidden: int = 6) -> xr.Dataset:
    """Figure 1C: covariances of a task with three channels before and after rotation to its modes.

    It also has the share of the flow that comes from other modes (eqs. 33 and 34): zero if the vectors of different
    modes are orthogonal, large if they are random.
    """
    rng, steps, b = np.random.default_rng(11), 10, 0.9
    U, V = (np.linalg.qr(rng.standard_normal((3, 3)))[0] for _ in range(2))
    s = np.array([1.5, 1.0, 0.5])
    cross = U @ np.diag(s) @ V.T
    strengths = np.repeat(s[:, None], steps, axis=1), np.repeat(np.eye(steps)[None], 3, axis=0)
    orthogonal = 0.3 * np.linalg.qr(rng.standard_normal((hidden, 3)))[0].T
    starts = {"orthogonal": (orthogonal, orthogonal), "random": tuple(0.3 * rng.standard_normal((2, 3, hidden)))}
    shares = []
    for a, c in starts.values():
        own_a, cross_a, own_c, cross_c = mode_updates(a, c, np.full(hidden, b), *strengths)
        shares.append(np.linalg.norm([cross_a, cross_c]) / np.linalg.norm([own_a + cross_a, own_c + cross_c]))
    return xr.Dataset(
        {
            "rotated": (("row", "column"), U.T @ cross @ V, described("rotated", "target input")),
            "cross_share": ("start", shares, described("share of the flow from other modes", "1")),
        },
        coords={"start": list(starts)},
    )


def draw_rotated_frame(dataset: xr.Dataset) -> figures.Figure:
    """Draw the modes as chains, the rotated covariance, and the shares."""

    def shares(ax: Axes) -> None:
        ax.bar(dataset["start"].values, dataset["cross_share"], color=[COLOURS[0], COLOURS[1]], width=0.55)
        figures.label(ax, x="start of the modes' vectors", y="share of the flow\nfrom other modes", title="eqs. 33–34")

    chains = partial(figures.mode_scheme, modes=dataset.sizes["row"], title="the task's modes")
    turned = partial(figures.matrix, dataset["rotated"], title=r"$U^\top\Sigma_{yx}V$")
    return figures.sheet(chains, turned, shares, width=2.5, height=2.3)


def rotated_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the largest off-diagonal entry after rotation, and the contribution of other modes."""
    off = dataset["rotated"].values - np.diag(np.diag(dataset["rotated"].values))
    yield "largest entry off the diagonal after rotation", short(np.round(np.abs(off).max(), 12))
    for start, share in zip(dataset["start"].values, dataset["cross_share"].values, strict=True):
        yield f"{start} vectors: share of the flow from other modes", short(np.round(share, 12))
