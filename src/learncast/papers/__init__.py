"""Reproduction of the papers' figures, with their data and numbers."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from importlib import import_module
from inspect import signature
from pathlib import Path
from typing import Any

from learncast._core.errors import InvalidSpec, UnsupportedModel
from learncast._core.files import draft_folder, write_file
from learncast._core.packages import torch_package
from learncast._core.progress import Progress, noticed, silent, within
from learncast._core.validation import FloatArray, between, one_of
from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.runs import Compute, PaperRun, remembered
from learncast.theory.dynamics import mode_equation
from learncast.theory.dynamics.modes import ModeSolution
from learncast.theory.dynamics.solution import Solution

#: Name of each paper and the module that reproduces it.
PAPERS = {
    "curriculum": "learncast.papers.curriculum",
    "learnability": "learncast.papers.learnability",
    "linear-rnn": "learncast.papers.linear_rnn",
    "prior-knowledge": "learncast.papers.prior_knowledge",
}

__all__ = ["PAPERS", "Compute", "Paper", "PaperFigure", "PaperRun", "open_paper", "paper_time", "reproduce"]


def open_paper(name: str, **choices: object) -> Paper:
    """Return the paper with a name.

    Parameters
    ----------
    name : str
        A key of `PAPERS`.
    **choices
        Options of the paper: ``seeds``, ``cells`` and ``device`` of learnability. None stands for the default.

    Returns
    -------
    Paper

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
    for key in given:
        if key not in signature(make).parameters:
            raise InvalidSpec(f"{key} is not an option of the paper {name}.", field=key)
    return make(**given)


@noticed("reproducing figures")
def reproduce(
    name: str,
    *,
    figure: str | None = None,
    preset: str | None = None,
    out: str | Path = "reproduced",
    progress: Progress = silent,
    compute: Compute | None = None,
    formats: Sequence[str] = ("png",),
    **choices: object,
) -> dict[str, Any]:
    """Reproduce a paper's figures, or one of them, and write pictures, data and numbers to a folder.

    Parameters
    ----------
    name : str
        A key of `PAPERS`.
    figure : str, optional
        A figure such as "2A", or a number such as "4" for all its panels; by default every figure.
    preset : str, optional
        Amount of training for figures that need it, one of `Paper.presets`; by default the first.
    out : path
        Folder for the figures.
    progress : callable
        Called with the share that is done.
    compute : callable, optional
        Computes the figures' runs; by default in this process, one after another. `Paper.stored` reads results that
        come with the package.
    formats : sequence of {"png", "pdf", "svg"}
        Formats of the pictures.
    **choices
        As for `open_paper`.

    Returns
    -------
    dict
        Caption, numbers and files of each figure; also written to ``numbers.json``.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = lc.papers.reproduce("curriculum", figure="3A", out=folder)
    >>> made["figures"]["3A"]["files"]
    ['figure_3A.png', 'figure_3A.nc', 'figure_3A.csv']
    """
    paper = open_paper(name, **choices)
    preset = preset or paper.presets[0]
    chosen = paper.selected(figure, preset)
    made = dict[str, object]()
    with draft_folder(out) as folder:  # replaced as a whole, so that figures and numbers always belong together
        for k, item in enumerate(chosen):
            part = within(progress, k, len(chosen))
            data = item.make(preset=preset, progress=part, compute=compute or remembered)
            made[item.name] = paper.write(item, data, folder, preset=preset, formats=formats)
            progress((k + 1) / len(chosen))
        summary = {"paper": paper.name, "citation": paper.citation, "preset": preset, "figures": made}
        write_file(folder / "numbers.json", json.dumps(summary, indent=2) + "\n")
    return summary


def paper_time(solution: Solution, accuracy: float = 0.99) -> FloatArray:
    """Return the flow steps of each mode by eq. (12) of curriculum2025, for comparison.

    The equation gives too few steps if a mode approaches its optimum from above, and a negative number inside the
    tolerance. Use `learncast.forecast` for forecasts.

    Parameters
    ----------
    solution : ModeSolution
        ``learncast.forecast(...).solution`` of a linear RNN with common modes.
    accuracy : float
        One minus the tolerance, between 0 and 1.

    Returns
    -------
    array over mode
        Gradient steps.

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> solution = lc.forecast(task, network, learning_rate=1e-3).solution
    >>> lc.papers.paper_time(solution, 0.99).round(1)
    array([330.])
    >>> solution.time_to(0.99)
    <LearningTime to 0.99: 329.985 flow steps, 331 descent steps, ok>
    """
    if not isinstance(solution, ModeSolution):
        raise UnsupportedModel(f"solution must consist of modes, got {type(solution).__name__}.", field="solution")
    between("accuracy", accuracy, 0.0, 1.0)
    m = solution.modes
    time = mode_equation.printed_time(m.start, m.weighted_cross, m.weighted_input, 1.0 - accuracy)
    return time / solution.learning_rate


def __dir__() -> list[str]:
    return list(__all__)
