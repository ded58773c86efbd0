"""The runs behind the figures of livi2025: trained networks and their diagnosis."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast import UnsupportedModel, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.learnability.preset import CELLS, OPTIMIZERS, VALIDATED, Preset, RunSize, Schedule
from learncast.papers.runs import PaperRun, Settings, share_of
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from learncast.windows.example_model import CellReadout, Optimizer, Stack

Pair = tuple[FloatArray, FloatArray]
#: Share of a run's progress that is training.
TRAINING = 0.8
#: Variables of a diagnosis that figures need, and those that are recorded during training.
_KEPT = ["envelope", "envelope_gate", "signal", "score", "critical_score", "tail_index", "scale", "total_scale",
         "required_sequences", "window", "null_window", "time_scale"]  # fmt: skip
_CONTROLLED = ["exact_envelope", "control_signal", "control_score", "attributable", "attributable_reach"]
_WATCHED = ["envelope", "tail_index", "time_scale"]
#: Sequences on which single terms of a gradient are collected, and two forms of an envelope compared.
_FEW = 64
_RATE = "parameter change per gradient"
#: Appendix C's task: lags and weights of the target, harmonics, longest period and noise.
HARMONIC_LAGS, HARMONIC_WEIGHTS, HARMONICS, PERIOD, NOISE = (5, 20, 50), (1.0, 0.5, 0.25), 5, 50.0, 0.01


@dataclass(frozen=True)
class Run:
    """Networks of one cell that are trained in one tensor, one for each gate and seed.

    Attributes
    ----------
    optimizer : dict
        Kind, learning rate and settings.
    gates : tuple of float or None
        Constant gates, or initial values of shared and diagonal gates. None: random biases of a GRU or LSTM.
    normalised : bool
        Whether the candidate is normalised.
    """

    cell: str
    optimizer: dict[str, Any]
    seeds: tuple[int, ...]
    gates: tuple[float | None, ...]
    normalised: bool
    training: RunSize
    updates: int
    clip: float
    device: str
    exact: int

    @classmethod
    def of(cls, cell: str, preset: Preset, **own: object) -> PaperRun:
        """Return the run of a cell in a preset; it contains only the settings that determine its result."""
        names = {field.name for field in fields(cls)} & {field.name for field in fields(preset)}
        shared = {name: getattr(preset, name) for name in names}
        function = diagnose if cls is DiagnosedRun else compare_envelopes
        return PaperRun(function, asdict(cls(cell=cell, **{**shared, **own})), estimated_seconds)

    @classmethod
    def from_dict(cls, stored: Settings) -> Self:
        """Return the run of the result of `asdict`, whose tuples may have become lists."""
        values = _with_tuples(stored)
        return cls(**{**values, "training": RunSize(**values["training"])})

    @property
    def networks(self) -> list[tuple[float | None, int]]:
        """Gate and seed of every network."""
        return list(product(self.gates, self.seeds))

    def model(self, gate: float | None, seed: int) -> CellReadout:
        """Return a network before training, on its device, with the authors' initial biases and readout."""
        from learncast.windows.example_model import build_model, published_start

        sizes: dict[str, Any] = {"inputs": self.training.inputs, "outputs": 1, "hidden_size": self.training.hidden_size}
        sizes |= {} if gate is None else {"gate": gate}
        model = build_model(self.cell, seed=seed, layer_norm=self.normalised, orthogonal=True, **sizes)
        published_start(model, random_biases=gate is None, seed=seed)
        place = "cuda" if self.device == "auto" else self.device
        try:
            return model.to(place)
        except (AssertionError, RuntimeError) as error:
            if self.device == "auto":
                return model
            raise UnsupportedModel(f"device {place!r} is not available. Use --device cpu.", field="device") from error

    def trainer(self, data: Callable[[int], Pair]) -> Trainer:
        """Return the trainer of the networks on the trials of each seed."""
        from learncast.windows.example_model import Stack

        stack = Stack([self.model(*one) for one in self.networks], self.optimizer)
        trials = {seed: data(seed) for seed in self.seeds}
        pairs = zip(*(trials[seed] for _, seed in self.networks), strict=True)
        inputs, targets = (np.stack(parts).astype(np.float32) for parts in pairs)
        orders = [epochs(np.random.default_rng([k, 2]), inputs.shape[1], self.training.batch) for _, k in self.networks]
        return Trainer(stack, inputs, targets, map(np.stack, zip(*orders, strict=True)), self.clip)


def _with_tuples(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def epochs(rng: np.random.Generator, sequences: int, batch: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches; every epoch visits all sequences in a new order, without an incomplete batch."""
    while True:
        order = rng.permutation(sequences)
        yield from (order[k : k + batch] for k in range(0, sequences - batch + 1, batch))


@dataclass(frozen=True, eq=False)
class Trainer:
    """Networks in training, which can be continued in parts with the same result."""

    stack: Stack
    inputs: NDArray[np.float32]  # (networks, sequences, steps, channels)
    targets: NDArray[np.float32]
    batches: Iterator[NDArray[np.int64]]
    clip: float

    def train(self, updates: int, progress: Progress = silent) -> FloatArray:
        """Take further updates, and return their losses, (updates, networks)."""
        given: dict[str, Any] = {"steps": updates, "clip": self.clip, "progress": progress}
        return self.stack.train(self.inputs, self.targets, self.batches, **given)

    def each(self) -> list[tuple[CellReadout, Optimizer]]:
        """Return every network with its optimiser."""
        return list(zip(self.stack.models, self.stack.optimizers, strict=True))


@dataclass(frozen=True)
class DiagnosedRun(Run):
    """A run on the multi-lag task."""

    diagnosed: int
    sample_sizes: tuple[int, ...]
    nulls: int
    watched: int
    moments: tuple[int, ...]
    early: int
    memory: int

    def direction(self, seed: int) -> FloatArray:
        """Return the direction of the inputs to which the target of a seed refers."""
        return tasks.random_direction(self.training.inputs, np.random.default_rng([seed, 0]))

    def trials(self, number: int, stream: int, seed: int) -> Pair:
        """Return sequences of the multi-lag task."""
        given: dict[str, Any] = {"steps": self.training.steps, "lags": self.training.task_lags}
        rng = np.random.default_rng([seed, stream])
        return tasks.multi_lag_trials(number, rng, direction=self.direction(seed), **given)


def diagnose(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train networks and return their diagnosis, over (gate, seed), and some of it during training."""
    run = DiagnosedRun.from_dict(settings)
    trainer = run.trainer(partial(run.trials, run.training.sequences, 3))
    moments = sorted({k for k in (*run.moments, run.early) if 0 < k < run.updates} | {run.updates})
    parts: list[list[xr.Dataset]] = [[] for _ in run.networks]
    extra: list[dict[str, xr.DataArray]] = [{} for _ in run.networks]
    for before, after in zip([0, *moments], moments, strict=False):
        part = share_of(progress, TRAINING * before / run.updates, TRAINING * after / run.updates)
        losses = trainer.train(after - before, part)
        for k, (_, seed) in enumerate(run.networks):
            parts[k].append(_watched(run, *trainer.each()[k], seed).assign(batch_loss=float(losses[-10:, k].mean())))
            if after == run.early < run.updates:
                early = _window(run, *trainer.each()[k], seed, control=True)
                extra[k] = {"early_window": early["window"], "early_reach": early["attributable_reach"]}
    results = []
    for k, (_, seed) in enumerate(run.networks):
        course = xr.concat(parts[k], "update", combine_attrs="override").rename({n: f"watched_{n}" for n in _WATCHED})
        course = course.assign_coords(update=("update", moments, described("training", STEPS)))
        end = _end(run, *trainer.each()[k], seed)
        results.append(xr.merge([end, course, xr.Dataset(extra[k])], combine_attrs="override"))
        progress(TRAINING + (1 - TRAINING) * (k + 1) / len(run.networks))
    joined = xr.concat(results, "network", combine_attrs="override", join="exact", data_vars="all")
    rows = [joined.isel(network=slice(k, k + len(run.seeds))) for k in range(0, len(results), len(run.seeds))]
    over = [row.rename(network="seed").assign_coords(seed=list(run.seeds)) for row in rows]
    gates = [np.nan if gate is None else gate for gate in run.gates]
    return xr.concat(over, "gate", combine_attrs="override", join="exact").assign_coords(gate=gates)


def _window(
    run: DiagnosedRun, model: CellReadout, optimizer: Optimizer, seed: int, method: str = "sound", **more: Any
) -> xr.Dataset:
    """Return the diagnosis of a network by one rule, with further options of the measurement."""
    from learncast.windows import Batching, DetectionRule, Measurement, window

    rule = DetectionRule(method=method, nulls=run.nulls, sample_sizes=run.sample_sizes, seed=seed)
    options: dict[str, Any] = {"rule": rule, "batching": Batching(memory=run.memory), "optimizer": optimizer}
    inputs, targets = run.trials(run.diagnosed, 4, seed)
    measurement = Measurement(lags=run.training.lags, **more)
    return window(model, inputs, targets, measurement=measurement, **options).dataset.isel(layer=0, drop=True)


def _watched(run: DiagnosedRun, model: CellReadout, optimizer: Optimizer, seed: int) -> xr.Dataset:
    """Return envelope, tail index, time scales and loss on a few sequences."""
    from learncast.windows import DetectionRule, Measurement, window

    inputs, targets = run.trials(run.watched, 5, seed)
    lags = tuple(lag for lag in run.training.lags if lag <= run.training.task_lags[-1])
    options: dict[str, Any] = {"measurement": Measurement(lags=lags, directions=1), "rule": DetectionRule(nulls=19)}
    now = window(model, inputs, targets, optimizer=optimizer, **options).dataset.isel(layer=0, drop=True)
    error = model.answers(inputs) - targets
    kept = now[_WATCHED].rename(lag="short_lag")
    return kept.assign(watched_loss=((), float(np.mean(error**2)), described("mean squared error", "target^2")))


def _end(run: DiagnosedRun, model: CellReadout, optimizer: Optimizer, seed: int) -> xr.Dataset:
    """Return the diagnosis of a trained network: with a control and by the paper's rule if there was an early one."""
    merged, inputs, targets = xr.Dataset(), *run.trials(_FEW, 6, seed)
    if run.early:
        merged = _window(run, model, optimizer, seed, control=True, exact=run.exact)[[*_KEPT, *_CONTROLLED]]
        # The rule of the paper projects onto one direction.
        theirs = _window(run, model, optimizer, seed, "paper", directions=1)
        merged = merged.assign({f"paper_rule_{name}": theirs[name] for name in ("window", "validity_silent_null")})
    elif run.diagnosed:
        merged = _window(run, model, optimizer, seed)[_KEPT]
    longest, z = run.training.task_lags[-1], (inputs @ run.direction(seed))[..., None]
    moments = [(v[:, longest:] * z[:, :-longest]).mean() for v in (model.answers(inputs), targets)]
    recovered = described("weight of the task's longest lag in the answers, share of the target's", "1")
    merged["recovered"] = ((), moments[0] / moments[1], recovered)
    for name, value in zip(("pooled", "block"), _tails(run, model, inputs, targets, seed), strict=True):
        text = {"pooled": "single terms of the gradient", "block": "means of 16 of them"}[name]
        merged[f"{name}_tail_index"] = ((), value, described(f"tail index of {text}, median over lags", "1"))
    if run.diagnosed:
        first, more, *_ = envelopes(model, optimizer, inputs, list(run.training.lags))
        merged["envelope_auxiliary"] = ("lag", merged["envelope"].values * more / first, _AUXILIARY)
    return merged


_AUXILIARY = described("envelope with the auxiliary terms of eq. (58)", _RATE)


def _tails(run: DiagnosedRun, model: CellReadout, inputs: FloatArray, targets: FloatArray, seed: int) -> list[float]:
    """Return the tail index of the terms of a gradient, pooled over sequences and steps, and of means of 16 terms."""
    from learncast.windows.detection.tail_index import fit_tail_index
    from learncast.windows.transport.terms import gradient_terms

    rng, found = np.random.default_rng([seed, 7]), []
    for _, terms in gradient_terms(model, inputs, targets, run.training.task_lags, seed=int(rng.integers(2**31))):
        pooled = rng.permutation(terms.ravel())[: terms.size // 16 * 16]
        found.append([fit_tail_index(values).index for values in (pooled, pooled.reshape(-1, 16).mean(axis=1))])
    return [float(value) for value in np.nanmedian(np.array(found, dtype=float), axis=0)]


def envelopes(
    model: CellReadout, optimizer: Optimizer, inputs: FloatArray, lags: list[int]
) -> tuple[FloatArray, FloatArray, Any, Any]:
    """Return the first-order envelope without and with a GRU's auxiliary terms, the replay and its base rates."""
    from learncast.windows.cells import PaperGRU
    from learncast.windows.layers import capture
    from learncast.windows.transport import base_rates, mean_transport, parameter_rates

    seen = capture(model, model.weights.new_tensor(inputs))
    replay = seen.replay()
    rates = base_rates(replay, parameter_rates(optimizer, seen.layers[0].own))
    first, more = mean_transport(replay, lags, rates=rates).envelope, np.full(len(lags), np.nan)
    if isinstance(model.block, PaperGRU):
        more = mean_transport(replay, lags, rates=rates, auxiliary=True).envelope
    return first, more, replay, rates


def _parts(seeds: tuple[int, ...], number: int) -> list[tuple[int, ...]]:
    return [seeds[k : k + number] for k in range(0, len(seeds), number)]


def diagnosis_runs(optimizer: str, preset: Preset, size: RunSize | None = None) -> list[PaperRun]:
    """Return the runs of every cell under one optimiser; none if the preset does not have it."""
    if optimizer not in preset.schedules:
        return []
    schedule = preset.schedules[optimizer]
    own = _trained_by(optimizer, schedule, size or preset.main)
    own |= {} if optimizer == "AdamW" else {"early": 0}
    return [
        DiagnosedRun.of(cell, preset, **own, seeds=seeds, gates=(_gate(cell, size or preset.main),))
        for cell in preset.cells_of(optimizer)
        for seeds in _parts(preset.seeds, preset.stack)
    ]


def _gate(cell: str, size: RunSize) -> float | None:
    return None if cell in ("paper-gru", "paper-lstm") else size.gate


def _trained_by(optimizer: str, schedule: Schedule, size: RunSize) -> dict[str, object]:
    chosen = OPTIMIZERS[optimizer] | {"learning_rate": schedule.rate}
    return {"optimizer": chosen, "updates": schedule.updates, "normalised": True, "training": size}


def dial_runs(preset: Preset, size: RunSize | None = None) -> list[PaperRun]:
    """Return the runs of ConstGate with several gates, whose envelopes are those recorded during training."""
    schedule = replace(preset.schedules["AdamW"], updates=preset.dial_updates)
    own = _trained_by("AdamW", schedule, size or preset.main)
    own |= {"gates": preset.dial, "moments": (1,), "early": 0, "diagnosed": 0}
    parts = _parts(preset.seeds, preset.stack) if preset.dial else []
    return [DiagnosedRun.of("const-gate", preset, **own, seeds=seeds) for seeds in parts]


def stacked(results: Sequence[xr.Dataset], cells: Sequence[str]) -> xr.Dataset:
    """Return the results of every cell and seed, over (cell, seed)."""
    each = len(results) // len(cells)
    options: dict[str, Any] = {"combine_attrs": "override", "join": "exact"}
    rows = [xr.concat(results[k : k + each], "seed", **options) for k in range(0, len(results), each)]
    plain = [row.isel(gate=0, drop=True) for row in rows]
    return xr.concat(plain, "cell", **options).assign_coords(cell=[CELLS[cell] for cell in cells])


class ValidatedRun(Run):
    """A run of appendix C."""


def validation_runs(preset: Preset) -> list[PaperRun]:
    """Return the runs of every cell and optimiser of appendix C."""
    own: dict[str, object] = {"normalised": False, "training": preset.validation, "updates": preset.validation_updates}
    return [
        ValidatedRun.of(cell, preset, **own, optimizer={**kind, "learning_rate": 1e-3}, seeds=seeds, gates=(gate,))
        for cell in preset.cells
        for kind in VALIDATED.values()
        for seeds in _parts(preset.validation_seeds, preset.stack)
        # The value of the constant gate, and the initial value of shared and diagonal gates.
        for gate in (0.1 if cell not in ("paper-gru", "paper-lstm") else None,)
    ]


def harmonic_trials(
    trials: int, rng: np.random.Generator, *, steps: int, direction: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return random sequences of appendix C's task: sums of five harmonics with random phases, and their delayed tanh.

    x_t,d = sum_k sin(2 pi k t / 50 + phase_k,d) / k and y_t = sum_j c_j tanh(u x_{t - lag_j}) + noise.

    Returns
    -------
    inputs : (trials, steps, inputs)
    targets : (trials, steps, 1)
    """
    phases = rng.uniform(0.0, 2 * np.pi, (trials, HARMONICS, len(direction)))
    inputs = np.zeros((trials, steps, len(direction)))
    for order, phase in enumerate(phases.swapaxes(0, 1), start=1):
        inputs += np.sin(2 * np.pi * order * np.arange(steps)[None, :, None] / PERIOD + phase[:, None]) / order
    targets, signal = NOISE * rng.standard_normal((trials, steps, 1)), np.tanh(inputs @ direction)
    for lag, weight in zip(HARMONIC_LAGS, HARMONIC_WEIGHTS, strict=True):
        targets[:, lag:, 0] += weight * signal[:, : steps - lag]
    return inputs, targets


def compare_envelopes(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train networks, and return first-order and exact envelopes on some of their training sequences, over seeds."""
    from learncast.windows.transport.exact import exact_transport

    run = ValidatedRun.from_dict(settings)
    training, lags = run.training, list(run.training.lags)

    def data(seed: int) -> Pair:
        u = tasks.random_direction(training.inputs, np.random.default_rng([seed, 0]))
        rng = np.random.default_rng([seed, 3])
        return harmonic_trials(training.sequences, rng, steps=training.steps, direction=u)

    trainer = run.trainer(data)
    trainer.train(run.updates, share_of(progress, 0, 0.5))
    rows = []
    for (model, optimizer), inputs in zip(trainer.each(), trainer.inputs, strict=True):
        first, more, replay, rates = envelopes(model, optimizer, inputs[: run.exact], lags)
        exact = exact_transport(replay, lags, rates=rates)
        rows.append([first, more, exact.envelope, exact.frobenius])
        progress(0.5 + 0.5 * len(rows) / len(run.seeds))
    texts = {
        "envelope": described("first-order envelope", _RATE),
        "envelope_auxiliary": _AUXILIARY,
        "exact_envelope": described("envelope of the exact diagonal", _RATE),
        "frobenius": described("Frobenius norm of the exact transport", "1"),
    }
    columns = dict(zip(texts, np.array(rows).swapaxes(0, 1), strict=True))
    made = {name: (("seed", "lag"), columns[name], text) for name, text in texts.items()}
    return xr.Dataset(made, {"lag": lags, "seed": list(run.seeds)})


#: Time steps and sequences of the data on which costs are measured.
_SHORT, _LEAST = 64, 16


def estimated_seconds(settings: Settings) -> float:
    """Estimate the CPU seconds of a run on this device from passes over short sequences."""
    run = (DiagnosedRun if "diagnosed" in settings else ValidatedRun).from_dict(settings)
    update, diagnosis = _seconds(run.cell, run.training, len(run.networks), run.device)
    seconds = run.updates * update
    if isinstance(run, DiagnosedRun):
        watched = 0.5 * run.watched * sum(k <= run.updates for k in run.moments)
        # With two directions: two rules and a control at the end, a rule and a control early on.
        seconds += len(run.networks) * diagnosis * ((4.5 if run.early else 1) * run.diagnosed + watched)
    return seconds * run.training.steps / min(run.training.steps, _SHORT)


@cache
def _seconds(cell: str, size: RunSize, number: int, device: str) -> tuple[float, float]:
    """Measure the seconds of an update of stacked networks, and of the diagnosis of a sequence, on short sequences.

    The cost of an update is a line through those of two small batches.
    """
    from learncast.windows import DetectionRule, Measurement, window

    rng, short = np.random.default_rng(0), min(size.steps, _SHORT)
    data = rng.standard_normal((3 * _LEAST, short, size.inputs)), rng.standard_normal((3 * _LEAST, short, 1))
    gates = (None,) if cell in ("paper-gru", "paper-lstm") else (0.1,)
    run = Run(cell, {"kind": "sgd", "learning_rate": 1e-3}, tuple(range(number)), gates, True, size, 1, 1.0, device, 0)
    batches = np.array([_LEAST, 3 * _LEAST])
    trainers = [replace(run, training=replace(size, batch=int(batch))).trainer(lambda _: data) for batch in batches]
    slope, start = np.polyfit(batches, [_cpu_seconds(partial(one.train, 1)) for one in trainers], 1)
    lags = tuple(int(lag) for lag in np.unique(np.linspace(1, short - 2, len(size.lags)).round()))
    options: dict[str, Any] = {"rule": DetectionRule(nulls=19), "measurement": Measurement(lags=lags)}
    diagnosis = _cpu_seconds(partial(window, trainers[0].stack.models[0], *data, **options))
    update = max(float(start), 0.0) + max(float(slope), 0.0) * size.batch
    return update, diagnosis / len(data[0]) * len(size.lags) / len(lags)


def _cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, after one that loads what it needs."""
    call()
    begun = time.process_time()
    call()
    return time.process_time() - begun
