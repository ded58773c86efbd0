"""The claims of livi2025: measures of trained networks, and the verdicts of the tests that `claims.toml` fixes."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from functools import partial
from importlib.resources import files
from itertools import islice
from typing import Any, TypeAlias

import numpy as np
import xarray as xr
from scipy.stats import mannwhitneyu, spearmanr

from learncast import figures
from learncast._core.validation import FloatArray
from learncast.papers.learnability.preset import Preset, RunSize
from learncast.papers.learnability.runs import diagnosis_runs, dial_runs, stacked
from learncast.papers.paper import Numbers, short
from learncast.papers.runs import PaperRun
from learncast.results import described

Claim: TypeAlias = dict[str, Any]
CRITERIA: Claim = tomllib.loads(files("learncast.papers.learnability").joinpath("claims.toml").read_text("utf-8"))
#: Fewer seeds cannot reach the level of an order, whatever they show: 1 / 20 for three against three.
FEWEST = 4
#: Texts of a verdict: holds, fails or undecided; what the claim says; its numbers; what would decide it; why it fails.
_TEXTS = ("verdict", "says", "reason", "larger", "cause")
HOLDS, FAILS, UNDECIDED = "holds", "fails", "undecided"


def claim_runs(preset: Preset) -> list[PaperRun]:
    """Return the runs of all claims, size by size: AdamW, SGD, dial."""
    return [run for size in preset.sizes for group in _groups(preset, size) for run in group]


def _groups(preset: Preset, size: RunSize) -> tuple[list[PaperRun], list[PaperRun], list[PaperRun]]:
    return diagnosis_runs("AdamW", preset, size), diagnosis_runs("SGD", preset, size), dial_runs(preset, size)


def claims(results: Sequence[xr.Dataset], preset: Preset) -> xr.Dataset:
    """Return the measures of every network, over (size, cell, seed), and the verdict of every claim and size."""
    left, parts = iter(results), []
    for size in preset.sizes:
        adam, sgd, dial = ([*islice(left, len(group))] for group in _groups(preset, size))
        tables = {"AdamW": measures(stacked(adam, preset.cells_of("AdamW")), size)}
        if sgd:
            tables["SGD"] = measures(stacked(sgd, preset.cells_of("SGD")), size)
        if dial:
            tables["dial"] = _dial(xr.concat(dial, "seed", combine_attrs="override", join="exact"))
        under_sgd = tables["SGD"].rename({k: f"sgd_{k}" for k in tables["SGD"]}) if sgd else {}
        made = tables["AdamW"].merge(under_sgd, join="outer").sel(cell=tables["AdamW"]["cell"])
        made = made.merge(tables["dial"].drop_dims("cell") if dial else {})
        rows = verdicts(tables)
        for key in _TEXTS:
            made[key] = ("claim", [row[key] for row in rows])
        parts.append(made.assign_coords(claim=[row["name"] for row in rows]))
    longest = [size.task_lags[-1] for size in preset.sizes]
    return xr.concat(parts, "size", combine_attrs="drop").assign_coords(size=longest)


def measures(dataset: xr.Dataset, size: RunSize) -> xr.Dataset:
    """Return the measures of `claims.toml` for every network, over (cell, seed)."""
    near = dataset.sel(lag=dataset["lag"] <= size.task_lags[-1])
    lags = near["lag"].values.astype(float)
    laws = {name: _laws(lags, near[name].values) for name in ("envelope", "envelope_auxiliary")}
    drop, share, exponential, power = laws["envelope"]
    with np.errstate(divide="ignore", invalid="ignore"):
        high, low = (near["time_scale"].quantile(q, "unit", method="lower", skipna=True).values for q in (0.9, 0.1))
        spread = np.where(np.isfinite(high), np.log(high / low), np.inf)
    columns: dict[str, FloatArray] = {
        "drop": drop,
        "power_share": share,
        "exponential_r_squared": exponential,
        "exponential_margin": exponential - power,
        "power_margin": power - exponential,
        "power_margin_auxiliary": laws["envelope_auxiliary"][3] - laws["envelope_auxiliary"][2],
        "time_scale_spread": spread,
        "pooled_tail_index": dataset["pooled_tail_index"].values,
        "block_tail_index": dataset["block_tail_index"].values,
        "loss_fall": (1 - dataset["watched_loss"].isel(update=-1) / dataset["watched_loss"].isel(update=0)).values,
    }
    for noise in ("total", "per_lag"):
        columns[f"{noise}_slope_error"] = np.abs(requirement_slopes(near, noise) + 2)
    if "early_window" in dataset:
        with np.errstate(divide="ignore", invalid="ignore"):
            exact = _slopes(np.log(near["exact_envelope"].values), np.log(near["envelope"].values))
        columns["exact_slope_error"] = np.abs(exact - 1)
        columns["early_window"] = dataset["early_window"].sel(noise="per_lag").isel(sample_size=-1).values
    texts = CRITERIA["measures"] | {"loss_fall": "share of the loss that is gone"}
    variables = {name: (("cell", "seed"), values, described(texts[name], "1")) for name, values in columns.items()}
    made = xr.Dataset(variables, {"cell": dataset["cell"].values, "seed": dataset["seed"].values})
    return made.assign_attrs(longest_lag=float(dataset["lag"][-1]))


def _laws(lags: FloatArray, envelope: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Return drop, the power's share of it, and the R² of an exponential and of a power law, along the last axis."""
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.log(envelope).reshape(-1, len(lags))
    known = np.isfinite(y).all(axis=1)
    found = np.full((4, len(y)), np.nan)
    design = {"both": np.stack([np.ones_like(lags), -np.log(lags), -lags], -1)}
    design["exponential"], design["power"] = design["both"][:, [0, 2]], design["both"][:, [0, 1]]
    data = y[known].T
    total = ((data - data.mean(axis=0)) ** 2).sum(axis=0)
    fits = {name: np.linalg.lstsq(columns, data, rcond=None)[0] for name, columns in design.items()}
    explained = [1 - ((data - design[n] @ fits[n]) ** 2).sum(axis=0) / total for n in ("exponential", "power")]
    by_power, by_rate = fits["both"][1] * np.log(lags[-1] / lags[0]), fits["both"][2] * (lags[-1] - lags[0])
    found[:, known] = [data[0] - data[-1], by_power / (by_power + by_rate), *explained]
    return tuple(row.reshape(envelope.shape[:-1]) for row in found)  # type: ignore[return-value]


def _slopes(x: FloatArray, y: FloatArray) -> FloatArray:
    """Return the slope of y on x along the last axis, where both are finite."""
    used = np.isfinite(x) & np.isfinite(y)
    x, y = np.where(used, x, np.nan), np.where(used, y, np.nan)
    with np.errstate(invalid="ignore"):
        centred = x - np.nanmean(x, axis=-1, keepdims=True)
        return np.asarray(np.nansum(centred * y, axis=-1) / np.nansum(centred**2, axis=-1))


def requirement_slopes(one: xr.Dataset, noise: str) -> FloatArray:
    """Return the slope of the log of the sequences that a lag needs on that of its envelope, for detected lags."""
    needed, f = one["required_sequences"].sel(noise=noise).transpose(*one["envelope"].dims), one["envelope"]
    used = (one["score"] > one["critical_score"]) & np.isfinite(needed) & (needed > 0) & (f > 0)
    few = (used.sum("lag") < 3).values
    with np.errstate(divide="ignore", invalid="ignore"):
        slopes = _slopes(np.log(f.where(used).values), np.log(needed.where(used).values))
    return np.where(few, np.nan, slopes)


def _dial(dataset: xr.Dataset) -> xr.Dataset:
    """Return drop, recovered weight and loss over (gate, seed), and their rank correlation over gates."""
    end, first = (dataset.isel(update=k).transpose("gate", "seed", ...) for k in (-1, 0))
    drop, recovered, loss = (end[name].values for name in ("watched_drop", "recovered", "watched_loss"))
    ranks = [float(spearmanr(*pair).statistic) for pair in zip(drop.T, recovered.T, strict=True)]
    fall = (1 - loss / first["watched_loss"].values).max(axis=0)  # of the gate that learns best
    return xr.Dataset(
        {
            "dial_drop": (("gate", "seed"), drop, described("drop of the envelope", "1")),
            "dial_recovered": (("gate", "seed"), recovered, dataset["recovered"].attrs),
            "dial_loss": (("gate", "seed"), loss, described("mean squared error", "target^2")),
            "loss_fall": (("cell", "seed"), [fall], described("share of the loss that is gone", "1")),
            "dial_correlation": (("cell", "seed"), [ranks], described(CRITERIA["measures"]["dial_correlation"], "1")),
        },
        {"gate": dataset["gate"].values, "seed": dataset["seed"].values, "cell": ["ConstGate"]},
    )


def verdicts(tables: dict[str, xr.Dataset]) -> list[dict[str, str]]:
    """Decide every claim from the measures under AdamW, under SGD and of the dial: its name and `_TEXTS`."""
    corrected = _corrected(tables["AdamW"])
    return [_verdict(claim, tables, corrected) for claim in CRITERIA["claim"]]


def _verdict(claim: Claim, tables: dict[str, xr.Dataset], corrected: dict[tuple[str, str], float]) -> dict[str, str]:
    name = claim["name"]

    def decided(verdict: str, reason: str) -> dict[str, str]:
        texts = {key: str(claim.get(key, "")) for key in ("name", "says", "larger", "cause")}
        return texts | {"verdict": verdict, "reason": reason}

    data = claim.get("data", "AdamW")
    if data not in tables:
        return decided(UNDECIDED, f"no runs of the kind {data}")
    table = tables[data]
    missing = [cell for cell in _cells(claim) if cell not in table["cell"].values]
    if missing:
        return decided(UNDECIDED, f"no {', '.join(missing)}")
    needed = [condition["measure"] for condition in claim.get("conditions", [claim])]
    unknown = [name for name in needed if name not in table]
    if unknown:
        return decided(UNDECIDED, f"not measured: {', '.join(unknown)}")
    weak = _untrained(table, _cells(claim))
    if weak:
        return decided(UNDECIDED, f"untrained: {weak}")
    if claim["rule"] == "each":
        return decided(*_each(claim, table))
    if table.sizes["seed"] < FEWEST:
        return decided(UNDECIDED, f"too few seeds: {table.sizes['seed']} of {FEWEST}")
    measured = table[claim["measure"]]
    if claim["measure"] == "early_window" and bool((measured == table.attrs["longest_lag"]).all()):
        return decided(UNDECIDED, f"saturated: every window is {table.attrs['longest_lag']:g}, the longest lag")
    p = {cell: corrected[name, cell] for cell in CRITERIA["heterogeneous"]}
    ranges = "; ".join(f"{cell} {_range(measured.sel(cell=cell))}" for cell in table["cell"].values)
    tested = ", ".join(f"{cell} p = {value:.2g}" for cell, value in p.items())
    return decided(HOLDS if max(p.values()) <= CRITERIA["level"] else FAILS, f"{ranges}; {tested}")


def _cells(claim: Claim) -> list[str]:
    """Return the cells to which a claim refers."""
    every = [*CRITERIA["homogeneous"], *CRITERIA["heterogeneous"]]
    named = claim.get("cells", "all")
    return {"all": every, **CRITERIA}[named] if isinstance(named, str) else named


def _untrained(table: xr.Dataset, cells: list[str]) -> str:
    """Name the cells whose loss has hardly fallen; empty if there are none, or if losses are not recorded."""
    if "loss_fall" not in table:
        return ""
    falls = {cell: float(table["loss_fall"].sel(cell=cell).median()) for cell in cells}
    return ", ".join(f"{cell}'s loss fell by {fall:.0%}" for cell, fall in falls.items() if fall < CRITERIA["trained"])


def _each(claim: Claim, table: xr.Dataset) -> tuple[str, str]:
    """Return the verdict of conditions that every cell must meet in enough seeds, and the numbers."""
    need, parts, holds = claim["seeds"], [], True
    if table.sizes["seed"] < need:
        return UNDECIDED, f"too few seeds: {table.sizes['seed']} of {need}"
    for condition in claim["conditions"]:
        for cell in _cells(claim):
            values = table[condition["measure"]].sel(cell=cell).values
            if np.isnan(values).any():
                return UNDECIDED, f"{condition['measure']} of {cell} is unknown"
            met = int(((values >= condition.get("least", -np.inf)) & (values <= condition.get("most", np.inf))).sum())
            holds &= met >= need
            name = condition["measure"].replace("_", " ")
            parts.append(f"{cell} {name} {_range(values)}, {met} of {len(values)}")
    return HOLDS if holds else FAILS, "; ".join(parts)


def _range(values: Iterable[float]) -> str:
    """Return the smallest and the largest value as text."""
    array = np.asarray(values, dtype=float)
    return f"{array.min():.3g} to {array.max():.3g}"


def _corrected(table: xr.Dataset) -> dict[tuple[str, str], float]:
    """Return the p-values of all orders with Holm's correction in each family, by claim and cell."""
    families: dict[str, dict[tuple[str, str], float]] = {}
    sides = {"lower": "less", "higher": "greater"}
    for claim in CRITERIA["claim"]:
        if claim["rule"] == "order" and claim["measure"] in table:
            side = sides[claim["side"]]
            values = {str(cell): table[claim["measure"]].sel(cell=cell).values for cell in table["cell"].values}
            against = [values[cell] for cell in CRITERIA["homogeneous"] if cell in values]
            for cell in (cell for cell in CRITERIA["heterogeneous"] if cell in values and against):
                tests = [mannwhitneyu(values[cell], o, alternative=side, method="exact") for o in against]
                families.setdefault(claim["family"], {})[claim["name"], cell] = max(float(t.pvalue) for t in tests)
    found = {}
    for family in families.values():
        highest = 0.0
        for k, (key, p) in enumerate(sorted(family.items(), key=lambda item: item[1])):
            highest = max(highest, min(1.0, (len(family) - k) * p))
            found[key] = highest
    return found


def claim_numbers(dataset: xr.Dataset) -> Numbers:
    """Yield verdict and numbers of every claim and size."""
    for size in dataset["size"].values:
        at = f" lags to {size}" if dataset.sizes["size"] > 1 else ""
        yield from ((f"{name}{at}", value) for name, value in _numbers_of(dataset.sel(size=size)))


def _numbers_of(one: xr.Dataset) -> Numbers:
    for name in one["claim"].values:
        row = {key: str(one[key].sel(claim=name).values) for key in _TEXTS}
        text = f"{row['verdict']}: {row['says']} {row['reason']}."
        text += f" Decidable with {row['larger']}." if row["verdict"] == UNDECIDED else ""
        yield str(name), text + (f" Cause: {row['cause']}." if row["cause"] and row["verdict"] == FAILS else "")
    if "dial_drop" in one:
        yield "dial: gates", short(one["gate"])
        yield from ((f"dial: {key}", short(one[f"dial_{key}"].median("seed"))) for key in ("drop", "recovered", "loss"))


def draw_claims(dataset: xr.Dataset) -> figures.Figure:
    """Draw the measures of every network by cell, the dial and the verdicts, at the largest size."""
    one = dataset.isel(size=-1)
    draws = [partial(figures.networks_by_cell, one[name], y=y) for name, y in MEASURES.items() if name in one]
    draws += [partial(figures.dial, one, title="constant gates")] if "dial_drop" in one else []
    return figures.sheet(*draws, partial(figures.verdicts, one, title="verdicts"), columns=4, width=1.85, height=2.1)


#: Measures in the picture, and the labels of their axes.
MEASURES = {
    "drop": "drop, log f(1)/f(L)",
    "power_share": "power's share of the drop",
    "exact_slope_error": "|slope on exact − 1|",
    "early_window": "early window (steps)",
    "block_tail_index": "tail index, blocks of 16",
    "time_scale_spread": r"$\log\tau_{90}/\tau_{10}$",
}
