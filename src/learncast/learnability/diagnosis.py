"""The diagnosis of a trained recurrent model: how far back it can learn, and from how many sequences."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from torch import Tensor, nn, optim

from learncast.errors import InvalidSpec
from learncast.learnability.detection import METHODS
from learncast.learnability.evidence import Evidence
from learncast.learnability.learnability_window import LearnabilityWindow
from learncast.learnability.recurrent_layer import recurrent_layers
from learncast.learnability.replay_capture import capture
from learncast.learnability.sample_requirement import THRESHOLD
from learncast.learnability.sequences import Sequences, checked_loss, checked_sequences
from learncast.learnability.transport_factor import check_order
from learncast.learnability.window_dataset import LayerFinding, window_dataset
from learncast.progress import Progress, silent
from learncast.trajectory import Provenance, spec_hash
from learncast.validation import FloatArray, count, one_of, positive

#: Bytes of contributions up to which all are kept, so that every sequence can give signs to the other half.
MEMORY = 2**28
#: Numbers in one array of a chunk (sequences x steps x units).
_CHUNK = 2**20
_LAGS = 32


def window(
    model: nn.Module,
    inputs: Any,
    targets: Any,
    *,
    optimizer: optim.Optimizer | None = None,
    loss: Callable[[Any, Any], Tensor] | None = None,
    lags: Sequence[int] | None = None,
    sample_sizes: Sequence[int] | None = None,
    seed: int = 0,
    method: str = "sound",
    directions: int = 2,
    chunk: int | None = None,
    nulls: int = 200,
    threshold: float | None = None,
    order: int = 1,
    auxiliary: bool = False,
    exact: int = 0,
    batch_first: bool | None = None,
    memory: int = MEMORY,
    progress: Progress = silent,
) -> LearnabilityWindow:
    """How many steps back a model can learn, from how many sequences, with its optimiser.

    Parameters
    ----------
    model : torch.nn.Module
        Contains exactly one of nn.RNN, nn.GRU, nn.LSTM or a cell of `learncast.learnability.cells`; it runs in the mode
        it is in and is left as it was.
    inputs : (sequences, steps, channels)
        In the model's own layout (time first where it takes time first). An array, a tensor or a memory map.
    targets : (sequences, steps, ...) or (sequences, ...)
        Per step, in the layout of the inputs, or at the end.
    optimizer : torch.optim.SGD, Adam, AdamW or RMSprop, optional
        The one that trained the model. Without it every base rate is 1.
    loss : function of (answers, targets), optional
        One loss per sequence or finer, not averaged over sequences; half the squared error by default.
    lags : sequence of int, optional
        Growing; 32 from 1 to half the steps by default.
    sample_sizes : sequence of int, optional
        Numbers of sequences to give windows for; from 1/64 of those given to 4 times as many by default.
    seed : int
        Of directions, random signs and the order of visit.
    method : {"sound", "paper"}
        ``"paper"`` follows the published rule, which finds windows in pure noise; it is here to be compared with.
    directions : int
        Random directions on which gradients are projected. The answer is about the mean of their statistics; each
        is in the result too.
    chunk : int, optional
        Sequences held at a time; by default so many that one array of states has about a million numbers.
    nulls : int
        Random sign flips behind the critical score, and as many again for the null band.
    threshold : float, optional
        Signal-to-noise ratio from which a lag counts. By default the ratio of a signal that is just told from 0 (at
        the critical score); 0.1 for the published method.
    order : 0 or 1
        Of the transport: gates alone, or one visit to the recurrent weights.
    auxiliary : bool
        Add a GRU's auxiliary envelopes.
    exact : int
        Sequences on which the envelope is computed to all orders too, for up to 16 units, to see whether it decays as
        fast. It costs about 64 units^2 operations per step and sequence times the longest lag.
    batch_first : bool, optional
        Whether the first axis counts sequences; as the recurrent block says, by default.
    memory : int
        Bytes of contributions, sequences x lags x directions x units x 8, up to which all are kept: then every
        sequence is tested with signs from the other half. Beyond, the first half gives the signs, the second is
        tested, and what is kept is one number per tested sequence and lag.
    progress : callable

    Returns
    -------
    LearnabilityWindow

    Notes
    -----
    One pass over the data, no files. Memory is a few dozen arrays of a chunk, plus what `memory` allows. A chunk costs
    one forward pass, one replay by matrix products, ``directions`` products per lag, and one scan over time. A model in
    single precision is followed in single precision where no product of gates leaves its range. Mean transport is then
    right to about 1e-5; tail indices far below 1 need a model in double precision.
    """
    seed = count("seed", seed, least=0, why="it names a stream of random numbers")
    data = checked_sequences(model, inputs, targets, seed=seed, batch_first=batch_first)
    one_of("method", method, METHODS, why="it says whether signs come from independent data")
    check_order(order)
    if threshold is not None:
        threshold = positive("threshold", threshold, why="a ratio of 0 asks for nothing")
    k = count("directions", directions, why="a projection needs at least one direction")
    settings: dict[str, Any] = {
        "order": order,
        "auxiliary": auxiliary,
        "directions": k,
        "lags": _lags(lags, data.steps),
    }
    settings["exact"] = min(len(data), count("exact", exact, least=0, why="it counts sequences"))
    sizes = _sizes(sample_sizes, len(data))
    layers = recurrent_layers(model)
    needed = 8 * len(data) * len(settings["lags"]) * k * sum(layer.hidden_size for layer in layers)
    settings |= {"sequences": len(data), "signs": _signs(method, needed, memory)}
    found = [Evidence(layer, optimizer, seed=(seed, index), **settings) for index, layer in enumerate(layers)]
    each = _CHUNK // (data.steps * max(layer.hidden_size for layer in layers)) or 1
    each = each if chunk is None else count("chunk", chunk, why="sequences come in groups")
    _gather(model, data, loss, found, each, progress)
    findings = [_finding(evidence, optimizer, method=method, nulls=nulls, threshold=threshold) for evidence in found]
    dataset = window_dataset(findings, sizes, sequences=len(data), method=method, order=order)
    name = "none" if optimizer is None else type(optimizer).__name__
    dataset.attrs |= {"optimizer": name, "signs": settings["signs"], "cell": layers[0].kind, "directions": k}
    weights = [value.cpu().numpy() for layer in layers for value in layer.parameters.values()]
    digest = spec_hash(*weights, *data.specimen(), settings["lags"], sizes, method, seed)
    return LearnabilityWindow(dataset, Provenance("diagnosis", ("livi2025",), digest, seed))


def _gather(
    model: nn.Module,
    data: Sequences,
    loss: Callable[[Any, Any], Tensor] | None,
    found: list[Evidence],
    chunk: int,
    progress: Progress,
) -> None:
    for some, inputs, targets in data.chunks(chunk):
        number = some.stop - some.start
        seen = capture(model, inputs, targets, checked_loss(loss, number, data.axis == 0))
        if seen.outputs[0].shape[0] != number:
            raise InvalidSpec(
                required="the recurrent block must receive every sequence of a chunk",
                got=f"{seen.outputs[0].shape[0]} sequences instead of {number}",
                why="errors are told apart by sequence",
                remedy=f"pass batch_first={data.axis == 1} if the model takes its inputs the other way round",
            )
        assert seen.deltas is not None
        for index, evidence in enumerate(found):
            evidence.add(some, seen.replay(index), seen.deltas[index])
        progress(some.stop / len(data))


def _finding(
    evidence: Evidence, optimizer: optim.Optimizer | None, *, method: str, nulls: int, threshold: float | None
) -> LayerFinding:
    detection = evidence.detection(method=method, nulls=nulls)
    if threshold is None:
        # The statistic's scale is its deviation over sqrt(2), as for a normal law written as a stable one.
        threshold = float(np.sqrt(2) * detection.critical) if method == "sound" else THRESHOLD
    rate = 1.0 if optimizer is None else _reference_rate(optimizer, evidence)
    return LayerFinding(evidence.transport, detection, rate, threshold, evidence.residual, evidence.compared)


def _reference_rate(optimizer: optim.Optimizer, evidence: Evidence) -> float:
    """The learning rate of the layer's parameters, weighed by their number where groups differ."""
    own = {id(p) for p in evidence.layer.own.values()}
    rates = [(float(g["lr"]), sum(p.numel() for p in g["params"] if id(p) in own)) for g in optimizer.param_groups]
    return float(np.average([rate for rate, _ in rates], weights=[size for _, size in rates]))


def _signs(method: str, needed: int, memory: int) -> str:
    if needed <= memory:
        return "crossed"
    if method == "paper":
        raise InvalidSpec(
            required=f'method="paper" must keep all contributions in {memory / 2**20:,.0f} MiB',
            got=f"{needed / 2**20:,.0f} MiB of them",
            why="it takes signs from the very sequences that it tests",
            remedy="use fewer sequences, lags or directions, or raise memory",
        )
    return "pilot"


def _lags(lags: Sequence[int] | None, steps: int) -> list[int]:
    if lags is None:
        return [int(lag) for lag in np.unique(np.linspace(1, max(1, steps // 2), _LAGS).round())]
    wanted = [count("lags", lag, why="a lag counts steps between two states") for lag in np.ravel(np.asarray(lags))]
    if not wanted or wanted != sorted(set(wanted)) or wanted[-1] >= steps:
        raise InvalidSpec(
            required=f"lags must grow and stay below the {steps} steps of a sequence",
            got=f"{wanted}" if len(wanted) < 9 else f"{len(wanted)} lags from {wanted[0]} to {wanted[-1]}",
            why="a lag needs a step at each of its ends",
            remedy="sort them, drop those that are too long or repeated, or use longer sequences",
        )
    return wanted


def _sizes(sizes: Sequence[int] | None, number: int) -> FloatArray:
    if sizes is None:
        sizes = sorted({max(1, round(number * 2.0**power)) for power in range(-6, 3)})
    why = "a window belongs to a number of sequences"
    wanted = [count("sample_sizes", size, why=why) for size in np.ravel(np.asarray(sizes))]
    if not wanted or wanted != sorted(set(wanted)):
        raise InvalidSpec(
            required="sample_sizes must grow",
            got=f"{wanted}",
            why="a window is read as a curve over them",
            remedy="sort them and drop repetitions",
        )
    return np.array(wanted, dtype=np.float64)
