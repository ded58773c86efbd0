"""Trials stored in unusual arrays: the statistics are those of the raw numbers, or a refusal names the argument."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

import learncast as lc

torch = pytest.importorskip("torch")

RNG = np.random.default_rng(0)
X = RNG.standard_normal((40, 5, 3))
Y = X.sum(axis=1)[:, :2]


def objects(trials):
    made = np.empty(len(trials), dtype=object)
    for k, trial in enumerate(trials):
        made[k] = trial
    return made


def statistics(x, y):
    x, y = np.asarray(x, dtype=float), np.asarray(y, dtype=float)
    y = y if y.ndim == 3 else y[:, None]
    return [np.einsum("pti,psj->tisj", a, b) / len(x) for a, b in ((x, x), (x, y), (y, y))]


#: Inputs and targets as given, and the raw numbers if they differ.
READ = {
    "counts": (RNG.poisson(2, X.shape).astype(np.uint8), Y),
    "booleans": (X > 0, Y),
    "an offset": (X + 1e6, Y),
    "two trials": (X[:2], Y[:2]),
    "one channel": (X[:, :, :1], Y),
    "one step": (X[:, :1], Y),
    "a silent channel": (X * [1, 0, 1], Y),
    "silent inputs": (0 * X, Y),
    "float16": (X.astype(np.float16), Y.astype(np.float16)),
    "large float16": ((1000 * X).astype(np.float16), Y),
    "long doubles": (X.astype(np.longdouble), Y),
    "big-endian": (X.astype(">f8"), Y.astype(">f4")),
    "read-only": (np.broadcast_to(X[:1], X.shape), Y),
    "reversed Fortran order": (np.asfortranarray(X)[::-1], Y[::-1]),
    "half tensors": (torch.tensor(X).half(), torch.tensor(Y).double()),
    "brain floats": (torch.tensor(X).bfloat16(), torch.tensor(Y)),
    "tensors with gradients": (torch.tensor(X, requires_grad=True), torch.tensor(Y)),
    "objects": (X.astype(object), Y.astype(object)),
    "objects that are trials": (objects(X), Y, X),
    "nested lists": (X.tolist(), Y.tolist()),
    "lists of tensors": ([torch.tensor(x) for x in X], [torch.tensor(y) for y in Y], X),
    "lists of frames": ([pd.DataFrame(x) for x in X], Y, X),
    "nullable frames": (X, pd.DataFrame(Y).convert_dtypes()),
    "a masked array without a mask": (np.ma.masked_array(X), Y),
    "at every step": (X, X[:, :, :2]),
}


@pytest.mark.parametrize("kind", READ)
def test_statistics_are_those_of_the_raw_numbers(kind):
    x, y, *raw = READ[kind]
    task = lc.Task.from_samples(x, y)
    plain = [v.detach().float().numpy() if hasattr(v, "detach") and v.dtype.itemsize == 2 else v for v in (x, y)]
    plain = [v.detach().numpy() if hasattr(v, "detach") else v for v in plain]
    wanted = statistics(raw[0] if raw else plain[0], np.stack(y) if isinstance(y, list) else plain[1])
    for found, one in zip((task.input_covariance, task.cross_covariance, task.target_covariance), wanted, strict=True):
        np.testing.assert_allclose(found.dense(), one, rtol=1e-12, atol=1e-12 * max(np.abs(one).max(), 1e-300))


REFUSED = {
    "one trial": (X[:1], Y[:1], "inputs"),
    "no trials": (X[:0], Y[:0], "inputs"),
    "no steps": (X[:, :0], Y, "inputs"),
    "no channels": (X[:, :, :0], Y, "inputs"),
    "no outputs": (X, Y[:, :0], "inputs"),
    "four axes": (X[None], Y, "inputs"),
    "no axes": (X, np.float64(3), "targets"),
    "an empty list": ([], [], "inputs"),
    "complex inputs": (X + 0j, Y, "inputs"),
    "complex targets": (X, Y + 0j, "targets"),
    "infinite inputs": (np.where(X > 2, np.inf, X), Y, "inputs"),
    "missing targets": (X, np.where(Y > 2, np.nan, Y), "targets"),
    "masked inputs": (np.ma.masked_greater(X, 2), Y, "inputs"),
    "dates": (np.zeros(X.shape, "datetime64[s]"), Y, "inputs"),
    "records": (np.zeros(X.shape, [("rate", float)]), Y, "inputs"),
    "strings": (X.astype(str), Y, "inputs"),
    "mixed objects": (np.array([1, "a", None] * 4, dtype=object).reshape(2, 2, 3), Y[:2], "inputs"),
    "unequal lists": ([X[0].tolist(), X[1, :2].tolist()], Y[:2], "inputs"),
    "other trials": (X, Y[:-1], "targets"),
    "nothing": (None, Y, "inputs"),
    "a mapping": ({}, Y, "inputs"),
    "squares that vanish": (1e-200 * X, Y, "inputs"),
    "squares that overflow": (X, 1e200 * Y, "targets"),
    "missing labels": (X, pd.Series([None, *[0, 1] * 19, 1], dtype="Int64"), "targets"),
}


@pytest.mark.parametrize("kind", REFUSED)
def test_arrays_without_a_meaning_are_refused_by_name(kind):
    x, y, field = REFUSED[kind]
    with pytest.raises(lc.InvalidSpec) as error:
        lc.Task.from_samples(x, y)
    assert error.value.field == field
