"""Templates of study files: commented, and valid as they are."""

from __future__ import annotations

import io
import json
from importlib.resources import files
from pathlib import Path

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.files import write_file
from learncast._core.validation import one_of
from learncast.study.schema import schema

#: Kinds of templates.
TEMPLATES = ("plan", "forget", "window", "sweep", "recordings", "advise")


def template_path(kind: str) -> Path:
    """Return the file of a template."""
    return Path(str(files("learncast.study").joinpath("templates", f"{kind}.toml")))


def new_study(kind: str, path: str | Path) -> list[Path]:
    """Write a template of a study, its JSON schema for editors, and simulated trials if it needs some.

    Existing files raise, except a schema.

    Parameters
    ----------
    kind : str
        plan, forget, window, sweep, recordings or advise.
    path : path
        File to write.

    Returns
    -------
    list of Path
        The files that were written.

    Examples
    --------
    >>> import tempfile
    >>> from learncast.study import new_study
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     [one.name for one in new_study("recordings", f"{folder}/mine.toml")]
    ['mine.toml', 'mine_trials.npz', 'learncast-study.schema.json']
    """
    one_of("kind", kind, TEMPLATES)
    study = Path(path)
    text = template_path(kind).read_text(encoding="utf-8")
    contents: dict[Path, str | bytes] = {study: text}
    if kind == "recordings":
        trials = study.with_name(f"{study.stem}_trials.npz")
        contents = {study: text.replace("DATA", trials.name), trials: _trials()}
    for file in contents:
        if file.exists():
            raise InvalidSpec(f"{file} exists already. Choose another name.", field="path")
    schema_file = study.with_name(text.partition("./")[2].partition("\n")[0])
    if not schema_file.exists():  # one serves all studies of a folder
        contents[schema_file] = json.dumps(schema(schema_file.name.split(".")[0].partition("-")[2]), indent=2)
    return [write_file(file, content) for file, content in contents.items()]


def _trials() -> bytes:
    """Simulate firing rates of 300 trials with two choices; the clearer half of the trials are easy."""
    rng = np.random.default_rng(0)
    choice = rng.integers(2, size=300)
    clear = rng.uniform(0.2, 1.0, size=300)
    drift = ((2 * choice - 1) * clear)[:, None, None] * np.linspace(1.0, 0.2, 6)
    rates = 5.0 + 0.5 * drift + rng.normal(size=(300, 40, 6))
    buffer = io.BytesIO()
    np.savez(buffer, rates=rates.astype(np.float32), choice=choice, easy=(clear > 0.6).astype(float))
    return buffer.getvalue()
