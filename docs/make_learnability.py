"""Train the networks of the learnability paper's preset default, and store their results and numbers.

python docs/make_learnability.py            # train, about 12 CPU minutes of one thread
python docs/make_learnability.py --numbers  # only write the numbers of the stored results again

Writes `papers/learnability/stored.json.gz`, which `learncast reproduce learnability --stored` draws, and
`docs/results/learnability-default.json`, which the pages show.
"""

from __future__ import annotations

import gzip
import json
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import xarray as xr

from learncast.papers import open_paper, reproduce
from learncast.papers.learnability import STORED, stored, stored_key

COMMAND = "python docs/make_learnability.py"
NUMBERS = Path(__file__).parent / "results/learnability-default.json"


def train() -> float:
    """Compute and store all runs, and return their CPU minutes."""
    figures = open_paper("learnability").selected(None, "default")
    runs = {one.text: one for figure in figures if figure.runs for one in figure.runs("default")}
    results, begun = {}, time.process_time()
    for one in runs.values():
        results[stored_key(one)] = rounded(one.function(one.settings))
        minutes = (time.process_time() - begun) / 60
        print(one.settings["cell"], f"{minutes:.1f} CPU minutes", file=sys.stderr, flush=True)
    Path(str(STORED)).write_bytes(gzip.compress(json.dumps(results).encode(), mtime=0))
    return (time.process_time() - begun) / 60


def rounded(dataset: xr.Dataset) -> dict[str, Any]:
    """A dataset as a dictionary, with five significant digits."""

    def digits(value: object) -> object:
        if isinstance(value, list):
            return [digits(one) for one in value]
        return float(f"{value:.5g}") if isinstance(value, float) else value

    table = dataset.to_dict()
    for one in table["data_vars"].values():
        one["data"] = digits(one["data"])
    return dict(table)


def write_numbers(minutes: float) -> None:
    """Write the numbers of all figures of the stored results."""
    with tempfile.TemporaryDirectory() as folder:
        made = reproduce("learnability", out=Path(folder) / "figures", compute=stored, formats=("png",))
    for figure in made["figures"].values():
        del figure["files"]
    text = json.dumps({"command": COMMAND, "cpu_minutes": round(minutes, 1), **made}, indent=1)
    NUMBERS.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    again = "--numbers" in sys.argv
    write_numbers(json.loads(NUMBERS.read_text(encoding="utf-8"))["cpu_minutes"] if again else train())
