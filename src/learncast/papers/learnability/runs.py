"""The trained networks behind the figures of livi2025, each run a function of its settings."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xarray as xr

from learncast import tasks
from learncast._core.errors import UnsupportedModel
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.learnability.preset import CELLS, LEARNED_GATES, OPTIMIZERS, VALIDATED, Preset, Training
from learncast.papers.runs import PaperRun, share_of
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from learncast.windows.example_model import CellReadout

Pair = tuple[FloatArray, FloatArray]
#: Share of a run's progress that is training.
TRAINING = 0.8
_ENDS = 10
#: Sequences on which two ways of writing an envelope are compared.
_FEW = 64
#: What figures need of a diagnosis, and of one by the published rule.
_KEPT = ["envelope", "envelope_gate", "signal", "score", "critical_score", "tail_index", "scale", "total_scale",
         "required_sequences", "window", "contiguous_window", "null_window", "time_scale"]  # fmt: skip
_PUBLISHED = ["tail_index", "scale", "window", "validity_silent_null"]
#: What is followed over training, and at which shares of it.
_WATCHED = ["envelope", "tail_index", "time_scale"]
WATCHED_AT = (0.0, 0.125, 0.25, 0.5, 1.0)
#: Initial value of learned gates: in the text, and in the scripts (which let the GRU's and LSTM's be about 0.5).
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
        Initial value of the gate; the cell's own by default (0.05, or random biases for a GRU or LSTM).
    normalised : bool
        Whether the candidate is normalised.
    """

    cell: str
    optimizer: dict[str, Any]
    seed: int
    gate: float | None
    normalised: bool
    training: Training
    clip: float
    device: str

    @classmethod
    def of(cls, cell: str, optimizer: Mapping[str, Any], seed: int, preset: Preset, **own: Any) -> Self:
        """A run in a preset, of which it takes what decides its result and nothing else."""
        names = {field.name for field in fields(cls)} & {field.name for field in fields(preset)}
        shared = {name: getattr(preset, name) for name in names}
        return cls(cell=cell, optimizer=dict(optimizer), seed=seed, **{"gate": None, **shared, **own})

    @classmethod
    def from_described(cls, stored: Mapping[str, Any]) -> Self:
        """Read back what `asdict` gave, also after lists have taken the place of tuples."""
        values = _frozen(stored)
        return cls(**{**values, "training": Training(**values["training"])})

    def model(self) -> CellReadout:
        """The network before training, on its device."""
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
            raise UnsupportedModel(
                required=f"these runs need the device {place!r}",
                got=" ".join(str(error).split())[:120],
                why="they were asked to train there",
                remedy="use a machine that has one, or --device cpu, for which --dry-run tells the time",
            ) from error

    def trainer(self, data: Callable[[], Pair]) -> Trainer:
        """What trains the network."""
        from learncast.windows.example_model import build_optimizer

        model, rng = self.model(), np.random.default_rng([self.seed, 2])
        return Trainer(self, model, build_optimizer(model=model, **self.optimizer), data(), rng)


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


@dataclass(frozen=True, eq=False)
class Trainer:
    """A network in training: so many steps at a time, always the same steps in all."""

    run: Run
    model: CellReadout
    optimizer: Any
    data: Pair
    rng: np.random.Generator

    def train(self, updates: int, progress: Progress = silent) -> FloatArray:
        """Take so many further steps; their losses."""
        from learncast.windows.example_model import train_on_batches

        place = self.model.weights.device
        # The data stay in main memory whatever the device, and visit it in batches.
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
    """A run of figures 1 to 13: what decides its diagnosis."""

    task_lags: tuple[int, ...]
    diagnosed: int
    sample_sizes: tuple[int, ...]
    nulls: int
    watched: int
    memory: int

    def trials(self, number: int, stream: int) -> Pair:
        """Sequences of the multi-lag task."""
        u = tasks.random_direction(self.training.inputs, np.random.default_rng([self.seed, 0]))
        rng = np.random.default_rng([self.seed, stream])
        return tasks.multi_lag_trials(number, rng, steps=self.training.steps, direction=u, lags=self.task_lags)


def diagnose(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """What both methods say about a trained network, and what became of its time scales on the way."""
    from learncast.windows import Batching, DetectionRule, Measurement, window

    run = DiagnosedRun.from_described(settings)
    measurement, batching = Measurement(lags=run.training.lags), Batching(memory=run.memory)
    rule = DetectionRule(nulls=run.nulls, sample_sizes=run.sample_sizes, seed=run.seed)
    trainer = run.trainer(partial(run.trials, run.training.sequences, 3))
    options: dict[str, Any] = {"optimizer": trainer.optimizer, "batching": batching, "rule": rule}
    found, losses = _watched(run, trainer, share_of(progress, 0, TRAINING), options)
    inputs, targets = run.trials(run.diagnosed, 4)
    sound = window(trainer.model, inputs, targets, measurement=measurement, **options)
    progress((2 + TRAINING) / 3)
    # The published rule projects on one direction.
    paper = {**options, "rule": replace(rule, method="paper")}
    published = window(trainer.model, inputs, targets, measurement=replace(measurement, directions=1), **paper)
    progress((1 + 2 * TRAINING) / 3)
    # What is left when the targets are other sequences': the network's own answer alone.
    unrelated = window(trainer.model, inputs, np.roll(targets, 1, axis=0), measurement=measurement, **options)
    ours, told, own = (one.dataset.isel(layer=0, drop=True) for one in (sound, published, unrelated))
    parts = [
        ours[_KEPT],
        told[_PUBLISHED].rename({name: f"published_{name}" for name in _PUBLISHED}),
        own[["signal", "score", "window"]].rename({k: f"unrelated_{k}" for k in ("signal", "score", "window")}),
        found,
    ]
    whole = xr.merge(parts, combine_attrs="override")
    more = whole["envelope"].values * _auxiliary_share(run, trainer, inputs[:_FEW])
    whole["envelope_auxiliary"] = ("lag", more, _AUXILIARY)
    for name, value in zip(("first", "last"), (losses[:_ENDS].mean(), losses[-_ENDS:].mean()), strict=True):
        whole[f"loss_{name}"] = ((), float(value), described(f"mean loss of the {name} {_ENDS} steps", "target^2"))
    progress(1.0)
    return whole


_AUXILIARY = described("envelope with the auxiliary terms of eq. (58)", _RATE)


def _watched(
    run: DiagnosedRun, trainer: Trainer, progress: Progress, options: Mapping[str, Any]
) -> tuple[xr.Dataset, FloatArray]:
    """Train, and look at the time scales, the envelope and the tail index at some moments of it; all losses."""
    from learncast.windows import Measurement, window

    updates, losses, seen = run.training.updates, [], []
    moments = sorted({max(1, round(share * updates)) for share in WATCHED_AT}) if run.watched else [updates]
    inputs, targets = run.trials(max(run.watched, 1), 5)
    question = {**options, "measurement": Measurement(lags=run.training.lags, directions=1)}
    for before, after in zip([0, *moments], moments, strict=False):
        losses.append(trainer.train(after - before, share_of(progress, before / updates, after / updates)))
        if run.watched:
            seen.append(window(trainer.model, inputs, targets, **question).dataset.isel(layer=0, drop=True)[_WATCHED])
    if not seen:
        return xr.Dataset(), np.concatenate(losses)
    course = xr.concat(seen, "update", combine_attrs="override").rename({k: f"watched_{k}" for k in _WATCHED})
    course["watched_loss"] = ("update", [float(part[-_ENDS:].mean()) for part in losses], described("loss", "target^2"))
    return course.assign_coords(update=("update", moments, described("training", STEPS))), np.concatenate(losses)


def _auxiliary_share(run: Run, trainer: Trainer, inputs: FloatArray) -> FloatArray:
    """A GRU's envelope with the products of its reset gates, which eq. (58) adds, over that without; else nan."""
    lags = list(run.training.lags)
    if run.cell != "paper-gru":
        return np.full(len(lags), np.nan)
    first, more, *_ = _compared(trainer, inputs, lags)
    return more / first


def _compared(
    trainer: Trainer, inputs: FloatArray, lags: list[int], times: int | None = None
) -> tuple[FloatArray, FloatArray, Any, Any]:
    """First-order envelope without and with the auxiliary terms of a GRU, with what was replayed and its rates."""
    from learncast.windows.layers import capture
    from learncast.windows.transport import base_rates, mean_transport, parameter_rates

    seen = capture(trainer.model, trainer.model.weights.new_tensor(inputs))
    replay = seen.replay()
    rates = base_rates(replay, parameter_rates(trainer.optimizer, seen.layers[0].own))
    if times is not None:
        rates = at_drawn_times(rates, lags, times, np.random.default_rng([trainer.run.seed, 6]))

    def envelope(auxiliary: bool) -> FloatArray:
        if times is None:
            return mean_transport(replay, lags, rates=rates, auxiliary=auxiliary).envelope
        each = zip(lags, rates, strict=True)
        return np.array([mean_transport(replay, [k], rates=r, auxiliary=auxiliary).envelope[0] for k, r in each])

    more = envelope(True) if trainer.run.cell == "paper-gru" else np.full(len(lags), np.nan)
    return envelope(False), more, replay, rates


def at_drawn_times(rates: Any, lags: list[int], times: int, rng: np.random.Generator) -> Any:
    """Base rates of every lag, (lags, time, batch, hidden): a mean over all windows is then one over drawn ones.

    Rates are kept at so many sources of each sequence, and raised by as much as there are fewer of them.
    """
    steps, batch, _ = rates.shape
    weights = np.zeros((len(lags), steps, batch, 1))
    for row, lag in enumerate(lags):
        sources = np.arange(1, steps - lag)
        for sequence in range(batch):
            drawn = rng.choice(sources, min(times, len(sources)), replace=False)
            weights[row, drawn, sequence] = (steps - lag) / len(drawn)
    return rates.nan_to_num(0.0) * rates.new_tensor(weights)


def diagnosis_runs(optimizer: str, preset: Preset) -> list[PaperRun]:
    """Every cell and seed under one optimiser; networks under AdamW are watched while they train."""
    return [_diagnosis(cell, optimizer, seed, preset) for cell in preset.cells for seed in preset.seeds]


def _diagnosis(cell: str, optimizer: str, seed: int, preset: Preset, gate: float | None = None) -> PaperRun:
    chosen = OPTIMIZERS[optimizer] | {"learning_rate": preset.rates[optimizer]}
    watched = preset.watched if optimizer == "AdamW" and gate is None else 0
    own: dict[str, Any] = {"gate": gate, "normalised": True, "training": preset.main, "watched": watched}
    return PaperRun(diagnose, asdict(DiagnosedRun.of(cell, chosen, seed, preset, **own)))


def gate_runs(preset: Preset) -> list[PaperRun]:
    """Every cell with learned gates from both initial values, under AdamW; those of figure 1 are among them."""
    # Shared and diagonal gates start at the scripts' value by themselves, a GRU's and an LSTM's near the text's.
    own = {cell: GATES[1] if cell in ("shared-gate", "diag-gate") else GATES[0] for cell in LEARNED_GATES}
    cells = [cell for cell in preset.cells if cell in LEARNED_GATES]
    return [
        _diagnosis(cell, "AdamW", seed, preset, None if gate == own[cell] else gate)
        for gate in GATES
        for cell in cells
        for seed in preset.seeds
    ]


def stacked(found: list[xr.Dataset], cells: tuple[str, ...], preset: Preset) -> xr.Dataset:
    """Results of every cell and seed, over (cell, seed)."""
    each = len(preset.seeds)
    rows = [
        xr.concat(found[k : k + each], "seed", combine_attrs="override", join="exact")
        for k in range(0, len(found), each)
    ]
    whole = xr.concat(rows, "cell", combine_attrs="override", join="exact")
    return whole.assign_coords(cell=[CELLS[cell] for cell in cells], seed=list(preset.seeds))


@dataclass(frozen=True)
class ValidatedRun(Run):
    """A run of appendix C."""

    exact: int
    times: int | None


def validation_runs(preset: Preset) -> list[PaperRun]:
    """Every cell, optimiser and seed of appendix C."""
    own: dict[str, Any] = {"normalised": False, "training": preset.validation}
    return [
        PaperRun(compare_envelopes, asdict(ValidatedRun.of(cell, chosen, seed, preset, gate=gate, **own)))
        for cell in preset.cells
        for chosen in ({**kind, "learning_rate": 1e-3} for kind in VALIDATED.values())
        for seed in preset.validation_seeds
        # The constant gate's value, at which shared and diagonal gates start too.
        for gate in (0.1 if cell not in ("paper-gru", "paper-lstm") else None,)
    ]


def harmonic_trials(
    trials: int, rng: np.random.Generator, *, steps: int, direction: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Draw sequences of appendix C's task: sums of five harmonics with random phases, and their delayed tanh.

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
    targets, shown = NOISE * rng.standard_normal((trials, steps, 1)), np.tanh(inputs @ direction)
    for lag, weight in zip(HARMONIC_LAGS, HARMONIC_WEIGHTS, strict=True):
        targets[:, lag:, 0] += weight * shown[:, : steps - lag]
    return inputs, targets


def compare_envelopes(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """First-order and exact envelope of a trained network on some of the sequences it was trained on."""
    from learncast.windows.transport import exact_transport

    run = ValidatedRun.from_described(settings)
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


def estimated_seconds(settings: Mapping[str, Any]) -> float:
    """CPU seconds that a run will take on this device: a few of its training steps and diagnosed sequences, times all.

    The exact transport of appendix C is counted by its multiplications.
    """
    from learncast.windows import Batching, DetectionRule, Measurement, window

    kind = DiagnosedRun if "diagnosed" in settings else ValidatedRun
    run = kind.from_described(settings)
    training, few = run.training, 16  # the fewest that a diagnosis takes
    rng = np.random.default_rng(0)
    sizes = (training.batch, training.steps)
    trainer = run.trainer(lambda: (rng.standard_normal((*sizes, training.inputs)), rng.standard_normal((*sizes, 1))))
    trainer.train(1)
    begun = time.process_time()
    trainer.train(2)
    seconds = (time.process_time() - begun) / 2 * training.updates
    if isinstance(run, ValidatedRun):
        jumps, width = 2 * len(training.lags), training.hidden_size * (2 if run.cell == "paper-lstm" else 1)
        a = np.ones((64, width, width))
        begun = time.process_time()
        a @ a
        return seconds + (time.process_time() - begun) / 64 * jumps * run.exact * training.steps
    begun, pair = time.process_time(), run.trials(few, 4)
    rule = DetectionRule(nulls=19, sample_sizes=(few,))
    options: dict[str, Any] = {"measurement": Measurement(lags=training.lags), "rule": rule, "batching": Batching()}
    window(trainer.model, *pair, optimizer=trainer.optimizer, **options)
    each = (time.process_time() - begun) / few
    return seconds + each * (2.5 * run.diagnosed + 0.5 * run.watched * len(WATCHED_AT))
