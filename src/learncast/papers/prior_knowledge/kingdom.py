"""The living kingdom of braun2022, a hierarchy of items, and its revisions."""

from __future__ import annotations

import numpy as np
import xarray as xr

from learncast import tasks
from learncast.results import described

ITEMS = ("salmon", "trout", "robin", "canary", "oak", "pine", "rose", "daisy")
#: Leaf of each item if the items are sorted by colour.
BY_COLOUR = (0, 2, 4, 6, 1, 3, 5, 7)


def living_kingdom() -> tasks.Hierarchy:
    """Return eight items with eight features on a tree of three levels: the task of figure 3."""
    return tasks.hierarchy(depth=3, form="signed", name="living kingdom")


def revisions() -> tuple[tasks.Hierarchy, tasks.Hierarchy]:
    """Return the tasks of figure 6: the two fish swapped, and all items sorted by colour."""
    tree = living_kingdom()
    return tree.swapped(0, 1), tree.shuffled(BY_COLOUR, name="colour hierarchy")


def structure(which: slice = slice(None)) -> xr.Dataset:
    """Return features, singular value decomposition and similarities of the living kingdom and its revisions."""
    features = np.stack([tree.features for tree in (living_kingdom(), *revisions())])
    cross = features / np.sqrt(len(ITEMS))
    # Features are orthogonal, so U is the identity; a numerical SVD may mix vectors of equal singular values.
    s = np.linalg.norm(cross, axis=2)
    U, Vt = np.broadcast_to(np.eye(len(ITEMS)), cross.shape), cross / s[:, :, None]
    matrices = {
        "features": (features, "features"),
        "output_vectors": (U, "U"),
        "singular_values": (s[:, :, None] * np.eye(len(ITEMS)), "S"),
        "input_vectors": (Vt, "V^T"),
        "input_similarity": (np.swapaxes(Vt, 1, 2) @ (s[:, :, None] * Vt), "V S V^T"),
        "output_similarity": (U @ (s[:, :, None] * np.swapaxes(U, 1, 2)), "U S U^T"),
    }
    dataset = xr.Dataset(
        {name: (("task", "row", "column"), m, described(text, "1")) for name, (m, text) in matrices.items()},
        coords={"task": ["living kingdom", "two fish swapped", "colour hierarchy"]},
    )
    return dataset.isel(task=which)
