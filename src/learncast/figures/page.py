"""Pages, axes, labels and the style that all figures share."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from io import BytesIO, StringIO
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
import xarray as xr
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colorbar import Colorbar
from matplotlib.figure import Figure
from matplotlib.legend import Legend
from matplotlib.rcsetup import cycler
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator
from matplotlib.transforms import ScaledTranslation

from learncast.figures.look import COLOURS, GREY, TOKENS, Look

#: Resolution of a printed figure in dots per inch.
DPI = 300
#: Largest width of a figure for narrow screens in inches, and the height that its axes keep.
NARROW, LOW = 3.7, 2.4
SHEET = Path(__file__).with_name("learncast.mplstyle")

#: Letters of a y label that fit beside an axis.
_LONG_LABEL = 34

_STYLED: ContextVar[bool] = ContextVar("styled", default=False)
_STACKED: ContextVar[bool] = ContextVar("stacked", default=False)


@cache
def _settings() -> Any:
    """Read the style sheet and the tokens; print has 0.65 of the line width of a screen."""
    settings: Any = mpl.rc_params_from_file(SHEET, use_default_template=False)
    width = 0.65 * float(TOKENS["line-width"])
    return {**settings, "axes.prop_cycle": cycler(color=COLOURS), "lines.linewidth": width}


@contextmanager
def style() -> Iterator[None]:
    """Draw with learncast's style sheet, without changing matplotlib's global settings.

    Returns
    -------
    context manager

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> with lc.figures.style():
    ...     inside = plt.rcParams["axes.spines.top"]
    >>> inside, plt.rcParams["axes.spines.top"]
    (False, True)
    """
    if _STYLED.get():
        yield
        return
    token, interactive = _STYLED.set(True), mpl.is_interactive()
    try:
        with mpl.rc_context(rc=_settings()):
            try:
                yield
            finally:
                interactive = mpl.is_interactive()
    finally:
        # The first pyplot figure switches the inline display of notebooks on, which must outlast the style.
        mpl.interactive(interactive)
        _STYLED.reset(token)


@contextmanager
def stacked() -> Iterator[None]:
    """Let `page` put all axes in one column, for narrow screens."""
    token = _STACKED.set(True)
    try:
        yield
    finally:
        _STACKED.reset(token)


def page(rows: int = 1, columns: int = 1, *, width: float = 3.4, height: float = 2.5) -> tuple[Figure, list[Axes]]:
    """Make a figure with a grid of axes, without matplotlib's global state.

    Parameters
    ----------
    rows, columns : int
        Shape of the grid.
    width, height : float
        Size of each axes in inches.

    Returns
    -------
    figure : Figure
    axes : list of Axes
        Axes row by row.

    Examples
    --------
    >>> import learncast as lc
    >>> figure, axes = lc.figures.page(1, 2)
    >>> len(axes), figure.get_size_inches().tolist()
    (2, [6.8, 2.5])
    """
    number, bands = rows * columns, _STACKED.get()
    if bands:
        rows, columns, width, height = number, 1, min(width, NARROW), min(height, max(LOW, height * NARROW / width))
    with style():
        canvas: Any = Figure(figsize=(width * columns, height * rows), layout="constrained")
        if bands:  # each part is as wide as its own labels let it
            axes = np.array([part.subplots() for part in canvas.subfigures(number, 1, squeeze=False).ravel()])
        else:
            axes = canvas.subplots(rows, columns, squeeze=False)
    return canvas, list(axes.ravel())


def sheet(*draws: Callable[[Axes], object], columns: int = 0, width: float = 3.4, height: float = 2.5) -> Figure:
    """Make a page with one axes for each function.

    Parameters
    ----------
    *draws : callable
        Functions that draw on the axes that they are given.
    columns : int
        Axes in a row; 0 for all of them.
    width, height : float
        Size of each axes in inches.

    Returns
    -------
    Figure

    Examples
    --------
    >>> import learncast as lc
    >>> task = lc.tasks.integration(steps=50)
    >>> network = lc.LinearRNN.aligned(recurrence=0.96, initial=0.01, hidden_size=4)
    >>> trajectory = lc.forecast(task, network, learning_rate=1e-3).solution.at([0, 200, 400]).dataset
    >>> figure = lc.figures.sheet(
    ...     lambda ax: lc.figures.mode_strengths(trajectory, ax, title="A  strength"),
    ...     lambda ax: lc.figures.loss_curve(trajectory, ax, title="B  loss"),
    ... )
    >>> [ax.get_ylabel() for ax in figure.axes]
    ['strength $u$', 'half mean squared error (target$^{2}$)']
    """
    across = columns or len(draws)
    figure, axes = page(-(-len(draws) // across), across, width=width, height=height)
    with style():
        for draw, ax in zip(draws, axes, strict=False):
            draw(ax)
        for ax in axes[len(draws) :]:
            ax.remove()
    return figure


def stamped(figure: Figure, words: str) -> Figure:
    """Write a warning into the upper right corner of a figure."""
    look: Look = {"ha": "right", "va": "top", "fontsize": 6, "color": TOKENS["error"], "alpha": 0.8}
    engine: Any = figure.get_layout_engine()
    if engine is not None:  # reserve a line, since titles reach the edge
        engine.set(rect=(0, 0, 1, 1 - 0.11 / figure.get_figheight()))
    figure.text(0.998, 0.998, words, **look)
    return figure


def _depth(ax: Axes) -> float:
    """Points from the lower end of axes to below their tick labels and axis label, whatever the size of these."""
    label, tick = ax.xaxis.label, ax.xaxis.get_major_ticks(1)[0].label1
    lines = 1.4 + label.get_text().count("\n")
    return lines * float(label.get_fontsize()) + 1.3 * float(tick.get_fontsize()) + ax.xaxis.labelpad + 2.2


def label(ax: Axes, *, x: str, y: str, title: str = "") -> Axes:
    """Label the axes.

    Parameters
    ----------
    ax : Axes
    x, y : str
        Axis labels with units; a unit after a long y label goes to a second line.
    title : str
        Title; a word before two spaces is the letter of the panel and is set in bold.

    Returns
    -------
    Axes
        `ax`.

    Examples
    --------
    >>> import learncast as lc
    >>> figure, (ax,) = lc.figures.page()
    >>> lc.figures.label(ax, x="lag (steps)", y="loss", title="A  mine").get_xlabel()
    'lag (steps)'
    """
    with style():
        ax.set_xlabel(x)
        ax.set_ylabel(re.sub(r" (?=\([^(]*\)$)", "\n", y) if len(re.sub(r"[$^{}]", "", y)) > _LONG_LABEL else y)
        if title:
            letter = re.match(r"(\w+)  (.*)", title, re.DOTALL)
            ax.set_title(rf"$\mathbf{{{letter[1]}}}$  {letter[2]}" if letter else title, loc="left")
    return ax


def key(ax: Axes, *args: object, below: bool = False, **options: object) -> Legend:
    """Draw a legend in learncast's style, inside or below the axes.

    Parameters
    ----------
    ax : Axes
    *args, **options
        Arguments of matplotlib's ``Axes.legend``.
    below : bool
        Draw the legend below the axes and their labels.

    Returns
    -------
    Legend

    Examples
    --------
    >>> import learncast as lc
    >>> figure, (ax,) = lc.figures.page()
    >>> lines = ax.plot([0, 1], label="descent")
    >>> [text.get_text() for text in lc.figures.key(ax, below=True).get_texts()]
    ['descent']
    """
    with style():
        if below:
            # An offset in points, since labels have the same height in small and large panels.
            down = ScaledTranslation(0, -_depth(ax) / 72, ax.figure.dpi_scale_trans)
            place: Look = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "columnspacing": 0.9}
            options = place | {"bbox_transform": ax.transAxes + down} | options
            if _STACKED.get():
                options["ncols"] = min(2, int(str(options.get("ncols", 1))))
        return ax.legend(*args, **options)


def with_key(ax: Axes, x: str, y: str, title: str, **legend: Any) -> Axes:
    """Draw a legend, and label the axes."""
    key(ax, **legend)
    return label(ax, x=x, y=y, title=title)


def axis_label(variable: xr.DataArray) -> str:
    """Return "long name (units)" of a labelled array.

    Parameters
    ----------
    variable : DataArray

    Returns
    -------
    str

    Examples
    --------
    >>> import xarray as xr
    >>> import learncast as lc
    >>> lc.figures.axis_label(xr.DataArray(0.0, name="loss", attrs={"units": "target^2"}))
    'loss (target$^{2}$)'
    """
    name = lettered(str(variable.attrs.get("long_name", variable.name)).replace("_", " "))
    units = variable.attrs.get("units", "1")
    return name if units == "1" else f"{name} ({_raised(str(units))})"


def lettered(text: str) -> str:
    """Return a text with its symbols in TeX."""
    for plain, letter in _LETTERS.items():
        text = letter.join(re.split(plain, text))
    return text


#: Symbols in the names of data, and their TeX.
_LETTERS = {
    r"\bb0\b": "$b_0$",
    r"\bT2\b": "$T_2$",
    r"\beps\b": r"$\epsilon$",
    r"\bb\*": "$b^*$",
    r"\brecurrence b$": "recurrence $b$",
    r"\bstrength r\b": "strength $r$",
    r"\bsolution rho\b": r"solution $\rho$",
    r"\bfunction W\b": "function $W$",
    r"^T = ": "$T$ = ",
    r"-u P$": "$-uP$",
    r"u² Q / 2$": "$u^2Q/2$",
    r"\bW2 W1\b": "$W_2W_1$",
    r"\bW1\^T W1\b": r"$W_1^\top W_1$",
    r"\bW2 W2\^T": r"$W_2W_2^\top$",
}


def _raised(units: str) -> str:
    """Return units with superscripts."""
    return re.sub(r"\^(-?\d+)", r"$^{\1}$", units)


def name_line(ax: Axes, height: float, text: str, *, x: float = 0.01, up: float = 2) -> None:
    """Label a horizontal line."""
    place: Look = {"xycoords": ("axes fraction", "data"), "textcoords": "offset points"}
    ax.annotate(text, (x, height), xytext=(0, up), fontsize=6.5, color=GREY, **place)


def name_time(ax: Axes, time: float, text: str, *, colour: str = GREY, high: float = 0.98) -> None:
    """Label a vertical line."""
    place: Look = {"xycoords": ("data", "axes fraction"), "textcoords": "offset points"}
    place["bbox"] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.75, "pad": 0.5}
    ax.annotate(text, (time, high), xytext=(2, 0), fontsize=6.5, color=colour, va="top", **place)


def name_step(ax: Axes, step: float, height: float, *, colour: str, offset: tuple[float, float] = (0, 6)) -> None:
    """Mark the step that a result names by a dot, with its number at an offset in points."""
    if np.isfinite([step, height]).all():
        place: Look = {"xytext": offset, "ha": {-1: "right", 0: "center", 1: "left"}[int(np.sign(offset[0]))]}
        ax.plot([step], [height], "o", color=colour, markersize=4.5)
        ax.annotate(f"{step:,.0f}", (step, height), textcoords="offset points", fontsize=7, color=colour, **place)


def colour_bar(ax: Axes, artist: ScalarMappable, text: str, **options: Any) -> Colorbar:
    """Draw a colour bar with a label."""
    with style():
        bar = ax.figure.colorbar(artist, ax=None if "cax" in options else ax, **options)
        bar.set_label(text)
        bar.ax.tick_params(labelsize=6.5)
    return bar


#: Leading digits of labelled ticks, from few to many.
_DIGITS = ((1,), (1, 3), (1, 2, 5), tuple(range(1, 10)))


def logarithmic(ax: Axes, along: str = "x") -> None:
    """Make the "x" or "y" axis logarithmic, with a few plain tick labels."""
    getattr(ax, f"set_{along}scale")("log")
    axis = ax.xaxis if along == "x" else ax.yaxis
    low, high = sorted(axis.get_view_interval())
    powers = 10.0 ** np.arange(np.floor(np.log10(low)), np.ceil(np.log10(high)) + 1)
    for digits in _DIGITS:
        ticks = np.outer(powers, digits).ravel()
        ticks = ticks[(ticks >= low) & (ticks <= high)]
        if len(ticks) >= 3:
            ticks = ticks[:: -(-len(ticks) // 6)]  # at most 6 fit
            break
    else:
        ticks = np.array([float(f"{tick:.2g}") for tick in np.linspace(low, high, 5)[1:-1]])
    axis.set_major_locator(FixedLocator(ticks.tolist()))
    axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,g}"))
    axis.set_minor_locator(NullLocator())


def wrapped(name: object, most: int) -> str:
    """Return a name broken into at most two lines of `most` characters."""
    return textwrap.fill(str(name), most, max_lines=2, placeholder="…")


def shortened(name: object, most: int) -> str:
    """Return a name cut to at most `most` characters."""
    text = str(name)
    return text if len(text) <= most else text[: most - 2] + "…"


def new_axes() -> Axes:
    """Return the axes of a new pyplot figure, which notebooks and windows display.

    Returns
    -------
    Axes

    Examples
    --------
    >>> import matplotlib.pyplot as plt
    >>> import learncast as lc
    >>> ax = lc.figures.new_axes()
    >>> lc.figures.label(ax, x="gradient steps", y="loss").get_ylabel()
    'loss'
    >>> plt.close(ax.figure)
    """
    from matplotlib import pyplot

    with style():
        return pyplot.subplots(figsize=(4.2, 2.8), layout="constrained")[1]


def png(figure: Figure, *, dpi: int = 150) -> bytes:
    """Return a figure as the bytes of a PNG file.

    Parameters
    ----------
    figure : Figure
    dpi : int
        Dots per inch.

    Returns
    -------
    bytes

    Examples
    --------
    >>> import learncast as lc
    >>> figure, (ax,) = lc.figures.page()
    >>> lc.figures.png(figure, dpi=40)[1:4]
    b'PNG'
    """
    buffer = BytesIO()
    figure.savefig(buffer, format="png", dpi=dpi)
    return buffer.getvalue()


def svg(figure: Figure) -> str:
    """Return a figure as an SVG element for an HTML page; equal figures give equal text.

    Parameters
    ----------
    figure : Figure

    Returns
    -------
    str

    Examples
    --------
    >>> import learncast as lc
    >>> figure, (ax,) = lc.figures.page()
    >>> lc.figures.svg(figure)[:4]
    '<svg'
    """
    buffer = StringIO()
    with mpl.rc_context({"svg.hashsalt": "learncast"}):
        figure.savefig(buffer, format="svg", metadata={"Date": None})
    text = buffer.getvalue()
    return text[text.index("<svg") :]


def save(figure: Figure, path: str | Path, *, dpi: int = DPI) -> Path:
    """Write a figure to a file.

    Parameters
    ----------
    figure : Figure
    path : path
        The suffix gives the format; missing folders are created.
    dpi : int
        Dots per inch.

    Returns
    -------
    Path
        The path written.

    Examples
    --------
    >>> import tempfile
    >>> import learncast as lc
    >>> figure, (ax,) = lc.figures.page()
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     print(lc.figures.save(figure, f"{folder}/pictures/loss.png", dpi=40).name)
    loss.png
    """
    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, dpi=dpi)
    return target
