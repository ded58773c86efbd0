"""Pictures and numbers of the figures of proca2025."""

from __future__ import annotations

from typing import Any

import numpy as np
import xarray as xr
from scipy.stats import gmean

from learncast.figures import Figure, basin_map, key, networks_on_lines, networks_per_case, page
from learncast.figures.page import COLOURS, THEORY, axis_label, label, name_line, name_time
from learncast.papers.linear_rnn.networks import STEPS
from learncast.papers.paper import short
from learncast.results import described

#: Range of recurrences drawn in S2a, beyond which a few random sequences lie.
SHOWN = (0.55, 1.6)


def order_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Half-loss times of theory, and how far networks are from them."""
    found: dict[str, Any] = {"late and early tie at b0": short(dataset.attrs["reversal"])}
    for name in dataset["series"].values:
        for b in dataset["network_recurrence"].values:
            one = dataset["told"].sel(series=name, network_recurrence=b)
            found[f"{name}, b0 = {b:g}: half-loss time"] = short(one)
    gap = np.abs(dataset["networks"] / dataset["told"] - 1).max()
    found["largest gap of networks and theory, share"] = short(gap)
    for gain in dataset["gain"].values:
        for name in dataset["order"].values:
            one = dataset["random"].sel(order=name, gain=gain)
            found[f"random W_h, radius {gain:g}: {name}"] = _ends(one)
    return found


def draw_order(dataset: xr.Dataset) -> Figure:
    """Half-loss times against the initial recurrence, and of random recurrences."""
    figure, (left, right) = page(1, 2, width=3.5, height=2.7)
    look: dict[str, Any] = {"colours": COLOURS[:2] * 2, "styles": ("-", "-", "--", "--")}
    title = r"S1  $W_h=b_0 I$: theory and networks"
    networks_on_lines(dataset["theory"], left, networks=dataset["networks"], **look, title=title)
    tie = float(dataset.attrs["reversal"])
    left.axvline(tie, color="grey", linewidth=0.7)
    name_time(left, tie, f"tie at {tie:.3f}", high=0.1)
    random = dataset["random"].rename(order="series")
    networks_on_lines(None, right, networks=random, title="random $W_h$: networks alone")
    for ax in (left, right):
        ax.set_yscale("log")
    return figure


def recurrence_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """How often the rule of thumb is right, and the best recurrence of named tasks."""
    later = dataset["random_mean_lag"] < (STEPS - 1) / 2
    right = (later == (np.abs(dataset["random"]) < 1)).sum()
    outside = ((dataset["random"] < SHOWN[0]) | (dataset["random"] > SHOWN[1])).sum()
    found: dict[str, Any] = {
        "random sequences": dataset.sizes["sequence"],
        "of which the rule is right": int(right),
        "of which are beyond the picture": int(outside),
    }
    return found | {f"{t}: b*": short(b) for t, b in zip(dataset["task"].values, dataset["named"], strict=True)}


def draw_recurrences(dataset: xr.Dataset) -> Figure:
    """The best recurrence against the mean lag of the target."""
    figure, (ax,) = page(width=4.6, height=3.4)
    for kind, colour, size, name in (
        ("random", "#999999", 2.0, "random sequences"),
        ("named", COLOURS[1], 4.5, "named tasks"),
    ):
        ax.plot(dataset[f"{kind}_mean_lag"], dataset[kind], "o", color=colour, markersize=size, label=name)
    for name, x, y in zip(dataset["task"].values, dataset["named_mean_lag"], dataset["named"], strict=True):
        # Left and above where the right is crowded; below the line of |b| = 1 for the pulse that lies just under it.
        above = name in ("recency 0.8", "sum", "primacy 0.8", "pulse at lag 4", "pulse at lag 5", "ramp down")
        place = (-7 if above else 7, -4 if name == "pulse at lag 4" else 5 if above else -10)
        side = "right" if above else "left"
        ax.annotate(name, (float(x), float(y)), xytext=place, textcoords="offset points", fontsize=6.5, ha=side)
    ax.axhline(1.0, **THEORY | {"linewidth": 1.0})
    ax.axvline((STEPS - 1) / 2, **THEORY | {"linewidth": 1.0})
    name_line(ax, 1.0, "$|b|=1$", x=0.93)
    name_time(ax, (STEPS - 1) / 2, "middle of the trial", high=0.05)
    ax.set_ylim(*SHOWN)
    key(ax, loc="upper left")
    x, y = axis_label(dataset["named_mean_lag"]), axis_label(dataset["named"])
    label(ax, x=x, y=y, title="S2a  stable if the evidence comes late")
    return figure


def horizon_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Losses on longer trials."""
    last = int(dataset["horizon"][-1])
    found: dict[str, Any] = {}
    for b, loss in zip(dataset["leak"].values, dataset["end"].isel(horizon=-1), strict=True):
        found[f"sum by b = {b:g}, loss at T2 = {last}"] = short(loss)
    for r, loss in zip(dataset["decay"].values, dataset["start"].sel(horizon=20), strict=True):
        found[f"weights {r:g}^(10 - t) by step, loss at T2 = 20"] = short(loss)
    summed = dataset["end_networks"].sel(exact=1.0).isel(network_horizon=-1)
    found[f"networks trained on the sum, loss at T2 = {last}"] = _ends(summed)
    for radius in dataset["radius"].values:
        waiting = dataset["delay_networks"].sel(network_horizon=40, radius=radius)
        key = f"networks trained on the delay from radius {radius:g}, unexplained at T2 = 40"
        found[key] = _ends(waiting)
    return found


def draw_horizons(dataset: xr.Dataset) -> Figure:
    """Losses against the length of the trial: by lag, by step, and after a delay."""
    figure, axes = page(1, 3, width=2.36, height=2.6)
    for ax, dim, text, title in (
        (axes[0], "leak", "$b$ = {:g}", "S2b  end anchor: the sum"),
        (axes[1], "decay", "target {:g}$^{{10-t}}$", "start anchor: by step"),
    ):
        name, some = {"leak": ("end", "exact"), "decay": ("start", "decay")}[dim]
        lines, dots = (
            dataset[key].rename({d: "series"}).assign_coords(series=[text.format(v) for v in dataset[d].values])
            for key, d in ((name, dim), (f"{name}_networks", some))
        )
        networks_on_lines(lines, ax, networks=dots, title=title)
        ax.set_yscale("symlog", linthresh=1e-3)
        ax.set_ylim(bottom=0.0)
    one = dataset["delay"].expand_dims(series=["best single mode, $b^*$ = 1.15"])
    networks_on_lines(one, axes[2], colours=("black",), styles=(":",), title="end anchor: delay 3")
    for k, radius in enumerate(dataset["radius"].values):
        many = dataset["delay_networks"].sel(radius=radius)
        look: dict[str, Any] = {"color": COLOURS[2 + k], "markersize": 2.8, "linewidth": 0.5, "alpha": 0.8}
        paths = axes[2].plot(many["network_horizon"], many, "o-", **look)
        paths[0].set_label(f"networks from radius {radius:g}")
    axes[2].set_yscale("log")
    axes[2].set_ylim(1e-7, 1e7)
    key(axes[2], loc="upper left")
    return figure


def rate_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Largest stable rates, and how far descent is from them."""
    found = {
        f"rho = {r:g}": short(v) for r, v in zip(dataset["network_decay"].values, dataset["told"].values, strict=True)
    }
    gap = np.abs(dataset["networks"] / dataset["told"] - 1).max()
    return found | {"largest gap of descent and theory, share": short(gap)}


def draw_rates(dataset: xr.Dataset) -> Figure:
    """Largest stable rates against the recurrence of the solution."""
    figure, (ax,) = page(width=3.5, height=2.6)
    title = "S2c  sharper with longer memory"
    networks_on_lines(dataset["theory"], ax, networks=dataset["networks"], named=False, title=title)
    key(ax, ["theory: 2 / sharpness", "64-unit networks, by bisection"])
    ax.set_yscale("log")
    return figure


def draw_terms(dataset: xr.Dataset) -> Figure:
    """Terms of the loss over training, and responses to earlier inputs."""
    figure, (left, right) = page(1, 2, width=3.5, height=2.6)
    for ax, dim, name, title in (
        (left, "term", "terms", "S3a  recency 0.8, from $b_0$ = 0.5"),
        (right, "lag", "past", "last input only, from $b_0$ = 0.9"),
    ):
        lines = dataset[name].rename({dim: "series"})
        networks_on_lines(lines, ax, networks=dataset[f"network_{name}"].rename({dim: "series"}), title=title)
    left.set_xlim(-0.2, 6.0)
    return figure


def term_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """The terms at the end, and what is left of the past."""
    data, power, loss = (float(v) for v in dataset["terms"].isel(time=-1))
    peak, ends = dataset["network_past"].max("network_time"), dataset["network_past"].isel(network_time=-1)
    return {
        "data term at the end": short(data),
        "regulariser at the end": short(power),
        "loss at the end": short(loss),
        "data term over regulariser": short(data / power),
        "last input only: largest response to an earlier input": short(peak.max()),
        "last input only: largest such response at the end": short(np.abs(ends).max()),
        "last input only: relative change of all of W_h": short(dataset.attrs["recurrent_change"]),
    }


def draw_late_pulses(dataset: xr.Dataset) -> Figure:
    """The best recurrence over the background with its jump, and the loss around it."""
    figure, (left, right) = page(1, 2, width=3.5, height=2.7)
    jumps, grid, broken = dataset["jump"].values, dataset["background"].values, dataset["best"].copy()
    for i, jump in enumerate(jumps):  # a gap where it jumps
        if np.isfinite(jump):
            broken[i, int(np.searchsorted(grid, jump))] = np.nan
    networks_on_lines(broken, left, title=r"S3b  late pulse over background $\epsilon$")
    for k in np.flatnonzero(np.isfinite(jumps)):
        ends = [float(dataset[name][k]) for name in ("below", "above")]
        left.plot([jumps[k]] * 2, ends, color=COLOURS[k], linestyle=":", linewidth=1.0)
    for marker, start, ends in zip("v^", dataset["start"].values, dataset["networks"].values, strict=True):
        name = f"$T$ = 20, networks from $b_0$ = {start:g}"
        left.plot(dataset["network_background"], ends, marker, color=COLOURS[1], linestyle="none", label=name)
    key(left, below=True, ncols=2)
    names = [rf"$\epsilon$ = {eps:.3f}" for eps in dataset["shown"].values]
    curves = dataset["unexplained"].rename(shown="series").assign_coords(series=names)
    networks_on_lines(curves, right, title="$T$ = 50: below, at and above the jump", styles=("-", "--", "-."))
    return figure


def late_pulse_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Where the best recurrence jumps, and where networks end."""
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["series"].values):
        if np.isfinite(dataset["jump"][k]):
            found[f"{name}: jump at eps"] = short(dataset["jump"][k])
            found[f"{name}: b* below and above"] = [short(dataset[side][k]) for side in ("below", "above")]
            found[f"{name}: bistable eps"] = [short(dataset[f"bistable_{side}"][k]) for side in ("from", "to")]
        else:
            found[f"{name}: jump at eps"] = None
    for start, ends in zip(dataset["start"].values, dataset["networks"].values, strict=True):
        found[f"T = 20, networks from b0 = {start:g}: b at the end"] = [short(b) for b in ends]
    return found


def draw_two_pulses(dataset: xr.Dataset) -> Figure:
    """The best recurrence over the earlier pulse, and where training ends."""
    figure, (left, right) = page(1, 2, width=3.5, height=2.8)
    best, grid = dataset["best"].copy(), dataset["pulse"].values
    for k, place in enumerate(dataset["transition"].values):
        rises = np.abs(np.diff(best[k].values))
        if dataset["kind"][k] == "first order":  # a gap between two branches, not a slope
            n = int(np.argmax(rises))
            left.plot([place] * 2, best[k, n : n + 2], ":", color=COLOURS[k], linewidth=1.0)
            best[k, n + (place > grid[n])] = np.nan
    networks_on_lines(best, left, title="S3c  two pulses, the earlier $r$ times as strong")
    left.plot(dataset["pulse"], dataset["endless"], **THEORY, label="lag 2, endless trial")
    key(left, loc="lower right")
    better = float(dataset["transition"][-1])
    basin_map(dataset, right, better_beyond=better, title="lag 3: where training ends")
    return figure


def two_pulse_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Kinds of the transitions, and how many networks end where theory says."""
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["series"].values):
        found[f"{name}: transition"] = str(dataset["kind"][k].item())
        if np.isfinite(dataset["transition"][k]):
            found[f"{name}: at r"] = short(dataset["transition"][k])
    told = np.interp(dataset["network_strength"], dataset["strength"], np.nan_to_num(dataset["boundary"], nan=2.0))
    uses = np.abs(dataset["network_end"]) > 0.1
    agree = uses == (dataset["network_start"] > xr.DataArray(told, dims="network_strength"))
    middle = np.interp(1.5, dataset["strength"], dataset["boundary"])
    return found | {
        "lag 3, r = 1.5: separatrix, b0": short(middle),
        "networks": int(agree.size),
        "of which end where the theory says": int(agree.sum()),
    }


def draw_kernels(dataset: xr.Dataset) -> Figure:
    """Turning of both kernels against the gain."""
    figure, axes = page(1, 2, width=3.5, height=3.0)
    for ax, kernel in zip(axes, dataset["kernel"].values, strict=True):
        one = dataset["misalignment"].sel(kernel=kernel).rename(network="series")
        mean = one.reduce(gmean, "seed").assign_attrs(described("1 - alignment with the initial kernel", "1"))
        title = {"all weights": "NTK  all weights that learn", "W_y block": "$W_y$ block: hidden states"}[kernel]
        look: dict[str, Any] = {"styles": ("-", "--", "-"), "named": ax is axes[0], "title": title}
        networks_on_lines(mean, ax, networks=one, **look)
        ax.set(xscale="log", yscale="log", ylim=(5e-7, 2.0))
    figure.supxlabel(
        "Read the left panel with care: the feedforward kernel has an isotropic part |W_y|² that caps its change.\n"
        "The W_y block starts equal in both networks: at small gain both learn the same features.",
        fontsize=6.5,
    )
    return figure


def kernel_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Median turning of each kernel at each gain, and the losses at the end."""
    middle = dataset["misalignment"].median("seed")
    found: dict[str, Any] = {}
    for network in dataset["network"].values:
        for kernel in dataset["kernel"].values:
            values = middle.sel(network=network, kernel=kernel).values
            found[f"{network}, {kernel}: 1 - alignment at each gain"] = [short(v) for v in values]
        worst = dataset["relative_loss"].sel(network=network).max()
        found[f"{network}: largest relative loss at the end"] = short(worst)
    return {"gains": [short(g) for g in dataset["gain"].values]} | found


def draw_sensory(dataset: xr.Dataset) -> Figure:
    """Best recurrences beside the outliers of networks, and losses on longer trials."""
    figure, (left, right) = page(1, 2, width=3.5, height=3.0)
    networks_per_case(dataset["recurrence"], dataset["outlier"], left, title="sensory  $b^*$ and outlier of $W_h$")
    left.axhline(1.0, color="grey", linewidth=0.8)
    lines = dataset["longer"].rename(case="series")
    networks = dataset["longer_networks"].rename(case="series").transpose("series", "network_horizon", "seed")
    networks_on_lines(lines, right, networks=networks, title="trained at $T$ = 10: longer trials")
    right.set_yscale("symlog", linthresh=1e-6)
    right.set_ylim(bottom=0.0)
    key(right, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def sensory_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    """Best modes, outliers of networks, and what is unexplained on longer trials."""
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["case"].values):
        found[f"{name}: b*"] = short(dataset["recurrence"][k])
        found[f"{name}: outlier of networks"] = [short(v(dataset["outlier"][k])) for v in (np.min, np.max)]
        found[f"{name}: loss of the best mode"] = short(np.round(dataset["loss"][k], 12))
        found[f"{name}: unexplained at T2 = 20 and 40"] = [
            short(np.round(dataset["longer"][k].sel(horizon=h), 12)) for h in (20, 40)
        ]
    return found


def _ends(values: xr.DataArray) -> list[Any]:
    return [short(values.min()), short(values.max())]
