"""Pictures and numbers of the figures of proca2025."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr

from learncast._core.validation import FloatArray
from learncast.figures import Figure, key, networks_on_lines, networks_per_case, page
from learncast.figures.look import COLOURS, GREY, THEORY
from learncast.figures.page import axis_label, label, lettered, name_line, name_time
from learncast.papers.linear_rnn.networks import STEPS
from learncast.papers.paper import Numbers, short

#: Range of recurrences in the picture of S2a; a few random sequences are outside.
PICTURED = (0.55, 1.6)
#: Offsets of names in S2a, in points, that differ from above and to the left.
PLACES = {"pulse at lag 5": (7, -15), "sum": (9, -13), "pulse at lag 4": (-9, 13)}
PLACES |= dict.fromkeys(("ramp up", "delay 3"), (7, -10))


def order_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield half-loss times of the theory, and the largest deviation of networks from them."""
    yield "late and early tie at b0", short(dataset.attrs["reversal"])
    for name in dataset["series"].values:
        for b in dataset["network_recurrence"].values:
            yield f"{name}, b0 = {b:g}: half-loss time", short(dataset["told"].sel(series=name, network_recurrence=b))
    yield "largest gap of networks and theory, share", short(np.abs(dataset["networks"] / dataset["told"] - 1).max())


def draw_order(dataset: xr.Dataset) -> Figure:
    """Draw half-loss times against the initial recurrence."""
    figure, (left,) = page(width=3.8, height=2.9)
    look: dict[str, object] = {"colours": COLOURS[:2] * 2, "styles": ("-", "-", "--", "--")}
    title = r"$W_h=b_0 I$: theory and networks"
    networks_on_lines(dataset["theory"], left, networks=dataset["networks"], **look, title=title)
    tie = float(dataset.attrs["reversal"])
    left.axvline(tie, color="grey", linewidth=0.7)
    name_time(left, tie, f"tie at {tie:.3f}", high=0.1)
    left.set_yscale("log")
    return figure


def recurrence_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield how often the rule of thumb is right, and the best recurrence of named tasks."""
    later = dataset["random_mean_lag"] < (STEPS - 1) / 2
    yield "random sequences", dataset.sizes["sequence"]
    yield "random sequences for which the rule is right", int((later == (np.abs(dataset["random"]) < 1)).sum())
    outside = (dataset["random"] < PICTURED[0]) | (dataset["random"] > PICTURED[1])
    yield "random sequences outside the picture", int(outside.sum())
    for task, b in zip(dataset["task"].values, dataset["named"], strict=True):
        yield f"{task}: b*", short(b)


def draw_recurrences(dataset: xr.Dataset) -> Figure:
    """Draw the best recurrence against the mean lag of the target."""
    figure, (ax,) = page(width=4.6, height=3.4)
    for kind, colour, size in (("random", GREY, 2.0), ("named", COLOURS[1], 4.5)):
        name = {"random": "random sequences", "named": "named tasks"}[kind]
        ax.plot(dataset[f"{kind}_mean_lag"], dataset[kind], "o", color=colour, markersize=size, label=name)
    for name, x, y in zip(dataset["task"].values, dataset["named_mean_lag"], dataset["named"], strict=True):
        aside = PLACES.get(str(name), (-7, 5))
        side = "right" if aside[0] < 0 else "left"
        back = {"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 0.4}
        look: dict[str, Any] = {"textcoords": "offset points", "fontsize": 6.5, "ha": side, "bbox": back}
        ax.annotate(name, (float(x), float(y)), xytext=aside, **look)
    ax.axhline(1.0, **THEORY | {"linewidth": 1.0})
    ax.axvline((STEPS - 1) / 2, **THEORY | {"linewidth": 1.0})
    name_line(ax, 1.0, "$|b|=1$", x=0.93)
    name_time(ax, (STEPS - 1) / 2, "middle of the trial", high=0.05)
    ax.set_ylim(*PICTURED)
    key(ax, loc="upper left")
    x, y = axis_label(dataset["named_mean_lag"]), axis_label(dataset["named"])
    label(ax, x=x, y=y, title="stable if the evidence comes late")
    return figure


def horizon_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield losses on longer trials."""
    last = int(dataset["horizon"][-1])
    for b, loss in zip(dataset["leak"].values, dataset["end"].isel(horizon=-1), strict=True):
        yield f"sum by b = {b:g}, loss at T2 = {last}", short(loss)
    for r, loss in zip(dataset["decay"].values, dataset["start"].sel(horizon=20), strict=True):
        yield f"weights {r:g}^(10 - t) by step, loss at T2 = 20", short(loss)
    summed = dataset["end_networks"].sel(exact=1.0).isel(network_horizon=-1)
    yield f"networks trained on the sum, loss at T2 = {last}", _range(summed)


def draw_horizons(dataset: xr.Dataset) -> Figure:
    """Draw losses against the length of the trial: by lag and by step."""
    figure, axes = page(1, 2, width=3.5, height=2.9)
    for ax, dim, text, title in (
        (axes[0], "leak", "$b$ = {:g}", "end anchor: the sum"),
        (axes[1], "decay", "target {:g}$^{{10-t}}$", "start anchor: by step"),
    ):
        name, some = {"leak": ("end", "exact"), "decay": ("start", "decay")}[dim]
        lines, dots = (
            dataset[key].rename({d: "series"}).assign_coords(series=[text.format(v) for v in dataset[d].values])
            for key, d in ((name, dim), (f"{name}_networks", some))
        )
        networks_on_lines(lines, ax, networks=dots, title=title)
        key(ax, below=True, ncols=2)
        ax.set_yscale("symlog", linthresh=1e-3)
        ax.set_ylim(bottom=-1e-4)  # lines at 0 stay off the axis
    return figure


def draw_terms(dataset: xr.Dataset) -> Figure:
    """Draw the terms of the loss over training, and responses to earlier inputs."""
    figure, (left, right) = page(1, 2, width=3.5, height=2.6)
    for ax, dim, name, title in (
        (left, "term", "terms", "recency 0.8, from $b_0$ = 0.5"),
        (right, "lag", "past", "last input only, from $b_0$ = 0.9"),
    ):
        lines = dataset[name].rename({dim: "series"})
        networks_on_lines(lines, ax, networks=dataset[f"network_{name}"].rename({dim: "series"}), title=title)
    left.set_xlim(-0.2, 6.0)
    return figure


def term_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the terms at the end, and the response to earlier inputs."""
    data, power, loss = (float(v) for v in dataset["terms"].isel(time=-1))
    peak, ends = dataset["network_past"].max("network_time"), dataset["network_past"].isel(network_time=-1)
    yield "data term at the end", short(data)
    yield "regulariser at the end", short(power)
    yield "loss at the end", short(loss)
    yield "data term over regulariser", short(data / power)
    yield "last input only: largest response to an earlier input", short(peak.max())
    yield "last input only: largest such response at the end", short(np.abs(ends).max())
    yield "last input only: relative change of all of W_h", short(dataset.attrs["recurrent_change"])


def broken_at(jump: float, x: FloatArray, y: FloatArray, ends: list[float]) -> tuple[FloatArray, FloatArray]:
    """Return a line whose branches end and begin at a jump, with a gap between them; nan: there is no jump."""
    if np.isnan(jump):
        return x, y
    at = int(np.searchsorted(x, jump))
    return np.insert(x, at, [jump] * 3), np.insert(y, at, [ends[0], np.nan, ends[1]])


def draw_late_pulses(dataset: xr.Dataset) -> Figure:
    """Draw the best recurrence over the background with its jump, and the loss around it."""
    figure, (left, right) = page(1, 2, width=3.5, height=2.7)
    for k, name in enumerate(dataset["series"].values):
        one = dataset.isel(series=k)
        jump, *ends = (float(one[part]) for part in ("jump", "below", "above"))
        line = broken_at(jump, one["background"].values, one["best"].values, ends)
        left.plot(*line, color=COLOURS[k], label=lettered(str(name)))
        left.plot([jump] * 2, ends, color=COLOURS[k], linestyle=":", linewidth=1.0)
    x, y = axis_label(dataset["background"]), axis_label(dataset["best"])
    label(left, x=x, y=y, title=r"late pulse over background $\epsilon$")
    for marker, start, ends in zip("v^", dataset["start"].values, dataset["networks"].values, strict=True):
        name = f"$T$ = 20, networks from $b_0$ = {start:g}"
        left.plot(dataset["network_background"], ends, marker, color=COLOURS[1], linestyle="none", label=name)
    key(left, below=True, ncols=2)
    names = [rf"$\epsilon$ = {eps:.3f}" for eps in dataset["shown"].values]
    curves = dataset["unexplained"].rename(shown="series").assign_coords(series=names)
    networks_on_lines(curves, right, title="$T$ = 50: below, at and above the jump", styles=("-", "--", "-."))
    return figure


def late_pulse_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the jumps of the best recurrence, and the recurrence of trained networks."""
    for k, name in enumerate(dataset["series"].values):
        yield f"{name}: jump at eps", short(dataset["jump"][k])
        if np.isfinite(dataset["jump"][k]):
            yield f"{name}: b* below and above", short([dataset[side][k] for side in ("below", "above")])
            yield f"{name}: bistable eps", short([dataset[f"bistable_{side}"][k] for side in ("from", "to")])
    for start, ends in zip(dataset["start"].values, dataset["networks"].values, strict=True):
        yield f"T = 20, networks from b0 = {start:g}: b at the end", short(ends)


def draw_kernels(dataset: xr.Dataset) -> Figure:
    """Draw the change of both kernels against the gain."""
    figure, axes = page(1, 2, width=3.5, height=3.0)
    for ax, kernel in zip(axes, dataset["kernel"].values, strict=True):
        one = dataset["misalignment"].sel(kernel=kernel).rename(network="series")
        mean = one.reduce(lambda v, axis: np.exp(np.log(v).mean(axis)), "seed", keep_attrs=True)
        title = {"all weights": "all weights that learn", "W_y block": "$W_y$ block: hidden states"}[kernel]
        look: dict[str, object] = {"styles": ("-", "--"), "named": ax is axes[0], "title": title}
        networks_on_lines(mean, ax, networks=one, **look)
        ax.set(xscale="log", yscale="log", ylim=(0.5 * float(dataset["misalignment"].min()), 2.0))
    return figure


def kernel_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield the median change of each kernel at each gain, and the losses at the end."""
    middle = dataset["misalignment"].median("seed")
    yield "gains", short(dataset["gain"])
    for network in dataset["network"].values:
        for kernel in dataset["kernel"].values:
            values = middle.sel(network=network, kernel=kernel)
            yield f"{network}, {kernel}: 1 - alignment at each gain", short(values)
        worst = dataset["relative_loss"].sel(network=network).max()
        yield f"{network}: largest relative loss at the end", short(worst)


def draw_sensory(dataset: xr.Dataset) -> Figure:
    """Draw the best recurrences with the outliers of networks, and losses on longer trials."""
    figure, (left, right) = page(1, 2, width=3.5, height=3.0)
    networks_per_case(dataset["recurrence"], dataset["outlier"], left, title="$b^*$ and outlier of $W_h$")
    left.axhline(1.0, color="grey", linewidth=0.8)
    name_line(left, 1.0, "$|b|=1$", x=0.55)
    lines = dataset["longer"].rename(case="series")
    networks = dataset["longer_networks"].rename(case="series").transpose("series", "network_horizon", "seed")
    networks_on_lines(lines, right, networks=networks, title="trained at $T$ = 10: longer trials")
    right.set_yscale("symlog", linthresh=1e-6)
    right.set_ylim(bottom=-1e-7)
    key(right, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def sensory_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield best modes, outliers of networks, and the unexplained share on longer trials."""
    for k, name in enumerate(dataset["case"].values):
        yield f"{name}: b*", short(dataset["recurrence"][k])
        yield f"{name}: outlier of networks", _range(dataset["outlier"][k])
        yield f"{name}: loss of the best mode", short(np.round(dataset["loss"][k], 12))
        yield f"{name}: unexplained at T2 = 20 and 40", short(np.round(dataset["longer"][k].sel(horizon=[20, 40]), 12))


def _range(values: xr.DataArray) -> list[object]:
    return short([values.min(), values.max()])
