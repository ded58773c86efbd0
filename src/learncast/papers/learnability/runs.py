"""The runs behind the figures of livi2025: trained networks and their diagnosis."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, fields, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from learncast import UnsupportedModel, tasks
from learncast._core.progress import Progress, silent
from learncast._core.validation import FloatArray
from learncast.papers.learnability.preset import CELLS, OPTIMIZERS, Preset, RunSize, Schedule
from learncast.papers.runs import PaperRun, Settings, share_of
from learncast.results import STEPS, described

if TYPE_CHECKING:
    from learncast.windows.example_model import CellReadout, Optimizer, Stack

Pair = tuple[FloatArray, FloatArray]
#: Share of a run's progress that is training.
TRAINING = 0.8
#: Variables of a diagnosis that figures need, and those that need a control.
_KEPT = ["envelope", "envelope_gate", "signal", "score", "critical_score", "tail_index", "scale", "total_scale",
         "required_sequences", "window", "null_window", "time_scale"]  # fmt: skip
_CONTROLLED = ["exact_envelope", "control_signal", "control_score", "attributable", "attributable_reach"]
#: Updates after which loss and drop are measured, besides the first and the last.
COURSE = (100, 200, 300, 500, 700, 1000, 1400)
#: Sequences on which single terms of a gradient are collected, and two forms of an envelope compared.
_FEW = 64
#: Cells whose gates start at random biases.
RANDOM = ("paper-gru", "paper-lstm")


def _tuples(table: Settings) -> dict[str, Any]:
    return {key: tuple(value) if isinstance(value, list) else value for key, value in table.items()}


@dataclass(frozen=True)
class DiagnosedRun:
    """Networks of one cell on the multi-lag task that are trained in one tensor, one for each gate and seed.

    Attributes
    ----------
    optimizer : dict
        Kind, learning rate and settings.
    gates : tuple of float or None
        Constant gates, or initial values of shared and diagonal gates. None: random biases of a GRU or LSTM.
    """

    cell: str
    optimizer: dict[str, Any]
    seeds: tuple[int, ...]
    gates: tuple[float | None, ...]
    training: RunSize
    updates: int
    clip: float
    device: str
    exact: int
    diagnosed: int
    sample_sizes: tuple[int, ...]
    nulls: int
    watched: int
    early: int
    memory: int

    @classmethod
    def of(cls, cell: str, preset: Preset, **own: object) -> PaperRun:
        """Return the run of a cell in a preset; it contains only the settings that determine its result."""
        names = {field.name for field in fields(cls)} & {field.name for field in fields(preset)}
        shared = {name: getattr(preset, name) for name in names}
        return PaperRun(diagnose, asdict(cls(cell=cell, **{**shared, **own})), estimated_seconds)

    @classmethod
    def from_dict(cls, stored: Settings) -> Self:
        """Return the run of the result of `asdict`, whose tuples may have become lists."""
        return cls(**_tuples(stored) | {"training": RunSize(**_tuples(stored["training"]))})

    @property
    def networks(self) -> list[tuple[float | None, int]]:
        """Gate and seed of every network."""
        return list(product(self.gates, self.seeds))

    def direction(self, seed: int) -> FloatArray:
        """Return the direction of the inputs to which the target of a seed refers."""
        return tasks.random_direction(self.training.inputs, np.random.default_rng([seed, 0]))

    def trials(self, number: int, stream: int, seed: int) -> Pair:
        """Return sequences of the multi-lag task."""
        given: dict[str, Any] = {"steps": self.training.steps, "lags": self.training.task_lags}
        rng = np.random.default_rng([seed, stream])
        return tasks.multi_lag_trials(number, rng, direction=self.direction(seed), **given)

    def model(self, gate: float | None, seed: int) -> CellReadout:
        """Return a network before training, on its device, with the authors' initial biases and readout."""
        from learncast.windows.example_model import build_model, published_start

        sizes: dict[str, Any] = {"inputs": self.training.inputs, "outputs": 1, "hidden_size": self.training.hidden_size}
        sizes |= {} if gate is None else {"gate": gate}
        model = build_model(self.cell, seed=seed, layer_norm=True, orthogonal=True, **sizes)
        published_start(model, random_biases=gate is None, seed=seed)
        place = "cuda" if self.device == "auto" else self.device
        try:
            return model.to(place)
        except (AssertionError, RuntimeError) as error:
            if self.device == "auto":
                return model
            raise UnsupportedModel(f"device {place!r} is not available. Use --device cpu.", field="device") from error

    def trainer(self, sequences: int | None = None) -> Trainer:
        """Return the trainer of the networks on the trials of each seed."""
        from learncast.windows.example_model import Stack

        stack = Stack([self.model(*one) for one in self.networks], self.optimizer)
        trials = {seed: self.trials(sequences or self.training.sequences, 3, seed) for seed in self.seeds}
        pairs = zip(*(trials[seed] for _, seed in self.networks), strict=True)
        inputs, targets = (np.stack(parts).astype(np.float32) for parts in pairs)
        orders = [epochs(np.random.default_rng([k, 2]), inputs.shape[1], self.training.batch) for _, k in self.networks]
        return Trainer(stack, inputs, targets, map(np.stack, zip(*orders, strict=True)), self.clip)


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


def epochs(rng: np.random.Generator, sequences: int, batch: int) -> Iterator[NDArray[np.int64]]:
    """Yield batches; every epoch visits all sequences in a new order, without an incomplete batch."""
    while True:
        order = rng.permutation(sequences)
        yield from (order[k : k + batch] for k in range(0, sequences - batch + 1, batch))


def diagnose(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Train networks and return their diagnosis at the end, windows early on, and loss and drop at `COURSE`."""
    run = DiagnosedRun.from_dict(settings)
    trainer, found, done = run.trainer(), [dict[str, xr.DataArray]() for _ in run.networks], 0
    # Loss and drop are measured at both ends, and more often if there is an early window.
    moments = sorted({1, *(k for k in (*COURSE, run.early) if run.early and k < run.updates), run.updates})
    course = [list[xr.Dataset]() for _ in run.networks]
    for until in moments:
        trainer.train(until - done, share_of(progress, TRAINING * done / run.updates, TRAINING * until / run.updates))
        done = until
        for own, path, (_, seed), each in zip(found, course, run.networks, trainer.each(), strict=True):
            path.append(_watched(run, *each, seed))
            if until == run.early < run.updates:
                own["early_window"] = _window(run, *each, seed, control=True)["window"]
    results = []
    for own, path, (_, seed), each in zip(found, course, run.networks, trainer.each(), strict=True):
        watched = xr.concat(path, xr.Variable("update", moments, described("training", STEPS)))
        results.append(_end(run, *each, seed).assign(own).merge(watched))
        progress(TRAINING + (1 - TRAINING) * len(results) / len(run.networks))
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
    """Return the loss on a few sequences not used in training, and the envelope's drop over the task's lags."""
    from learncast.windows import DetectionRule, Measurement, window

    inputs, targets = run.trials(run.watched, 5, seed)
    lags = [lag for lag in run.training.lags if lag <= run.training.task_lags[-1]]
    ends = Measurement(lags=(lags[0], lags[-1]), directions=1)
    now = window(model, inputs, targets, optimizer=optimizer, measurement=ends, rule=DetectionRule(nulls=19)).dataset
    error, envelope = model.answers(inputs) - targets, now["envelope"].isel(layer=0).values
    with np.errstate(divide="ignore"):
        drop = float(np.log(envelope[0] / envelope[-1]))
    about = described("drop of the envelope, log f(1)/f(L)", "1"), described("mean squared error", "target^2")
    return xr.Dataset({"watched_drop": ((), drop, about[0]), "watched_loss": ((), float(np.mean(error**2)), about[1])})


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
        about = described("envelope with the auxiliary terms of eq. (58)", merged["envelope"].attrs["units"])
        factor = _auxiliary(model, optimizer, inputs, list(run.training.lags))
        merged["envelope_auxiliary"] = ("lag", merged["envelope"].values * factor, about)
    return merged


def _tails(run: DiagnosedRun, model: CellReadout, inputs: FloatArray, targets: FloatArray, seed: int) -> list[float]:
    """Return the tail index of the terms of a gradient, pooled over sequences and steps, and of means of 16 terms."""
    from learncast.windows.detection.tail_index import fit_tail_index
    from learncast.windows.transport.derivative import gradient_terms

    rng, found = np.random.default_rng([seed, 7]), []
    for _, terms in gradient_terms(model, inputs, targets, run.training.task_lags, seed=int(rng.integers(2**31))):
        pooled = rng.permutation(terms.ravel())[: terms.size // 16 * 16]
        found.append([fit_tail_index(values).index for values in (pooled, pooled.reshape(-1, 16).mean(axis=1))])
    return [float(value) for value in np.nanmedian(np.array(found, dtype=float), axis=0)]


def _auxiliary(model: CellReadout, optimizer: Optimizer, inputs: FloatArray, lags: list[int]) -> FloatArray:
    """Return the factor by which a GRU's auxiliary terms enlarge the envelope; nan for other cells."""
    from learncast.windows.cells import PaperGRU
    from learncast.windows.layers import capture
    from learncast.windows.transport import base_rates, mean_transport, parameter_rates

    if not isinstance(model.block, PaperGRU):
        return np.full(len(lags), np.nan)
    seen = capture(model, model.weights.new_tensor(inputs))
    replay = seen.replay()
    rates = base_rates(replay, parameter_rates(optimizer, seen.layers[0].own))
    first, more = (mean_transport(replay, lags, rates=rates, auxiliary=k).envelope for k in (False, True))
    return np.asarray(more / first)


def _parts(seeds: tuple[int, ...], number: int) -> list[tuple[int, ...]]:
    return [seeds[k : k + number] for k in range(0, len(seeds), number)]


def diagnosis_runs(optimizer: str, preset: Preset, size: RunSize | None = None) -> list[PaperRun]:
    """Return the runs of every cell under one optimiser; none if the preset does not have it."""
    if optimizer not in preset.schedules:
        return []
    size = size or preset.main
    own = _trained_by(optimizer, preset.schedules[optimizer], size)
    own |= {} if optimizer == "AdamW" else {"early": 0}
    gates = {cell: (None if cell in RANDOM else size.gate,) for cell in preset.cells_of(optimizer)}
    each = product(gates, _parts(preset.seeds, preset.stack))
    return [DiagnosedRun.of(cell, preset, **own, seeds=seeds, gates=gates[cell]) for cell, seeds in each]


def _trained_by(optimizer: str, schedule: Schedule, size: RunSize) -> dict[str, object]:
    chosen = OPTIMIZERS[optimizer] | {"learning_rate": schedule.rate}
    return {"optimizer": chosen, "updates": schedule.updates, "training": size}


def dial_runs(preset: Preset, size: RunSize | None = None) -> list[PaperRun]:
    """Return the runs of ConstGate with several gates, whose envelopes are those recorded during training."""
    schedule = replace(preset.schedules["AdamW"], updates=preset.dial_updates)
    own = _trained_by("AdamW", schedule, size or preset.main)
    own |= {"gates": preset.dial, "early": 0, "diagnosed": 0}
    parts = _parts(preset.seeds, preset.stack) if preset.dial else []
    return [DiagnosedRun.of("const-gate", preset, **own, seeds=seeds) for seeds in parts]


def stacked(results: Sequence[xr.Dataset], cells: Sequence[str]) -> xr.Dataset:
    """Return the results of every cell and seed, over (cell, seed)."""
    each = len(results) // len(cells)
    options: dict[str, Any] = {"combine_attrs": "override", "join": "exact"}
    rows = [xr.concat(results[k : k + each], "seed", **options) for k in range(0, len(results), each)]
    plain = [row.isel(gate=0, drop=True) for row in rows]
    return xr.concat(plain, "cell", **options).assign_coords(cell=[CELLS[cell] for cell in cells])


#: CPU time of an update relative to that of ConstGate.
SLOWER = {"const-gate": 1.0, "shared-gate": 1.2, "diag-gate": 1.4, "paper-gru": 1.9, "paper-lstm": 2.2}


def estimated_seconds(settings: Settings) -> float:
    """Estimate the CPU seconds of a run, from times measured on one core of a server."""
    run = DiagnosedRun.from_dict(settings)
    size, number = run.training, len(run.networks)
    update = SLOWER[run.cell] * (100 + 0.03 * number * size.batch * size.hidden_size)
    # With two directions: two rules and a control at the end, a rule and a control early on.
    sequences = number * (4.5 if run.early else 1) * (run.diagnosed or run.watched)
    return 1e-6 * size.steps * (run.updates * update + sequences * (6 + 0.3 * len(size.lags)))
