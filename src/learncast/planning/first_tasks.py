"""First tasks of a portrait: the target with one keyword of its family changed, taken apart in the target's frame."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from learncast.assumptions import Assumption, worst
from learncast.dynamics.modes import Modes, recurrence_kernel
from learncast.errors import InvalidSpec
from learncast.networks.activated import Activated
from learncast.networks.linear_rnn import LinearRNN
from learncast.planning.curricula.passage import Problem
from learncast.responses.modes import ResponseModes, mode_of_response, modes_seen_by
from learncast.responses.response import Response
from learncast.tasks.covariance import Kronecker
from learncast.tasks.families import FAMILIES, checked_channels
from learncast.tasks.task import Task
from learncast.validation import FloatArray


def first_problems(
    own: Modes, network: LinearRNN | Activated, vary: str, values: Any, given: Sequence[Modes] | None, seed: int
) -> tuple[Problem, tuple[Assumption, ...], list[Problem] | None]:
    """Weighted strengths of every first task, (values, 1, modes), the worst of each condition, and replicas."""
    batch = _batched(own.task, own, vary, values) if isinstance(network, LinearRNN) and given is None else None
    if batch is not None:
        cross, power = batch
        return Problem(cross[:, None, :], power[:, None, :], own.imbalance), own.assumptions, None
    each = given or _rescaled(own, vary, values) or _taken_apart(own, network, vary, values, seed)
    cross = np.stack([m.weighted_cross for m in each])[:, None, :]
    power = np.stack([m.weighted_input for m in each])[:, None, :]
    measured = [m.replicas for m in each]
    replicas = [Problem(r[0][:, None, :], r[1][:, None, :], own.imbalance) for r in measured if r is not None]
    return Problem(cross, power, own.imbalance), worst(m.assumptions for m in each), replicas or None


def _taken_apart(own: Modes, network: LinearRNN | Activated, vary: str, values: Any, seed: int) -> list[Modes]:
    target = own.task
    tasks = [target.varied(**{vary: _as_given(target, vary, value)}) for value in values]
    # The target first: its frame is the common one.
    return modes_seen_by(network, [target, *tasks], seed)[1:]


def _rescaled(own: Modes, vary: str, values: Any) -> list[Modes] | None:
    """Measured modes of first tasks that differ from the target in the strength of inputs or targets alone.

    ReLU units answer in proportion to their inputs: where these are s times and the filter that makes targets of them
    k times as strong, E[y z] is s^2 k times and E[z^2] s^2 times as large, on every trial.
    """
    if not isinstance(own, ResponseModes) or own.task.recipe is None or own.task.recipe.name not in FAMILIES:
        return None
    target, recipe = own.task, own.task.recipe
    family = FAMILIES[recipe.name]
    if vary not in family.channel_keywords or np.ndim(values) != 1:
        return None
    common = {key: np.ravel(checked_channels(key, recipe.parameters[key]))[0] for key in family.channel_keywords}
    with np.errstate(over="ignore", invalid="ignore"):
        here = family.profile(steps=target.steps, targets=target.targets, **common)
        there = family.profile(
            steps=target.steps, targets=target.targets, **{**common, vary: checked_channels(vary, values)}
        )
        inputs, filters = _factors(there.input, here.input), _factors(there.filter, here.filter)
    if inputs is None or filters is None:
        return None
    inputs, filters = np.broadcast_to(inputs, len(values)), np.broadcast_to(filters, len(values))
    return [mode_of_response(_stronger(own.response, r, k)) for r, k in zip(inputs, filters, strict=True)]


def _stronger(found: Response, inputs: float, filter_: float) -> Response:
    """The response to inputs of more variance and to targets that weigh them more, each by a factor."""
    old = found.features
    return replace(
        found,
        statistics=replace(
            old,
            cross=old.cross * (inputs * filter_),
            power=old.power * inputs,
            target_power=old.target_power * (inputs * filter_**2),
        ),
    )


def _factors(there: FloatArray, here: FloatArray) -> FloatArray | None:
    """By which number each of `there` is a multiple of `here`; None where one is not."""
    row, column = (int(k) for k in np.unravel_index(int(np.abs(here).argmax()), here.shape))
    factors = there[..., row, column] / here[row, column]
    same = np.allclose(there, factors[..., None, None] * here, rtol=1e-12, atol=0.0)
    return factors if same else None


def _as_given(target: Task, vary: str, value: Any) -> Any:
    """A single number for a keyword the target has per channel stands for all channels."""
    own = target.recipe.parameters.get(vary) if target.recipe else None
    return [value] * len(own) if np.ndim(own) == 1 and np.ndim(value) == 0 else value  # type: ignore[arg-type]


def _batched(target: Task, own: Modes, vary: str, values: Any) -> tuple[FloatArray, FloatArray] | None:
    """Weighted strengths of all variants at once, where they share the target's geometry by construction.

    That is so when the family's channel keywords are single numbers: variants then differ in their time profile alone,
    and mode k is that profile times the strengths of the target's own channel pattern.
    """
    recipe = target.recipe
    if recipe is None or recipe.name not in FAMILIES:
        return None
    family = FAMILIES[recipe.name]
    keywords = {key: recipe.parameters[key] for key in family.channel_keywords}
    if vary not in keywords or any(np.ndim(value) for value in keywords.values()) or np.ndim(values) != 1:
        return None
    keywords[vary] = values
    checked = {key: checked_channels(key, value) for key, value in keywords.items()}
    with np.errstate(over="ignore", invalid="ignore"):
        profile = family.profile(steps=target.steps, targets=target.targets, **checked)
        cross_time, input_time = profile.cross, profile.input
        cross, power = np.empty((len(values), len(own))), np.empty((len(values), len(own)))
        # One time pattern means one channel pattern, the mixing matrix; in the frame it is diagonal.
        pattern = target.cross_covariance.rotated(own.frame.mode_inputs, own.frame.mode_outputs)
        assert isinstance(pattern, Kronecker)
        channel = np.diagonal(pattern.channel[0])
        for b in sorted(set(own.recurrence.tolist())):
            here = own.recurrence == b
            kernel = recurrence_kernel(b, target.steps, cross_time.shape[-1])
            cross[:, here] = np.outer(_summed(cross_time, kernel, len(values)), channel[here])
            power[:, here] = _summed(input_time, kernel @ kernel.T, len(values))[:, None]
    if not (np.isfinite(cross).all() and np.isfinite(power).all()):
        raise InvalidSpec(
            required=f"every value of {vary} must give finite statistics",
            got="an overflow",
            why="input and recurrence together grow beyond floating point over a trial",
            remedy="narrow the values or shorten the trial",
        )
    return cross, power


def _summed(profiles: FloatArray, kernel: FloatArray, number: int) -> FloatArray:
    """Sum of profile x kernel over both steps for each variant; a profile the variants share counts for all."""
    sums = profiles.reshape(-1, kernel.size) @ kernel.ravel()
    return np.broadcast_to(sums, (number,))
