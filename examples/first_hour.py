"""Questions of a first hour with learncast, on simulated data, each compared with plain numpy or torch.

Run with: python examples/first_hour.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import h5py
import numpy as np
import pandas as pd
import scipy.io
import xarray as xr

import learncast as lc

RNG = np.random.default_rng(7)
FOLDER = Path(tempfile.mkdtemp())
#: Spike counts of 10 neurons in 120 trials of 25 bins, reaches in two directions, and choices of three kinds.
RATES = RNG.poisson(3.0, size=(120, 25, 10)).astype(float)
WEIGHTS = RNG.normal(size=(10, 2))
REACH = 0.05 * RATES.sum(axis=1) @ WEIGHTS + 0.3 * RNG.normal(size=(120, 2))
SPEED = np.cumsum(0.05 * RATES @ WEIGHTS, axis=1)
CHOICE = RNG.choice(3, size=120, p=[0.85, 0.12, 0.03])
TUNED = RATES + (0.15 * np.eye(3)[CHOICE] @ RNG.normal(size=(3, 10)))[:, None, :]
TASKS: list[tuple[str, Callable[[], tuple[float, float]]]] = []


def question(text: str) -> Callable[[Callable[[], tuple[float, float]]], Callable[[], tuple[float, float]]]:
    """Register a function that returns learncast's number and the one of plain numpy or torch."""

    def register(ask: Callable[[], tuple[float, float]]) -> Callable[[], tuple[float, float]]:
        TASKS.append((text, ask))
        return ask

    return register


def plain(
    found: lc.Forecast,
    x: np.ndarray,
    y: np.ndarray,
    share: float = 0.95,
    r2: float | None = None,
    decisions: float | None = None,
) -> float:
    """Steps of full-batch descent on raw trials, in numpy, to a share explained, an R² or a share of decisions."""
    x = x[:, None, :] if x.ndim == 2 else x
    y = y[:, None] if y.ndim == 1 else y
    network, steps = found.method.network, x.shape[1]
    memory = 0.0 if isinstance(network, lc.TwoLayer) else network.scalar_recurrence
    if y.ndim == 3:
        kernel = np.array([[memory ** (r - t) if t <= r else 0.0 for t in range(steps)] for r in range(steps)])
    else:
        kernel, y = memory ** np.arange(steps)[None, ::-1], y[:, None]
    pooled, targets = np.einsum("ptc,rt->prc", x, kernel).reshape(-1, x.shape[2]), y.reshape(-1, y.shape[2])
    first, second = (weights.copy() for weights in network.maps)
    trials, rate = len(x), found.learning_rate

    def loss(m: np.ndarray) -> float:
        return float(0.5 * ((pooled @ m.T - targets) ** 2).sum() / trials)

    zero = loss(np.zeros((targets.shape[1], pooled.shape[1])))
    least = loss(np.linalg.lstsq(pooled, targets, rcond=None)[0].T)
    goal = least + (1 - share) * (zero - least) if r2 is None else (1 - r2) * zero
    for n in range(200_000):
        right = ((pooled @ (second @ first).T).argmax(axis=1) == targets.argmax(axis=1)).mean()
        if loss(second @ first) <= goal if decisions is None else right >= decisions:
            return n
        slope = (pooled @ (second @ first).T - targets).T @ pooled / trials
        first, second = first - rate * second.T @ slope, second - rate * slope @ first.T
    return np.inf


def steps(x: np.ndarray, y: np.ndarray, *arguments: object, **options: object) -> tuple[float, float]:
    """Steps by learncast and in plain numpy."""
    found = lc.forecast(x, y, *arguments, **options)
    return found.steps.descent, plain(found, x, y)


def from_file(name: str, **options: object) -> tuple[float, float]:
    """Steps for a file, and for its arrays in numpy."""
    return lc.forecast(FOLDER / name, **options).steps.descent, plain(lc.forecast(RATES, REACH), RATES, REACH)


def command(*arguments: str) -> dict[str, object]:
    """The JSON answer of the command line."""
    run = [sys.executable, "-m", "learncast", *arguments, "--json"]
    return json.loads(subprocess.run(run, capture_output=True, text=True, check=True).stdout)


@question("How many steps do my trials take?")
def _() -> tuple[float, float]:
    return steps(RATES, REACH)


@question("... with one number per trial?")
def _() -> tuple[float, float]:
    return steps(RATES, REACH[:, 0])


@question("... without time?")
def _() -> tuple[float, float]:
    return steps(RATES.mean(axis=1), REACH)


@question("... with a target at every bin?")
def _() -> tuple[float, float]:
    return steps(RATES, SPEED)


@question("... to an R² of 0.9?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES, REACH, goal=lc.R2(0.9))
    return found.steps.descent, plain(found, RATES, REACH, r2=0.9)


@question("... to 85% correct decisions?")
def _() -> tuple[float, float]:
    goal = lc.training.DecisionAccuracy(0.85, every=1)
    found = lc.forecast(TUNED, CHOICE, goal=goal)
    return found.steps.descent, plain(found, TUNED, np.eye(3)[CHOICE], decisions=0.85)


@question("... averaged over bins of 50 ms instead of 10 ms?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES, REACH, rate=100, bin_width=0.05)
    return found.steps.descent, plain(found, RATES.reshape(120, 5, 5, 10).mean(axis=2), REACH)


@question("... at my learning rate?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES, REACH, learning_rate=1e-6)
    return found.steps.descent, plain(found, RATES, REACH)


@question("... with my network?")
def _() -> tuple[float, float]:
    found = lc.forecast((RATES, REACH), lc.LinearRNN.random(10, 20, 2, recurrence=0.8, scale=0.05), goal=0.9)
    return found.steps.descent, plain(found, RATES, REACH, 0.9)


@question("... with centred trials?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES, REACH, centre=True)
    return found.steps.descent, plain(found, RATES - RATES.mean(axis=0), REACH - REACH.mean(axis=0))


@question("... with biases?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES, REACH, bias=True)
    return found.steps.descent, plain(found, np.concatenate([RATES, np.ones((120, 25, 1))], axis=2), REACH)


@question("... and what do biases change?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES, REACH, bias=True)
    return found.without_bias.steps.descent, plain(found.without_bias, RATES, REACH)


@question("... with axes (time, trial, channel)?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES.transpose(1, 0, 2), REACH, axes="time trial channel")
    return found.steps.descent, plain(found, RATES, REACH)


@question("... with gaps set to zero?")
def _() -> tuple[float, float]:
    gaps = np.where(RNG.random(RATES.shape) < 0.01, np.nan, RATES)
    found = lc.forecast(gaps, REACH, fill="zero")
    return found.steps.descent, plain(found, np.nan_to_num(gaps), REACH)


@question("... with incomplete trials dropped?")
def _() -> tuple[float, float]:
    gaps = RATES.copy()
    gaps[[3, 50], 2, 1] = np.nan
    kept = np.isfinite(gaps).all(axis=(1, 2))
    found = lc.forecast(gaps, REACH, fill="drop")
    return found.steps.descent, plain(found, RATES[kept], REACH[kept])


@question("... from an .npz file?")
def _() -> tuple[float, float]:
    np.savez(FOLDER / "day.npz", inputs=RATES, targets=REACH)
    return from_file("day.npz")


@question("... from a .mat file with a struct?")
def _() -> tuple[float, float]:
    scipy.io.savemat(FOLDER / "day.mat", {"session": {"rates": RATES, "reach": REACH}})
    return from_file("day.mat", inputs="session.rates", targets="session.reach")


@question("... from a NetCDF file?")
def _() -> tuple[float, float]:
    arrays = {"rates": (("trial", "neuron", "time"), RATES.transpose(0, 2, 1)), "reach": (("trial", "output"), REACH)}
    xr.Dataset(arrays).to_netcdf(FOLDER / "day.nc")
    return from_file("day.nc", inputs="rates", targets="reach")


def tidy() -> pd.DataFrame:
    """A row for every trial, time in seconds and channel."""
    trial, step, unit = (part.ravel() for part in np.meshgrid(*map(np.arange, RATES.shape), indexing="ij"))
    columns = {"trial": trial, "time": 0.04 * step, "channel": unit, "value": RATES.ravel()}
    return pd.DataFrame({**columns, "target x": REACH[trial, 0], "target y": REACH[trial, 1]})


@question("... from a tidy table?")
def _() -> tuple[float, float]:
    return lc.forecast(tidy()).steps.descent, plain(lc.forecast(RATES, REACH), RATES, REACH)


@question("... from a .csv file?")
def _() -> tuple[float, float]:
    tidy().to_csv(FOLDER / "day.csv", index=False)
    return from_file("day.csv")


@question("... from a continuous recording in an NWB file, cut at events?")
def _() -> tuple[float, float]:
    with h5py.File(FOLDER / "day.nwb", "w") as file:
        file["acquisition/rates"] = RATES.reshape(-1, 10)
        file["intervals/go"], file["reach"] = np.arange(120) * 0.25, REACH
    names = {"inputs": "acquisition/rates", "events": "intervals/go", "targets": "reach"}
    return from_file("day.nwb", **names, rate=100.0, window=(0.0, 0.25))


@question("Does the command line say the same?")
def _() -> tuple[float, float]:
    np.savez(FOLDER / "day.npz", inputs=RATES, targets=REACH)
    found = lc.forecast(RATES, REACH)
    return float(command("forecast", str(FOLDER / "day.npz"))["descent_steps"]), plain(found, RATES, REACH)  # type: ignore[arg-type]


@question("... and at another learning rate?")
def _() -> tuple[float, float]:
    np.savez(FOLDER / "day.npz", inputs=RATES, targets=REACH)
    answer = command("forecast", str(FOLDER / "day.npz"), "--learning-rate", "1e-6")
    return float(answer["descent_steps"]), plain(lc.forecast(RATES, REACH, learning_rate=1e-6), RATES, REACH)  # type: ignore[arg-type]


@question("What is the loss along the way?")
def _() -> tuple[float, float]:
    found = lc.forecast(RATES, REACH)
    curve = found.learning_curve()
    pooled = np.einsum("ptc,t->pc", RATES, found.method.network.scalar_recurrence ** np.arange(25)[::-1])
    first, second = found.method.network.maps
    return float(curve["loss"][0]), float(0.5 * ((pooled @ (second @ first).T - REACH) ** 2).sum(axis=1).mean())


@question("Is my learning rate too large, and which is safe?")
def _() -> tuple[float, float]:
    network = lc.forecast(RATES, REACH).method.network
    try:
        lc.forecast((RATES, REACH), network, learning_rate=1.0, goal=0.95)
    except lc.AssumptionViolated as error:
        safe = lc.forecast((RATES, REACH), network, learning_rate=error.learning_rate, goal=0.95)
        return error.steps, plain(safe, RATES, REACH)
    raise AssertionError("a learning rate of 1 must be refused")


@question("How often is the most frequent choice made?")
def _() -> tuple[float, float]:
    return lc.forecast(TUNED, CHOICE).classes.base_rate, float(np.bincount(CHOICE).max() / 120)


@question("What does a constant answer explain?")
def _() -> tuple[float, float]:
    return lc.forecast(TUNED, CHOICE).classes.constant_r2, float(((np.bincount(CHOICE) / 120) ** 2).sum())


@question("How well are choices decoded, each class counting the same?")
def _() -> tuple[float, float]:
    found = lc.forecast(TUNED, CHOICE)
    end = lc.descend(found.target, found.method.network, found.training, steps=int(found.steps.descent))
    answers = end.network_at(np.inf).respond(TUNED).argmax(axis=1)
    return found.classes.balanced_accuracy, float(np.mean([(answers[k == CHOICE] == k).mean() for k in range(3)]))


def with_torch(name: str, rate: float, loss: str) -> tuple[float, float]:
    """Steps of an optimiser by learncast and in torch."""
    import torch

    x, y = RATES - RATES.mean(axis=0), REACH - REACH.mean(axis=0)
    network = lc.LinearRNN.random(10, 16, 2, scale="torch", recurrence=0.96)
    training = lc.Training(rate, optimizer=name, loss=loss)
    found = lc.forecast((x, y), network, training, goal=lc.R2(0.6))
    first, second = (torch.tensor(np.array(w), requires_grad=True) for w in network.maps)
    pooled = torch.tensor(np.einsum("ptc,t->pc", x, 0.96 ** np.arange(25)[::-1]))
    kinds = {
        "momentum": lambda w: torch.optim.SGD(w, rate, momentum=0.9),
        "adam": lambda w: torch.optim.Adam(w, rate),
        "adamw": lambda w: torch.optim.AdamW(w, rate),
        "rmsprop": lambda w: torch.optim.RMSprop(w, rate),
        "gd": lambda w: torch.optim.SGD(w, rate),
    }
    rule, targets = kinds[name]([first, second]), torch.tensor(y)
    for n in range(100_000):
        error = pooled @ (second @ first).T - targets
        if float((error.detach() ** 2).sum() / (targets**2).sum()) <= 0.4:
            return found.steps.descent, n
        rule.zero_grad()
        ((error**2).mean() if loss == "mse" else 0.5 * (error**2).sum(dim=1).mean()).backward()
        rule.step()
    return found.steps.descent, np.inf


for _name, _rate, _loss in (
    ("gd", 2e-4, "mse"),
    ("momentum", 2e-5, "half_mse"),
    ("adam", 1e-3, "mse"),
    ("adamw", 1e-3, "half_mse"),
    ("rmsprop", 1e-3, "half_mse"),
):
    TASKS.append(
        (f"How many steps does {_name} of torch take ({_loss})?", lambda n=_name, r=_rate, s=_loss: with_torch(n, r, s))
    )


def main() -> int:
    """Answer every question; return the number of answers that differ."""
    wrong = 0
    for number, (text, ask) in enumerate(TASKS, 1):
        own, other = ask()
        same = bool(np.isclose(own, other, rtol=1e-9, atol=0.0))
        wrong += not same
        print(f"{number:2} {'same' if same else 'DIFFERS'}  {own:.6g}  {other:.6g}  {text}", flush=True)
    return wrong


if __name__ == "__main__":
    sys.exit(main())
