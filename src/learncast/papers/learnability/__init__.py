"""Figures 1 to 13 and the table of appendix C of livi2025: learnability windows of gated networks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from learncast import figures as draw
from learncast.papers.learnability import curves
from learncast.papers.learnability.preset import PRESETS
from learncast.papers.learnability.runs import diagnosis_runs
from learncast.papers.learnability.validation import draw_validation, validation, validation_numbers, validation_runs
from learncast.papers.paper import Paper, PaperFigure


def paper() -> Paper:
    """All figures."""
    figures = [
        _figure(
            "1",
            "AdamW",
            "Envelopes of every cell under AdamW, base rates from the optimiser's state, with exponential and power "
            "fits.",
            curves.draw_envelopes,
            curves.envelope_numbers,
        ),
        _figure(
            "2",
            "AdamW",
            "Longest learnable lag against the number of sequences: told from noise (with what data without signal "
            "show), against the noise of the whole gradient, and by the published rule, whose signs come from the data "
            "they are applied to.",
            curves.draw_windows,
            curves.window_numbers,
        ),
        _survival("3", "AdamW", "semilog"),
        _figure(
            "4",
            "AdamW",
            "Tail index of the noise between sequences, over lags: where it rises to 2 in means of sequences the "
            "variance is finite.",
            partial(curves.draw_one, draw.tail_indices_by_cell, 5.4),
            curves.tail_numbers,
        ),
        _figure(
            "5",
            "AdamW",
            "Noise scale against the lag; dotted, the envelope scaled to it at the first lag.",
            partial(curves.draw_one, draw.noise_scales_by_cell, 5.0),
            curves.scale_numbers,
        ),
    ]
    for first, optimizer in ((6, "SGD"), (9, "SGD with momentum")):
        envelopes = f"Envelopes of every cell under {optimizer}, with exponential and power fits."
        noise = f"Tail index over lags and noise scale against the lag under {optimizer}."
        figures += [
            _figure(f"{first}", optimizer, envelopes, curves.draw_envelopes, curves.envelope_numbers),
            _survival(f"{first + 1}", optimizer, "semilog"),
            _figure(f"{first + 2}", optimizer, noise, curves.draw_noise, curves.noise_numbers),
        ]
    spectra = "Time scales of the units of every cell under AdamW."
    figures += [
        _survival("12", "AdamW", "log-log"),
        _figure("13", "AdamW", spectra, curves.draw_histograms, curves.time_scale_numbers),
        PaperFigure(
            "C",
            "First-order against exact envelopes: rank correlation, correlation of logarithms and slope, by cell and "
            "optimiser; from plain starts, and with orthogonal weights and normalised candidates as in figures 1 to "
            "13.",
            validation,
            draw_validation,
            validation_numbers,
            stored=True,
            runs=validation_runs,
        ),
    ]
    return Paper("learnability", "livi2025", tuple(figures), tuple(PRESETS))


def _figure(
    name: str, optimizer: str, caption: str, picture: Callable[..., Any], numbers: Callable[..., Any]
) -> PaperFigure:
    """A figure of all cells under one optimiser."""
    data, runs = partial(curves.diagnoses, optimizer), partial(diagnosis_runs, optimizer)
    return PaperFigure(name, caption, data, partial(picture, name), numbers, stored=True, runs=runs)


def _survival(name: str, optimizer: str, scale: str) -> PaperFigure:
    axes = " on doubly logarithmic axes" if scale == "log-log" else ""
    caption = f"Share of units whose time scale is at least as long under {optimizer}{axes}."
    picture = partial(curves.draw_one, partial(draw.survivals_by_cell, scale=scale), 5.0)
    return _figure(name, optimizer, caption, picture, curves.time_scale_numbers)
