"""Train the networks of the learnability paper's preset default, and store their results and numbers.

python docs/make_learnability.py

About 12 CPU minutes of one thread. Writes `papers/learnability/stored.nc`, which `learncast reproduce learnability
--stored` draws, and `docs/results/learnability-default.json`, which the theory page shows.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from learncast.papers import open_paper, reproduce
from learncast.papers.learnability import STORED, stored, stored_key

COMMAND = "python docs/make_learnability.py"


def main() -> None:
    """Compute the runs that are not stored yet, and write the numbers of all figures."""
    paper, target = open_paper("learnability"), Path(str(STORED))
    runs = {one.text: one for figure in paper.selected(None, "default") for one in figure.runs("default")}
    numbers = Path(__file__).parent / "results/learnability-default.json"
    seconds = 0.0
    if not target.exists():
        for k, one in enumerate(runs.values()):
            begun = time.process_time()
            result = one.function(one.settings)
            seconds += time.process_time() - begun
            for name, values in result.data_vars.items():
                if values.dtype == np.float64:
                    result[name] = values.astype(np.float32)
            coding = {name: {"zlib": True} for name, values in result.data_vars.items() if values.ndim > 1}
            result.to_netcdf(target, group=stored_key(one), mode="a" if k else "w", engine="h5netcdf", encoding=coding)
            print(one.settings["cell"], one.settings["optimizer"], f"{seconds / 60:.1f} CPU minutes", file=sys.stderr)
    before = json.loads(numbers.read_text(encoding="utf-8")) if numbers.exists() else {}
    with tempfile.TemporaryDirectory() as folder:
        made = reproduce("learnability", out=Path(folder) / "figures", compute=stored, formats=("png",))
    for figure in made["figures"].values():
        del figure["files"]
    del made["pages"]
    minutes = round(seconds / 60, 1) or before.get("cpu_minutes")
    numbers.write_text(
        json.dumps({"command": COMMAND, "cpu_minutes": minutes, **made}, indent=1) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
