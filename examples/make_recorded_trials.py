"""Write recorded_trials.csv: trials of a noisy evidence-integration experiment, as a rig might have logged them.

Every trial is 12 steps of evidence on two channels, correlated over time, and at its end the animal's estimate of
the sum on each channel, which leaks and carries motor noise. Run it again to get the same file.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

TRIALS, STEPS, SEED = 150, 12, 20
PERSISTENCE, LEAK, MOTOR_NOISE = 0.3, 0.9, 0.4


def recorded_trials() -> tuple[np.ndarray, np.ndarray]:
    """Evidence (trials, steps, 2) and estimates (trials, 2)."""
    rng = np.random.default_rng(SEED)
    noise = rng.standard_normal((TRIALS, STEPS, 2))
    evidence = np.empty_like(noise)
    evidence[:, 0] = noise[:, 0]
    for t in range(1, STEPS):
        evidence[:, t] = PERSISTENCE * evidence[:, t - 1] + np.sqrt(1 - PERSISTENCE**2) * noise[:, t]
    weights = LEAK ** np.arange(STEPS)[::-1]
    estimates = np.einsum("t,ptk->pk", weights, evidence) + MOTOR_NOISE * rng.standard_normal((TRIALS, 2))
    return evidence, estimates


def main() -> None:
    """Write the table beside this script; the estimate stands in the last row of each trial."""
    evidence, estimates = recorded_trials()
    with Path(__file__).with_name("recorded_trials.csv").open("w", newline="", encoding="utf-8") as file:
        table = csv.writer(file)
        table.writerow(["trial", "step", "input_left", "input_right", "target_left", "target_right"])
        for p in range(TRIALS):
            for t in range(STEPS):
                answer = [f"{value:.4f}" for value in estimates[p]] if t == STEPS - 1 else ["", ""]
                table.writerow([p, t, *(f"{value:.4f}" for value in evidence[p, t]), *answer])


if __name__ == "__main__":
    main()
