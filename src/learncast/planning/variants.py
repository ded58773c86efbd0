"""Variants of a task: many settings of its family's keywords, seen by one network."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.methods.choice import method_for
from learncast.tasks.covariance import Kronecker
from learncast.tasks.families import FAMILIES, checked_channels
from learncast.tasks.geometry import pooling_kernel, recurrence_kernel
from learncast.tasks.task import Task
from learncast.theory.dynamics.modes import Modes, without_round_off

#: Numbers of the time profiles that are computed together: they stay in the processor's cache.
_TOGETHER = 2**18


def variant_of(target: Task, changes: Mapping[str, Any]) -> Task:
    """Make one variant; a single number for a per-channel keyword is used for all channels."""
    own: Mapping[str, Any] = target.recipe.parameters if target.recipe else {}
    given: dict[str, object] = {}
    for key, value in changes.items():
        number = int(value) if key == "steps" else float(value)
        given[key] = [number] * len(own[key]) if np.ndim(own.get(key, 0.0)) == 1 else number
    return target.varied(**given)


def weighted_variants(
    target: Task, own: Modes, network: LinearRNN | Activated, changes: Mapping[str, FloatArray], rng: int
) -> tuple[FloatArray, FloatArray]:
    """Recurrence-weighted strengths of every variant, (variants, modes) each.

    If the family's channel keywords are single numbers, the variants share the target's geometry: they differ only in
    their time profile, and mode k is that profile times the strength of the target's own channel pattern.
    """
    number = len(next(iter(changes.values())))
    recipe = target.recipe
    if own.promise != "exact" or not share_geometry(target, changes):
        tasks = [variant_of(target, {k: v[i] for k, v in changes.items()}) for i in range(number)]
        each = method_for([*tasks, target], network, 1.0, method="modes", seed=rng).modes[:-1]
        return np.stack([m.weighted_cross for m in each]), np.stack([m.weighted_input for m in each])
    assert recipe is not None  # a family's variants share its geometry
    channels = FAMILIES[recipe.name].channel_keywords
    cross, power = np.empty((number, len(own))), np.empty((number, len(own)))
    steps = np.broadcast_to(changes.get("steps", np.array(target.steps)), (number,))
    for length in np.unique(steps):
        count("steps", length)
        here = steps == length
        # What the variants share is computed once.
        shared = {key: np.atleast_1d(recipe.parameters[key]) for key in channels}
        keywords = shared | {key: value[here] for key, value in changes.items() if key in channels}
        cross[here], power[here] = _profiled(target, own, int(length), keywords, int(np.count_nonzero(here)))
    if not (np.isfinite(cross).all() and np.isfinite(power).all()):
        raise InvalidSpec(f"every value of {', '.join(changes)} must give finite statistics, got an overflow.")
    return cross, power


def share_geometry(target: Task, changes: Mapping[str, object]) -> bool:
    """Whether variants share the target's geometry by construction: channel keywords that are single numbers."""
    recipe = target.recipe
    if recipe is None or recipe.name not in FAMILIES:
        return False
    channels = FAMILIES[recipe.name].channel_keywords
    return set(changes) <= {*channels, "steps"} and not any(np.ndim(recipe.parameters[key]) for key in channels)


def _profiled(
    target: Task, own: Modes, steps: int, keywords: Mapping[str, FloatArray], number: int
) -> tuple[FloatArray, FloatArray]:
    """Weighted strengths of variants of one length."""
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
