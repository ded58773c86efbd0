"""Our experiments on the claims of "Learning dynamics in linear recurrent neural networks" (proca2025).

The source states its results in words and has no figures to copy: tasks, settings, pictures and the equations of one
mode behind the lines are ours, and each caption says so.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import xarray as xr

from learncast._core.progress import Progress, silent
from learncast.papers.linear_rnn import networks, pictures
from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.runs import PaperRun, only

_OURS = "the whole experiment; the paper states the claim in words"
CAPTIONS = {
    "S1": "Time to half the loss against the initial recurrence, for a target that weighs late inputs (0.7^lag) "
    "or early ones, and 1.5 times as much: larger is faster, later is faster only for contracting starts. "
    f"Dots: 64-unit networks trained by descent from unaligned weights. Ours: {_OURS}, and the limit of "
    "the claim.",
    "S2a": "Best recurrence of one mode against the mean lag of the target: stable (|b| < 1) if evidence comes "
    f"later than the middle of the trial, a rule of thumb for positive weights. Ours: {_OURS}. Networks "
    "with spare units need not follow the best single mode.",
    "S2b": "Loss on longer trials after training at 10 steps. Weighed by lag (end), exact fits extrapolate and "
    "small errors of b grow; weighed by step (start) only the sum does; whether networks that fit a delay "
    "with spare units extrapolate depends on the recurrence they started with. Lines: modes; dots: "
    f"64-unit networks. Ours: {_OURS}.",
    "S2c": "Largest stable learning rate at a solution u = 1, b = rho over 10 steps: 2 / sharpness, and where "
    f"descent of 64-unit networks starts to leave it. Ours: {_OURS}.",
    "S3a": "Data term and effective regulariser over training, and responses to earlier inputs when only the "
    "last one counts. Lines: one mode; dots: a 64-unit network from unaligned weights. The regulariser is "
    f"part of the squared loss. Ours: {_OURS}.",
    "S3b": "A late pulse over a background eps: the best recurrence jumps for trials of 11 steps or more "
    "(dotted), and the loss has two minima. Triangles: 64-unit networks aligned with one mode; from "
    f"random weights spare units may fit both parts. Ours: {_OURS}.",
    "S3c": "Two pulses: the earlier one is always used at lag 1, from r = 1/2 continuously at lag 2, by a jump "
    "at lag 3, where small initial recurrence ends feedforward although recurrence is better. Dots: "
    f"64-unit networks aligned with one mode. Ours: {_OURS}.",
    "NTK": "1 - alignment of the tangent kernel before and after training to 1e-4 of the loss, against the gain "
    "of input and output weights. The feedforward control's isotropic part caps its change; the W_y block "
    "is the fair comparison. With frozen recurrence the loss is not matched. Lines: geometric mean of the "
    "dots. Ours: the control and settings.",
    "sensory": "Sensory tasks of 10 steps: best single mode, outlier eigenvalue of trained 64-unit networks, and "
    "unexplained share on longer trials. Delay: networks fit it with several modes, not with b* = 1.15. "
    "Ours: the tasks.",
}


#: Of each preset: networks per setting, points along the lines of the theory, and whether all settings are tried.
SIZES: dict[str, dict[str, Any]] = {
    "smoke": {"seeds": 1, "points": 20, "accuracy": 0.99, "few": True},
    "full": {"seeds": 3, "points": 60, "accuracy": 0.999, "few": False},
}


def experiment(settings: Mapping[str, Any], progress: Progress = silent) -> xr.Dataset:
    """The data of one experiment, by its name and size."""
    found = _experiments(**{key: value for key, value in settings.items() if key != "name"})[settings["name"]]()
    progress(1.0)
    return found


def _experiments(seeds: int, points: int, accuracy: float, few: bool) -> dict[str, Callable[[], xr.Dataset]]:
    starts, recurrences = ((0.06, 0.6), (0.8, 1.0)) if few else ((0.06, 0.14, 0.3, 0.6, 0.9), (0.4, 0.6, 0.8, 1.0, 1.1))
    decays = (0.8, 1.0) if few else (0.4, 0.6, 0.8, 0.9, 1.0, 1.1, 1.25)
    backgrounds = (0.15,) if few else (0.05, 0.1, 0.15, 0.19, 0.25)
    gains = (0.1, 1.0) if few else (0.1, 0.3, 1.0, 3.0, 10.0)
    return {
        "S1": partial(networks.order, seeds, points // 2, recurrences),
        "S2a": partial(networks.recurrences, 100 if few else 400),
        "S2b": partial(networks.horizons, seeds, accuracy),
        "S2c": partial(networks.stable_rates, points, decays),
        "S3a": partial(networks.terms, points),
        "S3b": partial(networks.late_pulses, points, backgrounds),
        "S3c": partial(networks.two_pulses, points, 7 if few else 19, starts),
        "NTK": partial(networks.turned_kernels, gains, seeds),
        "sensory": partial(networks.sensory_networks, seeds, accuracy),
    }


def paper() -> Paper:
    """All experiments; how many networks are descended and how finely lines are drawn is a matter of the preset."""
    looks = {
        "S1": (pictures.draw_order, pictures.order_numbers),
        "S2a": (pictures.draw_recurrences, pictures.recurrence_numbers),
        "S2b": (pictures.draw_horizons, pictures.horizon_numbers),
        "S2c": (pictures.draw_rates, pictures.rate_numbers),
        "S3a": (pictures.draw_terms, pictures.term_numbers),
        "S3b": (pictures.draw_late_pulses, pictures.late_pulse_numbers),
        "S3c": (pictures.draw_two_pulses, pictures.two_pulse_numbers),
        "NTK": (pictures.draw_kernels, pictures.kernel_numbers),
        "sensory": (pictures.draw_sensory, pictures.sensory_numbers),
    }
    made = (
        PaperFigure(name, text, only, *looks[name], runs=partial(_runs, name), torch=False)
        for name, text in CAPTIONS.items()
    )
    return Paper("linear-rnn", "proca2025", tuple(made), note="our experiment on a claim of the paper")


def _runs(name: str, preset: str) -> list[PaperRun]:
    return [PaperRun(experiment, {"name": name, **SIZES[preset]})]
