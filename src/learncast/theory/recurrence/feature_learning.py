"""Feature learning: the change of the tangent kernel over training, with and without recurrence."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, one_of
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.procedure.goals import Accuracy
from learncast.procedure.training import Training
from learncast.results import Status
from learncast.tasks.covariance import Dense
from learncast.tasks.task import Task
from learncast.theory.dynamics.descent import Descent, descend
from learncast.theory.dynamics.learning_problem import lag_statistics
from learncast.theory.dynamics.solution import worst_status
from learncast.theory.dynamics.statistics import WEIGHTS
from learncast.theory.recurrence.optimum import input_matrix
from learncast.theory.recurrence.stability import reach
from learncast.theory.representation.lag_kernel import network_kernel


@dataclass(frozen=True)
class BlockChange:
    """Change of a kernel or of one of its blocks.

    Attributes
    ----------
    movement : float
        |Theta_1 - Theta_0| / |Theta_0| in the Frobenius norm; infinite if Theta_0 is 0, nan if both are 0.
    misalignment : float
        1 - <Theta_0, Theta_1> / |Theta_0| |Theta_1|: 0 if the kernel only grew, near 1 if its features are new.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import kernel_change
    >>> before = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> after = lc.LinearRNN.aligned(recurrence=0.5, initial=0.2, hidden_size=2)
    >>> change = kernel_change(before, after, steps=3, learn=("input", "output")).blocks["output"]
    >>> round(change.movement, 3), round(change.misalignment, 3)
    (3.0, 0.0)
    """

    movement: float
    misalignment: float


@dataclass(frozen=True)
class KernelChange:
    """Change of the tangent kernel between two states of a network.

    Attributes
    ----------
    total : BlockChange
        Change of the kernel of all weights that learn.
    blocks : dict of str to BlockChange
        Change of the block of each kind of weights: "input", "recurrent" (not for a feedforward network), "output".

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import kernel_change
    >>> before = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> after = lc.LinearRNN.aligned(recurrence=0.9, initial=0.2, hidden_size=2)
    >>> change = kernel_change(before, after, steps=3)
    >>> {name: round(block.misalignment, 2) for name, block in change.blocks.items()}
    {'input': 0.16, 'recurrent': 0.08, 'output': 0.16}
    """

    total: BlockChange
    blocks: dict[str, BlockChange]


@dataclass(frozen=True, eq=False)
class FeatureLearning:
    """Feature learning of a recurrent network and of its feedforward control.

    Attributes
    ----------
    recurrent, feedforward : KernelChange or None
        Kernel changes of the two; None for a network whose descent diverged.
    losses : (2,)
        Final relative excess losses; infinite for a descent that diverged.
    status : Status
        The worse status of the two descents.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import feature_learning
    >>> task = lc.tasks.integration(steps=3)
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.3, hidden_size=2)
    >>> result = feature_learning(task, network, learning_rate=0.05)
    >>> result.status.name, bool((result.losses <= 1e-4).all())
    ('ok', True)
    """

    recurrent: KernelChange | None
    feedforward: KernelChange | None
    losses: FloatArray
    status: Status


def kernel_change(
    before: LinearRNN | TwoLayer, after: LinearRNN | TwoLayer, *, steps: int = 1, learn: tuple[str, ...] = WEIGHTS
) -> KernelChange:
    """Compare the tangent kernels of two states of a network, block by block, in lag space.

    In lag space the kernel is a quadratic form on the inputs of a trial. Norms and overlaps are those for white inputs.

    Parameters
    ----------
    before, after : LinearRNN or TwoLayer
        Two networks of the same kind and shape.
    steps : int
        Steps in a trial of the recurrent network; 1 for a two-layer network.
    learn : tuple of {"input", "recurrent", "output"}
        Weights that learn.

    Returns
    -------
    KernelChange

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import kernel_change
    >>> before = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> after = lc.LinearRNN.aligned(recurrence=0.9, initial=0.2, hidden_size=2)
    >>> change = kernel_change(before, after, steps=3)
    >>> round(change.total.movement, 2), round(change.total.misalignment, 2)
    (6.83, 0.16)
    """
    lags = count("steps", steps)
    shapes = [(type(n).__name__, n.inputs, n.hidden_size, n.outputs) for n in (before, after)]
    if shapes[0] != shapes[1] or (lags > 1 and isinstance(before, TwoLayer)):
        raise InvalidSpec(
            "before and after must have the same kind and shape, and a two-layer network one step, got "
            f"{shapes[0]}, {shapes[1]} and {lags} steps.",
            field="after",
        )
    for name in learn:
        one_of("learn", name, WEIGHTS)
    names = [n for n in WEIGHTS if n in learn and not (n == "recurrent" and isinstance(before, TwoLayer))]
    one, two = network_kernel(before, steps=lags), network_kernel(after, steps=lags)
    blocks = {name: _change(one.dense((name,)), two.dense((name,))) for name in names}
    return KernelChange(_change(one.dense(tuple(names)), two.dense(tuple(names))), blocks)


def feedforward_control(network: LinearRNN, *, steps: int) -> TwoLayer:
    """Return the two-layer network that computes what a recurrent network does, from all inputs of a trial.

    Its first layer is [F_0, F_1, ...] with F_k = W_h^k W_x, and its second layer is W_y. Function, hidden states and
    readout are those of the recurrent network, but lags share no weights. Inputs are ordered by lag, the last first.

    Parameters
    ----------
    network : LinearRNN
        Network before training.
    steps : int
        Steps of a trial.

    Returns
    -------
    TwoLayer

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import feedforward_control
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> control = feedforward_control(network, steps=3)
    >>> control.inputs, control.hidden_size
    (3, 2)
    >>> (control.second @ control.first).round(4)
    array([[0.01  , 0.005 , 0.0025]])
    """
    lags = count("steps", steps)
    return TwoLayer(np.concatenate(list(reach(network, lags)), axis=1), network.output_weights)


def unrolled(task: Task) -> Task:
    """Return the task of one step whose input is a complete trial by lag, as a feedforward control learns it.

    Parameters
    ----------
    task : Task

    Returns
    -------
    Task
        Task with one input for each step and input of `task`, the last step first.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import unrolled
    >>> flat = unrolled(lc.tasks.integration(steps=3))
    >>> flat.name, flat.steps, flat.inputs
    ('integration, unrolled', 1, 3)
    """
    statistics = lag_statistics(task)
    A = input_matrix(statistics)
    cross = statistics.cross.transpose(0, 2, 1).reshape(1, len(A), 1, statistics.outputs)
    target = None
    if math.isfinite(statistics.constant):
        # The loss depends only on the trace of the target's covariance.
        target = Dense(np.eye(statistics.outputs)[None, :, None, :] * 2 * statistics.constant / statistics.outputs)
    return Task.trusted(Dense(A[None, :, None, :]), Dense(cross), target, name=f"{task.name}, unrolled")


def feature_learning(
    task: Task,
    network: LinearRNN,
    *,
    learning_rate: float,
    relative_loss: float = 1e-4,
) -> FeatureLearning:
    """Train a recurrent network and its feedforward control, and compare the changes of their tangent kernels.

    Both descend on the same statistics, from the same function, hidden states and readout, until the excess loss over
    the best linear filter is `relative_loss` of the baseline loss.

    The totals are not directly comparable: the feedforward kernel |W_y|² 1 + W_in' W_in has an isotropic part that
    limits its misalignment. The fair comparison is the "output" block, the Gram matrix of the hidden states, which
    starts identical in both networks. By this measure, networks with small initial weights learn the same features with
    and without recurrence, and recurrence adds feature learning at intermediate to large initial weights.

    Parameters
    ----------
    task : Task
        Task with a known target covariance.
    network : LinearRNN
        Network before training.
    learning_rate : float
    relative_loss : float
        Excess loss at which to stop, as a share of the baseline loss.

    Returns
    -------
    FeatureLearning

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory import feature_learning
    >>> task = lc.tasks.integration(steps=3)
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.3, hidden_size=2)
    >>> result = feature_learning(task, network, learning_rate=0.05)
    >>> kernels = {"recurrent": result.recurrent, "feedforward": result.feedforward}
    >>> {name: round(kernel.blocks["output"].misalignment, 2) for name, kernel in kernels.items()}
    {'recurrent': 0.23, 'feedforward': 0.21}
    """
    share = between("relative_loss", relative_loss, 0.0, 1.0)
    goal = Accuracy(1 - math.sqrt(share))  # accuracy is a distance between maps, the loss its square
    lags = lag_statistics(task).lags
    control = feedforward_control(network, steps=lags)
    runs = (
        descend(task, network, Training(learning_rate, learn=WEIGHTS), goal=goal),
        descend(unrolled(task), control, learning_rate=learning_rate, goal=goal),
    )
    recurrent, feedforward = _change_by(runs[0], network, lags), _change_by(runs[1], control, 1)
    losses = np.array([_relative_loss(run) for run in runs])
    return FeatureLearning(recurrent, feedforward, losses, worst_status(run.status for run in runs))


def _change(before: FloatArray, after: FloatArray) -> BlockChange:
    sizes = float(np.linalg.norm(before)), float(np.linalg.norm(after))
    if 0.0 in sizes:
        return BlockChange(math.nan if sizes == (0.0, 0.0) else 1.0 if sizes[0] else math.inf, math.nan)
    # Half the squared distance of the normalised kernels; 1 - cosine would lose values below 1e-16.
    misalignment = 0.5 * float(np.sum((before / sizes[0] - after / sizes[1]) ** 2))
    return BlockChange(float(np.linalg.norm(after - before)) / sizes[0], misalignment)


def _change_by(run: Descent, start: LinearRNN | TwoLayer, steps: int) -> KernelChange | None:
    """Return the change of the kernel by a descent; None if it diverged."""
    if run.status is Status.diverged:
        return None
    end = run.network_at(math.inf)
    assert isinstance(end, LinearRNN | TwoLayer)
    return kernel_change(start, end, steps=steps)


def _relative_loss(run: Descent) -> float:
    if run.status is Status.diverged:
        return math.inf
    return float((run.loss[-1] - run.problem.least_loss) / run.problem.baseline_loss)
