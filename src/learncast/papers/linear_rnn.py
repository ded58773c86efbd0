"""Figures for the results of "Learning dynamics in linear recurrent neural networks" (proca2025).

The paper's results in words are its own; tasks, settings and the equations of one mode behind the lines are ours, and
each caption says so.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr
from scipy.stats import gmean

from learncast.papers import recurrent_descent as simulated
from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.recurrent_descent import STEPS
from learncast.trajectory import described

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Range of recurrences drawn in S2a, beyond which a few random sequences lie.
SHOWN = (0.55, 1.6)
#: Initial recurrences of the networks in S3c, chosen on both sides of the separatrix.
STARTS, SHORT_STARTS = (0.06, 0.14, 0.3, 0.6, 0.9), (0.06, 0.6)


def _order_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {"late and early tie at b0": _short(dataset.attrs["reversal"])}
    for name in dataset["series"].values:
        for b in dataset["network_recurrence"].values:
            one = dataset["told"].sel(series=name, network_recurrence=b)
            found[f"{name}, b0 = {b:g}: half-loss time"] = _short(one)
    gap = np.abs(dataset["networks"] / dataset["told"] - 1).max()
    found["largest gap of networks and theory, share"] = _short(gap)
    for gain in dataset["gain"].values:
        for name in dataset["order"].values:
            one = dataset["random"].sel(order=name, gain=gain)
            found[f"random W_h, radius {gain:g}: {name}"] = [_short(one.min()), _short(one.max())]
    return found


def _draw_order(dataset: xr.Dataset) -> Figure:
    from learncast.figures import networks_on_lines, page
    from learncast.figures.page import COLOURS

    figure, (left, right) = page(1, 2, width=4.8, height=3.8)
    colours, styles = (COLOURS[0], COLOURS[1], COLOURS[0], COLOURS[1]), ("-", "-", "--", "--")
    networks = dataset["networks"]
    networks_on_lines(
        dataset["theory"],
        left,
        networks=networks,
        colours=colours,
        styles=styles,
        title="S1  W_h = b0 x identity: theory and networks",
    )
    left.axvline(float(dataset.attrs["reversal"]), color="grey", linewidth=0.8)
    left.annotate(
        f"tie at {dataset.attrs['reversal']:.3f}",
        (float(dataset.attrs["reversal"]), 0.04),
        xycoords=("data", "axes fraction"),
        xytext=(-4, 0),
        textcoords="offset points",
        ha="right",
        fontsize=8,
        color="dimgrey",
    )
    networks_on_lines(
        None, right, networks=dataset["random"].rename(order="series"), title="random W_h: networks alone"
    )
    for ax in (left, right):
        ax.set_yscale("log")
    return figure


def _recurrence_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    later = dataset["random_mean_lag"] < (STEPS - 1) / 2
    right = (later == (np.abs(dataset["random"]) < 1)).sum()
    outside = ((dataset["random"] < SHOWN[0]) | (dataset["random"] > SHOWN[1])).sum()
    found: dict[str, Any] = {
        "random sequences": dataset.sizes["sequence"],
        "of which the rule is right": int(right),
        "of which are beyond the picture": int(outside),
    }
    return found | {f"{t}: b*": _short(b) for t, b in zip(dataset["task"].values, dataset["named"], strict=True)}


def _draw_recurrences(dataset: xr.Dataset) -> Figure:
    from learncast.figures import page
    from learncast.figures.page import COLOURS, axis_label, label

    figure, (ax,) = page(width=5.4, height=4.0)
    ax.plot(
        dataset["random_mean_lag"], dataset["random"], "o", color="#999999", markersize=2.5, label="random sequences"
    )
    ax.plot(dataset["named_mean_lag"], dataset["named"], "o", color=COLOURS[1], markersize=6, label="named tasks")
    for name, x, y in zip(dataset["task"].values, dataset["named_mean_lag"], dataset["named"], strict=True):
        # Left and above where the right is crowded; below the line of |b| = 1 for the pulse that lies just under it.
        above = name in ("recency 0.8", "sum", "primacy 0.8", "pulse at lag 4", "pulse at lag 5", "ramp down")
        ax.annotate(
            name,
            (float(x), float(y)),
            xytext=(-7 if above else 7, -4 if name == "pulse at lag 4" else 5 if above else -10),
            textcoords="offset points",
            fontsize=8,
            ha="right" if above else "left",
        )
    ax.axhline(1.0, color="black", linestyle=(0, (1, 1.2)), linewidth=1.5)
    ax.axvline((STEPS - 1) / 2, color="black", linestyle=(0, (1, 1.2)), linewidth=1.5)
    ax.annotate("|b| = 1", (0.99, 1.0), xycoords=("axes fraction", "data"), ha="right", va="bottom", fontsize=8)
    ax.annotate("middle of the trial", ((STEPS - 1) / 2, 0.01), xycoords=("data", "axes fraction"), fontsize=8)
    ax.set_ylim(*SHOWN)
    ax.legend(frameon=False, fontsize=8, loc="upper left")
    label(
        ax,
        x=axis_label(dataset["named_mean_lag"]),
        y=axis_label(dataset["named"]),
        title="S2a  stable if the evidence comes late",
    )
    return figure


def _horizon_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    last = int(dataset["horizon"][-1])
    found: dict[str, Any] = {}
    for b, loss in zip(dataset["leak"].values, dataset["end"].isel(horizon=-1), strict=True):
        found[f"sum by b = {b:g}, loss at T2 = {last}"] = _short(loss)
    for r, loss in zip(dataset["decay"].values, dataset["start"].sel(horizon=20), strict=True):
        found[f"weights {r:g}^(10 - t) by step, loss at T2 = 20"] = _short(loss)
    summed = dataset["end_networks"].sel(exact=1.0).isel(network_horizon=-1)
    found[f"networks trained on the sum, loss at T2 = {last}"] = [_short(summed.min()), _short(summed.max())]
    for radius in dataset["radius"].values:
        waiting = dataset["delay_networks"].sel(network_horizon=40, radius=radius)
        key = f"networks trained on the delay from radius {radius:g}, unexplained at T2 = 40"
        found[key] = [_short(waiting.min()), _short(waiting.max())]
    return found


def _draw_horizons(dataset: xr.Dataset) -> Figure:
    from learncast.figures import networks_on_lines, page
    from learncast.figures.page import COLOURS

    figure, axes = page(1, 3, width=4.0, height=3.7)
    for ax, dim, text, title in (
        (axes[0], "leak", "b = {:g}", "S2b  end anchor: the sum"),
        (axes[1], "decay", "target {:g}^(10 - t)", "start anchor: weights by step"),
    ):
        name, some = {"leak": ("end", "exact"), "decay": ("start", "decay")}[dim]
        lines, dots = (
            dataset[key].rename({d: "series"}).assign_coords(series=[text.format(v) for v in dataset[d].values])
            for key, d in ((name, dim), (f"{name}_networks", some))
        )
        networks_on_lines(lines, ax, networks=dots, title=title)
        ax.set_yscale("symlog", linthresh=1e-3)
        ax.set_ylim(bottom=0.0)
    one = dataset["delay"].expand_dims(series=["best single mode, b* = 1.15"])
    networks_on_lines(one, axes[2], colours=("black",), styles=(":",), title="end anchor: evidence, then delay 3")
    for k, radius in enumerate(dataset["radius"].values):
        many, name = dataset["delay_networks"].sel(radius=radius), f"networks from radius {radius:g}"
        paths = axes[2].plot(
            many["network_horizon"], many, "o-", color=COLOURS[2 + k], markersize=4, linewidth=0.6, alpha=0.8
        )
        paths[0].set_label(name)
    axes[2].set_yscale("log")
    axes[2].set_ylim(1e-7, 1e7)
    axes[2].legend(frameon=False, fontsize=8, loc="upper left")
    return figure


def _rate_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found = {
        f"rho = {r:g}": _short(v) for r, v in zip(dataset["network_decay"].values, dataset["told"].values, strict=True)
    }
    gap = np.abs(dataset["networks"] / dataset["told"] - 1).max()
    return found | {"largest gap of descent and theory, share": _short(gap)}


def _draw_rates(dataset: xr.Dataset) -> Figure:
    from learncast.figures import networks_on_lines, page

    figure, (ax,) = page(width=4.8, height=3.6)
    networks_on_lines(
        dataset["theory"], ax, networks=dataset["networks"], named=False, title="S2c  sharper with longer memory"
    )
    ax.legend(["theory: 2 / sharpness", "64-unit networks, by bisection"], frameon=False, fontsize=8)
    ax.set_yscale("log")
    return figure


def _draw_terms(dataset: xr.Dataset) -> Figure:
    from learncast.figures import networks_on_lines, page

    figure, (left, right) = page(1, 2, width=4.8, height=3.6)
    for ax, dim, name, title in (
        (left, "term", "terms", "S3a  recency 0.8, from b0 = 0.5"),
        (right, "lag", "past", "last input only, from b0 = 0.9"),
    ):
        lines = dataset[name].rename({dim: "series"})
        networks_on_lines(lines, ax, networks=dataset[f"network_{name}"].rename({dim: "series"}), title=title)
    left.set_xlim(-0.2, 6.0)
    return figure


def _term_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    data, power, loss = (float(v) for v in dataset["terms"].isel(time=-1))
    peak, ends = dataset["network_past"].max("network_time"), dataset["network_past"].isel(network_time=-1)
    return {
        "data term at the end": _short(data),
        "regulariser at the end": _short(power),
        "loss at the end": _short(loss),
        "data term over regulariser": _short(data / power),
        "last input only: largest response to an earlier input": _short(peak.max()),
        "last input only: largest such response at the end": _short(np.abs(ends).max()),
        "last input only: relative change of all of W_h": _short(dataset.attrs["recurrent_change"]),
    }


def _draw_late_pulses(dataset: xr.Dataset) -> Figure:
    from learncast.figures import networks_on_lines, page
    from learncast.figures.page import COLOURS

    figure, (left, right) = page(1, 2, width=4.8, height=3.8)
    jumps = dataset["jump"].values
    grid, best = dataset["background"].values, dataset["best"]
    broken = best.copy()
    for i, jump in enumerate(jumps):  # a gap where it jumps
        if np.isfinite(jump):
            broken[i, int(np.searchsorted(grid, jump))] = np.nan
    networks_on_lines(broken, left, title="S3b  late pulse over background eps")
    for k in np.flatnonzero(np.isfinite(jumps)):
        ends = [float(dataset[name][k]) for name in ("below", "above")]
        left.plot([jumps[k]] * 2, ends, color=COLOURS[k], linestyle=":", linewidth=1.5)
    for marker, start, ends in zip("v^", dataset["start"].values, dataset["networks"].values, strict=True):
        name = f"T = 20, networks from b0 = {start:g}"
        left.plot(dataset["network_background"], ends, marker, color=COLOURS[1], linestyle="none", label=name)
    left.legend(frameon=False, fontsize=8, loc="upper center", bbox_to_anchor=(0.5, -0.16), ncols=2)
    names = [f"eps = {eps:.3f}" for eps in dataset["shown"].values]
    curves = dataset["unexplained"].rename(shown="series").assign_coords(series=names)
    networks_on_lines(curves, right, title="T = 50: below, at and above the jump", styles=("-", "--", "-."))
    return figure


def _late_pulse_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["series"].values):
        if np.isfinite(dataset["jump"][k]):
            found[f"{name}: jump at eps"] = _short(dataset["jump"][k])
            found[f"{name}: b* below and above"] = [_short(dataset[side][k]) for side in ("below", "above")]
            found[f"{name}: bistable eps"] = [_short(dataset[f"bistable_{side}"][k]) for side in ("from", "to")]
        else:
            found[f"{name}: jump at eps"] = None
    for start, ends in zip(dataset["start"].values, dataset["networks"].values, strict=True):
        found[f"T = 20, networks from b0 = {start:g}: b at the end"] = [_short(b) for b in ends]
    return found


def _draw_two_pulses(dataset: xr.Dataset) -> Figure:
    from learncast.figures import basin_map, networks_on_lines, page
    from learncast.figures.page import THEORY

    figure, (left, right) = page(1, 2, width=4.9, height=3.9)
    networks_on_lines(dataset["best"], left, named=False, title="S3c  two pulses, the earlier r times as strong")
    left.plot(dataset["pulse"], dataset["endless"], **THEORY)
    names = [*dataset["series"].values, "lag 2, endless trial"]
    left.legend(names, frameon=False, fontsize=8, loc="lower right")
    better = float(dataset["transition"][-1])
    basin_map(dataset, right, better_beyond=better, title="lag 3: where training ends\n")
    return figure


def _two_pulse_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["series"].values):
        found[f"{name}: transition"] = str(dataset["kind"][k].item())
        if np.isfinite(dataset["transition"][k]):
            found[f"{name}: at r"] = _short(dataset["transition"][k])
    told = np.interp(dataset["network_strength"], dataset["strength"], np.nan_to_num(dataset["boundary"], nan=2.0))
    uses = np.abs(dataset["network_end"]) > 0.1
    agree = uses == (dataset["network_start"] > xr.DataArray(told, dims="network_strength"))
    middle = np.interp(1.5, dataset["strength"], dataset["boundary"])
    return found | {
        "lag 3, r = 1.5: separatrix, b0": _short(middle),
        "networks": int(agree.size),
        "of which end where the theory says": int(agree.sum()),
    }


def _draw_kernels(dataset: xr.Dataset) -> Figure:
    from learncast.figures import networks_on_lines, page

    figure, axes = page(1, 2, width=4.8, height=4.1)
    for ax, kernel in zip(axes, dataset["kernel"].values, strict=True):
        one = dataset["misalignment"].sel(kernel=kernel).rename(network="series")
        networks_on_lines(
            one.reduce(gmean, "seed").assign_attrs(described("1 - alignment with the initial kernel", "1")),
            ax,
            networks=one,
            styles=("-", "--", "-"),
            named=ax is axes[0],
            title={"all weights": "NTK  all weights that learn", "W_y block": "W_y block: hidden states"}[kernel],
        )
        ax.set(xscale="log", yscale="log", ylim=(5e-7, 2.0))
    figure.supxlabel(
        "Read the left panel with care: the feedforward kernel has an isotropic part |W_y|² that caps its change.\n"
        "The W_y block starts equal in both networks: at small gain both learn the same features.",
        fontsize=8.5,
    )
    return figure


def _kernel_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    middle = dataset["misalignment"].median("seed")
    found: dict[str, Any] = {}
    for network in dataset["network"].values:
        for kernel in dataset["kernel"].values:
            values = middle.sel(network=network, kernel=kernel).values
            found[f"{network}, {kernel}: 1 - alignment at each gain"] = [_short(v) for v in values]
        worst = dataset["relative_loss"].sel(network=network).max()
        found[f"{network}: largest relative loss at the end"] = _short(worst)
    return {"gains": [_short(g) for g in dataset["gain"].values]} | found


def _draw_sensory(dataset: xr.Dataset) -> Figure:
    from learncast.figures import networks_on_lines, networks_per_case, page

    figure, (left, right) = page(1, 2, width=5.0, height=4.2)
    networks_per_case(dataset["recurrence"], dataset["outlier"], left, title="sensory  b* and outlier of W_h")
    left.axhline(1.0, color="grey", linewidth=0.8)
    lines = dataset["longer"].rename(case="series")
    networks = dataset["longer_networks"].rename(case="series").transpose("series", "network_horizon", "seed")
    networks_on_lines(lines, right, networks=networks, title="trained at T = 10: loss on longer trials")
    right.set_yscale("symlog", linthresh=1e-6)
    right.set_ylim(bottom=0.0)
    right.legend(frameon=False, fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))
    return figure


def _sensory_numbers(dataset: xr.Dataset) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for k, name in enumerate(dataset["case"].values):
        found[f"{name}: b*"] = _short(dataset["recurrence"][k])
        found[f"{name}: outlier of networks"] = [_short(v(dataset["outlier"][k])) for v in (np.min, np.max)]
        found[f"{name}: loss of the best mode"] = _short(np.round(dataset["loss"][k], 12))
        found[f"{name}: unexplained at T2 = 20 and 40"] = [
            _short(np.round(dataset["longer"][k].sel(horizon=h), 12)) for h in (20, 40)
        ]
    return found


_OURS = "the paper states the result; task, settings and the equations of one mode behind the lines"
CAPTIONS = {
    "S1": "Time to half the loss against the initial recurrence, for a target that weighs late inputs (0.7^lag) "
    "or early ones, and 1.5 times as much: larger is faster, later is faster only for contracting starts. "
    f"Dots: 64-unit networks trained by descent from unaligned weights. Ours: {_OURS}, and the limit of "
    "the claim.",
    "S2a": "Best recurrence of one mode against the mean lag of the target: stable (|b| < 1) if evidence comes "
    f"later than the middle of the trial, a rule of thumb for positive weights. Ours: {_OURS}. Networks "
    "with spare units need not follow the best single mode.",
    "S2b": "Loss on longer trials after training at 10 steps. Weighed by lag (end), exact fits extrapolate and "
    "small errors of b grow; weighed by step (start) only the sum does; whether networks that fit a delay "
    "with spare units extrapolate depends on the recurrence they started with. Lines: modes; dots: "
    f"64-unit networks. Ours: {_OURS}.",
    "S2c": "Largest stable learning rate at a solution u = 1, b = rho over 10 steps: 2 / sharpness, and where "
    f"descent of 64-unit networks starts to leave it. Ours: {_OURS}.",
    "S3a": "Data term and effective regulariser over training, and responses to earlier inputs when only the "
    "last one counts. Lines: one mode; dots: a 64-unit network from unaligned weights. The regulariser is "
    f"part of the squared loss. Ours: {_OURS}.",
    "S3b": "A late pulse over a background eps: the best recurrence jumps for trials of 11 steps or more "
    "(dotted), and the loss has two minima. Triangles: 64-unit networks aligned with one mode; from "
    f"random weights spare units may fit both parts. Ours: {_OURS}.",
    "S3c": "Two pulses: the earlier one is always used at lag 1, from r = 1/2 continuously at lag 2, by a jump "
    "at lag 3, where small initial recurrence ends feedforward although recurrence is better. Dots: "
    f"64-unit networks aligned with one mode. Ours: {_OURS}.",
    "NTK": "1 - alignment of the tangent kernel before and after training to 1e-4 of the loss, against the gain "
    "of input and output weights. The feedforward control's isotropic part caps its change; the W_y block "
    "is the fair comparison. With frozen recurrence the loss is not matched. Lines: geometric mean of the "
    "dots. Ours: the control and settings.",
    "sensory": "Sensory tasks of 10 steps: best single mode, outlier eigenvalue of trained 64-unit networks, and "
    "unexplained share on longer trials. Delay: networks fit it with several modes, not with b* = 1.15. "
    "Ours: the tasks.",
}


def paper(seeds: int = 3, points: int = 60, accuracy: float = 0.999) -> Paper:
    """All figures; `seeds` networks per setting, trained to `accuracy`, `points` along the lines of the theory."""
    few = seeds < 3
    made: dict[str, tuple[Any, Any, Any]] = {
        "S1": (
            partial(simulated.order, seeds, points // 2, (0.8, 1.0) if few else (0.4, 0.6, 0.8, 1.0, 1.1)),
            _draw_order,
            _order_numbers,
        ),
        "S2a": (partial(simulated.recurrences, 100 if few else 400), _draw_recurrences, _recurrence_numbers),
        "S2b": (partial(simulated.horizons, seeds, accuracy), _draw_horizons, _horizon_numbers),
        "S2c": (
            partial(simulated.stable_rates, points, (0.8, 1.0) if few else (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25)),
            _draw_rates,
            _rate_numbers,
        ),
        "S3a": (partial(simulated.terms, points), _draw_terms, _term_numbers),
        "S3b": (
            partial(simulated.late_pulses, points, (0.15,) if few else (0.05, 0.1, 0.15, 0.19, 0.25)),
            _draw_late_pulses,
            _late_pulse_numbers,
        ),
        "S3c": (
            partial(
                simulated.two_pulses, points, 7 if few else 19, (0.06, 0.6) if few else (0.06, 0.14, 0.3, 0.6, 0.9)
            ),
            _draw_two_pulses,
            _two_pulse_numbers,
        ),
        "NTK": (
            partial(simulated.turned_kernels, (0.1, 1.0) if few else (0.1, 0.3, 1.0, 3.0, 10.0), seeds),
            _draw_kernels,
            _kernel_numbers,
        ),
        "sensory": (partial(simulated.sensory_networks, seeds, accuracy), _draw_sensory, _sensory_numbers),
    }
    return Paper("linear-rnn", "proca2025", tuple(PaperFigure(name, CAPTIONS[name], *made[name]) for name in CAPTIONS))


def _short(value: Any) -> float:
    return float(f"{float(value):.4g}")
