"""
A sweep, interrupted and resumed
================================

A sweep computes a study over a grid of settings, on several workers, and can be resumed after an interruption. This tutorial
runs a small sweep with two worker processes on one machine. On a cluster only one option changes.

Reading time: 6 minutes.
"""

# %%
# A study with a grid
# -------------------
#
# Any key of a study can vary, by its dotted name. Here: the recurrence of the network and the strength of the targets.

import subprocess
import sys
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt

from learncast import sweep

folder = Path(tempfile.mkdtemp())
(folder / "study.toml").write_text("""
name = "strength and recurrence"

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


def learncast(words):
    """Run a command as in a shell, and print its output."""
    command = [sys.executable, "-m", "learncast", *words.split()]
    process = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False
    )
    print("$ learncast", words)
    print(process.stdout.strip())
    print("exit code", process.returncode)


# %%
# Dry run
# -------
#
# The estimate is for the forecasts alone. Starting worker processes takes a few seconds more.

learncast("sweep run study.toml --store results --dry-run --workers 1")

# %%
# Run, interrupt, resume
# ----------------------
#
# ``--seconds`` interrupts the sweep immediately, as the time limit of a batch job or Ctrl-C would. The exit code is then 1,
# because the sweep is not complete.

learncast("sweep run study.toml --store results --workers 2 --seconds 0.1")

# %%
# Results that were computed are kept and not computed again. Resuming needs only the store.

learncast("sweep resume results --workers 2")
learncast("sweep status results")

# %%
# Gather
# ------
#
# All results in one dataset over the grid, with names and units. Cells without a result are nan, and ``task_status`` says
# why.

results = sweep.gather(folder / "results").squeeze(drop=True)
results

# %%
steps = results["descent_steps"]
_, ax = plt.subplots(figsize=(7, 3.2), layout="constrained")
for strength in steps["target_strength"].values:
    line = steps.sel(target_strength=strength)
    ax.plot(
        line["recurrence"], line.values, "o-", label=f"target strength {strength:g}"
    )
ax.set(
    xlabel="recurrence of the network",
    ylabel="gradient steps to learn",
    ylim=(0, None),
)
ax.legend()
plt.show()

# %%
# On a cluster
# ------------
#
# Replace ``--workers 2`` by one of these options. The numbers do not change, because the random stream of each task follows
# from its settings.
#
# - ``--cluster local`` starts a dask cluster on this machine (``pip install '.[sweep]'``).
# - ``--scheduler tcp://host:8786`` uses a running dask cluster, for example of SLURM jobs.
# - ``--shard 3/100`` computes the third of a hundred shards, on machines without a connection; ``sweep gather`` reads all
#   stores.
#
# :doc:`/how-to/scale` has a SLURM script, the guarantees after failures, and measured limits.
#
# Sweep your own function
# -----------------------
#
# ``sweep.run(function, grid, store=..., seeds=20)`` sweeps any function that returns numbers or datasets. Define it in a
# module, so that worker processes can import it.
#
# What to do next
# ---------------
#
# - Sweep training instead of forecasts: ``command = "train"`` or ``"check"``, with ``seeds = 5``.
# - Sweep a window over optimisers: ``command = "window"``.
