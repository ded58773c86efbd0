"""Colours and line styles that all figures share."""

from __future__ import annotations

from typing import Any

#: Okabe and Ito's colours, which remain distinct in every kind of colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000", "#F0E442")
#: Colours of a curriculum and of direct training, and of a smaller and a larger value.
STAGED, DIRECT, SMALLER, LARGER = COLOURS[0], COLOURS[1], COLOURS[5], COLOURS[0]
#: Colour of remarks and guide lines.
GREY = "#666666"
#: Keyword arguments of a matplotlib artist.
Look = dict[str, Any]
#: Theory is dotted black over coloured training.
THEORY: Look = {"color": "black", "linestyle": (0, (1, 1.2)), "linewidth": 1.3}
#: Training, drawn under the theory.
TRAINED: Look = {"linewidth": 2.4, "alpha": 0.7}
