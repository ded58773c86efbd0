"""The papers' figures, made again from a spec, with their numbers."""

from __future__ import annotations

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from learncast.dynamics import mode_equation
from learncast.dynamics.modes import ModeSolution
from learncast.dynamics.solution import Solution
from learncast.errors import UnsupportedModel
from learncast.files import write_file
from learncast.packages import torch_package
from learncast.papers.paper import Paper, PaperFigure
from learncast.papers.runs import Compute, PaperRun
from learncast.progress import Progress, silent, within
from learncast.validation import FloatArray, between, one_of

#: Name on the command line and the module that makes the paper.
PAPERS = {
    "curriculum": "learncast.papers.curriculum",
    "learnability": "learncast.papers.learnability",
    "linear-rnn": "learncast.papers.linear_rnn",
    "prior-knowledge": "learncast.papers.prior_knowledge",
}

__all__ = ["PAPERS", "Compute", "Paper", "PaperFigure", "PaperRun", "open_paper", "printed_time", "reproduce"]


def open_paper(name: str) -> Paper:
    """The paper of that name."""
    one_of("paper", name, tuple(PAPERS), why="these are the papers whose figures can be made")
    if name == "learnability":
        torch_package("to reproduce learnability")
    paper: Paper = import_module(PAPERS[name]).paper()
    return paper


def reproduce(
    name: str,
    *,
    figure: str | None = None,
    preset: str = "smoke",
    out: str | Path = "reproduced",
    progress: Progress = silent,
    compute: Compute | None = None,
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
        Where the figures' runs are computed; by default here, one after another or a few at a time.

    Returns
    -------
    dict
        Caption, numbers and files of each figure; also written as ``numbers.json``.
    """
    paper = open_paper(name)
    chosen = paper.selected(figure, preset)
    folder = Path(out)
    made: dict[str, Any] = {}
    for k, item in enumerate(chosen):
        part = within(progress, k, len(chosen))
        made[item.name] = paper.write(item, folder, preset=preset, progress=part, compute=compute)
        progress((k + 1) / len(chosen))
    summary = {"paper": paper.name, "citation": paper.citation, "preset": preset, "figures": made}
    write_file(folder / "numbers.json", json.dumps(summary, indent=2) + "\n")
    return summary


def printed_time(solution: Solution, accuracy: float = 0.99) -> FloatArray:
    """Flow steps of each mode by eq. (12) of curriculum2025, for comparison only.

    It is too short when a mode approaches its optimum from above, and negative inside the band; use
    `learncast.time_to_learn` for answers.
    """
    if not isinstance(solution, ModeSolution):
        raise UnsupportedModel(
            required="the printed formula needs a solution made of modes",
            got=type(solution).__name__,
            why="eq. (12) is about one mode of a linear RNN",
            remedy="use time_to_learn",
        )
    between("accuracy", accuracy, 0.0, 1.0, why="it is one minus the tolerance")
    m = solution.modes
    told = mode_equation.printed_time(m.start, m.weighted_cross, m.weighted_input, 1.0 - accuracy)
    return told / solution.learning_rate
