"""The runs behind the figures of livi2025: trained networks and their diagnosis."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import cache, partial
from typing import TYPE_CHECKING, Any, NamedTuple, Self

import numpy as np
import xarray as xr

from learncast import UnsupportedModel, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.learnability.preset import CELLS, LEARNED_GATES, OPTIMIZERS, VALIDATED, Preset, RunSize
from learncast.papers.runs import PaperRun, Settings, share_of
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from learncast.windows.example_model import CellReadout

Pair = tuple[FloatArray, FloatArray]
#: Share of a run's progress that is training.
TRAINING = 0.8
_ENDS = 10
#: Sequences on which two forms of an envelope are compared.
_FEW = 64
#: Variables of a diagnosis, and of one by the published rule, that figures need.
_KEPT = ["envelope", "envelope_gate", "signal", "score", "critical_score", "tail_index", "scale", "total_scale",
         "required_sequences", "window", "contiguous_window", "null_window", "time_scale"]  # fmt: skip
_PUBLISHED = ["tail_index", "scale", "window", "validity_silent_null"]
#: Variables that are recorded during training, and the shares of training at which they are.
_WATCHED = ["envelope", "tail_index", "time_scale"]
WATCHED_AT = (0.0, 0.125, 0.25, 0.5, 1.0)
#: Initial value of learned gates: in the text, and in the scripts (where those of the GRU and LSTM are about 0.5).
GATES = (0.5, 0.05)
_RATE = "parameter change per gradient"
#: Appendix C's task: lags and weights of the target, harmonics, longest period and noise.
HARMONIC_LAGS, HARMONIC_WEIGHTS, HARMONICS, PERIOD, NOISE = (5, 20, 50), (1.0, 0.5, 0.25), 5, 50.0, 0.01


@dataclass(frozen=True)
class Run:
    """One network: its cell, its optimiser and its training.

    Attributes
    ----------
    optimizer : dict
        Kind, learning rate and settings.
    gate : float, optional
        Initial value of the gate; by default that of the cell (0.05, or random biases for a GRU or LSTM).
    normalised : bool
        Whether the candidate is normalised.
    """

    cell: str
    optimizer: dict[str, Any]
    seed: int
    gate: float | None
    normalised: bool
    training: RunSize
    clip: float
    device: str

    @classmethod
    def of(cls, cell: str, optimizer: Mapping[str, object], seed: int, preset: Preset, **own: object) -> Self:
        """Return a run in a preset; it contains only the settings that determine its result."""
        names = {field.name for field in fields(cls)} & {field.name for field in fields(preset)}
        shared = {name: getattr(preset, name) for name in names}
        return cls(cell=cell, optimizer=dict(optimizer), seed=seed, **{"gate": None, **shared, **own})

    @classmethod
    def from_dict(cls, stored: Settings) -> Self:
        """Return the run of the result of `asdict`, whose tuples may have become lists."""
        values = _with_tuples(stored)
        return cls(**{**values, "training": RunSize(**values["training"])})

    def model(self) -> CellReadout:
        """Return the network before training, on its device."""
        from learncast.windows.example_model import build_model

        sizes: dict[str, Any] = {"inputs": self.training.inputs, "outputs": 1, "hidden_size": self.training.hidden_size}
        sizes |= {} if self.gate is None else {"gate": self.gate}
        model = build_model(self.cell, seed=self.seed, layer_norm=self.normalised, orthogonal=True, **sizes)
        place = "cuda" if self.device == "auto" else self.device
        try:
            return model.to(place)
        except (AssertionError, RuntimeError) as error:
            if self.device == "auto":
                return model
            raise UnsupportedModel(f"device {place!r} is not available. Use --device cpu.", field="device") from error

    def trainer(self, data: Callable[[], Pair]) -> CellTrainer:
        """Return the trainer of the network."""
        from learncast.windows.example_model import build_optimizer

        model, rng = self.model(), np.random.default_rng([self.seed, 2])
        return CellTrainer(self, model, build_optimizer(model=model, **self.optimizer), data(), rng)


def _with_tuples(value: object) -> Any:
    if isinstance(value, Mapping):
        return {key: _with_tuples(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, eq=False)
class CellTrainer:
    """A network in training, which can be continued in parts with the same result."""

    run: Run
    model: CellReadout
    optimizer: Any
    data: Pair
    rng: np.random.Generator

    def train(self, updates: int, progress: Progress = silent) -> FloatArray:
        """Take `updates` further steps, and return their losses."""
        from learncast.windows.example_model import train_on_batches

        place = self.model.weights.device
        # The data stay in main memory; batches are copied to the device.
        to_device = self.model.register_forward_pre_hook(lambda _, given: (given[0].to(place),))
        back = self.model.register_forward_hook(lambda _, __, answers: answers.cpu())
        batches: dict[str, Any] = {"batch": self.run.training.batch, "clip": self.run.clip, "rng": self.rng}
        try:
            return train_on_batches(self.model, self.optimizer, *self.data, steps=updates, progress=progress, **batches)
        finally:
            to_device.remove()
            back.remove()


@dataclass(frozen=True)
class DiagnosedRun(Run):
    """A run of figures 1 to 13."""

    task_lags: tuple[int, ...]
    diagnosed: int
    sample_sizes: tuple[int, ...]
    nulls: int
    watched: int
    memory: int

    def trials(self, number: int, stream: int) -> Pair:
        """Return sequences of the multi-lag task."""
        u = tasks.random_direction(self.training.inputs, np.random.default_rng([self.seed, 0]))
        rng = np.random.default_rng([self.seed, stream])
        return tasks.multi_lag_trials(number, rng, steps=self.training.steps, direction=u, lags=self.task_lags)


def diagnose(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train a network and return its diagnosis by both rules, and its time scales during training."""
    from learncast.windows import Batching, DetectionRule, Measurement, window

    run = DiagnosedRun.from_dict(settings)
    measurement, batching = Measurement(lags=run.training.lags), Batching(memory=run.memory)
    rule = DetectionRule(nulls=run.nulls, sample_sizes=run.sample_sizes, seed=run.seed)
    trainer = run.trainer(partial(run.trials, run.training.sequences, 3))
    options: dict[str, object] = {"optimizer": trainer.optimizer, "batching": batching, "rule": rule}
    course, losses = _watched(run, trainer, share_of(progress, 0, TRAINING), options)
    inputs, targets = run.trials(run.diagnosed, 4)
    sound = window(trainer.model, inputs, targets, measurement=measurement, **options)
    progress((2 + TRAINING) / 3)
    # The published rule projects onto one direction.
    paper = {**options, "rule": replace(rule, method="paper")}
    published = window(trainer.model, inputs, targets, measurement=replace(measurement, directions=1), **paper)
    progress((1 + 2 * TRAINING) / 3)
    # With targets of other sequences only the network's own answer is left.
    unrelated = window(trainer.model, inputs, np.roll(targets, 1, axis=0), measurement=measurement, **options)
    ours, theirs, own = (one.dataset.isel(layer=0, drop=True) for one in (sound, published, unrelated))
    parts = [
        ours[_KEPT],
        theirs[_PUBLISHED].rename({name: f"published_{name}" for name in _PUBLISHED}),
        own[["signal", "score", "window"]].rename({k: f"unrelated_{k}" for k in ("signal", "score", "window")}),
        course,
    ]
    merged = xr.merge(parts, combine_attrs="override")
    more = merged["envelope"].values * _auxiliary_share(run, trainer, inputs[:_FEW])
    merged["envelope_auxiliary"] = ("lag", more, _AUXILIARY)
    for name, value in zip(("first", "last"), (losses[:_ENDS].mean(), losses[-_ENDS:].mean()), strict=True):
        merged[f"loss_{name}"] = ((), float(value), described(f"mean loss of the {name} {_ENDS} steps", "target^2"))
    progress(1.0)
    return merged


_AUXILIARY = described("envelope with the auxiliary terms of eq. (58)", _RATE)


def _watched(
    run: DiagnosedRun, trainer: CellTrainer, progress: Progress, options: Mapping[str, object]
) -> tuple[xr.Dataset, FloatArray]:
    """Train, and return time scales, envelope and tail index at some moments of training, and all losses."""
    from learncast.windows import Measurement, window

    updates, losses, diagnoses = run.training.updates, [], []
    moments = sorted({max(1, round(share * updates)) for share in WATCHED_AT}) if run.watched else [updates]
    inputs, targets = run.trials(max(run.watched, 1), 5)
    question = {**options, "measurement": Measurement(lags=run.training.lags, directions=1)}
    for before, after in zip([0, *moments], moments, strict=False):
        losses.append(trainer.train(after - before, share_of(progress, before / updates, after / updates)))
        if run.watched:
            now = window(trainer.model, inputs, targets, **question).dataset
            diagnoses.append(now.isel(layer=0, drop=True)[_WATCHED])
    if not diagnoses:
        return xr.Dataset(), np.concatenate(losses)
    course = xr.concat(diagnoses, "update", combine_attrs="override").rename({k: f"watched_{k}" for k in _WATCHED})
    course["watched_loss"] = ("update", [float(part[-_ENDS:].mean()) for part in losses], described("loss", "target^2"))
    return course.assign_coords(update=("update", moments, described("training", STEPS))), np.concatenate(losses)


def _auxiliary_share(run: Run, trainer: CellTrainer, inputs: FloatArray) -> FloatArray:
    """Return the ratio of a GRU's envelope with to that without the reset-gate products of eq. (58); else nan."""
    lags = list(run.training.lags)
    if run.cell != "paper-gru":
        return np.full(len(lags), np.nan)
    first, more, *_ = _compared(trainer, inputs, lags)
    return more / first


def _compared(
    trainer: CellTrainer, inputs: FloatArray, lags: list[int], times: int | None = None
) -> tuple[FloatArray, FloatArray, Any, Any]:
    """Return the first-order envelope without and with a GRU's auxiliary terms, the replay and its base rates."""
    from learncast.windows.layers import capture
    from learncast.windows.transport import base_rates, mean_transport, parameter_rates

    seen = capture(trainer.model, trainer.model.weights.new_tensor(inputs))
    replay = seen.replay()
    rates = base_rates(replay, parameter_rates(trainer.optimizer, seen.layers[0].own))
    if times is not None:
        rates = at_random_times(rates, lags, times, np.random.default_rng([trainer.run.seed, 6]))

    def envelope(auxiliary: bool) -> FloatArray:
        if times is None:
            return mean_transport(replay, lags, rates=rates, auxiliary=auxiliary).envelope
        each = zip(lags, rates, strict=True)
        return np.array([mean_transport(replay, [k], rates=r, auxiliary=auxiliary).envelope[0] for k, r in each])

    more = envelope(True) if trainer.run.cell == "paper-gru" else np.full(len(lags), np.nan)
    return envelope(False), more, replay, rates


def at_random_times(rates: Any, lags: list[int], times: int, rng: np.random.Generator) -> object:
    """Return base rates, (lags, time, batch, hidden), whose mean over all times is a mean over random times.

    Rates are kept at `times` sources of each sequence, and scaled up accordingly.
    """
    steps, batch, _ = rates.shape
    weights = np.zeros((len(lags), steps, batch, 1))
    for row, lag in enumerate(lags):
        sources = np.arange(1, steps - lag)
        for sequence in range(batch):
            chosen = rng.choice(sources, min(times, len(sources)), replace=False)
            weights[row, chosen, sequence] = (steps - lag) / len(chosen)
    return rates.nan_to_num(0.0) * rates.new_tensor(weights)


def diagnosis_runs(optimizer: str, preset: Preset) -> list[PaperRun]:
    """Return the runs of every cell and seed under one optimiser; those under AdamW are recorded during training."""
    return [_diagnosis(cell, optimizer, seed, preset) for cell in preset.cells for seed in preset.seeds]


def _diagnosis(cell: str, optimizer: str, seed: int, preset: Preset, gate: float | None = None) -> PaperRun:
    chosen = OPTIMIZERS[optimizer] | {"learning_rate": preset.rates[optimizer]}
    watched = preset.watched if optimizer == "AdamW" and gate is None else 0
    own: dict[str, object] = {"gate": gate, "normalised": True, "training": preset.main, "watched": watched}
    return PaperRun(diagnose, asdict(DiagnosedRun.of(cell, chosen, seed, preset, **own)))


def gate_runs(preset: Preset) -> list[PaperRun]:
    """Return the runs of every cell with learned gates from both initial values, including those of figure 1."""
    # By default shared and diagonal gates start at the value of the scripts, those of a GRU and LSTM near the text's.
    own = {cell: GATES[1] if cell in ("shared-gate", "diag-gate") else GATES[0] for cell in LEARNED_GATES}
    cells = [cell for cell in preset.cells if cell in LEARNED_GATES]
    return [
        _diagnosis(cell, "AdamW", seed, preset, None if gate == own[cell] else gate)
        for gate in GATES
        for cell in cells
        for seed in preset.seeds
    ]


def stacked(results: list[xr.Dataset], cells: tuple[str, ...], preset: Preset) -> xr.Dataset:
    """Return the results of every cell and seed, over (cell, seed)."""
    each = len(preset.seeds)
    options: dict[str, Any] = {"combine_attrs": "override", "join": "exact"}
    rows = [xr.concat(results[k : k + each], "seed", **options) for k in range(0, len(results), each)]
    return xr.concat(rows, "cell", **options).assign_coords(
        cell=[CELLS[cell] for cell in cells], seed=list(preset.seeds)
    )


@dataclass(frozen=True)
class ValidatedRun(Run):
    """A run of appendix C."""

    exact: int
    times: int | None


def validation_runs(preset: Preset) -> list[PaperRun]:
    """Return the runs of every cell, optimiser and seed of appendix C."""
    own: dict[str, object] = {"normalised": False, "training": preset.validation}
    return [
        PaperRun(compare_envelopes, asdict(ValidatedRun.of(cell, chosen, seed, preset, gate=gate, **own)))
        for cell in preset.cells
        for chosen in ({**kind, "learning_rate": 1e-3} for kind in VALIDATED.values())
        for seed in preset.validation_seeds
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
    k = np.arange(1, HARMONICS + 1)[:, None]
    phases = rng.uniform(0.0, 2 * np.pi, (trials, HARMONICS, len(direction)))
    t = np.arange(steps)
    inputs = np.zeros((trials, steps, len(direction)))
    for order, phase in zip(k.ravel(), phases.swapaxes(0, 1), strict=True):
        inputs += np.sin(2 * np.pi * order * t[None, :, None] / PERIOD + phase[:, None]) / order
    targets, signal = NOISE * rng.standard_normal((trials, steps, 1)), np.tanh(inputs @ direction)
    for lag, weight in zip(HARMONIC_LAGS, HARMONIC_WEIGHTS, strict=True):
        targets[:, lag:, 0] += weight * signal[:, : steps - lag]
    return inputs, targets


def compare_envelopes(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train a network, and return its first-order and exact envelope on some of its training sequences."""
    from learncast.windows.transport.exact import exact_transport

    run = ValidatedRun.from_dict(settings)
    training, lags = run.training, list(run.training.lags)
    u = tasks.random_direction(training.inputs, np.random.default_rng([run.seed, 0]))
    rng = np.random.default_rng([run.seed, 3])
    trainer = run.trainer(partial(harmonic_trials, training.sequences, rng, steps=training.steps, direction=u))
    losses = trainer.train(training.updates, share_of(progress, 0, 0.5))
    first, more, replay, rates = _compared(trainer, trainer.data[0][: run.exact], lags, run.times)
    exact = exact_transport(replay, lags, rates=rates)
    progress(1.0)
    return xr.Dataset(
        {
            "envelope": ("lag", first, described("first-order envelope", _RATE)),
            "envelope_auxiliary": ("lag", more, _AUXILIARY),
            "exact_envelope": ("lag", exact.envelope, described("envelope of the exact diagonal", _RATE)),
            "frobenius": ("lag", exact.frobenius, described("Frobenius norm of the exact transport", "1")),
            "loss_last": ((), float(losses[-_ENDS:].mean()), described("loss at the end", "target^2")),
        },
        {"lag": lags},
    )


def estimated_seconds(settings: Settings) -> float:
    """Estimate the CPU seconds of a run on this device from passes over short sequences.

    Optimiser, seed and initial gate do not change the cost: runs that differ only in these are measured once. The
    estimate for the exact transport of appendix C is that of its matrix products.
    """
    kind = DiagnosedRun if "diagnosed" in settings else ValidatedRun
    run = kind.from_dict(settings)
    network = _Costs(run.cell, run.normalised, run.training, run.device)
    seconds = _training_seconds(network) * run.training.updates
    if isinstance(run, ValidatedRun):
        jumps, width = 2 * len(run.training.lags), run.training.hidden_size * (2 if run.cell == "paper-lstm" else 1)
        return seconds + _product_seconds(width) * jumps * run.exact * run.training.steps
    sequences = 2.5 * run.diagnosed + 0.5 * run.watched * len(WATCHED_AT)
    return seconds + _diagnosis_seconds(network) * sequences


class _Costs(NamedTuple):
    """What the cost of a training step, or of the diagnosis of one sequence, depends on."""

    cell: str
    normalised: bool
    training: RunSize
    device: str

    def model(self) -> CellReadout:
        return Run(self.cell, {}, 0, None, self.normalised, self.training, 0.0, self.device).model()

    def sequences(self, number: int) -> Pair:
        """Return short random sequences."""
        rng, sizes = np.random.default_rng(0), (number, min(self.training.steps, _SHORT))
        return rng.standard_normal((*sizes, self.training.inputs)), rng.standard_normal((*sizes, 1))

    def of_all_steps(self, seconds: float) -> float:
        """Return the seconds of full sequences from those of short ones: the cost of a step of time is constant."""
        return seconds * self.training.steps / min(self.training.steps, _SHORT)


#: Time steps of the sequences on which costs are measured, and the smallest number of sequences of a diagnosis.
_SHORT, _LEAST = 64, 16


@cache
def _training_seconds(network: _Costs) -> float:
    """Estimate the seconds of a training step: a line through the costs of two small batches."""
    model = network.model()

    def seconds(batch: int) -> float:
        inputs, targets = (model.weights.new_tensor(one) for one in network.sequences(batch))
        return _cpu_seconds(lambda: ((model(inputs) - targets) ** 2).mean().backward())

    few = min(network.training.batch, _LEAST)
    batches = np.array([few, 3 * few])
    slope, start = np.polyfit(batches, [seconds(int(batch)) for batch in batches], 1)
    return network.of_all_steps(max(start, 0.0) + max(slope, 0.0) * network.training.batch)


@cache
def _diagnosis_seconds(network: _Costs) -> float:
    """Estimate the seconds of the diagnosis of one sequence: a line through the costs of two numbers of lags."""
    from learncast.windows import DetectionRule, Measurement, window

    model, (inputs, targets) = network.model(), network.sequences(_LEAST)
    rule, longest = DetectionRule(nulls=19, sample_sizes=(_LEAST,)), inputs.shape[1] - 2
    numbers = np.array([4, 16])

    def seconds(number: int) -> float:
        lags = np.unique(np.linspace(1, longest, number).round().astype(int))
        return _cpu_seconds(lambda: window(model, inputs, targets, measurement=Measurement(lags=lags), rule=rule))

    slope, start = np.polyfit(numbers, [seconds(int(number)) for number in numbers], 1)
    return network.of_all_steps(max(start, 0.0) + max(slope, 0.0) * len(network.training.lags)) / _LEAST


@cache
def _product_seconds(width: int) -> float:
    """Measure the seconds of a product of two square matrices."""
    a = np.ones((64, width, width))
    return _cpu_seconds(lambda: a @ a) / 64


def _cpu_seconds(call: Callable[[], object]) -> float:
    """Return the CPU seconds of a call, after one that loads what it needs."""
    call()
    begun = time.process_time()
    call()
    return time.process_time() - begun
