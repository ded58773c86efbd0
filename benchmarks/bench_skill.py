"""Skill of `advise`: its rankings of pretraining plans against real training of tanh and GRU networks."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from scipy.stats import spearmanr

import learncast as lc
from benchmarks import skill_training as training
from benchmarks.skill_baselines import closed_form, rule_of_thumb
from benchmarks.skill_pools import HELD_OUT, TUNING, pool
from learncast import advise

RESULTS = Path(__file__).parent / "results" / "skill.json"
#: Pools, cells, optimisers and seeds of each preset; extras are measured on one seed of few pools.
PRESETS: dict[str, dict[str, Any]] = {
    "full": {"pools": (0, 1, 2, 3, 4, 5), "kinds": ("tanh", "gru"), "seeds": (0, 1, 2), "extras": ("relu", "lstm")},
    "smoke": {"pools": (0,), "kinds": ("tanh",), "seeds": (0,), "extras": ()},
}
OPTIMIZERS = ("sgd", "adam")
#: Pools on which the extra cells are measured.
EXTRA_POOLS = (0, 1)
ACCURACY = training.ACCURACIES[-1]
CAP = 0.8


def rows(preset: str | None = None, from_file: bool = False) -> Iterator[tuple[str, str, str]]:
    """The table; stored results are printed unless a preset is asked for."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        if preset is None or from_file:
            if not RESULTS.is_file():
                yield "no stored results: run python -m benchmarks skill --preset full", "", ""
                return
            stored = json.loads(RESULTS.read_text())
        else:
            stored = _measured(preset)
        yield from _table(stored)
    finally:
        torch.set_num_threads(before)


def _jobs(preset: str) -> list[tuple[int, str, str, int, list[int]]]:
    """(pool, cell, optimiser, repeat, seeds), every pool once before the repeats that give the noise ceiling."""
    p = PRESETS[preset]
    main = [(k, kind, rule, 0, list(p["seeds"])) for k in p["pools"] for kind in p["kinds"] for rule in OPTIMIZERS]
    again = [(k, kind, rule, 1, [0]) for k, kind, rule, _, _ in main]
    return main + again + [(k, kind, rule, 0, [0]) for k in EXTRA_POOLS for kind in p["extras"] for rule in OPTIMIZERS]


def _measured(preset: str) -> dict[str, Any]:
    """Train what is not stored yet, and forecast all of it; the full preset is stored as it goes."""
    keep = preset == "full"
    stored = json.loads(RESULTS.read_text()) if keep and RESULTS.is_file() else {"runs": {}}
    for place, kind, rule, repeat, seeds in _jobs(preset):
        key = f"{place}/{kind}/{rule}/{repeat}"
        if key not in stored["runs"]:
            begun = time.process_time()
            found = training.measured(kind, rule, *pool(place), seeds, repeat)
            stored["runs"][key] = {**found, "seeds": seeds, "seconds": round(time.process_time() - begun, 1)}
            _store(stored, keep)
    stored["forecasts"] = {}
    for place, kind, rule, repeat, seeds in _jobs(preset):
        if repeat == 0:
            key = f"{place}/{kind}/{rule}/{repeat}"
            stored["forecasts"][key] = [_forecast(place, kind, rule, seed) for seed in seeds]
            _store(stored, keep)
    stored["speed"] = {kind: _speed(kind, stored) for kind in PRESETS[preset]["kinds"]}
    _store(stored, keep)
    return stored


def _store(stored: dict[str, Any], keep: bool) -> None:
    if keep:
        RESULTS.parent.mkdir(exist_ok=True)
        draft = RESULTS.with_suffix(".part")
        draft.write_text(json.dumps(stored))
        draft.replace(RESULTS)


def _forecast(place: int, kind: str, rule: str, seed: int) -> dict[str, Any]:
    """What the advice says, as places in the list of plans, and what the simpler ways say."""
    target, candidates = pool(place)
    model, rate = training.start(kind, seed), training.RATES[kind, rule]
    begun = time.process_time()
    how = lc.Training(rate, optimizer="gd" if rule == "sgd" else rule, batch=training.BATCH)
    terms = lc.advice.AdviceTerms(stops=tuple(training.STOPS))
    advice = advise(model, target, candidates, how, goal=ACCURACY, terms=terms, log=lambda text: None)
    seconds = time.process_time() - begun
    names = ["no pretraining", *(f"{c.name} to {s:.0%}" for c in candidates for s in training.STOPS)]
    scores = advice["score"].sel(plan=names).values
    # The target itself with its optimiser restarted was not trained here.
    early = ~(advice["stop"] > CAP) & np.isfinite(advice["score"])
    allowed = advice.dataset.where(early, drop=True)["plan"].values
    ranked = [names.index(str(name)) for name in allowed if name in names]
    closed = closed_form(model, target, candidates, rate, ACCURACY)
    return {
        "scores": [_number(v) for v in scores],
        "recommended": ranked[0] if ranked else 0,
        "shortlist": ranked[:3] or [0],
        "closed": [_number(v) for v in closed],
        "thumb": rule_of_thumb(candidates),
        "class": advice.forecast_class,
        "seconds": seconds,
    }


def _number(value: float) -> float | None:
    return round(float(value), 5) if math.isfinite(value) else None


def _array(values: list[float | None]) -> np.ndarray:
    return np.array([math.inf if v is None else v for v in values])


def _speed(kind: str, stored: dict[str, Any]) -> dict[str, float]:
    """Processor time of the advice over that of three direct trainings at batch 256, for each optimiser."""
    found = {}
    for rule in OPTIMIZERS:
        key = f"0/{kind}/{rule}/0"
        target, _ = pool(0)
        model = training.start(kind, 0)
        source = lc.training.Source.of(target)
        make = torch.optim.SGD if rule == "sgd" else torch.optim.Adam
        optimizer, times = make(model.parameters(), lr=training.RATES[kind, rule]), []
        for step in range(20):
            begun = time.process_time()
            x, y, _ = source.batch(256, (0, 0), step, torch.float32)
            optimizer.zero_grad()
            ((model(x) - y).pow(2).sum() / 512).backward()
            optimizer.step()
            times.append(time.process_time() - begun)
        direct = stored["runs"][key]["steps"][0][0][-1]
        found[rule] = stored["forecasts"][key][0]["seconds"] / (3 * direct * float(np.median(times)))
    return found


def _scored(order: np.ndarray, real: np.ndarray, recommended: int, shortlist: list[int]) -> dict[str, float]:
    given_up = np.where(np.isinf(real), training.CENSOR * real[0], real)
    best = given_up.min()
    large = 1e9
    rho = spearmanr(np.where(np.isinf(order), large, order), np.where(np.isinf(real), large, real)).statistic
    return {
        "rho": float(rho),
        "top-1": float(int(np.argmin(order)) == int(np.argmin(given_up))),
        "regret": float(given_up[int(np.argmin(order))] / best),
        "capped": float(given_up[recommended] / best),
        "of 3": float(given_up[shortlist].min() / best),
    }


def _capped(order: np.ndarray) -> tuple[int, list[int]]:
    """The best plan within the cap, and the best three."""
    allowed = np.array([True, *(s <= CAP for _ in range(6) for s in training.STOPS)])
    places = [int(k) for k in np.argsort(np.where(allowed, order, np.inf), kind="stable")[:3]]
    return places[0], places


def _rankings(stored: dict[str, Any]) -> list[dict[str, Any]]:
    """Every ranking with the scores of each way to order the plans."""
    found = []
    for key, forecasts in stored["forecasts"].items():
        place, kind, rule, _ = key.split("/")
        for index, f in enumerate(forecasts):
            real = _array([row[-1] for row in stored["runs"][key]["steps"][index]])
            ours, closed = _array(f["scores"]), _array(f["closed"])
            ways = {
                "ours": _scored(ours, real, f["recommended"], f["shortlist"]),
                "closed form, b fitted to the spectrum": _scored(closed, real, *_capped(closed)),
                "rule of thumb: largest ||Cov(x,y)||, stop at 80%": _one(f["thumb"], real),
                "always direct": _one(0, real),
            }
            again = stored["runs"].get(f"{place}/{kind}/{rule}/1")
            if again is not None and stored["runs"][key]["seeds"][index] == 0:
                repeat = _array([row[-1] for row in again["steps"][0]])
                lanes = [*f["shortlist"], 0]
                ways["ours, then its shortlist and direct raced on one seed"] = _one(
                    lanes[int(np.argmin(repeat[lanes]))], real
                )
                ways["noise ceiling: a repeat, new batches"] = _scored(repeat, real, *_capped(repeat))
            found.append({"pool": int(place), "kind": kind, "rule": rule, "ways": ways})
    return found


def held_out() -> list[dict[str, Any]]:
    """Rankings, from the stored results, of the pools that were not used for tuning."""
    every = _rankings(json.loads(RESULTS.read_text()))
    return [r for r in every if r["kind"] in ("tanh", "gru") and r["pool"] in HELD_OUT]


def _one(place: int, real: np.ndarray) -> dict[str, float]:
    given_up = np.where(np.isinf(real), training.CENSOR * real[0], real)
    ratio = float(given_up[place] / given_up.min())
    top = float(place == int(np.argmin(given_up)))
    return {"rho": math.nan, "top-1": top, "regret": ratio, "capped": ratio, "of 3": math.nan}


def _line(chosen: list[dict[str, Any]], way: str) -> str:
    scores = [r["ways"][way] for r in chosen if way in r["ways"]]
    cells = []
    for name in ("rho", "top-1", "regret", "capped", "of 3"):
        values = [s[name] for s in scores]
        cells.append("  -  " if not values or math.isnan(values[0]) else f"{np.mean(values):5.2f}")
    return " ".join(f"{cell:>6}" for cell in cells)


HEADER = "   rho  top-1 regret capped   of 3"


def _table(stored: dict[str, Any]) -> Iterator[tuple[str, str, str]]:
    every = _rankings(stored)
    main = [r for r in every if r["kind"] in ("tanh", "gru")]
    plans = 1 + 6 * len(training.STOPS)
    yield (
        f"{len(main)} rankings of {plans} plans, {training.UNITS} units, loss to {1 - ACCURACY:.0%} of its start",
        "",
        "",
    )
    yield f"tuned on pools {TUNING}: that adaptive optimisers see batches, and no margin; judged on {HELD_OUT}", "", ""
    yield (
        "regret: steps of the choice / of the best plan; capped: stops at most 80%; of 3: best of the shortlist",
        "",
        "",
    )
    yield (
        "single-channel integration tasks; rankings of one pool are alike, so there are three pools on each side",
        "",
        "",
    )
    yield f"plans slower than {training.CENSOR:g} x direct training were given up and count as that slow", "", ""
    groups = {
        "held-out pools": [r for r in main if r["pool"] in HELD_OUT],
        "tuning pools": [r for r in main if r["pool"] in TUNING],
        "all pools": main,
    }
    for title, chosen in groups.items():
        if not chosen:
            continue
        yield f"{title} ({len(chosen)} rankings)", HEADER, ""
        for way in dict.fromkeys(way for r in every for way in r["ways"]):
            goal = (
                "goal rho >= .75, capped <= 1.12, of 3 <= 1.05" if way == "ours" and title == "held-out pools" else ""
            )
            yield f"  {way}", _line(chosen, way), goal
    pairs = sorted({(r["kind"], r["rule"]) for r in every}, key=str)
    yield "by cell and optimiser: ours (and always direct, capped)", HEADER, ""
    for kind, rule in pairs:
        chosen = [r for r in every if (r["kind"], r["rule"]) == (kind, rule)]
        direct = np.mean([r["ways"]["always direct"]["capped"] for r in chosen])
        yield f"  {kind}, {rule} ({len(chosen)} rankings)", _line(chosen, "ours"), f"always direct {direct:.2f}"
    for kind, ratios in stored.get("speed", {}).items():
        for rule, ratio in ratios.items():
            yield (
                f"advice on {plans} plans over 3 direct trainings at batch 256: {kind}, {rule}",
                f"{ratio:.2f}",
                "goal < 1",
            )
    spent = sum(run["seconds"] for run in stored["runs"].values()) / 60
    yield "processor time of all trainings", f"{spent:.0f} min", ""
