"""Reference pages of public names: one for the top level and one for every package."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import ModuleType

import public_names
from public_names import Name

#: Names of the top level by subject; those that are not named here come last.
ORDER = {
    "Tasks and networks": ["Task", "LinearRNN", "TwoLayer", "Deep", "Activated"],
    "Training procedure": ["Training", "Stage", "Goal", "Accuracy", "Explained", "Loss", "R2"],
    "Forecasts": ["forecast", "follow", "forget", "phase", "generalise", "Forecast", "Steps", "Status", "Trajectory"],
    "Plans": ["plan", "Plan", "Terms"],
    "Your own torch model": ["advise", "window"],
    "Training and checks": ["check", "descend"],
    "Errors": [],
}


#: Pages that show a name in use, besides the command of that name.
GUIDES = {
    "forecast": "/start/recordings /start/trust",
    "plan": "/how-to/carry-out /generated/tutorials/plot_2_gru_curriculum",
    "generalise": "/theory/generalise /generated/tutorials/plot_8_generalise",
    "advise": "/how-to/advice",
    "window": "/how-to/own-cells /theory/livi2025",
    "forget": "/generated/tutorials/plot_3_forgetting",
    "phase": "/generated/tutorials/plot_6_portrait",
    "check": "/start/trust",
    "Task": "/how-to/data /how-to/recordings",
    "LinearRNN": "/theory/curriculum2025 /how-to/extend",
    "TwoLayer": "/theory/braun2022",
    "Deep": "/theory/deep",
    "Activated": "/theory/responses",
    "Training": "/start/learning-dynamics /how-to/carry-out",
    "Plan": "/how-to/carry-out /how-to/save-load",
    "Forecast": "/how-to/save-load /start/trust",
    "Terms": "/how-to/scale",
}


#: Headings of `learncast.figures`, and the modules whose names they group; the others are helpers.
FIGURES = {
    "Curricula": "maps plans runs",
    "Learning and forgetting": "curves matrices",
    "Windows": "cells windows",
    "Tasks and networks": "networks profiles schematics",
    "Helpers": "",
}


def guides() -> dict[str, str]:
    """Links to the guides of a name and to the command of that name."""
    found = {name: ", ".join(f":doc:`{page}`" for page in pages.split()) for name, pages in GUIDES.items()}
    return {f"learncast.{n}": links + (f", :ref:`command line <{n}>`" if n.islower() else "") for n, links in found.items()}


def pages() -> dict[str, Callable[[], str]]:
    """Pages by name."""
    return {
        "learncast": top_page,
        **{package: partial(package_page, package) for package in public_names.PACKAGES},
    }


def top_page() -> str:
    """Names of the top level."""
    names = {name.name: name for name in public_names.top_level()}
    ordered = {name for chosen in ORDER.values() for name in chosen}
    parts = ["# learncast", "`import learncast as lc`. The names load on first use."]
    for title, chosen in ORDER.items():
        listed = chosen or [name for name in names if name not in ordered]
        parts += [f"## {title}", _summary("learncast", [names[name] for name in listed])]
    return "\n\n".join(parts) + "\n"


def package_page(package: str) -> str:
    """Names of one package, grouped by the subpackage that defines them, or by the subject of figures."""
    module = import_module(f"learncast.{package}")
    groups: dict[str, list[Name]] = {}
    for name in public_names.of_package(package):
        groups.setdefault(_group(module, name), []).append(name)
    parts = [f"# learncast.{package}", inspect.getdoc(module) or ""]
    for group in FIGURES if package == "figures" else sorted(groups):
        if group:
            about = "" if group in FIGURES else _first_paragraph(import_module(f"{module.__name__}.{group}"))
            parts += [f"## {group}", about]
        parts += [
            _summary(exporting, [n for n in groups[group] if n.module == exporting])
            for exporting in _modules(groups[group])
        ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _group(module: ModuleType, name: Name) -> str:
    """Subpackage of `learncast.theory` that defines a name, or the subject of a figure; other packages have one list."""
    if name.module != module.__name__:
        return name.module.removeprefix(f"{module.__name__}.")
    home = name.home.removeprefix(f"{module.__name__}.")
    if module.__name__ == "learncast.figures":
        return next((subject for subject, homes in FIGURES.items() if home in homes.split()), "Helpers")
    return home.split(".")[0] if module.__name__ == "learncast.theory" and home != name.home else ""


def _modules(names: list[Name]) -> list[str]:
    return list(dict.fromkeys(name.module for name in names))


def _first_paragraph(module: ModuleType) -> str:
    return (module.__doc__ or "").split("\n\n")[0].replace("\n", " ")


def _summary(module: str, names: list[Name]) -> str:
    lines = "\n".join(f"   {name.name}" for name in names)
    return f"```{{eval-rst}}\n.. currentmodule:: {module}\n\n.. autosummary::\n   :toctree: names\n   :nosignatures:\n\n{lines}\n```"
