"""The papers' figures, made again from a spec, with their numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

import xarray as xr

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.files import draft_folder, write_file
from learncast._core.packages import torch_package
from learncast._core.progress import Progress, noticed, silent, within
from learncast._core.validation import FloatArray, between, one_of
from learncast.papers.paper import FORMATS, Paper, PaperFigure
from learncast.papers.runs import Compute, PaperRun, remembered
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.modes import ModeSolution
from learncast.theory.dynamics.solution import Solution

#: Name on the command line and the module that makes the paper.
PAPERS = {
    "curriculum": "learncast.papers.curriculum",
    "learnability": "learncast.papers.learnability",
    "linear-rnn": "learncast.papers.linear_rnn",
    "prior-knowledge": "learncast.papers.prior_knowledge",
}

__all__ = ["PAPERS", "Compute", "Paper", "PaperFigure", "PaperRun", "open_paper", "printed_time", "reproduce"]


def open_paper(name: str, **choices: Any) -> Paper:
    """The paper of that name.

    Parameters
    ----------
    name : str
        A key of `PAPERS`.
    **choices
        What the paper lets one choose: ``optimum`` of curriculum, ``seeds``, ``cells`` and ``device`` of learnability.
        None is the paper's own.

    Returns
    -------
    Paper
        Its figures and runs.

    Examples
    --------
    >>> import learncast as lc
    >>> sorted(lc.papers.PAPERS)
    ['curriculum', 'learnability', 'linear-rnn', 'prior-knowledge']
    >>> type(lc.papers.open_paper("curriculum")).__name__
    'Paper'
    """
    one_of("paper", name, tuple(PAPERS))
    if name == "learnability":
        torch_package("to reproduce learnability")
    make: Callable[..., Paper] = import_module(PAPERS[name]).paper
    given = {key: value for key, value in choices.items() if value is not None}
    known = signature(make).parameters
    for key in given:
        if key not in known:
            raise InvalidSpec(
                f"{key} must be a choice of the paper {name}, got {key} = {given[key]!r}. Leave it out.", field=key
            )
    return make(**given)


@noticed("reproducing figures")
def reproduce(
    name: str,
    *,
    figure: str | None = None,
    preset: str = "smoke",
    out: str | Path = "reproduced",
    progress: Progress = silent,
    compute: Compute | None = None,
    formats: Sequence[str] = FORMATS,
    **choices: Any,
) -> dict[str, Any]:
    """Make a paper's figures, or one of them, and write pictures, data and numbers to a folder.

    Parameters
    ----------
    name : str
        A key of `PAPERS`.
    figure : str, optional
        A figure such as "2A", or a number such as "4" for all its panels; every figure by default.
    preset : str
        How much training goes into figures that need some: ``"smoke"`` or ``"full"``, or what `Paper.presets` of the
        paper says.
    out : path
    progress : callable
    compute : callable, optional
        Where the figures' runs are computed; by default here, one after another.
    formats : sequence of {"png", "pdf", "svg"}
        Of the pictures.
    **choices
        As for `open_paper`.

    Returns
    -------
    dict
        Caption, numbers and files of each figure, and files of each page that shows all panels of a printed figure;
        also written as ``numbers.json``.

    Raises
    ------
    InvalidSpec
        If the paper, a figure, the preset, a format or a choice of it is not known.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = lc.papers.reproduce("curriculum", figure="3A", out=folder, formats=["png"])
    >>> made["figures"]["3A"]["files"]
    ['figure_3A.png', 'figure_3A.nc', 'figure_3A.csv']
    """
    paper = open_paper(name, **choices)
    chosen = paper.selected(figure, preset)
    look: dict[str, Any] = {"preset": preset, "formats": formats}
    made, shown = dict[str, Any](), dict[str, xr.Dataset]()
    with draft_folder(out) as folder:  # figures of two calls never stand beside each other's numbers
        for k, item in enumerate(chosen):
            shown[item.name] = item.made(
                preset=preset, progress=within(progress, k, len(chosen)), compute=compute or remembered
            )
            made[item.name] = paper.write(item, shown[item.name], folder, **look)
            progress((k + 1) / len(chosen))
        pages = {
            number: paper.write_page(number, [(panel, shown[panel.name]) for panel in panels], folder, **look)
            for number, panels in paper.pages(chosen).items()
        }
        summary = {"paper": paper.name, "citation": paper.citation, "preset": preset, "figures": made, "pages": pages}
        write_file(folder / "numbers.json", json.dumps(summary, indent=2) + "\n")
    return summary


def printed_time(solution: Solution, accuracy: float = 0.99) -> FloatArray:
    """Flow steps of each mode by eq. (12) of curriculum2025, for comparison only.

    It is too short when a mode approaches its optimum from above, and negative inside the band; use
    `learncast.time_to_learn` for answers.

    Parameters
    ----------
    solution : ModeSolution
        What `learncast.solve` returned for a linear RNN made of modes.
    accuracy : float
        One minus the tolerance, between 0 and 1.

    Returns
    -------
    array over mode
        Gradient steps.

    Raises
    ------
    UnsupportedModel
        If the solution is not made of modes.
    InvalidSpec
        If the accuracy is not between 0 and 1.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.solve(task, network, learning_rate=1e-3)
    >>> lc.papers.printed_time(solution, 0.99).round(1)
    array([330.])
    >>> lc.time_to_learn(solution, 0.99)
    <LearningTime to 0.99: 329.985 flow steps, 331 descent steps, ok>
    """
    if not isinstance(solution, ModeSolution):
        raise UnsupportedModel(
            f"the printed formula needs a solution made of modes, got {type(solution).__name__}. Use time_to_learn."
        )
    between("accuracy", accuracy, 0.0, 1.0)
    m = solution.modes
    told = mode_equation.printed_time(m.start, m.weighted_cross, m.weighted_input, 1.0 - accuracy)
    return told / solution.learning_rate


def __dir__() -> list[str]:
    return list(__all__)
