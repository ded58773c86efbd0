"""Paths of the items in a plane while a hierarchy is learned: the data of braun2022's figures 6G and H."""

from __future__ import annotations

import numpy as np
import xarray as xr

from learncast.papers.runs import Compute, one_by_one
from learncast.papers.two_layer_descent import SOURCES
from learncast.papers.two_layer_kingdom import ITEMS
from learncast.papers.two_layer_revision import revised
from learncast.progress import Progress, silent
from learncast.trajectory import described
from learncast.validation import FloatArray


def paths(
    stage: int, points: int = 25, *, preset: str, progress: Progress = silent, compute: Compute = one_by_one
) -> xr.Dataset:
    """Outputs for all items at times equally far along the way, scaled to a plane."""
    runs, panels = revised(preset=preset, progress=progress, compute=compute), []
    for k in (0, 1):
        functions = runs["network_function"].isel(panel=k, time=runs["stage"].values == stage).values
        way = np.linalg.norm(np.diff(functions[0], axis=0), axis=(1, 2)).cumsum()
        chosen = np.searchsorted(way, np.linspace(0, 0.9999 * way[-1], points))
        outputs = np.sqrt(len(ITEMS)) * np.swapaxes(functions[:, chosen], 2, 3)
        plane, stress = scaled_to_plane(outputs.reshape(-1, outputs.shape[-1]), np.random.default_rng(0))
        over = ("source", "time", "item")
        variables = {
            "points": ((*over, "axis"), plane.reshape(*outputs.shape[:3], 2), described("output", "target")),
            "outputs": ((*over, "feature"), outputs, described("network output", "target")),
            "stress": ((), stress, described("share of squared distances that the plane misses", "1")),
        }
        panels.append(xr.Dataset(variables))
    return xr.concat(panels, dim="panel").assign_coords(source=list(SOURCES), item=list(ITEMS))


def scaled_to_plane(points: FloatArray, rng: np.random.Generator, *, iterations: int = 200) -> tuple[FloatArray, float]:
    """Multidimensional scaling to the plane, and the share of squared distances that it misses.

    Majorisation of Sammon's stress, sum (d_ij - |z_i - z_j|)^2 / d_ij, from classical scaling. All times are scaled at
    once, so that an item that takes another's place is seen to; the weights keep near times near, so that no path is
    torn. Classical scaling alone keeps two of seven axes, and the tree's leaves are on neither.
    """
    centred = points - points.mean(axis=0)
    # The tree's singular values are tied: a little of every axis lets the iteration choose among them.
    axes = np.linalg.svd(centred, full_matrices=False)[2][:2].T + 0.01 * rng.standard_normal((points.shape[1], 2))
    plane, distance, mean = centred @ axes, _distances(centred), np.full((len(points), len(points)), 1 / len(points))
    # Points that coincide would weigh infinitely much.
    weight = 1 / np.maximum(distance, 0.05 * distance.mean())
    np.fill_diagonal(weight, 0.0)
    inverse = np.linalg.inv(np.diag(weight.sum(axis=1)) - weight + mean) - mean
    for _ in range(iterations):
        pull = weight * distance / np.maximum(_distances(plane), 1e-9)
        plane = inverse @ (pull.sum(axis=1)[:, None] * plane - pull @ plane)
    return plane, float(((distance - _distances(plane)) ** 2).sum() / (distance**2).sum())


def _distances(points: FloatArray) -> FloatArray:
    square = (points**2).sum(axis=1)
    return np.sqrt(np.maximum(square[:, None] + square - 2 * points @ points.T, 0.0))
