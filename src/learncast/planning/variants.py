"""Variants of a task that differ from it in one keyword of its family and share its geometry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count
from learncast.tasks.covariance import Kronecker
from learncast.tasks.families import FAMILIES, checked_channels
from learncast.tasks.geometry import pooling_kernel, recurrence_kernel
from learncast.tasks.task import Task
from learncast.theory.dynamics.modes import Modes, without_round_off

#: Numbers of the time profiles that are computed together: they stay in the processor's cache.
_TOGETHER = 2**18


def share_geometry(target: Task, vary: str) -> bool:
    """Whether variants share the target's geometry by construction: channel keywords that are single numbers."""
    recipe = target.recipe
    if recipe is None or recipe.name not in FAMILIES:
        return False
    channels = FAMILIES[recipe.name].channel_keywords
    return vary in (*channels, "steps") and not any(np.ndim(recipe.parameters[key]) for key in channels)


def weighted_variants(own: Modes, vary: str, values: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Recurrence-weighted strengths of variants that share the geometry of a task, (values, modes) each.

    They differ only in their time profile, and mode k is that profile times the strength of the task's own channel
    pattern.
    """
    target = own.task
    assert target.recipe is not None
    keywords = FAMILIES[target.recipe.name].channel_keywords
    shared = {key: np.atleast_1d(target.recipe.parameters[key]) for key in keywords}
    if vary == "steps":
        parts = [_profiled(own, count("steps", steps), shared, 1) for steps in values]
    else:
        parts = [_profiled(own, target.steps, shared | {vary: values}, len(values))]
    cross, power = (np.concatenate(part) for part in zip(*parts, strict=True))
    if not (np.isfinite(cross).all() and np.isfinite(power).all()):
        raise InvalidSpec(f"every value of {vary} must give finite statistics, got an overflow.")
    return cross, power


def _profiled(own: Modes, steps: int, keywords: Mapping[str, FloatArray], number: int) -> tuple[FloatArray, FloatArray]:
    """Weighted strengths of variants of one length."""
    target = own.task
    assert target.recipe is not None
    family = FAMILIES[target.recipe.name]
    checked = {key: checked_channels(key, value) for key, value in keywords.items()}
    # One time pattern means one channel pattern, the mixing matrix; in the frame it is diagonal.
    pattern = target.cross_covariance.rotated(own.frame.mode_inputs, own.frame.mode_outputs)
    matrix = cast(Kronecker, pattern).channel[0]
    channel = without_round_off(np.diagonal(matrix), matrix)
    cross, power = np.empty((number, len(own))), np.empty((number, len(own)))
    some = max(1, _TOGETHER // steps**2)
    for begin in range(0, number, some):
        part = slice(begin, begin + some)
        given = {key: value[part] if len(value) == number else value for key, value in checked.items()}
        with np.errstate(over="ignore", invalid="ignore"):
            profile = family.profile(steps=steps, targets=target.targets, **given)
            crossed = profile.cross
            for b in sorted(set(own.recurrence.tolist())):
                here = own.recurrence == b
                kernel = recurrence_kernel(b, steps, crossed.shape[-1])
                cross[part, here] = np.outer(_summed(crossed, kernel), channel[here])
                power[part, here] = _summed(profile.input, pooling_kernel(b, *kernel.shape))[:, None]
    return cross, power


def _summed(profiles: FloatArray, kernel: FloatArray) -> FloatArray:
    """Sum of profile x kernel over both steps for each variant."""
    return profiles.reshape(-1, kernel.size) @ kernel.ravel()
