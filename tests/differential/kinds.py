"""Kinds of problems. Each is a function of a numpy generator; `draw` gives the problem of a kind and a seed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import pairwise

import numpy as np

import learncast as lc
from learncast.planning import defaults

from .plain import Plain
from .problems import Problem, Stop, Trials, Weights

Rng = np.random.Generator
KINDS: dict[str, Callable[[Rng], Problem]] = {}


def kind(function: Callable[[Rng], Problem]) -> Callable[[Rng], Problem]:
    """Register a kind of problem under the function's name."""
    KINDS[function.__name__] = function
    return function


def draw(name: str, seed: int) -> Problem:
    """The problem of a kind and a seed."""
    order = sum(ord(letter) << k for k, letter in enumerate(name))
    return KINDS[name](np.random.default_rng([order, seed])).named(name, seed)


# Parts of problems


def sizes(rng: Rng) -> tuple[int, int, int, int]:
    """Numbers of trials, steps, input channels and outputs."""
    return int(rng.integers(20, 80)), int(rng.integers(1, 9)), int(rng.integers(1, 4)), int(rng.integers(1, 4))


def record(rng: Rng, x: np.ndarray, outputs: int, noise: float | None = None, name: str = "recorded", **form) -> Trials:
    """Trials whose targets are a leaky sum of the inputs, mixed into outputs, with noise."""
    mixing = (
        rng.normal(size=(x.shape[2], outputs))
        / np.sqrt(x.shape[1] * x.shape[2])
        / np.maximum(x.std((0, 1)), 1e-12)[:, None]
    )
    leak = rng.uniform(0.5, 1.0) ** np.arange(x.shape[1])[::-1]
    y = np.einsum("ntc,co,t->no", x, mixing, leak)
    noise = rng.choice([0.0, 0.1, 0.5]) if noise is None else noise
    return Trials(name, x, y + noise * rng.normal(size=y.shape), **form)


def random_weights(
    rng: Rng, task: Trials, *, scale: float | None = None, hidden: int | None = None, two_layer=False
) -> Weights:
    """Gaussian weights, scaled to the size of the task's map, with scalar recurrence or two layers."""
    x, y = task.padded(), task.answers()
    channels, outputs = x.shape[2], y.shape[2]
    hidden = int(rng.integers(max(channels, outputs), 9)) if hidden is None else hidden
    scale = 10 ** rng.uniform(-2, -0.5) if scale is None else scale
    scale *= np.sqrt(np.sqrt((y**2).mean()) / max(np.sqrt((x**2).mean() * x.shape[1]), 1e-300)) or 1.0
    first, second = scale * rng.normal(size=(hidden, channels)), scale * rng.normal(size=(outputs, hidden))
    recurrent = None if two_layer else rng.uniform(0.3, 1.0) * np.eye(hidden)
    return Weights(first, second, recurrent)


def stable_rate(rng: Rng, problem: Problem) -> Problem:
    """Give the problem a learning rate between 3% and 50% of one at which the loss only falls."""
    plain = Plain(replace(problem, learning_rate=1.0))
    power = max(float((rows.inputs**2).sum() / rows.trials) for rows in plain.rows)
    gain = max(float(np.sqrt((rows.targets**2).sum() / rows.trials)) for rows in plain.rows) / np.sqrt(power)
    start = max(float((part**2).sum()) for part in (plain.start[0], plain.start[2]))
    rate = 1.0 / (power * max(gain, start) * (1.0 if plain.scalar is not None else 4.0))
    return replace(problem, learning_rate=float(f"{rate * 10 ** rng.uniform(-1.5, -0.3):.3g}"))


def forecast(rng: Rng, task: Trials, weights: Weights | None = None, **changes) -> Problem:
    """How many steps does it take to learn these trials?"""
    weights = weights or random_weights(rng, task)
    rule = str(rng.choice(["accuracy", "explained", "r2"]))
    stop = Stop(rule, float(rng.choice([0.5, 0.9, 0.95, 0.99])))
    if rule == "r2":
        stop = Stop("r2", float(rng.choice([0.3, 0.6])))
    return stable_rate(rng, Problem("forecast", weights, (task,), 1.0, **{"stops": (stop,), **changes}))


def gaussian(rng: Rng) -> Trials:
    """Gaussian inputs with a correlation between channels."""
    trials, steps, channels, outputs = sizes(rng)
    x = rng.normal(size=(trials, steps, channels)) @ (np.eye(channels) + 0.3 * rng.normal(size=(channels, channels)))
    return record(rng, x, outputs)


# Data


@kind
def counts(rng: Rng) -> Problem:
    """Spike counts, of which many are zero."""
    trials, steps, channels, outputs = sizes(rng)
    return forecast(rng, record(rng, rng.poisson(rng.uniform(0.1, 4, channels), (trials, steps, channels)), outputs))


@kind
def labels(rng: Rng) -> Problem:
    """Integer classes, which become one-hot targets; one of them may not occur."""
    trials, steps, channels, _ = sizes(rng)
    classes = int(rng.integers(2, 5))
    label = np.r_[np.arange(classes), rng.integers(classes, size=trials)]
    x = rng.normal(size=(len(label), steps, channels)) + rng.normal(size=(classes, 1, channels))[label]
    more = int(rng.integers(2))
    return forecast(rng, Trials("classes", x, label, classes=classes + more if more else None))


@kind
def offsets(rng: Rng) -> Problem:
    """Inputs and targets far from zero mean."""
    task = gaussian(rng)
    x = task.padded() + 10 ** rng.uniform(-1, 1, task.padded().shape[2])
    return forecast(rng, record(rng, x, task.answers().shape[2]))


@kind
def unequal_lengths(rng: Rng) -> Problem:
    """Trials of different lengths: a list, a padded array with lengths, or a table."""
    trials, _, channels, outputs = sizes(rng)
    x = [rng.normal(size=(int(rng.integers(1, 8)), channels)) for _ in range(trials)]
    y = np.stack([part.sum(axis=0) for part in x]) @ rng.normal(size=(channels, outputs))
    return forecast(rng, Trials("unequal", x, y, str(rng.choice(["list", "lengths", "table"]))))


@kind
def few_trials(rng: Rng) -> Problem:
    """Fewer trials than numbers in a trial."""
    _, steps, channels, outputs = sizes(rng)
    return forecast(rng, record(rng, rng.normal(size=(int(rng.integers(2, 7)), steps, channels)), outputs))


@kind
def channel_scales(rng: Rng) -> Problem:
    """Channels in units from 1e-7 to 1e7; the target depends mostly on the large ones."""
    trials, steps, channels, outputs = sizes(rng)
    size = 10 ** (rng.uniform(-7, 7) + rng.uniform(-1, 0, channels))
    if rng.random() < 0.3:
        size[0] *= 10 ** rng.uniform(-8, -3)
    x = rng.normal(size=(trials, steps, channels))
    task = record(rng, x, outputs)
    unit = 10.0 ** rng.integers(-7, 8)
    return forecast(rng, replace(task, inputs=x * size, targets=task.targets * unit))


@kind
def zero_targets(rng: Rng) -> Problem:
    """One output that is always zero, or all of them."""
    task = gaussian(rng)
    y = np.array(task.targets)
    y[:, 0] = 0.0
    return forecast(rng, replace(task, targets=y))


@kind
def every_step(rng: Rng) -> Problem:
    """Targets at every step."""
    trials, steps, channels, outputs = sizes(rng)
    x = rng.normal(size=(trials, steps + 1, channels))
    y = np.cumsum(x, axis=1) @ rng.normal(size=(channels, outputs)) / np.sqrt(steps + 1)
    return forecast(rng, Trials("running", x, y, str(rng.choice(["arrays", "table", "xarray", "batches"]))))


@kind
def forms(rng: Rng) -> Problem:
    """Trials as a DataFrame, xarray arrays, batches, a padded array or second moments."""
    form = str(rng.choice(["table", "xarray", "batches", "lengths", "statistics"]))
    return forecast(rng, replace(gaussian(rng), form=form))


@kind
def preprocessed(rng: Rng) -> Problem:
    """Trials of which some do not count, centred or scaled channel by channel."""
    task = offsets(rng).target
    mask = rng.random(len(task.inputs)) < 0.8 if rng.random() < 0.5 else None
    scale = str(rng.choice(["none", "channel"]))
    return forecast(rng, replace(task, mask=mask, centre=bool(rng.integers(2)), scale=scale))


@kind
def one_hot(rng: Rng) -> Problem:
    """Items as one-hot inputs, shown unequally often, with binary features as targets."""
    items, features = int(rng.integers(3, 7)), int(rng.integers(2, 6))
    shown = np.repeat(np.arange(items), rng.integers(1, 5, items))
    y = rng.integers(0, 2, (items, features)).astype(float)[shown]
    y[0, 0] = 1.0
    task = Trials("items", np.eye(items)[shown][:, None], y, str(rng.choice(["pairs", "arrays"])))
    return forecast(rng, task, random_weights(rng, task, two_layer=bool(rng.integers(2))))


# Networks


@kind
def bottlenecks(rng: Rng) -> Problem:
    """Fewer hidden units than the rank of the target."""
    trials, steps, _, _ = sizes(rng)
    task = record(rng, rng.normal(size=(trials, steps, 3)), 3)
    return forecast(rng, task, random_weights(rng, task, hidden=int(rng.integers(1, 3)), two_layer=steps == 1))


@kind
def starts(rng: Rng) -> Problem:
    """Tiny or huge weights before training."""
    task = gaussian(rng)
    return forecast(rng, task, random_weights(rng, task, scale=10 ** rng.choice([-6.0, -4.0, 0.3])))


@kind
def two_layers(rng: Rng) -> Problem:
    """A network of two layers on pairs; white or correlated inputs, balanced or random weights."""
    _, _, channels, outputs = sizes(rng)
    task = record(rng, rng.normal(size=(60, 1, channels)), outputs, form="pairs")
    weights = random_weights(rng, task, two_layer=True)
    # A balanced start of one input and one output may lie on a saddle's stable manifold, which only round-off leaves.
    if rng.random() < 0.5 and max(channels, outputs) > 1:
        x = np.linalg.qr(task.padded()[:, 0])[0] * np.sqrt(60)
        task = record(rng, x[:, None], outputs, form="pairs")
        size, scale = int(rng.integers(max(channels, outputs), 7)), 10 ** rng.uniform(-2, -0.5)
        balanced = lc.TwoLayer.balanced(channels, size, outputs, scale=scale, rng=int(rng.integers(99)))
        weights = Weights(balanced.first, balanced.second)
    return forecast(rng, task, weights)


def deepened(rng: Rng, problem: Problem) -> Problem:
    """The problem for three to five layers of any widths; their product is near the target's map."""
    x, y = problem.target.padded(), problem.target.answers()
    widths = [x.shape[2], *rng.integers(1, 6, int(rng.integers(2, 5))), y.shape[2]]
    gain = np.sqrt((y**2).mean() / max((x**2).mean() * x.shape[1], 1e-300)) or 1.0
    scale = rng.uniform(0.5, 1.2) * gain ** (1 / (len(widths) - 1))
    first, *between, second = (scale * rng.normal(size=(m, n)) / np.sqrt(n) for n, m in pairwise(widths))
    recurrent = None if x.shape[1] == 1 else rng.uniform(0.3, 1.0) * np.eye(len(first))
    size = max(1.0, *(np.linalg.norm(w, 2) for w in (first, *between, second)))
    rate = problem.learning_rate / len(widths) / size ** (2 * len(widths) - 6)
    weights = Weights(first, second, recurrent, between=tuple(between))
    return replace(problem, weights=weights, learning_rate=float(f"{rate:.3g}"))


def taught(rng: Rng, recurrent: np.ndarray, activation: str = "linear", **changes) -> Problem:
    """Targets of a teacher with this recurrence, for a student with other weights."""
    trials, steps, channels, outputs = sizes(rng)
    channels = changes.pop("channels", channels)
    hidden = len(recurrent)
    first, second = rng.normal(size=(hidden, channels)), rng.normal(size=(outputs, hidden)) / hidden
    x = rng.normal(size=(trials, steps + 1, channels))
    h = np.zeros((trials, hidden))
    for t in range(steps + 1):
        h = x[:, t] @ first.T + h @ recurrent.T
        h = {"linear": h, "relu": np.maximum(h, 0), "tanh": np.tanh(h)}[activation]
    # Given statistics have no interval, whose resamples would take most of the time.
    task = Trials(
        "taught", x, h @ second.T, "statistics" if activation == "linear" and rng.random() < 0.8 else "arrays"
    )
    student = replace(random_weights(rng, task, hidden=hidden, scale=0.3), recurrent=recurrent, activation=activation)
    least = None if activation == "linear" else 0.0
    problem = forecast(rng, task, student, least=least, limit=3000, **changes)
    return replace(problem, stops=(Stop(*(("r2", 0.5), ("accuracy", 0.5), ("explained", 0.8))[int(rng.integers(3))]),))


@kind
def recurrence_lists(rng: Rng) -> Problem:
    """Each hidden unit has its own fixed recurrence."""
    return taught(rng, np.diag(rng.uniform(-0.5, 1.0, int(rng.integers(2, 5)))))


@kind
def non_normal_recurrence(rng: Rng) -> Problem:
    """Fixed recurrence with a feedforward chain between units."""
    hidden = int(rng.integers(2, 5))
    return taught(rng, rng.uniform(0.2, 0.7) * np.eye(hidden) + np.triu(rng.normal(size=(hidden, hidden)), 1))


@kind
def learned_recurrence(rng: Rng) -> Problem:
    """Recurrent weights learn too."""
    hidden = int(rng.integers(2, 5))
    recurrent = np.diag(rng.uniform(0.2, 0.9, hidden)) + 0.1 * rng.normal(size=(hidden, hidden))
    return taught(rng, recurrent, learn_recurrence=True)


@kind
def relu(rng: Rng) -> Problem:
    """ReLU units with fixed recurrence; its goals do not depend on the least loss, which the signs of weights limit."""
    recurrent, channels = rng.uniform(0, 0.9) * np.eye(int(rng.integers(2, 5))), 1 if rng.random() < 0.8 else 2
    return replace(
        taught(rng, recurrent, "relu", channels=channels), stops=(Stop("r2", float(rng.choice([0.3, 0.6]))),)
    )


@kind
def tanh(rng: Rng) -> Problem:
    """Tanh units with fixed recurrence."""
    return taught(rng, rng.uniform(0, 0.9) * np.eye(int(rng.integers(1, 3))), "tanh", channels=1)


# Several tasks


def several(rng: Rng, question: str, number: int, **changes) -> Problem:
    """Tasks on one set of channels: other targets, other inputs, or both."""
    trials, steps, channels, outputs = sizes(rng)
    tasks = []
    for k in range(number):
        x = tasks[0].inputs if k and rng.random() < 0.5 else rng.normal(size=(trials, steps, channels))
        tasks.append(record(rng, x, outputs, name=f"task {k + 1}"))
    weights = random_weights(rng, tasks[-1], two_layer=steps == 1 and bool(rng.integers(2)))
    return stable_rate(rng, Problem(question, weights, tuple(tasks), 1.0, **changes))


@kind
def forgetting(rng: Rng) -> Problem:
    """Losses of two to four tasks after each stage of a number of steps."""
    number = int(rng.integers(2, 5))
    stops = tuple(Stop("steps", float(rng.integers(1, 400))) for _ in range(number))
    return several(rng, "forget", number, stops=stops)


@kind
def many_stages(rng: Rng) -> Problem:
    """Three to five stages that end at goals or after a number of steps; the last one at a goal."""
    number = int(rng.integers(3, 6))
    goal = lambda: Stop(*(("accuracy", 0.6), ("explained", 0.9), ("r2", 0.3))[int(rng.integers(3))])  # noqa: E731
    stops = [goal() if rng.random() < 0.5 else Stop("steps", float(rng.integers(1, 300))) for _ in range(number - 1)]
    return several(rng, "follow", number, stops=(*stops, goal()), limit=5000, interfaces=("python",))


@kind
def deep_layers(rng: Rng) -> Problem:
    """A linear network of three to five layers on trials of one or several steps."""
    return deepened(rng, forecast(rng, gaussian(rng)))


@kind
def deep_stages(rng: Rng) -> Problem:
    """Stages of training in a linear network of three to five layers."""
    return deepened(rng, many_stages(rng))


def planned(rng: Rng, **changes) -> Problem:
    """A target and candidates with scaled or noisier targets."""
    target = gaussian(rng)
    others = [
        replace(target, name=f"targets × {size:g}", targets=size * target.targets)
        for size in rng.choice([0.5, 1.5, 2.0, 4.0], int(rng.integers(1, 3)), replace=False)
    ]
    form = str(rng.choice(["arrays", "statistics"]))
    tasks = tuple(replace(one, form=form) for one in (*others, target))
    stop = Stop("accuracy", float(rng.choice([0.8, 0.95])))
    weights = random_weights(rng, target, two_layer=target.padded().shape[1] == 1)
    return stable_rate(rng, Problem("plan", weights, tasks, 1.0, stops=(stop,), limit=3000, **changes))


@kind
def plans(rng: Rng) -> Problem:
    """Which of one or two candidates comes first, and when does it stop?"""
    return planned(rng)


@kind
def costly_plans(rng: Rng) -> Problem:
    """Plans with costs per step and per change of task, of up to three stages."""
    problem = planned(rng, switch_cost=float(rng.integers(0, 40)), max_stages=int(rng.integers(2, 4)))
    return replace(problem, costs=tuple(map(float, rng.choice([0.5, 1.0, 2.0], len(problem.tasks)))))


# Noise


@kind
def batches(rng: Rng) -> Problem:
    """Training in batches that are drawn with replacement."""
    trials, steps, channels, outputs = sizes(rng)
    task = record(rng, rng.normal(size=(trials, steps, channels)), outputs)
    stop = Stop("explained", float(rng.choice([0.5, 0.8, 0.9])))
    problem = forecast(rng, task, stops=(stop,), batch=int(rng.integers(1, 12)), limit=3000)
    return replace(problem, question="batches", learning_rate=problem.learning_rate * rng.choice([1.0, 2.0]))


@kind
def epochs(rng: Rng) -> Problem:
    """Training in batches of shuffled epochs."""
    return replace(batches(rng), shuffled=True)


@kind
def intervals(rng: Rng) -> Problem:
    """The 95% interval of the steps, for trials drawn from a known population."""
    channels, trials = int(rng.integers(1, 4)), int(rng.integers(60, 200))
    mix, noise = rng.normal(size=(channels, 1)), rng.uniform(0.1, 0.6)
    moments = np.eye(channels + 1)
    moments[-1, :-1] = moments[:-1, -1] = mix[:, 0]
    moments[-1, -1] = float((mix**2).sum() + noise**2)
    exact = np.linalg.cholesky(moments).T * np.sqrt(channels + 1)  # rows with exactly these second moments
    x = rng.normal(size=(trials, 1, channels))
    task = Trials("drawn", x, x[:, 0] @ mix + noise * rng.normal(size=(trials, 1)))
    population = Trials("population", exact[:, None, :-1], exact[:, -1:])
    problem = forecast(rng, task, random_weights(rng, task, scale=0.3), stops=(Stop("explained", 0.9),))
    return replace(problem, question="interval", population=population, interfaces=("python",))


# Web app


def white_trials(strength: float, power: float, steps: int, name: str) -> Trials:
    """Trials with exactly the second moments of white inputs that are integrated."""
    x = np.sqrt(power * steps) * np.eye(steps)[:, :, None]
    return Trials(name, x, strength / power * x.sum(axis=1))


@kind
def web_uploads(rng: Rng) -> Problem:
    """Trials that are dropped on the page."""
    task = gaussian(rng)
    x, y = task.padded(), task.answers()
    hidden = int(rng.integers(max(x.shape[2], y.shape[2]), 12))
    state: dict[str, object] = {
        "recurrence": round(rng.uniform(0.2, 1.0), 2),
        "hidden_size": hidden,
        "explained": float(rng.choice([0.7, 0.9, 0.99])),
    }
    start = {key: state[key] for key in ("recurrence", "hidden_size")}
    network = defaults.default_network(lc.Task.from_samples(x, task.targets), **start)
    weights = Weights(network.input_weights, network.output_weights, network.recurrent_weights)
    problem = forecast(rng, task, weights, stops=(Stop("explained", float(state["explained"])),))
    state["learning_rate"] = float(np.clip(problem.learning_rate, 1e-5, 0.1))
    web = {"panel": "upload", "state": state}
    return replace(problem, learning_rate=state["learning_rate"], web=web, interfaces=("python", "command", "web"))


@kind
def web_pins(rng: Rng) -> Problem:
    """A first task that is pinned in the portrait."""
    steps, target, power = int(rng.integers(1, 20)), rng.uniform(0.5, 2), rng.uniform(0.5, 2)
    size, initial, hidden = target * rng.uniform(0.5, 2.5), rng.uniform(0.01, 0.5), int(rng.integers(1, 9))
    recurrence, accuracy = rng.uniform(0.1, 1), float(rng.choice([0.8, 0.95, 0.99]))
    tasks = white_trials(size, power, steps, "first"), white_trials(target, power, steps, "target")
    weights = Weights(np.zeros((hidden, 1)), np.zeros((1, hidden)), recurrence * np.eye(hidden))
    weights.first[0, 0] = weights.second[0, 0] = initial
    stops = Stop("accuracy", round(rng.uniform(0.1, 0.9), 3)), Stop("accuracy", accuracy)
    problem = stable_rate(rng, Problem("follow", weights, tasks, 1.0, stops=stops, interfaces=("web",)))
    rate = float(np.clip(problem.learning_rate, 1e-5, 0.1))
    state = {"steps": steps, "target_strength": target, "input_strength": power, "recurrence": recurrence}
    state |= {"initial": initial, "hidden_size": hidden, "learning_rate": rate, "accuracy": accuracy}
    state |= {"pin_value": size, "pin_accuracy": stops[0].value, "vary": "target_strength", "grid": 10}
    return replace(problem, learning_rate=rate, web={"panel": "pinned", "state": state})


@kind
def web_prior_knowledge(rng: Rng) -> Problem:
    """A task at an angle to what a network of two layers has learned for some steps."""
    size, hidden, seed = int(rng.integers(2, 5)), int(rng.integers(2, 8)), int(rng.integers(99))
    decay, scale, rate = rng.uniform(0.3, 1), rng.uniform(0.05, 0.5), round(rng.uniform(0.005, 0.1), 4)
    strengths, angles = rng.uniform(0.5, 2, 2), rng.uniform(0, 90, 2)
    turns = []
    for angle in np.deg2rad(angles):
        block = np.array([[np.cos(angle), -np.sin(angle)], [np.sin(angle), np.cos(angle)]])
        turn = np.eye(size)
        turn[:2, :2] = block
        if size >= 4:
            turn[2:4, 2:4] = block
        turns.append(turn)
    diagonal = np.diag(decay ** np.arange(size))
    maps = strengths[0] * diagonal, strengths[1] * turns[1] @ diagonal @ turns[0].T
    x = np.sqrt(size) * np.eye(size)[:, None]
    tasks = tuple(Trials(name, x, x[:, 0] @ m.T) for name, m in zip("AB", maps, strict=True))
    network = lc.TwoLayer.balanced(size, hidden, size, scale=scale, rng=seed)
    first_steps = float(rng.integers(1, 300))
    state = {"size": size, "first_strength": strengths[0], "second_strength": strengths[1], "decay": decay}
    state |= {"input_angle": angles[0], "output_angle": angles[1], "knowledge": "steps", "first_steps": first_steps}
    state |= {"learning_rate": rate, "accuracy": 0.9, "start": "balanced", "start_scale": scale, "imbalance": 0.0}
    stops = Stop("steps", first_steps), Stop("accuracy", 0.9)
    problem = Problem("follow", Weights(network.first, network.second), tasks, rate, stops=stops, interfaces=("web",))
    return replace(problem, web={"panel": "prior", "state": state | {"hidden_size": hidden, "seed": seed}})
