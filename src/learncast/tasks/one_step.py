"""Static tasks: one input, one target, no time between them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.tasks.covariance import Dense
from learncast.tasks.task import Task

#: Share of the largest input variance below which a direction has no input.
SILENT = 1e-12

#: What a feature of a hierarchy is.
FORMS = ("signed", "membership")

#: A node of the tree: an item, or (level, position) with level 0 the root.
Node = int | tuple[int, int]


def static(
    cross_correlation: Any, input_correlation: Any = None, *, target_correlation: Any = None, name: str = "static"
) -> Task:
    """Make a task of one step from its correlations.

    Parameters
    ----------
    cross_correlation : (outputs, inputs)
        E[y x^T]. Note the order: as a network's map from inputs to outputs.
    input_correlation : (inputs, inputs), optional
        E[x x^T]; whitened inputs (the identity) by default.
    target_correlation : (outputs, outputs), optional
        E[y y^T]; by default that of targets which the inputs determine, so that the best loss is 0.
    name : str

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> lc.tasks.static(np.diag([3.0, 1.0]), name="two modes")
    <Task 'two modes': 1 step, 2 inputs, 2 outputs at the end; given statistics>
    """
    cross = real_array("cross_correlation", cross_correlation, ndim=2)
    inputs = np.eye(cross.shape[1]) if input_correlation is None else input_correlation
    covariance = real_array("input_correlation", inputs, ndim=2)
    if target_correlation is None and covariance.shape == (cross.shape[1],) * 2:
        target_correlation = cross @ np.linalg.pinv(covariance, hermitian=True) @ cross.T
    return Task(covariance[None, :, None, :], cross.T[None], target_correlation, name=name)


def from_pairs(inputs: Any, targets: Any, *, name: str = "pairs", **options: Any) -> Task:
    """Make a task of one step from input-target pairs.

    Implements: braun2022 Eq. (3)

    Parameters
    ----------
    inputs : (pairs, inputs)
    targets : (pairs, outputs) or labels (pairs,)
    name : str
    **options
        `centre`, `scale`, `mask` and `classes` of `Task.from_samples`; nothing is done to the pairs by default.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((100, 3))
    >>> lc.tasks.from_pairs(x, x[:, :1], name="first input")
    <Task 'first input': 1 step, 3 inputs, 1 output at the end; estimated from 100 trials>
    """
    x = real_array("inputs", inputs, ndim=2)
    return Task.from_samples(x[:, None, :], targets, name=name, **options)


def reversed(task: Task, *, name: str | None = None) -> Task:
    """Ask for the opposite of every target.

    Parameters
    ----------
    task : Task
        Any task; its inputs stay as they are.
    name : str, optional
        "..., reversed" by default.

    Returns
    -------
    Task
        Its statistics; `name` is what tables call it.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> lc.tasks.reversed(lc.tasks.static(np.eye(2), name="signs"))
    <Task 'signs, reversed': 1 step, 2 inputs, 2 outputs at the end; given statistics>
    """
    return Task.trusted(
        task.input_covariance,
        task.cross_covariance.rotated(np.eye(task.inputs), -np.eye(task.outputs)),
        task.target_covariance,
        name=name or f"{task.name}, reversed",
        trials=task.trials,
        recording=task.recording and task.recording.with_targets_times(-1.0),
    )


@dataclass(frozen=True, eq=False)
class Whitened:
    """A static task in coordinates where its inputs are white, and the way back.

    Gradient descent is not the same in other coordinates: a network trained on whitened inputs follows another path to
    the same input-output map. Whiten the data for training too when the forecast should hold for it.

    Attributes
    ----------
    task : Task
        The same targets, asked of whitened inputs.
    transform : (white inputs, inputs)
        White input = transform @ input.

    Examples
    --------
    Solve in white coordinates, and read the answer for the inputs as they are:

    >>> import learncast as lc
    >>> import numpy as np
    >>> white = lc.tasks.whitened(lc.tasks.static([[2.0, 1.0]], np.diag([4.0, 1.0])))
    >>> network = lc.TwoLayer.balanced(2, 3, 1, scale=0.1, rng=np.random.default_rng(0))
    >>> end = lc.solve(white.task, network, learning_rate=1e-2).limit()["network_function"].values[0]
    >>> white.network_function(end).round(6)
    array([[0.5, 1. ]])
    """

    task: Task
    transform: FloatArray

    def inputs(self, inputs: Any) -> FloatArray:
        """Whiten inputs (pairs, inputs)."""
        return real_array("inputs", inputs, ndim=2) @ self.transform.T

    def first_weights(self, weights: Any) -> FloatArray:
        """First-layer weights for the user's own inputs, from those for whitened ones."""
        return real_array("weights", weights, ndim=2) @ self.transform

    def network_function(self, function: Any) -> FloatArray:
        """Input-output map for the user's own inputs, from that for whitened ones."""
        return real_array("function", function, ndim=2) @ self.transform


def whitened(task: Task) -> Whitened:
    """Change to coordinates in which a static task's inputs are white, dropping directions without input.

    The transform is the symmetric root of the inverse input correlation where that exists: the white coordinates are
    as close as possible to the original ones.

    Parameters
    ----------
    task : Task
        Of one step.

    Returns
    -------
    Whitened
        The task in white coordinates, and the way there.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> found = lc.tasks.whitened(lc.tasks.static([[1.0, 0.0]], np.diag([4.0, 1.0])))
    >>> found.task.input_covariance.contracted(np.ones((1, 1))).round(12)
    array([[1., 0.],
           [0., 1.]])
    """
    if task.steps != 1:
        raise InvalidSpec(
            f"only a static task (one step) can be whitened, got {task.steps} steps. Use the recurrent "
            "theory, which takes time correlations as they are."
        )
    covariance = task.input_covariance.dense()[0, :, 0, :]
    values, vectors = np.linalg.eigh(covariance)
    live = values > SILENT * values.max(initial=0.0)
    if not live.any():
        raise InvalidSpec("a task must have an input that varies to be whitened, got inputs without any variance.")
    axes = vectors[:, live] / np.sqrt(values[live])
    transform = axes @ vectors.T if live.all() else axes.T
    cross = task.cross_covariance.rotated(transform.T, np.eye(task.outputs))
    white = Task.trusted(
        Dense(np.eye(len(transform))[None, :, None, :]),
        cross,
        task.target_covariance,
        name=f"{task.name}, whitened",
        trials=task.trials,
    )
    return Whitened(white, transform)


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

    Examples
    --------
    The first item has a feature of all items, one of its half and one of its pair. The broad ones are learned first:

    >>> import learncast as lc
    >>> import numpy as np
    >>> tree = lc.tasks.hierarchy(2)
    >>> tree.features[:, 0]
    array([1., 1., 1., 0.])
    >>> network = lc.TwoLayer.balanced(4, 8, 4, scale=0.01, rng=np.random.default_rng(2))
    >>> halfway = lc.solve(tree, network, learning_rate=1e-2).at([400])["network_function"].values[0]
    >>> (halfway @ tree.items[0]).round(1)
    array([ 0.4,  0.7,  0.1, -0.1])
    >>> tree.swapped(0, 2).features[:, 0]
    array([ 1., -1.,  0.,  1.])
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
        return cls.trusted(
            Dense(np.eye(items)[None, :, None, :]),
            Dense(cross.T[None, :, None, :]),
            Dense((features @ features.T / items)[None, :, None, :]),
            name=name,
            features=features,
            depth=depth,
            form=form,
            order=tuple(order),
        )

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
            raise InvalidSpec(f"two different nodes on one level must be swapped, got {one} and {other}.")
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

    Returns
    -------
    Hierarchy
        The tree, and the task of naming its items.

    Examples
    --------
    >>> import learncast as lc
    >>> tree = lc.tasks.hierarchy(3)
    >>> tree
    <Task 'hierarchy': 1 step, 8 inputs, 8 outputs at the end; given statistics>
    """
    levels = count("depth", depth)
    if levels > 12:
        raise InvalidSpec(
            required="depth must be at most 12",
            got=f"{levels:.4g}" if levels > 10**6 else f"{levels}",
            why="the task's covariances would not fit in memory",
            remedy="use a shallower tree",
        )
    one_of("form", form, FORMS)
    return Hierarchy.of(levels, form, range(2**levels), name)


def _features(depth: int, form: str) -> FloatArray:
    if form == "membership":
        return np.concatenate([np.kron(np.eye(2**level), np.ones(2 ** (depth - level))) for level in range(depth + 1)])
    sides = [np.repeat([1.0, -1.0], 2 ** (depth - level - 1)) for level in range(depth)]
    branchings = [np.kron(np.eye(2**level), side) for level, side in enumerate(sides)]
    return np.concatenate([np.ones((1, 2**depth)), *branchings]) + 0.0  # without negative zeros
