"""Static tasks, which have one step."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from learncast._core.errors import InvalidSpec, brief
from learncast._core.validation import FloatArray, count, one_of, real_array
from learncast.tasks.covariance import Dense
from learncast.tasks.recorded.targets import array_like, check_same_trials
from learncast.tasks.task import Task

#: Share of the largest input variance below which inputs do not vary along a direction.
SILENT = 1e-12

#: Kinds of features of a hierarchy.
FORMS = ("signed", "membership")

#: A node of the tree: an item, or (level, position) with level 0 the root.
Node = int | tuple[int, int]


def static(
    cross_correlation: ArrayLike,
    input_correlation: ArrayLike | None = None,
    *,
    target_correlation: ArrayLike | None = None,
    name: str = "static",
) -> Task:
    """Make a static task from its correlations.

    Parameters
    ----------
    cross_correlation : (outputs, inputs)
        E[y x^T], with the axes of a network's map from inputs to outputs.
    input_correlation : (inputs, inputs), optional
        E[x x^T]; the identity (white inputs) by default.
    target_correlation : (outputs, outputs), optional
        E[y y^T]; by default that of targets determined by the inputs, so that the least loss is 0.
    name : str

    Returns
    -------
    Task
        Statistics of the task.

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


def from_pairs(inputs: ArrayLike, targets: ArrayLike, *, name: str = "pairs", **options: Any) -> Task:
    """Estimate a static task from input-target pairs.

    Implements: braun2022 Eq. (3)

    Parameters
    ----------
    inputs : (pairs, inputs)
    targets : (pairs, outputs) or labels (pairs,)
    name : str
    **options
        `centre`, `scale`, `mask`, `labels` and `classes` of `Task.from_samples`.

    Returns
    -------
    Task
        Statistics of the task.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> x = np.random.default_rng(0).standard_normal((100, 3))
    >>> lc.tasks.from_pairs(x, x[:, :1], name="first input")
    <Task 'first input': 1 step, 3 inputs, 1 output at the end; estimated from 100 trials>
    """
    check_same_trials(inputs=inputs, targets=targets)
    x = real_array("inputs", array_like("inputs", inputs), ndim=2)
    return Task.from_samples(x[:, None, :], targets, name=name, **options)


def reversed(task: Task, *, name: str | None = None) -> Task:
    """Change the sign of every target.

    Parameters
    ----------
    task : Task
        Any task; its inputs do not change.
    name : str, optional
        The task's name followed by ", reversed" by default.

    Returns
    -------
    Task
        Statistics of the task.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> lc.tasks.reversed(lc.tasks.static(np.eye(2), name="signs"))
    <Task 'signs, reversed': 1 step, 2 inputs, 2 outputs at the end; given statistics>
    """
    return task.replaced(
        cross_covariance=task.cross_covariance.rotated(np.eye(task.inputs), -np.eye(task.outputs)),
        name=name or f"{task.name}, reversed",
        recipe=None,
        recording=task.recording and task.recording.with_targets_times(-1.0),
    )


@dataclass(frozen=True, eq=False)
class Whitened:
    """A static task in coordinates in which its inputs are white, and the transform.

    Gradient descent depends on the coordinates: a network trained on whitened inputs takes a different path to the same
    input-output map. A forecast for the whitened task holds for training on whitened data.

    Attributes
    ----------
    task : Task
        The task with whitened inputs.
    transform : (white inputs, inputs)
        White input = transform @ input. First-layer weights, or an input-output map, for whitened inputs become those
        for the original inputs by a product with it from the right.

    Examples
    --------
    Solve in white coordinates and transform the result back:

    >>> import learncast as lc
    >>> import numpy as np
    >>> white = lc.tasks.whitened(lc.tasks.static([[2.0, 1.0]], np.diag([4.0, 1.0])))
    >>> network = lc.TwoLayer.balanced(2, 3, 1, scale=0.1, rng=0)
    >>> solution = lc.forecast(white.task, network, learning_rate=1e-2).solution
    >>> (solution.limit()["network_function"].values[0] @ white.transform).round(6)
    array([[0.5, 1. ]])
    """

    task: Task
    transform: FloatArray


def whitened(task: Task) -> Whitened:
    """Change to coordinates in which a static task's inputs are white, without directions that do not vary.

    The transform is the symmetric root of the inverse input correlation if that exists, so that the white coordinates
    are as close as possible to the original ones.

    Parameters
    ----------
    task : Task
        Task of one step.

    Returns
    -------
    Whitened
        The task in white coordinates, and the transform.

    Examples
    --------
    >>> import learncast as lc
    >>> import numpy as np
    >>> white = lc.tasks.whitened(lc.tasks.static([[1.0, 0.0]], np.diag([4.0, 1.0])))
    >>> white.task.input_covariance.contracted(np.ones((1, 1))).round(12)
    array([[1., 0.],
           [0., 1.]])
    """
    if task.steps != 1:
        raise InvalidSpec(f"only a task of one step can be whitened, got {task.steps} steps.", field="task")
    covariance = task.input_covariance.dense()[0, :, 0, :]
    values, vectors = np.linalg.eigh(covariance)
    live = values > SILENT * values.max(initial=0.0)
    if not live.any():
        raise InvalidSpec("only inputs that vary can be whitened, got none.", field="task")
    axes = vectors[:, live] / np.sqrt(values[live])
    transform = axes @ vectors.T if live.all() else axes.T
    white = task.replaced(
        input_covariance=Dense(np.eye(len(transform))[None, :, None, :]),
        cross_covariance=task.cross_covariance.rotated(transform.T, np.eye(task.outputs)),
        name=f"{task.name}, whitened",
        recipe=None,
        recording=None,
    )
    return Whitened(white, transform)


class Hierarchy(Task):
    """A static task that maps each item of a binary tree to its features.

    Items are one-hot inputs, scaled so that they are white. In the ``"signed"`` form each branching of the tree is a
    feature (+1 for the items on one side, -1 on the other, 0 elsewhere), and one more feature is shared by all items.
    In the ``"membership"`` form each node is a feature: 1 for the items below it.

    Attributes
    ----------
    features : (features, items)
        Features of each item.
    depth : int
        Number of levels of branching; there are 2^depth items.
    form : str
    order : tuple of int
        Leaf of the tree of each item.

    Examples
    --------
    The first item has one feature of all items, one of its half and one of its pair. Broad features are learned first:

    >>> import learncast as lc
    >>> import numpy as np
    >>> tree = lc.tasks.hierarchy(2)
    >>> tree.features[:, 0]
    array([1., 1., 1., 0.])
    >>> network = lc.TwoLayer.balanced(4, 8, 4, scale=0.01, rng=2)
    >>> solution = lc.forecast(tree, network, learning_rate=1e-2).solution
    >>> (solution.at([400])["network_function"].values[0] @ tree.items[0]).round(1)
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
        """Build the task for items on the leaves in a given order."""
        items = 2**depth
        features = _features(depth, form)[:, list(order)]
        cross = features / np.sqrt(items)  # items are sqrt(items) times one-hot, so that E[x x^T] = 1
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
        """The inputs, (items, items), with item i in row i."""
        return np.sqrt(2**self.depth) * np.eye(2**self.depth)

    def swapped(self, one: Node, other: Node) -> Hierarchy:
        """Exchange two nodes and everything below them.

        Parameters
        ----------
        one, other : int or (level, position)
            An item, or a node by its position from the left; both on the same level.
        """
        first, second = (self._leaves(node) for node in (one, other))
        if len(first) != len(second) or set(first) & set(second):
            raise InvalidSpec(f"the nodes must differ and be on one level, got {one} and {other}.", field="other")
        moved = dict(zip(first + second, second + first, strict=True))
        order = [moved.get(leaf, leaf) for leaf in self.order]
        return Hierarchy.of(self.depth, self.form, order, f"{self.name}, {one} and {other} swapped")

    def _leaves(self, node: Node) -> list[int]:
        """Leaves of the tree below a node, or the leaf of an item."""
        if isinstance(node, int | np.integer) and 0 <= node < len(self.order):
            return [self.order[int(node)]]
        level, position = -1, -1
        if isinstance(node, tuple | list) and len(node) == 2 and all(isinstance(n, int | np.integer) for n in node):
            level, position = node
        if not (0 <= level <= self.depth and 0 <= position < 2**level):
            items = len(self.order) - 1
            raise InvalidSpec(f"node must be 0 to {items} or (level, position), got {brief(node)}.", field="node")
        width = 2 ** (self.depth - level)
        return list(range(position * width, (position + 1) * width))

    def shuffled(self, order: Sequence[int], *, name: str | None = None) -> Hierarchy:
        """Permute the items: item i moves to the leaf of item order[i]."""
        if sorted(order) != list(range(2**self.depth)):
            raise InvalidSpec(f"order must permute range({2**self.depth}), got {brief(order)}.", field="order")
        return Hierarchy.of(self.depth, self.form, [self.order[i] for i in order], name or f"{self.name}, shuffled")


def hierarchy(depth: int = 3, *, form: str = "signed", name: str = "hierarchy") -> Hierarchy:
    """Make a task from a binary tree of items.

    Parameters
    ----------
    depth : int
        Number of levels of branching, 1 to 12; there are 2^depth items.
    form : {"signed", "membership"}
        One feature per branching (+1, -1, 0) or per node (1, 0).
    name : str

    Returns
    -------
    Hierarchy
        The task.

    Examples
    --------
    >>> import learncast as lc
    >>> tree = lc.tasks.hierarchy(3)
    >>> tree
    <Task 'hierarchy': 1 step, 8 inputs, 8 outputs at the end; given statistics>
    """
    levels = count("depth", depth)
    if levels > 12:
        raise InvalidSpec(f"depth must be at most 12, got {brief(depth)}.", field="depth")
    one_of("form", form, FORMS)
    return Hierarchy.of(levels, form, range(2**levels), name)


def _features(depth: int, form: str) -> FloatArray:
    if form == "membership":
        return np.concatenate([np.kron(np.eye(2**level), np.ones(2 ** (depth - level))) for level in range(depth + 1)])
    sides = [np.repeat([1.0, -1.0], 2 ** (depth - level - 1)) for level in range(depth)]
    branchings = [np.kron(np.eye(2**level), side) for level, side in enumerate(sides)]
    return np.concatenate([np.ones((1, 2**depth)), *branchings]) + 0.0  # no negative zeros
