"""Write digits.npz: the 1,797 handwritten digits that come with scikit-learn, read row by row from top to bottom.

A trial is 8 steps of 8 pixels, scaled to lie between 0 and 1, and its label the digit. `easy` marks the trials of the
five digits that a linear readout of the whole image tells apart best, `hard` those of the others: masks, by which a
study makes tasks of parts of the data. Run it again to get the same file.

The images are from E. Alpaydin and C. Kaynak, Optical Recognition of Handwritten Digits, UCI Machine Learning
Repository (CC BY 4.0).
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from sklearn.datasets import load_digits


def digits() -> dict[str, np.ndarray]:
    """Inputs (1797, 8, 8), labels (1797,) and the masks of the easier and the harder five classes."""
    found = load_digits()
    inputs, labels = found.images / found.images.max(), found.target
    easy = np.isin(labels, easiest(inputs.reshape(len(inputs), -1), labels, number=5))
    return {"inputs": inputs, "labels": labels, "easy": easy, "hard": ~easy}


def easiest(pixels: np.ndarray, labels: np.ndarray, *, number: int) -> np.ndarray:
    """The classes whose one-hot target least squares predict best, by the share of its variance that is explained."""
    centred, one_hot = pixels - pixels.mean(axis=0), np.eye(10)[labels]
    targets = one_hot - one_hot.mean(axis=0)
    missed = targets - centred @ np.linalg.lstsq(centred, targets, rcond=None)[0]
    explained = 1 - (missed**2).sum(axis=0) / (targets**2).sum(axis=0)
    return np.argsort(-explained)[:number]


def main() -> None:
    """Write the arrays beside this script."""
    np.savez_compressed(Path(__file__).with_name("digits.npz"), **digits())


if __name__ == "__main__":
    main()
