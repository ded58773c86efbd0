"""Hierarchies: items at the leaves of a tree, whose features are the branches above them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from learncast.errors import InvalidSpec
from learncast.tasks.covariance import Dense
from learncast.tasks.task import Task
from learncast.validation import FloatArray, count, one_of

FORMS = ("signed", "membership")

#: A node of the tree: an item, or (level, position) with level 0 the root.
Node = int | tuple[int, int]


class Hierarchy(Task):
    """A static task in which each item of a binary tree must be answered by its features.

    Items are one-hot inputs, scaled so that they are white. In the ``"signed"`` form a feature is a branching of the
    tree: +1 for the items on one side, -1 on the other, 0 elsewhere, and one feature is shared by all. In the
    ``"membership"`` form a feature is a node: 1 for the items below it.

    Attributes
    ----------
    features : (features, items)
        Target of each item.
    depth : int
        Levels of branching; there are 2^depth items.
    form : str
    order : tuple of int
        Which leaf of the tree each item sits on.
    """

    features: FloatArray
    depth: int
    form: str
    order: tuple[int, ...]

    @classmethod
    def of(cls, depth: int, form: str, order: Sequence[int], name: str) -> Hierarchy:
        """Build the task for items placed on the leaves in a given order."""
        items = 2**depth
        features = _features(depth, form)[:, list(order)]
        # One-hot items, sqrt(items) high: E[x x^T] = 1, E[y x^T] = features / sqrt(items).
        cross = features / np.sqrt(items)
        task = cls.trusted(
            Dense(np.eye(items)[None, :, None, :]),
            Dense(cross.T[None, :, None, :]),
            Dense((features @ features.T / items)[None, :, None, :]),
            name=name,
        )
        assert isinstance(task, cls)
        for key, value in (("features", features), ("depth", depth), ("form", form), ("order", tuple(order))):
            object.__setattr__(task, key, value)
        return task

    @property
    def items(self) -> FloatArray:
        """The inputs, (items, items): row i is item i."""
        return np.sqrt(2**self.depth) * np.eye(2**self.depth)

    def swapped(self, one: Node, other: Node) -> Hierarchy:
        """Exchange two nodes with all that is below them.

        Parameters
        ----------
        one, other : int or (level, position)
            An item, or a node counted from the left on its level; both on one level.
        """
        first, second = (self._leaves(node) for node in (one, other))
        if len(first) != len(second) or set(first) & set(second):
            raise InvalidSpec(
                required="two different nodes on one level must be swapped",
                got=f"{one} and {other}",
                why="a node cannot change places with one above or below it",
                remedy="name two nodes of the same level",
            )
        # Whatever sits below the one node moves to the same place below the other.
        moved = dict(zip(first + second, second + first, strict=True))
        order = [moved.get(leaf, leaf) for leaf in self.order]
        return Hierarchy.of(self.depth, self.form, order, f"{self.name}, {one} and {other} swapped")

    def _leaves(self, node: Any) -> list[int]:
        """Leaves of the tree below a node, or the leaf an item sits on."""
        if isinstance(node, int | np.integer) and 0 <= node < len(self.order):
            return [self.order[int(node)]]
        whole = isinstance(node, tuple | list) and len(node) == 2 and all(isinstance(n, int | np.integer) for n in node)
        level, position = (int(n) for n in node) if whole else (-1, -1)
        if not (0 <= level <= self.depth and 0 <= position < 2**level):
            raise InvalidSpec(
                required=f"a node must be an item (0 to {len(self.order) - 1}) or (level, position) on a tree of "
                f"{self.depth} levels",
                got=repr(node)[:60],
                why="there is no such node",
                remedy="count levels from the root, 0, and positions from the left, 0",
            )
        width = 2 ** (self.depth - level)
        return list(range(position * width, (position + 1) * width))

    def shuffled(self, order: Sequence[int], *, name: str | None = None) -> Hierarchy:
        """Place the items on the tree anew: item i goes where item order[i] was (a colour hierarchy, say)."""
        if sorted(order) != list(range(2**self.depth)):
            raise InvalidSpec(
                required=f"order must name each of the {2**self.depth} items once",
                got=repr(list(order))[:60],
                why="every leaf of the tree holds one item",
                remedy="pass a permutation of range(items)",
            )
        return Hierarchy.of(self.depth, self.form, [self.order[i] for i in order], name or f"{self.name}, shuffled")


def hierarchy(depth: int = 3, *, form: str = "signed", name: str = "hierarchy") -> Hierarchy:
    """Make a binary tree of items.

    Parameters
    ----------
    depth : int
        Levels of branching, 1 to 12; there are 2^depth items.
    form : {"signed", "membership"}
        Features by branching (+1, -1, 0) or by node (1, 0).
    name : str
    """
    levels = count("depth", depth, why="a tree branches at least once")
    if levels > 12:
        raise InvalidSpec(
            required="depth must be at most 12",
            got=f"{levels:.4g}" if levels > 10**6 else f"{levels}",
            why="the task's covariances would not fit in memory",
            remedy="use a shallower tree",
        )
    one_of("form", form, FORMS, why="it says what a feature is")
    return Hierarchy.of(levels, form, range(2**levels), name)


def _features(depth: int, form: str) -> FloatArray:
    items = 2**depth
    rows: list[Any] = [np.ones(items)]
    for level in range(depth + (form == "membership")):
        width = items >> level
        for position in range(2**level):
            here = slice(position * width, (position + 1) * width)
            row = np.zeros(items)
            if form == "membership":
                row[here] = 1.0
            else:
                row[here] = np.repeat([1.0, -1.0], width // 2)
            rows.append(row)
    return np.stack(rows[1:] if form == "membership" else rows)
