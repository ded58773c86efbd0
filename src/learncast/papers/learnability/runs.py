"""The trained networks behind the figures of livi2025, kept in a folder so that no run is done twice."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.errors import UnsupportedModel
from learncast.files import draft_of
from learncast.papers.learnability.preset import CELLS, OPTIMIZERS, PRESETS, Preset, Training
from learncast.papers.runs import PaperRun, share_of
from learncast.progress import Progress, silent
from learncast.trajectory import Provenance, described, load_dataset, save_dataset, spec_hash
from learncast.validation import FloatArray

if TYPE_CHECKING:
    from learncast.learnability.rehearsal import CellReadout

Pair = tuple[FloatArray, FloatArray]
#: Share of a run's progress that is training.
TRAINING = 0.8
_ENDS = 10
#: What figures need of a diagnosis, and of one by the published rule.
_KEPT = ["envelope", "envelope_gate", "signal", "score", "critical_score", "tail_index", "scale", "total_scale",
         "window", "contiguous_window", "null_window", "time_scale"]  # fmt: skip
_PUBLISHED = ["tail_index", "scale", "window", "validity_silent_null"]
#: Optimisers and periods of appendix C, in which the first-order envelope is set against the exact one.
VALIDATED = ("SGD", "AdamW", "RMSprop")
PERIODS = (20.0,)
#: How a cell starts, and whether its candidate is then normalised.
STARTS = {"plain": False, "normalised": True}
_RATE = "parameter change per gradient"


@dataclass(frozen=True)
class Run:
    """One network: its cell, its optimiser and its seed, in a preset."""

    cell: str
    optimizer: str
    seed: int
    preset: Preset
    #: Orthogonal weights and a normalised candidate, as in the published runs, or neither.
    normalised: bool = True

    def described(self) -> dict[str, Any]:
        """The run as plain values."""
        return asdict(self)

    @classmethod
    def from_described(cls, stored: Mapping[str, Any]) -> Run:
        """Read back what `described` gave, also after lists have taken the place of tuples."""
        preset = _frozen(stored["preset"])
        trainings = {key: Training(**preset[key]) for key in ("main", "validation")}
        return cls(**{**stored, "preset": Preset(**{**preset, **trainings})})

    def settings(self, training: Training) -> dict[str, Any]:
        """What decides the trained weights."""
        chosen = OPTIMIZERS[self.optimizer] | {"learning_rate": self.preset.rates[self.optimizer]}
        return {
            "model": {
                "kind": self.cell,
                "hidden_size": training.hidden_size,
                "seed": self.seed,
                "layer_norm": self.normalised,
                "orthogonal": self.normalised,
            },
            "optimizer": chosen,
            "training": {"steps": training.updates, "batch": training.batch, "clip": self.preset.clip},
        }

    def place(self, folder: Path | None, task: str, *parts: Any) -> Path | None:
        """Where its files are: a name to read, and a hash of all that matters; None without a folder."""
        if folder is None:
            return None
        name = f"{task}_{self.cell}_{self.optimizer.replace(' ', '-').lower()}_{self.seed}"
        return folder / "runs" / f"{name}_{spec_hash(repr(parts))}"


def _frozen(value: Any) -> Any:
    if isinstance(value, Mapping):
        return {key: _frozen(item) for key, item in value.items()}
    return tuple(value) if isinstance(value, list) else value


def trained_model(
    run: Run,
    training: Training,
    data: Callable[[], Pair],
    place: Path | None,
    *,
    inputs: int,
    progress: Progress = silent,
) -> tuple[CellReadout, Any, tuple[float, float]]:
    """The model, its optimiser, and its loss over the first and the last steps; read back where it is stored.

    Parameters
    ----------
    run : Run
    training : Training
    data : callable
        Makes inputs and targets; not called when the model is stored.
    place : Path or None
        Where to store it, without a suffix; None stores nothing.
    inputs : int
        Channels of the inputs.
    progress : callable
    """
    from learncast.learnability.rehearsal import build_model, build_optimizer, rehearsed

    settings = run.settings(training)
    model = build_model(inputs=inputs, outputs=1, **settings["model"])
    try:
        model.to(run.preset.device)
    except (AssertionError, RuntimeError) as error:
        raise UnsupportedModel(
            required=f"this preset needs the device {run.preset.device!r}",
            got=" ".join(str(error).split())[:120],
            why="at the published size one network takes hours even there",
            remedy='use a machine that has one, or preset="laptop"',
        ) from error
    optimizer = build_optimizer(model=model, **settings["optimizer"])
    if place is not None and place.with_name(f"{place.name}.safetensors").is_file():
        return model, optimizer, _restored(model, optimizer, place)
    # The data stay in main memory whatever the device, and visit it in batches.
    to_device = model.register_forward_pre_hook(lambda _, given: (given[0].to(run.preset.device),))
    back = model.register_forward_hook(lambda _, __, answers: answers.cpu())
    rng = np.random.default_rng([run.seed, 2])
    each = rehearsed(model, optimizer, *data(), rng=rng, progress=progress, **settings["training"])
    to_device.remove()
    back.remove()
    losses = float(each[:_ENDS].mean()), float(each[-_ENDS:].mean())
    if place is not None:
        _store(model, optimizer, losses, place)
    return model, optimizer, losses


def diagnose(settings: Mapping[str, Any], progress: Progress = silent, folder: Path | None = None) -> xr.Dataset:
    """What both methods say about the network of `Run.described`, from the folder if it is there.

    Parameters
    ----------
    settings : mapping
    progress : callable
    folder : Path, optional
        Of the figures; runs are in a folder inside. Left out, nothing is kept.
    """
    run = Run.from_described(settings)
    preset, main = run.preset, run.preset.main
    place = run.place(folder, "lags", run.settings(main), main.steps, main.sequences, preset.task_lags, preset.inputs)
    file = run.place(folder, "window", run.settings(main), preset)
    return kept(run, file, lambda: _diagnosed(run, place, progress), progress)


def kept(run: Run, place: Path | None, make: Callable[[], xr.Dataset], progress: Progress) -> xr.Dataset:
    """What was made of a run, from its file if that is there; the place is without a suffix, and None keeps nothing."""
    file = None if place is None else place.with_name(f"{place.name}.nc")
    if file is not None and file.is_file():
        found, _ = load_dataset(file, kind="run")
    else:
        found = make()
    if file is not None and not file.is_file():
        save_dataset(found, file, kind="run", provenance=Provenance("training", ("livi2025",), file.stem, run.seed))
    progress(1.0)
    return found


def _diagnosed(run: Run, place: Path | None, progress: Progress) -> xr.Dataset:
    from learncast.learnability import Batching, DetectionRule, Measurement, window

    preset, during = run.preset, share_of(progress, 0, TRAINING)
    known = partial(_trials, run, preset.main.sequences, 3)
    model, optimizer, losses = trained_model(run, preset.main, known, place, inputs=preset.inputs, progress=during)
    held_out = partial(_trials, run, preset.diagnosed, 4)
    measurement, batching = Measurement(lags=preset.main.lags), Batching(memory=preset.memory)
    rule = DetectionRule(nulls=preset.nulls, sample_sizes=preset.sample_sizes, seed=run.seed)
    options: dict[str, Any] = {"optimizer": optimizer, "batching": batching}
    sound = window(model, *held_out(), measurement=measurement, rule=rule, **options)
    progress((1 + TRAINING) / 2)
    # The published rule projects on one direction.
    measurement, rule = replace(measurement, directions=1), replace(rule, method="paper")
    published = window(model, *held_out(), measurement=measurement, rule=rule, **options)
    ours, told = (one.dataset.isel(layer=0, drop=True) for one in (sound, published))
    renamed = told[_PUBLISHED].rename({name: f"published_{name}" for name in _PUBLISHED})
    found = xr.merge([ours[_KEPT], renamed], combine_attrs="override")
    for name, value in zip(("first", "last"), losses, strict=True):
        found[f"loss_{name}"] = ((), value, described(f"mean loss of the {name} {_ENDS} steps", "target^2"))
    return found


def diagnosis_runs(optimizer: str, preset: str) -> list[PaperRun]:
    """Every cell and seed under one optimiser."""
    size = PRESETS[preset]
    pairs = product(size.cells, size.seeds)
    return [PaperRun(diagnose, Run(cell, optimizer, seed, size).described()) for cell, seed in pairs]


def all_diagnosed(optimizer: str, found: list[xr.Dataset], preset: str) -> xr.Dataset:
    """Every cell and seed under one optimiser, over (cell, seed)."""
    size = PRESETS[preset]
    each = len(size.seeds)
    rows = [
        xr.concat(found[k : k + each], "seed", combine_attrs="override", join="exact")
        for k in range(0, len(found), each)
    ]
    whole = xr.concat(rows, "cell", combine_attrs="override", join="exact")
    whole = whole.assign_coords(cell=[CELLS[cell] for cell in size.cells], seed=list(size.seeds))
    whole.attrs = {"optimizer": optimizer, "learning_rate": size.rates[optimizer]}
    return whole


def _trials(run: Run, number: int, stream: int) -> Pair:
    """Sequences of the multi-lag task."""
    preset, rng = run.preset, np.random.default_rng([run.seed, stream])
    u = tasks.random_direction(preset.inputs, np.random.default_rng([run.seed, 0]))
    return tasks.multi_lag_trials(number, rng, steps=preset.main.steps, direction=u, lags=preset.task_lags)


def validation_runs(preset: str) -> list[PaperRun]:
    """What `validation` needs."""
    size = PRESETS[preset]
    every = product(STARTS.values(), size.cells, VALIDATED, size.seeds)
    runs = (Run(cell, optimizer, seed, size, normalised) for normalised, cell, optimizer, seed in every)
    return [PaperRun(compare_envelopes, run.described()) for run in runs]


def compare_envelopes(
    settings: Mapping[str, Any], progress: Progress = silent, folder: Path | None = None
) -> xr.Dataset:
    """First-order and exact envelope of the network of `Run.described`, from the folder if they are there."""
    run = Run.from_described(settings)
    preset, training = run.preset, run.preset.validation
    shared = (run.settings(training), training.steps, training.sequences, preset.delay)
    file, place = run.place(folder, "exact", *shared, training.lags, preset.exact), run.place(folder, "waves", *shared)
    return kept(run, file, lambda: _compared_envelopes(run, place, progress), progress)


def _waves(run: Run, number: int, stream: int) -> Pair:
    """Sequences of the sinusoidal delay task."""
    preset, rng = run.preset, np.random.default_rng([run.seed, stream])
    steps = preset.validation.steps
    return tasks.sinusoidal_delay_trials(number, rng, steps=steps, delay=preset.delay, periods=PERIODS)


def _compared_envelopes(run: Run, place: Path | None, progress: Progress) -> xr.Dataset:
    from learncast.learnability.replay.capture import capture
    from learncast.learnability.transport.base_rate import base_rates, parameter_rates
    from learncast.learnability.transport.exact import exact_transport
    from learncast.learnability.transport.gathering import mean_transport

    training, lags = run.preset.validation, list(run.preset.validation.lags)
    data, during = partial(_waves, run, training.sequences, 3), share_of(progress, 0, 0.5)
    model, optimizer, _ = trained_model(run, training, data, place, inputs=len(PERIODS), progress=during)
    inputs, _ = _waves(run, run.preset.exact, 4)
    seen = capture(model, model.weights.new_tensor(inputs))
    replay = seen.replay()
    rates = base_rates(replay, parameter_rates(optimizer, seen.layers[0].own))
    first = mean_transport(replay, lags, rates=rates)
    exact = exact_transport(replay, lags, rates=rates)
    return xr.Dataset(
        {
            "envelope": ("lag", first.envelope, described("first-order envelope", _RATE)),
            "exact_envelope": ("lag", exact.envelope, described("envelope of the exact diagonal", _RATE)),
            "frobenius": ("lag", exact.frobenius, described("Frobenius norm of the exact transport", "1")),
        },
        {"lag": lags},
    )


def _store(model: Any, optimizer: Any, losses: tuple[float, float], place: Path) -> None:
    """Write the optimiser's state first: whoever finds the weights finds both."""
    from safetensors.torch import save_file

    from learncast.learnability.stored_model import optimizer_tensors

    metadata = dict(zip(("first", "last"), map(repr, losses), strict=True))
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    state = {name: value.cpu() for name, value in optimizer_tensors(optimizer, model).items()}
    for suffix, tensors in ((".optimizer.safetensors", state), (".safetensors", weights)):
        with draft_of(place.with_name(f"{place.name}{suffix}"), sole=True) as draft:
            save_file(tensors, draft, metadata=metadata)


def _restored(model: Any, optimizer: Any, place: Path) -> tuple[float, float]:
    from safetensors import safe_open

    from learncast.learnability.stored_model import load_optimizer, load_weights

    load_weights(model, place.with_name(f"{place.name}.safetensors"))
    load_optimizer(optimizer, model, place.with_name(f"{place.name}.optimizer.safetensors"))
    with safe_open(place.with_name(f"{place.name}.safetensors"), framework="numpy") as stored:
        told = stored.metadata()
    return float(told["first"]), float(told["last"])
