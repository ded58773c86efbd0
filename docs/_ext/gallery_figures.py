"""Figures of the gallery and the tutorials: learncast's style, for light and dark pages, for phones, and as cards; faults fail the build."""

from __future__ import annotations

import logging
import re
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import matplotlib as mpl
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.collections import QuadMesh
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.contour import ContourSet
from matplotlib.figure import Figure
from matplotlib.gridspec import GridSpec
from matplotlib.text import Text
from text_faults import faults

from learncast.figures import style, svg
from learncast.figures.look import ON_DARK, ON_LIGHT, SAVED, TOKENS, UNSIGNED, read_tokens, themed

#: Warnings of a logger of Sphinx fail `make docs`.
logger = logging.getLogger("sphinx.gallery_figures")

#: Pixels of a page per inch of a figure.
PIXELS = 120
#: Width of a figure on a phone in inches: its smallest letters then have 11 pixels in a column of 360.
PHONE = 3.2
#: Pixels of that width on a page.
COLUMN = 358
#: Size of the picture of a card in inches.
CARD = (2.4, 1.7)
#: Tokens of the colour maps, by their names in matplotlib.
MAPS = {
    "saved": ("lost-most", "lost-some", "even", "saved-some", "saved-most"),
    "unsigned": ("least", "most"),
    "losses": ("even", "lost-some", "lost-most"),
}
#: Colour of contours on a light map.
INK = mpl.colors.to_hex(ON_LIGHT)


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
    """Save the open figures in all versions and return their reStructuredText."""
    import matplotlib.pyplot as plt

    lines = []
    for number, path in zip(plt.get_fignums(), variables["image_path_iterator"], strict=False):
        figure, path = plt.figure(number), Path(path)
        title = next(
            (ax.get_title(loc="left") or ax.get_title() or _axes_in_words(ax) for ax in figure.axes), path.stem
        )
        width = round(PIXELS * figure.get_size_inches()[0])
        found = faults(figure)
        save_versions(figure, path)
        phone = path.with_name(f"{path.stem}_phone.png")
        save_versions(for_phone(figure), phone)
        found += [f"phone: {fault}" for fault in faults(figure)]
        save_versions(for_card(figure), path.with_name(f"{path.stem}_card.png"))
        for fault in found:
            logger.warning("figure %d of %s: %s", number, path.stem, fault)
        for screen, name, across in (("wide", path, width), ("phone", phone, COLUMN)):
            for look, saved in versions(name).items():
                address = "/" + saved.relative_to(conf["src_dir"]).as_posix()
                options = {"class": f"only-{look} example {screen}", "alt": title.replace("\n", " ")}
                options |= page_size(saved, across)
                lines += [f".. image:: {address}", *(f"   :{name}: {value}" for name, value in options.items()), ""]
    plt.close("all")
    return "\n".join(lines)


def _axes_in_words(ax: Axes) -> str:
    return " against ".join(filter(None, (ax.get_ylabel(), ax.get_xlabel())))


def size(file: Path) -> tuple[float, float]:
    """Width and height of a saved figure in points."""
    head = file.read_text(encoding="utf-8")[:1000]
    width, height = (float(re.search(rf'{side}="([\d.]+)pt"', head)[1]) for side in ("width", "height"))
    return width, height


def page_size(file: Path, across: int) -> dict[str, str]:
    """Options of an image that keeps its place before it is loaded; a version that is not shown is not loaded."""
    width, height = size(file)
    return {"width": f"{across}px", "height": f"{round(across * height / width)}px", "loading": "lazy"}


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
    light, dark = versions(path).values()
    light.parent.mkdir(parents=True, exist_ok=True)
    light.write_text(_coloured(figure, 1), encoding="utf-8")
    with dark_maps(figure):
        dark.write_text(_coloured(figure, 2), encoding="utf-8")


def _coloured(figure: Figure, place: int) -> str:
    """SVG of a figure in the first or second colour of each pair of a light and a dark page."""
    # Black text has no colour of its own in an SVG.
    text = themed(svg(figure).replace("<svg ", f'<svg style="fill: {TOKENS["ink"]}" ', 1))
    return re.sub(r"light-dark\((\S+), (\S+)\)", rf"\{place}", text)


@contextmanager
def dark_maps(figure: Figure) -> Iterator[None]:
    """Give heat maps the colours of a dark page, with light contours, as long as the context lasts."""
    tokens = read_tokens(dark=True)
    scales = {
        name: LinearSegmentedColormap.from_list(name, [tokens[one] for one in ends]) for name, ends in MAPS.items()
    }
    maps = [one for one in figure.findobj() if isinstance(one, ScalarMappable) and one.get_array() is not None]
    maps = [one for one in maps if one.cmap.name in scales]
    contours = [one for one in figure.findobj(ContourSet) if len(one.get_edgecolor())]
    contours = [one for one in contours if mpl.colors.to_hex(one.get_edgecolor()[0]) == INK]
    before = [one.cmap for one in maps]
    for one in maps:
        one.set_cmap(scales[one.cmap.name])
    for one in contours:
        one.set_edgecolor(ON_DARK)
    yield
    for one, cmap in zip(maps, before, strict=True):
        one.set_cmap(cmap)
    for one in contours:
        one.set_edgecolor(ON_LIGHT)


def for_card(figure: Figure) -> Figure:
    """Return the figure as the picture of a card: thick lines without words, numbers and legends."""
    panels = [ax for ax in figure.axes if ax.get_subplotspec() is not None]
    for ax in figure.axes:
        if ax not in panels:
            ax.remove()  # a colour bar
    for inset in [one for ax in panels for one in ax.child_axes]:
        inset.remove()
    for legend in (*figure.legends, *(ax.get_legend() for ax in panels)):
        if legend is not None:
            legend.remove()
    for text in figure.findobj(Text):
        text.set_visible(False)
    for ax in panels:
        ax.tick_params(which="both", length=0, labelbottom=False, labelleft=False)
        for line in ax.get_lines():
            line.set_linewidth(1.8 * line.get_linewidth())
            line.set_markersize(1.3 * line.get_markersize())
    columns = min(2, len(panels))
    grid = GridSpec(-(-len(panels) // columns), columns, figure=figure)
    for ax, place in zip(panels, grid, strict=False):
        ax.set_subplotspec(place)
    figure.set_size_inches(CARD)
    return figure


def for_phone(figure: Figure) -> Figure:
    """Return the figure at the width of a phone, with fewer panels in a row and letters of the same size."""
    width, height = figure.get_size_inches()
    panels = [ax for ax in figure.axes if ax.get_subplotspec() is not None]
    rows, columns = panels[0].get_subplotspec().get_gridspec().get_geometry()
    across = max(1, round(PHONE * columns / width))
    if across < columns:
        down = -(-len(panels) // across)
        grid = GridSpec(down, across, figure=figure)
        for ax, place in zip(panels, grid, strict=False):
            ax.set_subplotspec(place)
        _number_stacked(panels, across)
        rows, height = down, 0.75 * height * down / rows
    figure.set_size_inches(PHONE, min(height, 0.85 * PHONE * rows / min(across, columns)))
    for _ in "xy":  # a second line of one label may leave less room for the other
        figure.draw_without_rendering()
        labels = [(label, ax.bbox) for ax in figure.axes for label in (ax.xaxis.label, ax.yaxis.label)]
        for label, room in labels:
            place = label.get_window_extent()
            fits = figure.bbox.contains(*place.min) and figure.bbox.contains(*place.max)
            longer = place.height > room.height if label.get_rotation() == 90 else place.width > room.width
            if label.get_text() and (longer or not fits):
                width = 3 * len(label.get_text()) // 5
                label.set_text(textwrap.fill(label.get_text(), width, break_long_words=False))
    return figure


def _number_stacked(panels: list[Axes], across: int) -> None:
    """Show the numbers of axes whose neighbour on the left is gone, and hide those above a panel with the same axis."""
    for place, ax in enumerate(panels):
        if place % across == 0 and ax.yaxis.get_visible():
            ax.tick_params(labelleft=True)
        below = panels[place + across] if place + across < len(panels) else None
        if below is None or not ax.get_shared_x_axes().joined(ax, below):
            ax.tick_params(labelbottom=True)
        else:
            ax.tick_params(labelbottom=False)
