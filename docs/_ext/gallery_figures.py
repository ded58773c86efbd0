"""Figures of the gallery and the tutorials: learncast's style, one version for light and one for dark pages, and cards."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import matplotlib as mpl
import xarray as xr
from matplotlib.collections import QuadMesh
from matplotlib.figure import Figure

from learncast.figures import style, svg
from learncast.figures.look import SAVED, TOKENS, UNSIGNED, themed

#: Pixels of a page per inch of a figure.
PIXELS = 120
#: Width and height of the picture of a card in inches.
CARD = (3.0, 2.0)


def apply_style(conf: dict[str, Any], script: str) -> None:
    """Draw the figures of the next script in learncast's style."""
    if UNSIGNED.name not in mpl.colormaps:
        mpl.colormaps.register(UNSIGNED)
    xr.set_options(cmap_sequential=UNSIGNED.name, cmap_divergent=SAVED)
    with style():
        settings = mpl.rcParams.copy()
    settings = {name: value for name, value in settings.items() if name != "backend"}
    mpl.rcParams.update({**settings, "image.cmap": UNSIGNED.name})


def save_figures(block: Any, variables: dict[str, Any], conf: dict[str, Any]) -> str:
    """Save the open figures in both versions and return their reStructuredText."""
    import matplotlib.pyplot as plt

    lines = []
    for number, path in zip(plt.get_fignums(), variables["image_path_iterator"], strict=False):
        figure, path = plt.figure(number), Path(path)
        width = round(PIXELS * figure.get_size_inches()[0])
        title = next((ax.get_title(loc="left") or ax.get_title() for ax in figure.axes), "") or path.stem
        save_versions(figure, path)
        for look, saved in versions(path).items():
            address = "/" + saved.relative_to(conf["src_dir"]).as_posix()
            options = {"class": f"only-{look} example", "alt": title.replace("\n", " "), "width": f"{width}px"}
            lines += [f".. image:: {address}", *(f"   :{name}: {value}" for name, value in options.items()), ""]
        save_versions(as_card(figure), path.with_name(f"{path.stem}_card.png"))
    plt.close("all")
    return "\n".join(lines)


def versions(path: Path) -> dict[str, Path]:
    """Files of a picture on a light and on a dark page."""
    return {"light": path.with_suffix(".svg"), "dark": path.with_name(f"{path.stem}_dark.svg")}


def save_versions(figure: Figure, path: Path) -> None:
    """Save a figure with a transparent background, in the colours of a light and of a dark page."""
    for patch in (figure.patch, *(ax.patch for ax in figure.axes)):
        patch.set_alpha(0)
    for mesh in figure.findobj(QuadMesh):
        mesh.set_rasterized(True)
    figure.set_dpi(200)
    # Black text has no colour of its own in an SVG.
    text = themed(svg(figure).replace("<svg ", f'<svg style="fill: {TOKENS["ink"]}" ', 1))
    for k, file in enumerate(versions(path).values(), 1):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(re.sub(r"light-dark\((\S+), (\S+)\)", rf"\{k}", text), encoding="utf-8")


def as_card(figure: Figure) -> Figure:
    """Return the figure at the size of a card, without the texts that nobody can read there."""
    width, height = figure.get_size_inches()
    figure.set_size_inches(CARD[0], max(CARD[0] * height / width, 0.8) if width > 2 * height else CARD[1])
    for ax in figure.axes:
        if legend := ax.get_legend():
            legend.remove()
        ax.tick_params(labelbottom=False, labelleft=False, labelright=False, labeltop=False)
        ax.set_title("", loc="left")
        ax.set_title("")
        for line in ax.lines:
            line.set_linewidth(1.4 * line.get_linewidth())
    figure.canvas.draw()
    for ax in figure.axes:
        if ax.yaxis.label.get_window_extent().height > ax.get_window_extent().height:
            ax.set_ylabel("")
        if ax.xaxis.label.get_window_extent().width > ax.get_window_extent().width:
            ax.set_xlabel("")
    return figure
