"""Colours and line styles that all figures share, from the token file of pages and pictures."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from matplotlib.colors import Colormap, LinearSegmentedColormap, to_hex

#: The token file, which the explorer, the site and HTML reports use as it is.
TOKEN_FILE = Path(__file__).parents[1] / "tokens.css"
#: Tokens of the colour scales of signed numbers and of numbers without a sign.
_SIGNED, _UNSIGNED = ("lost-most", "lost-some", "even", "saved-some", "saved-most"), ("least", "most")


def read_tokens(*, dark: bool = False) -> dict[str, str]:
    """Return the tokens by name, with the colours of a light or of a dark page."""
    found = re.findall(r"^  --([\w-]+): (.+);$", TOKEN_FILE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    pair = re.compile(r"light-dark\((\S+), (\S+)\)")
    return {name: pair.sub(r"\2" if dark else r"\1", value) for name, value in found}


def themed(svg: str) -> str:
    """Return an SVG whose colours, except those of heat maps, follow the page that it is part of to light or dark."""
    light, dark = TOKENS, read_tokens(dark=True)
    pairs = {light[name]: dark[name] for name in light if name not in (*_SIGNED, *_UNSIGNED)}
    pairs |= {to_hex("black"): dark["ink"], light["paper"]: dark["paper"]}

    def both(found: re.Match[str]) -> str:
        own = light["paper"] if found[0] == to_hex("white") else found[0]
        return f"light-dark({own}, {pairs[own]})" if own in pairs else own

    return re.sub(r"(?<=: )#[0-9a-f]{6}\b", both, svg)


def _scale(name: str, *tokens: str) -> Colormap:
    return LinearSegmentedColormap.from_list(name, [TOKENS[token] for token in tokens], N=257)


TOKENS = read_tokens()
#: Colours of series without a meaning of their own, such as modes.
COLOURS = tuple(TOKENS[f"series-{k}"] for k in range(1, 9))
#: Colours of a curriculum and of direct training, of the two tasks of a curriculum, and of what is forgotten.
STAGED, DIRECT = TOKENS["curriculum"], TOKENS["direct"]
FIRST, TARGET, FORGOTTEN = TOKENS["first"], TOKENS["target"], TOKENS["forgotten"]
#: Colours of a smaller and a larger value.
SMALLER, LARGER = COLOURS[5], COLOURS[0]
#: Colour of remarks and guide lines, and of areas behind curves.
GREY, PALE = TOKENS["faint"], TOKENS["line"]
#: Steps saved (blue) and lost (red), and other signed numbers; numbers without a sign; losses, which are bad.
SAVED, UNSIGNED = _scale("saved", *_SIGNED), _scale("unsigned", *_UNSIGNED)
LOSSES = _scale("losses", "even", "lost-some", "lost-most")
#: Text and lines on light and on dark cells of a heat map; unlike black and white they are the same on a dark page.
ON_LIGHT, ON_DARK = "0.01", "0.99"
#: Keyword arguments of a matplotlib artist.
Look = dict[str, Any]
#: Keyword arguments of a curve of the theory: dotted black, to be drawn over coloured training.
THEORY: Look = {"color": "black", "linestyle": (0, (1, 1.2)), "linewidth": 1.3}
#: Training, drawn under the theory.
TRAINED: Look = {"linewidth": 2.4, "alpha": 0.7}
