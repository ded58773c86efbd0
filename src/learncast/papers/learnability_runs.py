"""The trained networks behind the figures of livi2025, kept in a folder so that no run is done twice."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.errors import UnsupportedModel
from learncast.papers.learnability_preset import CELLS, OPTIMISERS, PRESETS, Preset, Training
from learncast.papers.runs import Compute, PaperRun, within
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


@dataclass(frozen=True)
class Run:
    """One network: its cell, its optimiser and its seed, in a preset."""

    cell: str
    optimiser: str
    seed: int
    preset: Preset
    #: Orthogonal weights and a normalised candidate, as in the published runs, or neither.
    normalised: bool = True

    def described(self) -> dict[str, Any]:
        """The run as plain values."""
        own = {"cell": self.cell, "optimiser": self.optimiser, "seed": self.seed, "normalised": self.normalised}
        return {**own, "preset": self.preset.described()}

    @classmethod
    def from_described(cls, stored: Mapping[str, Any]) -> Run:
        """Read back what `described` gave."""
        return cls(**{**stored, "preset": Preset.from_described(stored["preset"])})

    def settings(self, training: Training) -> dict[str, Any]:
        """What decides the trained weights."""
        chosen = OPTIMISERS[self.optimiser] | {"learning_rate": self.preset.rates[self.optimiser]}
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

    def place(self, folder: Path, task: str, *parts: Any) -> Path:
        """Where its files are: a name to read, and a hash of all that matters."""
        name = f"{task}_{self.cell}_{self.optimiser.replace(' ', '-').lower()}_{self.seed}"
        return folder / "runs" / f"{name}_{spec_hash(repr(parts))}"


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
    _move(model, run.preset.device)
    chosen = dict(settings["optimizer"])
    optimizer = build_optimizer(chosen.pop("kind"), model, **chosen)
    if place is not None and place.with_name(f"{place.name}.safetensors").is_file():
        return model, optimizer, _restored(model, optimizer, place)
    # The data stay in main memory whatever the device, and visit it in batches.
    to_device = model.register_forward_pre_hook(lambda _, given: (given[0].to(run.preset.device),))
    back = model.register_forward_hook(lambda _, __, answers: answers.cpu())
    rng = np.random.default_rng([run.seed, 2])
    done = rehearsed(model, optimizer, *data(), rng=rng, progress=progress, **settings["training"])
    to_device.remove()
    back.remove()
    losses = float(done.losses[:_ENDS].mean()), float(done.losses[-_ENDS:].mean())
    if place is not None:
        _store(model, optimizer, losses, place)
    return model, optimizer, losses


def diagnosed(run: Run, folder: Path, *, progress: Progress = silent) -> xr.Dataset:
    """What both methods say about one trained network, from the folder if it is there.

    Parameters
    ----------
    run : Run
    folder : Path
        Of the figures; runs are in a folder inside.
    progress : callable
    """
    preset = run.preset
    stored = run.place(folder, "window", run.settings(preset.main), preset)
    file = stored.with_name(f"{stored.name}.nc")
    if file.is_file():
        progress(1.0)
        return load_dataset(file, kind="run")[0]
    main = preset.main
    place = run.place(folder, "lags", run.settings(main), main.steps, main.sequences, preset.task_lags, preset.inputs)
    found = _diagnosed(run, place, progress)
    save_dataset(found, file, kind="run", provenance=Provenance("training", ("livi2025",), file.stem, run.seed))
    progress(1.0)
    return found


def diagnose(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """Train and diagnose the network of `Run.described`, and keep nothing."""
    found = _diagnosed(Run.from_described(settings), None, progress)
    progress(1.0)
    return found


def _diagnosed(run: Run, place: Path | None, progress: Progress) -> xr.Dataset:
    from learncast.learnability.diagnosis import window

    sets, preset = _Trials(run), run.preset
    model, optimizer, losses = trained_model(
        run, preset.main, sets.training, place, inputs=preset.inputs, progress=lambda share: progress(TRAINING * share)
    )
    options: dict[str, Any] = {"optimizer": optimizer, "lags": preset.main.lags, "sample_sizes": preset.sample_sizes}
    options |= {"nulls": preset.nulls, "memory": preset.memory, "seed": run.seed}
    sound = window(model, *sets.held_out(), **options).dataset.isel(layer=0, drop=True)[_KEPT]
    progress((1 + TRAINING) / 2)
    # The published rule projects on one direction.
    published = window(model, *sets.held_out(), method="paper", directions=1, **options).dataset
    told = published.isel(layer=0, drop=True)[_PUBLISHED].rename({name: f"published_{name}" for name in _PUBLISHED})
    found = xr.merge([sound, told], combine_attrs="override")
    for name, value in zip(("first", "last"), losses, strict=True):
        found[f"loss_{name}"] = ((), value, described(f"mean loss of the {name} {_ENDS} steps", "target^2"))
    return found


def runs_under(optimiser: str, preset: Preset) -> list[Run]:
    """Every cell and seed under one optimiser."""
    return [Run(cell, optimiser, seed, preset) for cell in preset.cells for seed in preset.seeds]


def diagnosis_runs(optimiser: str, preset: str) -> list[PaperRun]:
    """What `all_diagnosed` needs."""
    return [PaperRun(diagnose, run.described()) for run in runs_under(optimiser, PRESETS[preset])]


def all_diagnosed(
    optimiser: str, preset: str, folder: Path, *, progress: Progress = silent, compute: Compute | None = None
) -> xr.Dataset:
    """Every cell and seed under one optimiser, over (cell, seed); in the folder unless they are computed elsewhere."""
    size = PRESETS[preset]
    if compute is None:
        runs = runs_under(optimiser, size)
        found = [diagnosed(run, folder, progress=within(progress, k, len(runs))) for k, run in enumerate(runs)]
    else:
        found = compute(diagnosis_runs(optimiser, preset), progress=progress)
    return _tabled(found, optimiser, size)


def _tabled(found: list[xr.Dataset], optimiser: str, preset: Preset) -> xr.Dataset:
    each = len(preset.seeds)
    rows = [
        xr.concat(found[k : k + each], "seed", combine_attrs="override", join="exact")
        for k in range(0, len(found), each)
    ]
    whole = xr.concat(rows, "cell", combine_attrs="override", join="exact")
    whole = whole.assign_coords(cell=[CELLS[cell] for cell in preset.cells], seed=list(preset.seeds))
    whole.attrs = {"optimiser": optimiser, "learning_rate": preset.rates[optimiser]}
    return whole


class _Trials:
    """Sequences of the multi-lag task: to train on, then to diagnose; made when they are asked for."""

    def __init__(self, run: Run) -> None:
        self._preset, self._seed = run.preset, run.seed

    def _drawn(self, number: int, stream: int) -> Pair:
        u = tasks.random_direction(self._preset.inputs, np.random.default_rng([self._seed, 0]))
        rng = np.random.default_rng([self._seed, stream])
        return tasks.multi_lag_trials(
            number, rng, steps=self._preset.main.steps, direction=u, lags=self._preset.task_lags
        )

    def training(self) -> Pair:
        return self._drawn(self._preset.main.sequences, 3)

    def held_out(self) -> Pair:
        return self._drawn(self._preset.diagnosed, 4)


def _store(model: Any, optimizer: Any, losses: tuple[float, float], place: Path) -> None:
    """Write the optimiser's state first: whoever finds the weights finds both."""
    from safetensors.torch import save_file

    from learncast.learnability.stored_model import optimizer_tensors

    place.parent.mkdir(parents=True, exist_ok=True)
    metadata = dict(zip(("first", "last"), map(repr, losses), strict=True))
    weights = {name: value.detach().cpu().contiguous() for name, value in model.state_dict().items()}
    state = {name: value.cpu() for name, value in optimizer_tensors(optimizer, model).items()}
    for suffix, tensors in ((".optimizer.safetensors", state), (".safetensors", weights)):
        target = place.with_name(f"{place.name}{suffix}")
        draft = target.with_name(f".{target.name}.part")
        save_file(tensors, draft, metadata=metadata)
        os.replace(draft, target)


def _restored(model: Any, optimizer: Any, place: Path) -> tuple[float, float]:
    from safetensors import safe_open

    from learncast.learnability.stored_model import load_optimizer, load_weights

    load_weights(model, place.with_name(f"{place.name}.safetensors"))
    load_optimizer(optimizer, model, place.with_name(f"{place.name}.optimizer.safetensors"))
    with safe_open(place.with_name(f"{place.name}.safetensors"), framework="numpy") as stored:
        told = stored.metadata()
    return float(told["first"]), float(told["last"])


def _move(model: Any, device: str) -> None:
    try:
        model.to(device)
    except (AssertionError, RuntimeError) as error:
        raise UnsupportedModel(
            required=f"this preset needs the device {device!r}",
            got=" ".join(str(error).split())[:120],
            why="at the published size one network takes hours even there",
            remedy='use a machine that has one, or preset="laptop"',
        ) from error
