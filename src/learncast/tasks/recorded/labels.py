"""Class labels as one-hot targets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count

#: Most classes that labels may have before they are taken for something else.
MOST_CLASSES = 10_000


def are_labels(values: Any) -> bool:
    """Whether these number or name classes of themselves: whole numbers or words without an axis of channels."""
    return values.ndim == 1 and np.asarray(values).dtype.kind in "iubUS"


def one_hot(
    labels: Any, classes: int | Sequence[Any] | None = None, *, live: Any = True, where: str = "labels"
) -> tuple[FloatArray, tuple[Any, ...]]:
    """Labels of any shape as one-hot targets, (..., classes), and the classes in order.

    Parameters
    ----------
    labels : array of whole numbers or words
    classes : int or sequence, optional
        How many, numbered from 0, or which; by default those that occur, sorted.
    live : bool array
        Labels that count; the others become zeros and may be anything (-100, say).
    where : str
        What to call the labels in a complaint.
    """
    found = np.asarray(labels)
    live = np.broadcast_to(live, found.shape)
    if found.dtype.kind == "f" and np.array_equal(found[live], np.round(found[live])):
        found = np.where(live, found, 0.0).astype(np.int64)
    if found.dtype.kind not in "iubUS":
        raise InvalidSpec(
            required=f"{where} must be whole numbers or words",
            got=f"numbers such as {found[live].ravel()[0]!r}" if found.size else "none",
            why="they tell classes apart",
            remedy="pass continuous targets as targets, with an axis of channels",
        )
    known = _known(found[live], classes, where)
    positions = {label: k for k, label in enumerate(known)}
    index = np.array([positions.get(label, -1) for label in found.ravel().tolist()]).reshape(found.shape)
    strange = live & (index < 0)
    if strange.any():
        place = tuple(int(i) for i in np.argwhere(strange)[0])
        raise InvalidSpec(
            f"{where} must be one of the {len(known)} classes ({', '.join(map(str, known[:12]))}), got "
            f"{found[place]} at index {place}. Give all classes, or leave the trial out with mask."
        )
    return ((index[..., None] == np.arange(len(known))) & live[..., None]).astype(float), known


def _known(found: Any, classes: int | Sequence[Any] | None, where: str) -> tuple[Any, ...]:
    if isinstance(classes, Sequence) and not isinstance(classes, str):
        known = tuple(classes)
        if len(set(known)) < len(known) or not known:
            raise InvalidSpec(
                required="classes must name each class once",
                got=repr(list(known))[:60],
                why="each is one output",
                remedy="remove the doubles",
            )
        return known
    if classes is not None:
        return tuple(range(count("classes", classes)))
    known = tuple(np.unique(found).tolist())
    if not 0 < len(known) <= MOST_CLASSES:
        raise InvalidSpec(
            f"{where} must have between 1 and {MOST_CLASSES} classes, got {len(known)}. Pass measured numbers "
            "as targets, with an axis of channels."
        )
    return known
