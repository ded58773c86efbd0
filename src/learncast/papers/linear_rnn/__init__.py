"""Our experiments on the claims of "Learning dynamics in linear recurrent neural networks" (proca2025).

The paper states its results in words and has no figures. Tasks, settings, pictures and the equations of one mode are
ours, as each caption notes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import xarray as xr

from learncast._core.progress import Progress, silent
from learncast.papers.linear_rnn import networks, pictures
from learncast.papers.paper import Paper, PaperFigure, captions_of
from learncast.papers.runs import PaperRun, Settings, only

#: Networks per setting, points along the lines of the theory, accuracy of training, and whether settings are few.
SIZES: dict[str, dict[str, object]] = {
    "default": {"seeds": 1, "points": 40, "accuracy": 0.99, "few": False},
    "smoke": {"seeds": 1, "points": 20, "accuracy": 0.99, "few": True},
    "full": {"seeds": 3, "points": 60, "accuracy": 0.999, "few": False},
}


def experiment(settings: Settings, progress: Progress = silent) -> xr.Dataset:
    """Return the data of one experiment with a name and size."""
    size = {key: value for key, value in settings.items() if key != "name"}
    dataset = _experiments(**size)[settings["name"]]()
    progress(1.0)
    return dataset


def _experiments(seeds: int, points: int, accuracy: float, few: bool) -> dict[str, Callable[[], xr.Dataset]]:
    recurrences = (0.8, 1.0) if few else (0.4, 0.6, 0.8, 1.0, 1.1)
    backgrounds = (0.15,) if few else (0.05, 0.1, 0.15, 0.19, 0.25)
    gains = (0.1, 1.0) if few else (0.1, 0.3, 1.0, 3.0, 10.0)
    return {
        "S1": partial(networks.order, seeds, points // 2, recurrences),
        "S2a": partial(networks.recurrences, 100 if few else 400),
        "S2b": partial(networks.horizons, seeds, accuracy),
        "S3a": partial(networks.terms, points),
        "S3b": partial(networks.late_pulses, points, backgrounds),
        "NTK": partial(networks.turned_kernels, gains, seeds),
        "sensory": partial(networks.sensory_networks, seeds, accuracy),
    }


def paper() -> Paper:
    """Return all experiments."""
    captions, shared = captions_of(__name__)
    looks = {
        "S1": (pictures.draw_order, pictures.order_numbers),
        "S2a": (pictures.draw_recurrences, pictures.recurrence_numbers),
        "S2b": (pictures.draw_horizons, pictures.horizon_numbers),
        "S3a": (pictures.draw_terms, pictures.term_numbers),
        "S3b": (pictures.draw_late_pulses, pictures.late_pulse_numbers),
        "NTK": (pictures.draw_kernels, pictures.kernel_numbers),
        "sensory": (pictures.draw_sensory, pictures.sensory_numbers),
    }
    made = (
        PaperFigure(name, text.format(**shared), only, *looks[name], runs=partial(_runs, name), torch=False)
        for name, text in captions.items()
    )
    return Paper("linear-rnn", "proca2025", tuple(made), note="our experiment on a claim of the paper")


def _runs(name: str, preset: str) -> list[PaperRun]:
    return [PaperRun(experiment, {"name": name, **SIZES[preset]})]
