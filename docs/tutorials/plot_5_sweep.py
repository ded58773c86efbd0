"""
A sweep on a cluster
====================

One study is one answer. A sweep asks it over a grid, on many workers, and survives being killed. This lesson runs a small one
with two worker processes of this machine; on a cluster one option changes.
"""

# %%
# A study with a grid
# -------------------
#
# Any key of a study can vary, by its dotted name. Here: how recurrent the network is, and how strong the targets are.

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from learncast import sweep

folder = Path(tempfile.mkdtemp())
(folder / "study.toml").write_text("""
name = "how strong, how recurrent"

[network]
hidden_size = 16

[training]
learning_rate = 1e-3

[target]
family = "integration"
steps = 50

[sweep]
command = "forecast"

[sweep.grid]
network.recurrence = {first = 0.90, last = 0.98, count = 5}
target.target_strength = [0.5, 1.0, 2.0]
""")


def learncast(*words):
    """Run a command as you would in a shell, and show what it prints."""
    command = [sys.executable, "-m", "learncast", *words]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    print("$ learncast", *words)
    print(done.stdout.strip())
    return done.returncode


# %%
# Count first
# -----------

learncast("sweep", "run", "study.toml", "--store", "results", "--dry-run", "--workers", "1")

# %%
# Run, stop, go on
# ----------------
#
# ``--seconds`` stops it almost at once, in place of whatever stops a sweep: the time limit of a batch job, or Ctrl-C. The
# command then ends with 1, since not everything is done.

print("exit", learncast("sweep", "run", "study.toml", "--store", "results", "--workers", "2", "--seconds", "0.1"))

# %%
# Nothing is lost and nothing is computed twice. Going on needs the store alone.

print("exit", learncast("sweep", "resume", "results", "--workers", "2"))
learncast("sweep", "status", "results")

# %%
# Gather
# ------
#
# All results in one dataset over the grid, with names and units. Cells without a result would be nan, and ``task_status`` would
# say why.

found = sweep.gather(folder / "results")
found

# %%
steps = found["descent_steps"].squeeze()
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for strength in steps["target_strength"].values:
    line = steps.sel(target_strength=strength)
    ax.plot(line["recurrence"], line.values, "o-", label=f"targets x {strength:g}")
ax.set(xlabel="recurrence of the network", ylabel="gradient steps to learn", yscale="log")
ax.legend()
plt.show()

# %%
# On a cluster
# ------------
#
# Replace ``--workers 2`` by one of these. Numbers do not change: each task draws from a stream that follows from its content.
#
# - ``--cluster local`` starts dask here (``pip install 'learncast[sweep]'``),
# - ``--scheduler tcp://host:8786`` uses a dask cluster that is running, such as one of SLURM jobs,
# - ``--shard 3/100`` computes the third of a hundred shares, on machines that know nothing of each other; ``sweep gather`` reads
#   all stores.
#
# :doc:`/how-to/scale` has a script for SLURM, what is guaranteed when something dies, and where the limits are, measured.
#
# A function of your own
# ----------------------
#
# ``sweep.run(function, grid, store=..., seeds=20)`` sweeps any function that returns numbers or datasets; it must live in a module,
# so that other processes find it.
#
# What to do next
# ---------------
#
# - Sweep trainings instead of forecasts: ``command = "train"`` or ``"check"``, with ``seeds = 5``.
# - Sweep a window over optimisers: ``command = "window"``.
