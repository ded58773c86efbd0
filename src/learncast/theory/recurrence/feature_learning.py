"""Feature learning: how far training turns a network's tangent kernel, with recurrence and without."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from learncast._core.errors import InvalidSpec
from learncast._core.validation import FloatArray, between, count, one_of
from learncast.networks.linear_rnn import LinearRNN
from learncast.networks.two_layer import TwoLayer
from learncast.procedure.goals import Accuracy
from learncast.procedure.training import MOST_STEPS, Training
from learncast.results import Status
from learncast.tasks.covariance import Dense
from learncast.tasks.task import Task
from learncast.theory.dynamics.descent import Descent, descend
from learncast.theory.dynamics.learning_problem import lag_statistics
from learncast.theory.dynamics.solution import worst_status
from learncast.theory.dynamics.statistics import WEIGHTS
from learncast.theory.recurrence.stability import input_matrix, reach
from learncast.theory.representation.lag_kernel import network_kernel


@dataclass(frozen=True)
class BlockChange:
    """How one kernel, or one block of it, changed.

    Attributes
    ----------
    movement : float
        |Theta_1 - Theta_0| / |Theta_0|, in the Frobenius norm; infinite if there was nothing to start with, unknown
        (`nan`) if there is nothing at all.
    misalignment : float
        1 - <Theta_0, Theta_1> / |Theta_0| |Theta_1|: 0 if the kernel only grew, near 1 if its features are new.
    final_share : float
        Trace of the block at the end, of that of the whole kernel.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.feature_learning import kernel_change
    >>> before = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> after = lc.LinearRNN.aligned(recurrence=0.5, initial=0.2, hidden_size=2)
    >>> change = kernel_change(before, after, steps=3, learn=("input", "output")).blocks["output"]
    >>> round(change.movement, 3), round(change.misalignment, 3)
    (3.0, 0.0)
    """

    movement: float
    misalignment: float
    final_share: float


@dataclass(frozen=True)
class KernelChange:
    """How the tangent kernel changed between two states of a network.

    Attributes
    ----------
    total : BlockChange
        Of the kernel of all weights that learn.
    blocks : dict of str to BlockChange
        Of each kind of weights: "input", "recurrent", "output" (without "recurrent" for a feedforward network).

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.feature_learning import kernel_change
    >>> before = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> after = lc.LinearRNN.aligned(recurrence=0.9, initial=0.2, hidden_size=2)
    >>> change = kernel_change(before, after, steps=3)
    >>> {name: round(block.final_share, 3) for name, block in change.blocks.items()}
    {'input': 0.483, 'recurrent': 0.033, 'output': 0.483}
    """

    total: BlockChange
    blocks: dict[str, BlockChange]


@dataclass(frozen=True, eq=False)
class FeatureLearning:
    """Feature learning of a recurrent network against that of its feedforward control.

    Attributes
    ----------
    recurrent, feedforward : KernelChange or None
        None for a network whose descent diverged.
    network : LinearRNN or None
    control : TwoLayer or None
        The two after training.
    losses : (2,)
        Relative excess losses the two ended with; infinite for a descent that diverged.
    steps : tuple of int
        Steps the two took.
    status : Status
        Worst of the two descents.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.feature_learning import feature_learning
    >>> task = lc.tasks.integration(steps=3)
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.3, hidden_size=2)
    >>> found = feature_learning(task, network, learning_rate=0.05)
    >>> found.status.name, bool((found.losses <= 1e-4).all())
    ('ok', True)
    """

    recurrent: KernelChange | None
    feedforward: KernelChange | None
    network: LinearRNN | None
    control: TwoLayer | None
    losses: FloatArray
    steps: tuple[int, int]
    status: Status


def kernel_change(
    before: LinearRNN | TwoLayer, after: LinearRNN | TwoLayer, *, steps: int = 1, learn: tuple[str, ...] = WEIGHTS
) -> KernelChange:
    """Compare the tangent kernels of two states of a network, block by block, in lag space.

    In lag space the kernel is a quadratic form on the inputs of one trial, whatever trials it is then applied to: norms
    and overlaps are those under white inputs.

    Parameters
    ----------
    before, after : LinearRNN or TwoLayer
        Of one shape.
    steps : int
        Steps in a trial of the recurrent network; a two-layer network has one.
    learn : tuple of {"input", "recurrent", "output"}
        Weights that learn, whose blocks make up the total.

    Returns
    -------
    KernelChange
        Of the whole kernel and of the block of each kind of weights.

    Raises
    ------
    InvalidSpec
        If the networks differ in kind or shape, a two-layer network is given more than one step, or weights
        are named that there are not.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.feature_learning import kernel_change
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
            "two networks of one kind and shape must be compared, and a two-layer network has one step, got "
            f"{shapes[0]} and {shapes[1]} at {lags} steps. Pass the same network before and after training."
        )
    for name in learn:
        one_of("learn", name, WEIGHTS)
    names = [n for n in WEIGHTS if n in learn and not (n == "recurrent" and isinstance(before, TwoLayer))]
    one, two = network_kernel(before, steps=lags), network_kernel(after, steps=lags)
    trace = _trace(two.dense(tuple(names)))
    blocks = {name: _change(one.dense((name,)), two.dense((name,)), trace) for name in names}
    return KernelChange(_change(one.dense(tuple(names)), two.dense(tuple(names)), trace), blocks)


def feedforward_control(network: LinearRNN, *, steps: int) -> TwoLayer:
    """Return the two-layer network on all inputs of a trial at once that starts as the recurrent network does.

    Its first layer is [F_0, F_1, ...] with F_k = W_h^k W_x, its second W_y: the same function, the same hidden states
    and the same readout, without weights shared between lags. Inputs are ordered by lag, the last input first.

    Parameters
    ----------
    network : LinearRNN
        Before training.
    steps : int
        Of a trial.

    Returns
    -------
    TwoLayer

    Raises
    ------
    InvalidSpec
        If `steps` is no positive whole number.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.feature_learning import feedforward_control
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2)
    >>> control = feedforward_control(network, steps=3)
    >>> control.inputs, control.hidden_size
    (3, 2)
    >>> (control.second @ control.first).round(4)
    array([[0.01  , 0.005 , 0.0025]])
    """
    lags = count("steps", steps)
    return TwoLayer(np.concatenate(list(reach(network, lags)), axis=1), network.output_weights)


def at_once(task: Task) -> Task:
    """Return the task of one step whose input is a whole trial, by lag: what a feedforward control learns.

    Parameters
    ----------
    task : Task

    Returns
    -------
    Task
        Of one step, with an input for each step and input of `task`, the last step first.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.feature_learning import at_once
    >>> flat = at_once(lc.tasks.integration(steps=3))
    >>> flat.name, flat.steps, flat.inputs
    ('integration, at once', 1, 3)
    """
    statistics = lag_statistics(task)
    A = input_matrix(statistics)
    cross = statistics.cross.transpose(0, 2, 1).reshape(1, len(A), 1, statistics.outputs)
    target = None
    if math.isfinite(statistics.constant):
        # Only the trace of the target's covariance enters the loss.
        target = Dense(np.eye(statistics.outputs)[None, :, None, :] * 2 * statistics.constant / statistics.outputs)
    return Task.trusted(Dense(A[None, :, None, :]), Dense(cross), target, name=f"{task.name}, at once")


def feature_learning(
    task: Task,
    network: LinearRNN,
    *,
    learning_rate: float,
    relative_loss: float = 1e-4,
    learn: tuple[str, ...] = WEIGHTS,
    most_steps: int = MOST_STEPS,
) -> FeatureLearning:
    """Train a recurrent network and its feedforward control alike, and compare how far their kernels turned.

    Both descend on the same statistics, from the same function, hidden states and readout, until the loss above the
    best linear filter's is the same share of what it was for the answer 0.

    Read the total with care: the feedforward kernel |W_y|² 1 + W_in' W_in has an isotropic part that caps its
    misalignment, whatever its features do. The fair comparison is the "output" block, the Gram matrix of the hidden
    states, which starts identical in both networks. By it, networks with small initial weights learn the same features
    with and without recurrence; recurrence adds feature learning at intermediate to large initial weights.

    Parameters
    ----------
    task : Task
        With a known target covariance.
    network : LinearRNN
        Before training.
    learning_rate : float
        Of both descents.
    relative_loss : float
        Share of the loss at which to stop.
    learn : tuple of {"input", "recurrent", "output"}
        Weights of the recurrent network that learn. The control always learns both layers.
    most_steps : int
        Steps after which a descent is given up; its status then says so.

    Returns
    -------
    FeatureLearning
        What became of both networks and of their kernels.

    Examples
    --------
    >>> import learncast as lc
    >>> from learncast.theory.recurrence.feature_learning import feature_learning
    >>> task = lc.tasks.integration(steps=3)
    >>> network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.3, hidden_size=2)
    >>> found = feature_learning(task, network, learning_rate=0.05)
    >>> kernels = {"recurrent": found.recurrent, "feedforward": found.feedforward}
    >>> {name: round(kernel.blocks["output"].misalignment, 2) for name, kernel in kernels.items()}
    {'recurrent': 0.23, 'feedforward': 0.21}
    """
    share = between("relative_loss", relative_loss, 0.0, 1.0)
    goal = Accuracy(1 - math.sqrt(share))  # accuracy is a distance between maps, the loss its square
    flat, start = at_once(task), feedforward_control(network, steps=lag_statistics(task).lags)
    control = Training(learning_rate, most_steps=most_steps)
    runs = descend(task, network, control.with_(learn=learn), goal=goal), descend(flat, start, control, goal=goal)
    ends = [None if run.status is Status.diverged else run.network_at(math.inf) for run in runs]
    lags = start.inputs // network.inputs
    return FeatureLearning(
        None if ends[0] is None else kernel_change(network, ends[0], steps=lags, learn=learn),
        None if ends[1] is None else kernel_change(start, ends[1]),
        ends[0] if isinstance(ends[0], LinearRNN) else None,
        ends[1] if isinstance(ends[1], TwoLayer) else None,
        np.array([_relative_loss(run) for run in runs]),
        (runs[0].steps, runs[1].steps),
        worst_status(run.status for run in runs),
    )


def _change(before: FloatArray, after: FloatArray, whole_trace: float) -> BlockChange:
    sizes = float(np.linalg.norm(before)), float(np.linalg.norm(after))
    share = _trace(after) / whole_trace if whole_trace > 0 else math.nan
    if 0.0 in sizes:
        return BlockChange(math.nan if sizes == (0.0, 0.0) else 1.0 if sizes[0] else math.inf, math.nan, share)
    # Half the squared distance of the unit kernels: 1 - cosine would lose what is below 1e-16.
    misalignment = 0.5 * float(np.sum((before / sizes[0] - after / sizes[1]) ** 2))
    return BlockChange(float(np.linalg.norm(after - before)) / sizes[0], misalignment, share)


def _trace(theta: FloatArray) -> float:
    return float(np.einsum("olioli->", theta))


def _relative_loss(run: Descent) -> float:
    if run.status is Status.diverged:
        return math.inf
    whole = run.problem.statistics.constant - run.problem.least_loss
    return float((run.loss[-1] - run.problem.least_loss) / whole)
