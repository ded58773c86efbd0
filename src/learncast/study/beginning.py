"""Study files to begin with: commented, and running as they are."""

from __future__ import annotations

import io
from importlib.resources import files
from pathlib import Path

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.files import write_file
from learncast._core.validation import one_of

#: What a first study may be about.
BEGINNINGS = ("plan", "forget", "window", "sweep", "recordings")


def begin(kind: str, path: str | Path) -> list[Path]:
    """Write a first study of that kind, and trials beside it where it needs some; nothing is overwritten.

    Returns
    -------
    list of Path
        What was written.
    """
    one_of("the kind of study", kind, BEGINNINGS)
    place = Path(path)
    text = files("learncast.study").joinpath("templates", f"{kind}.toml").read_text(encoding="utf-8")
    written: dict[Path, str | bytes] = {place: text}
    if kind == "recordings":
        trials = place.with_name(f"{place.stem}_trials.npz")
        written = {place: text.replace("DATA", trials.name), trials: _trials()}
    for one in written:
        if one.exists():
            raise InvalidSpec(f"{one} must not be there yet, got a file.")
    return [write_file(one, content) for one, content in written.items()]


def _trials() -> bytes:
    """Drawn firing rates of 300 trials and which of two choices each ended in; the clearer half are easy."""
    rng = np.random.default_rng(0)
    choice = rng.integers(2, size=300)
    clear = rng.uniform(0.2, 1.0, size=300)
    drift = ((2 * choice - 1) * clear)[:, None, None] * np.linspace(1.0, 0.2, 6)
    rates = 5.0 + 0.5 * drift + rng.normal(size=(300, 40, 6))
    buffer = io.BytesIO()
    np.savez(buffer, rates=rates.astype(np.float32), choice=choice, easy=(clear > 0.6).astype(float))
    return buffer.getvalue()
