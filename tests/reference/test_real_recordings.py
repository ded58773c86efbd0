"""Step counts on recorded data, real and simulated, against plain descent on the same trials."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from sklearn import datasets
from typer.testing import CliRunner

import learncast as lc
from learncast.cli import app

Array = np.ndarray[Any, Any]
Given = dict[str, Any]

# --- the reference: recorded trials and descent on them ---------------------------------------------------------------


def trials(given: Given) -> tuple[Array, Array, Array]:
    """Inputs and targets at every step and which of them count, from any form of trials."""
    x, y = given["inputs"], given["targets"]
    mask, lengths, ending = given.get("mask"), given.get("lengths"), True
    if isinstance(x, list):
        lengths = np.array([len(row) for row in x])
        x = np.array([np.pad(row, ((0, max(lengths) - len(row)), (0, 0))) for row in x])
        if isinstance(y, list):
            y = np.array([np.pad(row, ((0, max(lengths) - len(row)), (0, 0))) for row in y])
    y = np.asarray(y)
    if given.get("labels") or (y.ndim == 1 and (y.dtype.kind in "iU")):
        classes = given.get("classes", sorted(set(y.ravel().tolist())))
        y = (y[..., None] == np.array(range(classes) if isinstance(classes, int) else classes)).astype(float)
    ending = y.ndim == 2
    P, T = x.shape[:2]
    live = np.arange(T) < (np.full(P, T) if lengths is None else lengths)[:, None]
    if ending:  # aligned at the end, with zeros before a short trial
        shift = np.zeros(P, int) if lengths is None else T - np.asarray(lengths)
        x = np.array(
            [np.roll(np.where(a[:, None], row, 0.0), s, axis=0) for a, row, s in zip(live, x, shift, strict=True)]
        )
        live = np.arange(T) >= shift[:, None]
        y = np.concatenate([np.zeros((P, T - 1, y.shape[1])), y[:, None]], axis=1)
        counts = np.broadcast_to(np.arange(T) == T - 1, (P, T))
    else:
        counts = live if mask is None or np.ndim(mask) == 1 else live & np.asarray(mask, bool)
    if mask is not None and np.ndim(mask) == 1:
        kept = np.asarray(mask, bool)
        x, y, live, counts = x[kept], y[kept], live[kept], counts[kept]
    x, y = np.where(live[:, :, None], x, 0.0), np.where(counts[:, :, None], y, 0.0)
    if given.get("centre"):
        x, y = (np.where(on[:, :, None], v - v.sum(0) / np.maximum(on.sum(0), 1)[:, None], 0.0)
                for v, on in ((x, live), (y, counts)))  # fmt: skip
    if given.get("scale") == "channel":
        x = x / np.sqrt((x**2).sum((0, 1)) / live.sum())
    return x, y, counts


class Plain:
    """Full-batch descent on half the mean squared error: A - rate C'G, C - rate GA' with G = E[(CAz - y) z'].

    E[(CAz - y) z'] = CAS - R with S = E[zz'] and R = E[yz'], where z is the pooled input of a readout.
    `test_the_reference_is_descent_on_trials` takes steps without that shortcut.
    """

    def __init__(self, given: Given, b: float):
        x, y, counts = trials(given)
        z, rows, goals = np.zeros((len(x), x.shape[2])), [], []
        for t in range(x.shape[1]):
            z = b * z + x[:, t]
            rows.append(z[counts[:, t]])
            goals.append(y[counts[:, t], t])
        self.z, self.y = (np.concatenate(part) / np.sqrt(len(x)) for part in (rows, goals))
        self.S, self.R = self.z.T @ self.z, self.y.T @ self.z
        # 1e-9: redundant directions have singular values near 1e-16, real ones far above
        self.best = np.linalg.lstsq(self.z, self.y, rcond=1e-9)[0].T
        self.nothing = float(((self.z @ self.best.T) ** 2).sum())
        self.floor = float(((self.z @ self.best.T - self.y) ** 2).sum())

    def loss(self, A: Array, C: Array) -> float:
        return 0.5 * (self.floor + float(((self.z @ (C @ A - self.best).T) ** 2).sum()))

    def step(self, A: Array, C: Array, rate: float) -> tuple[Array, Array]:
        G = C @ A @ self.S - self.R
        return A - rate * C.T @ G, C - rate * G @ A.T

    def after(self, A: Array, C: Array, rate: float, steps: int) -> tuple[Array, Array]:
        for _ in range(steps):
            A, C = self.step(A, C, rate)
        return A, C

    def count(self, A: Array, C: Array, rate: float, accuracy: float, most: int = 400_000) -> float:
        """Steps until the excess loss is (1 - accuracy)^2 of that of the zero map; inf if it is not reached."""
        allowed, S, R, best = (1 - accuracy) ** 2 * self.nothing, self.S, self.R, self.best
        for n in range(most):
            M = C @ A
            G = M @ S - R
            excess = np.vdot(M - best, G)  # tr (M - M*) S (M - M*)': R = M* S
            if excess <= allowed:
                return n
            if not excess < 1e6 * self.nothing + 1e3 * self.floor:
                return np.inf
            A, C = A - rate * (C.T @ G), C - rate * (G @ A.T)
        return np.inf

    @property
    def stable(self) -> float:
        """The largest rate that is safe at the balanced optimum: 2 / lmax(S^1/2 (s1(M) + |M|) S^1/2)."""
        values, vectors = np.linalg.eigh(self.best.T @ self.best)
        size = np.sqrt(np.clip(values, 0, None))
        inner = (vectors * (size + size.max())) @ vectors.T
        return float(2 / np.linalg.eigvals(self.S @ inner).real.max())


# --- recordings, real and simulated -----------------------------------------------------------------------------------


def standard(values: Array) -> Array:
    return (values - values.mean(axis=0)) / values.std(axis=0)


def digits(**options: Any) -> Given:
    found = datasets.load_digits()
    return {"inputs": found.images / 16, "targets": found.target, "classes": 10, **options}


def table(loader: Callable[[], Any], *, steps: bool, classes: bool = True, **options: Any) -> Given:
    """Columns of a table as steps of one channel, or as channels of one step."""
    found = loader()
    x, y = standard(found.data), found.target if classes else standard(found.target.reshape(len(found.data), -1))
    return {"inputs": x[:, :, None] if steps else x[:, None, :], "targets": y, **options}


def simulated(kind: str) -> Given:
    rng = np.random.default_rng(len(kind) * 1009 + sum(kind.encode()))
    P, T, c, o = 120, 10, 5, 2
    x = rng.normal(size=(P, T, c)) * np.linspace(1.5, 0.5, c)
    mix = rng.normal(size=(o, c))
    z = np.zeros_like(x)
    for t in range(T):
        z[:, t] = x[:, t] + (0.8 * z[:, t - 1] if t else 0)
    each = z @ mix.T + 0.3 * rng.normal(size=(P, T, o))
    y = each[:, -1]
    label = (z[:, -1] @ rng.normal(size=(c, 4)) + 0.5 * rng.normal(size=(P, 4))).argmax(axis=1)
    lengths = rng.integers(4, T + 1, size=P)
    if kind == "one-hot":
        return {"inputs": x, "targets": np.eye(4)[label]}
    if kind == "labels":
        return {"inputs": x, "targets": label, "classes": 4}
    if kind == "words, centred, scaled":
        return {
            "inputs": x + 1,
            "targets": np.array(["ab", "cd", "ef", "gh"])[label],
            "centre": True,
            "scale": "channel",
        }
    if kind == "labels at every step":
        return {"inputs": x, "targets": (each[:, :, 0] > 0).astype(int), "labels": True, "classes": 2}
    if kind == "continuous":
        return {"inputs": x, "targets": y}
    if kind == "every step":
        return {"inputs": x, "targets": each}
    if kind == "mask of trials":
        return {"inputs": x, "targets": y, "mask": rng.random(P) < 0.6, "centre": True}
    if kind == "mask of steps":
        counted = rng.random((P, T)) < 0.4
        return {"inputs": x, "targets": np.where(counted[:, :, None], each, np.nan), "mask": counted}
    if kind == "lengths":
        ends = each[np.arange(P), lengths - 1]
        return {"inputs": x, "targets": ends, "lengths": lengths}
    if kind == "lengths, every step":
        return {"inputs": x, "targets": each, "lengths": lengths, "centre": True}
    if kind == "more channels than trials":
        wide = rng.normal(size=(30, 6, 40))
        return {"inputs": wide, "targets": rng.normal(size=(30, 2))}
    if kind == "constant and double channels":
        odd = np.concatenate([x, x[:, :, :1] * -2, np.full((P, T, 1), 0.3)], axis=2)
        return {"inputs": odd, "targets": y}
    if kind == "rank-deficient targets":
        return {"inputs": x, "targets": np.stack([y[:, 0], 2 * y[:, 0], y[:, 1]], axis=1)}
    if kind == "noise floor":
        return {"inputs": x, "targets": y + 20 * rng.normal(size=y.shape)}
    if kind == "one channel":
        return {"inputs": x[:, :, :1], "targets": z[:, -1, :1] + 0.2 * rng.normal(size=(P, 1))}
    if kind == "one channel, every step":
        return {"inputs": x[:, :, :1], "targets": each[:, :, :1]}
    if kind == "firing rates":
        rates = 5 + rng.normal(size=(300, 80, 6)) * np.linspace(1.5, 0.5, 6)
        pool = np.einsum("ptc,t->pc", rates - 5, 0.95 ** np.arange(79, -1, -1))
        return {"inputs": rates, "targets": pool @ rng.normal(size=(6, 2)) / 5 + rng.normal(size=(300, 2))}
    assert kind == "nine classes"
    seen = rng.normal(size=(640, 25, 12)) * np.linspace(1.5, 0.5, 12)
    pool = np.einsum("ptc,t->pc", seen, 0.9 ** np.arange(24, -1, -1))
    choice = (pool @ rng.normal(size=(12, 9)) + 2 * rng.normal(size=(640, 9))).argmax(axis=1)
    return {"inputs": seen, "targets": choice, "classes": 9, "centre": True}


#: name: (trials, recurrence, accuracy)
RECORDINGS: dict[str, tuple[Callable[[], Given], float, float]] = {
    "digits": (lambda: digits(), 0.9, 0.6),
    "digits, centred": (lambda: digits(centre=True), 0.9, 0.6),
    "diabetes, steps": (lambda: table(datasets.load_diabetes, steps=True, classes=False), 0.9, 0.95),
    "diabetes, channels": (lambda: table(datasets.load_diabetes, steps=False, classes=False), 0.9, 0.8),
    "wine": (lambda: table(datasets.load_wine, steps=False), 0.5, 0.9),
    "wine, steps, centred": (lambda: table(datasets.load_wine, steps=True, centre=True), 0.9, 0.9),
    "breast cancer": (lambda: table(datasets.load_breast_cancer, steps=False, centre=True), 0.9, 0.7),
    "iris": (lambda: table(datasets.load_iris, steps=False), 0.9, 0.9),
    "iris, steps, centred": (lambda: table(datasets.load_iris, steps=True, centre=True), 0.9, 0.9),
    "linnerud": (lambda: table(datasets.load_linnerud, steps=False, classes=False), 0.9, 0.9),
    **{
        kind: ((lambda kind=kind: simulated(kind)), 0.95 if kind == "firing rates" else 0.8, 0.9)
        for kind in (
            "one-hot", "labels", "words, centred, scaled", "labels at every step", "continuous", "every step",
            "mask of trials", "mask of steps", "lengths", "lengths, every step", "more channels than trials",
            "constant and double channels", "rank-deficient targets", "noise floor", "one channel",
            "one channel, every step", "firing rates", "nine classes",
        )
    },
}  # fmt: skip
STARTS = ("aligned", "random", "torch", "weights")
HIDDEN = 24


def some(given: Given, chosen: Array) -> Given:
    """Some trials of a recording."""
    per_trial = ("inputs", "targets", "mask", "lengths")
    found = {key: given[key][chosen] if key in per_trial else value for key, value in given.items()}
    if np.asarray(given["targets"]).dtype.kind in "iU" and "classes" not in found:
        found["classes"] = sorted(set(np.ravel(given["targets"]).tolist()))
    return found


def task_of(given: Given, name: str) -> lc.Task:
    return lc.Task.from_samples(**given, name=name)


def started(kind: str, task: lc.Task, b: float) -> lc.LinearRNN:
    c, o = task.inputs, task.outputs
    if kind == "aligned":
        return lc.LinearRNN.aligned(recurrence=b, initial=0.1, hidden_size=HIDDEN, task=task)
    if kind in ("random", "torch"):
        scale: Any = 0.05 if kind == "random" else "torch"
        return lc.LinearRNN.random(c, HIDDEN, o, recurrence=b, scale=scale, rng=3)
    rng = np.random.default_rng(9)
    return lc.LinearRNN(0.1 * rng.normal(size=(HIDDEN, c)), b * np.eye(HIDDEN), 0.02 * rng.normal(size=(o, HIDDEN)))


NETWORKS = {
    "aligned": "initial = 0.1",
    "random": 'initial = "random"\nscale = 0.05\nseed = 3',
    "torch": 'initial = "random"\nscale = "torch"\nseed = 3',
    "weights": 'weights = "net.npz"',
}


def section(folder: Path, given: Given, name: str) -> str:
    """A task of a study; its trials are stored in a file next to it."""
    stem = name.replace(" ", "_")
    arrays = {key: given[key] for key in ("inputs", "targets", "mask", "lengths") if key in given}
    labelled = given.get("labels") or np.asarray(given["targets"]).dtype.kind in "iU"
    np.savez(folder / f"{stem}.npz", **arrays)
    lines = [f'name = "{name}"', f'data = "{stem}.npz"', 'inputs = "inputs"']
    lines += [f'{"labels" if labelled and np.ndim(arrays["targets"]) < 3 else "targets"} = "targets"']
    lines += [f'{key} = "{key}"' for key in ("mask", "lengths") if key in given]
    lines += [f"{key} = {json.dumps(given[key])}" for key in ("centre", "scale", "classes") if key in given]
    return "\n".join(lines) + "\n"


def study(folder: Path, start: str, network: lc.LinearRNN, b: float, rate: float, accuracy: float, tables: str) -> Path:
    if start == "weights":
        weights = (network.input_weights, network.recurrent_weights, network.output_weights)
        names = ("input_weights", "recurrent_weights", "output_weights")
        np.savez(folder / "net.npz", **dict(zip(names, weights, strict=True)))
    recurrence = "" if start == "weights" else f"recurrence = {b}\nhidden_size = {HIDDEN}\n"
    text = f'name = "proof"\n[network]\nkind = "linear-rnn"\n{recurrence}{NETWORKS[start]}\n'
    text += f"[training]\nlearning_rate = {rate!r}\nexplained = {1 - (1 - accuracy) ** 2!r}\nmax_stages = 2\n" + tables
    (folder / "study.toml").write_text(text)
    return folder / "study.toml"


def asked(*arguments: Any) -> Any:
    """The JSON that a command prints, or its error message."""
    found = CliRunner(env={"COLUMNS": "300", "TERM": "dumb"}).invoke(app, [*map(str, arguments), "--json"])
    if found.exit_code == 2:
        return found.stderr
    assert found.exit_code == 0, found.stderr
    return json.loads(found.stdout)


# --- Python and commands against descent ------------------------------------------------------------------------------

#: Recordings that are fast in Python and in commands; the others are slow.
QUICK = ("linnerud", "one channel", "one channel, every step", "one-hot", "labels at every step", "mask of steps",
         "lengths", "lengths, every step", "noise floor", "rank-deficient targets",
         "words, centred, scaled")  # fmt: skip
#: Share of the largest stable rate, for a few hundred to some thousand steps (up to 1e5 for uneven channels).
PACE = {"digits": 0.3, "digits, centred": 0.3, "breast cancer": 0.3, "firing rates": 0.3}


#: Plans of these take a minute or more, so they are made from one start each.
HEAVY = ("digits", "digits, centred", "breast cancer", "more channels than trials", "firing rates", "nine classes")


def pairs(*quick: tuple[str, str], each: tuple[str, ...] = STARTS, heavy: tuple[str, ...] = ()) -> list[Any]:
    """Every recording from these starts, heavy ones from one of them; pairs that are not quick are slow."""
    found = [
        (name, start)
        for number, name in enumerate(RECORDINGS)
        for start in (each if name not in heavy else (each[number % len(each)],))
    ]
    return [
        pytest.param(*pair, marks=() if pair in quick else pytest.mark.slow, id="-".join(pair))
        for pair in dict.fromkeys([*found, *quick])
    ]


class Question:
    """One recording, tasks made of its trials, a start and a learning rate."""

    def __init__(self, name: str, start: str, pace: float | None = None):
        make, self.b, self.accuracy = RECORDINGS[name]
        self.goal = lc.Explained(1 - (1 - self.accuracy) ** 2)
        self.start, self.given = start, {"target": make()}
        given = self.given["target"]
        number = len(given["inputs"])
        self.given["half of it"] = some(given, np.sort(np.random.default_rng(0).permutation(number)[: number // 2]))
        if np.asarray(given["targets"]).dtype.kind == "f":
            self.given["stronger"] = given | {"targets": 1.5 * np.asarray(given["targets"])}
        self.plain = {key: Plain(value, self.b) for key, value in self.given.items()}
        self.tasks = {key: task_of(value, key) for key, value in self.given.items()}
        self.target, self.candidates = self.tasks["target"], [t for k, t in self.tasks.items() if k != "target"]
        self.network = started(start, self.target, self.b)
        self.rate = (pace or PACE.get(name, 0.03)) * self.plain["target"].stable
        self.weights = self.network.input_weights, self.network.output_weights
        # near the stable limit descent is fast or does not converge
        most = 40_000 if pace else 400_000
        self.direct = self.plain["target"].count(*self.weights, self.rate, self.accuracy, most)

    def study(self, folder: Path) -> Path:
        tables = "".join(
            ("\n[target]\n" if name == "target" else "\n[[candidates]]\n") + section(folder, given, name)
            for name, given in self.given.items()
        )
        return study(folder, self.start, self.network, self.b, self.rate, self.accuracy, tables)

    def plan(self, **options: Any) -> lc.Plan:
        terms = lc.Terms(goal=self.goal)
        return lc.plan(self.target, self.candidates, self.network, learning_rate=self.rate, terms=terms, **options)

    def check_route(self, stages: list[tuple[str, float]]) -> None:
        """Carry out the stages; the last must take the forecast number of steps, within one step."""
        state = self.weights
        for name, steps in stages[:-1]:
            state = self.plain[name].after(*state, self.rate, int(steps))
        rest = self.plain["target"].count(*state, self.rate, self.accuracy)
        assert stages[-1][0] == "target"
        assert abs(stages[-1][1] - rest) <= 1


def test_the_reference_is_descent_on_trials() -> None:
    """Backpropagation through time, trial by trial, with a mask of steps."""
    given, b, rate = simulated("mask of steps"), 0.8, 1e-3
    plain, network = Plain(given, b), lc.LinearRNN.random(5, 4, 2, recurrence=b, scale=0.3, rng=1)
    A, C = network.input_weights, network.output_weights
    x, y, counts = given["inputs"], given["targets"], given["mask"]
    for _ in range(2):
        dA, dC, loss = np.zeros_like(A), np.zeros_like(C), 0.0
        for p in range(len(x)):
            h, states, errors = np.zeros(4), [], []
            for t in range(10):
                h = b * h + A @ x[p, t]
                states.append(h)
                errors.append(C @ h - y[p, t] if counts[p, t] else np.zeros(2))
            back = np.zeros(4)
            for t in reversed(range(10)):
                loss += 0.5 * errors[t] @ errors[t] / len(x)
                back = b * back + C.T @ errors[t]
                dA += np.outer(back, x[p, t]) / len(x)
                dC += np.outer(errors[t], states[t]) / len(x)
        assert plain.loss(A, C) == pytest.approx(loss, rel=1e-12)
        stepped = plain.step(A, C, rate)
        A, C = A - rate * dA, C - rate * dC
        for found, expected in zip(stepped, (A, C), strict=True):
            np.testing.assert_allclose(found, expected, rtol=1e-10, atol=1e-13)


@pytest.mark.parametrize(("name", "start"), pairs(*((k, STARTS[i % 4]) for i, k in enumerate(QUICK))))
def test_forecast(name: str, start: str) -> None:
    asks = Question(name, start)
    assert np.isfinite(asks.direct)
    steps = lc.forecast(asks.target, asks.network, goal=asks.goal, learning_rate=asks.rate).steps
    assert steps.status.name == "ok"
    assert abs(steps.descent - asks.direct) <= 1


@pytest.mark.parametrize(
    ("name", "start"),
    pairs(*(("one channel", start) for start in STARTS), ("mask of steps", "torch"), heavy=HEAVY),
)
def test_plan(name: str, start: str) -> None:
    asks = Question(name, start)
    plan = asks.plan()
    assert abs(plan.direct.descent - asks.direct) <= 1
    names = [*(asks.candidates[k].name for k in plan.route.order), "target"]
    asks.check_route(list(zip(names, (*plan.route.durations, plan.route.rest), strict=True)))
    assert plan.total == sum(plan.route.durations) + plan.route.rest <= plan.direct_total
    # from an aligned start some resamples are never learned, and the difference of infinite counts is unknown
    low, high = plan.saving_interval
    assert low <= high or plan.direct.high == np.inf


@pytest.mark.parametrize(("name", "start"), pairs(("one channel", "weights"), ("lengths", "torch")))
def test_forgetting(name: str, start: str) -> None:
    """Losses of both tasks after each stage lie within those of descent a step before and a step after."""
    asks = Question(name, start)
    names, state = ["target", "half of it"], asks.weights
    steps = [max(int(asks.direct) // 3, 20)] * 2
    found = lc.forget([asks.tasks[k] for k in names], asks.network, learning_rate=asks.rate, steps=steps).losses()
    for stage, (task, number) in enumerate(zip(names, steps, strict=True)):
        before = asks.plain[task].after(*state, asks.rate, number - 1)
        state = asks.plain[task].step(*before, asks.rate)
        after = asks.plain[task].step(*state, asks.rate)
        for column, judged in enumerate(names):
            losses = [asks.plain[judged].loss(*weights) for weights in (before, state, after)]
            # a loss at its turning point changes less over a step than its own round-off
            slack = max(losses) - min(losses) + 1e-9 * losses[1]
            assert abs(found.values[stage + 1, column] - losses[1]) <= slack


@pytest.mark.parametrize(
    ("name", "start"), pairs(("one channel", "aligned"), ("lengths", "weights"), heavy=tuple(RECORDINGS))
)
def test_commands(name: str, start: str, tmp_path: Path) -> None:
    """`forecast`, `plan` and `forget` read the same trials from files and count the same steps."""
    asks = Question(name, start)
    path = asks.study(tmp_path)
    found = asked("forecast", path)
    if name == "labels at every step":
        # a study cannot declare labels at every step: an error about the targets, or the right answer
        assert isinstance(found, dict) or "targets" in found
        return
    assert found["status"] == "ok"
    assert abs(found["descent_steps"] - asks.direct) <= 1
    plan = asked("plan", path)
    assert abs(plan["direct"]["descent_steps"] - asks.direct) <= 1
    asks.check_route([(stage["task"], stage["descent_steps"]) for stage in plan["best"]["stages"]])
    for candidate in plan["candidates"]:
        stages = [(candidate["task"], candidate["stop_steps"])] * (candidate["stop_steps"] > 0)
        asks.check_route([*stages, ("target", candidate["descent_steps"] - candidate["stop_steps"])])
    steps = max(int(asks.direct) // 3, 20)
    tables = "".join(
        f"\n[[sequence]]\ntrain_steps = {steps}\n" + section(tmp_path, asks.given[k], k)
        for k in ("target", "half of it")
    )
    where = study(tmp_path, start, asks.network, asks.b, asks.rate, asks.accuracy, tables)
    if start == "aligned":  # a sequence has no target to align with, so the weights are given
        where = study(tmp_path, "weights", asks.network, asks.b, asks.rate, asks.accuracy, tables)
    forgetting = asked("forget", where)
    state = asks.weights
    for row, task in enumerate(("target", "half of it"), start=1):
        state = asks.plain[task].after(*state, asks.rate, steps)
        following = asks.plain[task].step(*state, asks.rate)
        for column, judged in enumerate(("target", "half of it")):
            here, there = (asks.plain[judged].loss(*weights) for weights in (state, following))
            assert abs(forgetting["loss"][row][column] - here) <= abs(here - there) + 1e-9 * here


RATES = pairs(("linnerud", "random"), ("one channel", "torch"), each=STARTS[:3], heavy=tuple(RECORDINGS))


def sharpest(plain: Plain, A: Array, C: Array, rate: float, steps: int = 4000) -> float:
    """A bound on the largest curvature along small steps: lmax(S^1/2 (|C|^2 + A'A) S^1/2) + |CAS - R|."""
    found = 0.0
    for n in range(steps):
        if n % 20 == 0:
            inner = np.linalg.norm(C, 2) ** 2 * np.eye(A.shape[1]) + A.T @ A
            curvature = np.linalg.eigvals(plain.S @ inner).real.max()
            found = max(found, curvature + np.linalg.norm(C @ A @ plain.S - plain.R, 2))
        A, C = plain.step(A, C, rate)
    return float(found)


@pytest.mark.parametrize(("name", "start"), RATES)
@pytest.mark.parametrize("pace", [0.95, 1.3])
def test_near_the_stable_limit(name: str, start: str, pace: float) -> None:
    """Just below the stable limit, and at the edge of stability: the right count, or the right refusal."""
    asks, refused = Question(name, start, pace), ""
    try:
        steps = lc.forecast(asks.target, asks.network, goal=asks.goal, learning_rate=asks.rate).steps
    except lc.AssumptionViolated as refusal:
        refused = refusal.assumption
    if refused:
        assert refused == "stable_learning_rate"
        assert asks.rate * sharpest(asks.plain["target"], *asks.weights, asks.rate / 20) > 2
    elif steps.descent != asks.direct:
        # if the start is too sharp for the rate, the first steps amplify round-off: in double precision the count
        # depends on the order of sums, by 4% between trials, their statistics and extended precision
        A, C = asks.weights
        begins = np.linalg.norm(C, 2) ** 2 * np.eye(A.shape[1]) + A.T @ A
        sharp = asks.rate * np.linalg.eigvals(asks.plain["target"].S @ begins).real.max() > 2
        assert abs(steps.descent - asks.direct) <= (0.1 * asks.direct if sharp else 1)


@pytest.mark.parametrize(("name", "start"), RATES)
def test_beyond_the_stable_limit(name: str, start: str, tmp_path: Path) -> None:
    """A rate at which plain descent diverges: no count, and the same status in Python and in commands."""
    pace = 8.0
    with np.errstate(over="ignore", invalid="ignore"):
        while np.isfinite((asks := Question(name, start, pace)).direct):
            pace *= 2
    failed = "stable_learning_rate"
    try:
        found = lc.forecast(asks.target, asks.network, learning_rate=asks.rate)
    except lc.AssumptionViolated as refusal:
        failed = refusal.assumption
    else:
        assert not found.holds
    assert failed == "stable_learning_rate"
    path = asks.study(tmp_path)
    forecast, plan = asked("forecast", path), asked("plan", path)
    assert (forecast["descent_steps"], forecast["status"]) == ("inf", "diverged")
    assert (plan["direct"]["descent_steps"], plan["direct"]["status"]) == ("inf", "diverged")
    for answer in (forecast, plan):
        assert answer["class"] == "outside"
        assert any(v["assumption"] == "stable_learning_rate" and not v["holds"] for v in answer["validity"])


def excess_after(task, network, rate, steps):
    """Excess loss, as a share of that of the zero map, after each of these steps of plain descent on covariances."""
    power, cross = task.input_covariance.dense()[0, :, 0, :], task.cross_covariance.dense()[0, :, 0, :].T
    best = cross @ np.linalg.pinv(power)
    first, second, found = network.first, network.second, {}
    for step in range(max(steps) + 1):
        function = second @ first
        if step in steps:
            gap = function - best
            found[step] = float((gap @ power * gap).sum() / (best @ power * best).sum())
        slope = cross - function @ power
        first, second = first + rate * second.T @ slope, second + rate * slope @ first.T
    return [found[step] for step in steps]


@pytest.mark.slow
@pytest.mark.parametrize("classes", [True, False])
def test_a_stiff_recording_is_counted_to_the_step(classes):
    """Thirty correlated channels in one unit take 350,000 to 480,000 steps."""
    inputs, labels = datasets.load_breast_cancer(return_X_y=True)
    targets = labels if classes else 2.0 * labels[:, None] - 1.0
    task = lc.Task.from_samples(inputs[:, None, :], targets, centre=True, scale="channel", labels=classes)
    network = lc.TwoLayer.random(30, 16, task.outputs, scale=0.05, rng=0)
    found = lc.forecast(task, network, learning_rate=1e-2, goal=lc.Accuracy(0.99))
    assert found.forecast_class == "integrated"
    assert found.steps.status is lc.Status.ok
    steps = int(found.steps.descent)
    before, after = excess_after(task, network, 1e-2, [steps - 1, steps])
    assert after <= 0.01**2 < before
