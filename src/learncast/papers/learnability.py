"""Figures 1 to 13 and the table of appendix C of livi2025: learnability windows of gated networks."""

from __future__ import annotations

from functools import partial

from learncast.papers.learnability_curves import (
    diagnoses,
    draw_envelopes,
    draw_histograms,
    draw_noise,
    draw_scales,
    draw_survivals,
    draw_tails,
    draw_windows,
    envelope_numbers,
    noise_numbers,
    scale_numbers,
    tail_numbers,
    time_scale_numbers,
    window_numbers,
)
from learncast.papers.learnability_preset import PRESETS
from learncast.papers.learnability_runs import diagnosis_runs
from learncast.papers.learnability_validation import (
    draw_validation,
    validation,
    validation_numbers,
    validation_runs,
)
from learncast.papers.paper import Paper, PaperFigure


def paper() -> Paper:
    """All figures."""
    return Paper("learnability", "livi2025", (*_adaptive(), *_descent(), *_spectra(), _table()), tuple(PRESETS))


def _adaptive() -> list[PaperFigure]:
    data, runs = partial(diagnoses, "AdamW"), partial(diagnosis_runs, "AdamW")
    return [
        PaperFigure(
            "1",
            "Envelopes of every cell under AdamW, base rates from the optimiser's state, with exponential and power "
            "fits.",
            data,
            partial(draw_envelopes, "1"),
            envelope_numbers,
            trained=True,
            stored=True,
            runs=runs,
        ),
        PaperFigure(
            "2",
            "Longest learnable lag against the number of sequences: told from noise (with what data without signal "
            "show), against the noise of the whole gradient, and by the published rule, whose signs come from the data "
            "they are applied to.",
            data,
            partial(draw_windows, "2"),
            window_numbers,
            trained=True,
            stored=True,
            runs=runs,
        ),
        _survival("3", "AdamW", "semilog"),
        PaperFigure(
            "4",
            "Tail index of the noise between sequences, over lags: where it rises to 2 in means of sequences the "
            "variance is finite.",
            data,
            partial(draw_tails, "4"),
            tail_numbers,
            trained=True,
            stored=True,
            runs=runs,
        ),
        PaperFigure(
            "5",
            "Noise scale against the lag; dotted, the envelope scaled to it at the first lag.",
            data,
            partial(draw_scales, "5"),
            scale_numbers,
            trained=True,
            stored=True,
            runs=runs,
        ),
    ]


def _descent() -> list[PaperFigure]:
    """Three figures for each way of descent without adaptive rates."""
    figures = []
    for first, optimiser in ((6, "SGD"), (9, "SGD with momentum")):
        data, runs = partial(diagnoses, optimiser), partial(diagnosis_runs, optimiser)
        figures += [
            PaperFigure(
                f"{first}",
                f"Envelopes of every cell under {optimiser}, with exponential and power fits.",
                data,
                partial(draw_envelopes, f"{first}"),
                envelope_numbers,
                trained=True,
                stored=True,
                runs=runs,
            ),
            _survival(f"{first + 1}", optimiser, "semilog"),
            PaperFigure(
                f"{first + 2}",
                f"Tail index over lags and noise scale against the lag under {optimiser}.",
                data,
                partial(draw_noise, f"{first + 2}"),
                noise_numbers,
                trained=True,
                stored=True,
                runs=runs,
            ),
        ]
    return figures


def _survival(name: str, optimiser: str, scale: str) -> PaperFigure:
    axes = " on doubly logarithmic axes" if scale == "log-log" else ""
    return PaperFigure(
        name,
        f"Share of units whose time scale is at least as long under {optimiser}{axes}.",
        partial(diagnoses, optimiser),
        partial(draw_survivals, name, scale),
        time_scale_numbers,
        trained=True,
        stored=True,
        runs=partial(diagnosis_runs, optimiser),
    )


def _spectra() -> list[PaperFigure]:
    return [
        _survival("12", "AdamW", "log-log"),
        PaperFigure(
            "13",
            "Time scales of the units of every cell under AdamW.",
            partial(diagnoses, "AdamW"),
            partial(draw_histograms, "13"),
            time_scale_numbers,
            trained=True,
            stored=True,
            runs=partial(diagnosis_runs, "AdamW"),
        ),
    ]


def _table() -> PaperFigure:
    return PaperFigure(
        "C",
        "First-order against exact envelopes: rank correlation, correlation of logarithms and slope, by cell and "
        "optimiser; from plain starts, and with orthogonal weights and normalised candidates as in figures 1 to 13.",
        validation,
        draw_validation,
        validation_numbers,
        trained=True,
        stored=True,
        runs=validation_runs,
    )
