"""The compiled sums over lags against the torch code; needs the extra `fast`."""

import numpy as np
import pytest

pytest.importorskip("numba")
torch = pytest.importorskip("torch")

from learncast.windows import cells, layers, transport  # noqa: E402

pytestmark = pytest.mark.slow  # seconds of compilation, once

BATCH, STEPS, HIDDEN = 3, 70, 5
LAGS = [1, 2, 5, 30, 69]
KINDS = [cells.ConstGate, cells.SharedGate, cells.DiagGate, cells.PaperGRU, cells.LSTM]


def random(*shape, seed, dtype):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def replayed(kind, dtype, swing=1.0):
    options = {} if kind is cells.ConstGate else {"gate": None}
    cell = kind(3, HIDDEN, generator=torch.Generator().manual_seed(0), dtype=dtype, **options)
    (replay,) = layers.replays(cell, random(BATCH, STEPS, 3, seed=8, dtype=dtype) * swing)
    return replay


def sums(replay, *, rated, order, directions=2):
    dtype = replay.hidden.dtype
    rates = random(STEPS, BATCH, HIDDEN, seed=3, dtype=dtype).abs() if rated else 0.5
    if rated:
        rates[2, 1] = torch.nan  # nothing is learned from this source
    sensitivities = random(directions, STEPS, BATCH, HIDDEN, seed=1, dtype=dtype)
    deltas = random(BATCH, STEPS, HIDDEN, seed=2, dtype=dtype)
    options = {"sensitivities": sensitivities, "deltas": deltas, "rates": rates, "order": order}
    means, contributions = transport.lag_sums(replay.chain, LAGS, **options)
    return means.zeroth, means.total, means.effective, contributions


def both(monkeypatch, replay, **options):
    compiled = sums(replay, **options)
    with monkeypatch.context() as patch:
        patch.setattr(transport.accumulator, "_fused", lambda: None)
        return compiled, sums(replay, **options)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_compiled_sums_agree_with_torch(monkeypatch, kind, rated, order):
    # Differences of sums below 1000 are right to 1e-13, and 69 products to 1e-14.
    compiled, plain = both(monkeypatch, replayed(kind, torch.float64), rated=rated, order=order)
    for one, other in zip(compiled, plain, strict=True):
        assert np.abs(one - other).max() <= 1e-12 * np.abs(other).max()
        assert not np.array_equal(one, other), "the compiled code was not used"


@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("kind", [cells.DiagGate, cells.LSTM])
def test_blocks_of_sequences_give_the_sums_of_all(monkeypatch, kind, rated):
    """A block of two sequences and a block of one: arrays of all sequences are read in place."""
    replay = replayed(kind, torch.float64)
    together = sums(replay, rated=rated, order=1)
    monkeypatch.setattr(transport.accumulator, "_CACHED", 2 * STEPS * HIDDEN * 8)
    for one, other in zip(sums(replay, rated=rated, order=1), together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_compiled_sums_are_at_least_as_accurate_in_single_precision(monkeypatch, kind):
    replay = replayed(kind, torch.float32)
    compiled, plain = both(monkeypatch, replay, rated=False, order=1)
    exact = [np.stack(parts) for parts in zip(*_sizes(replay), strict=True)]
    for one, other, truth in zip(compiled[:2], plain[:2], exact, strict=True):
        assert one == pytest.approx(truth, rel=2e-6)  # factors are rounded to 6e-8, and added up in any order
        assert np.abs(one / truth - 1).max() <= 1.5 * np.abs(other / truth - 1).max()


def _sizes(replay):
    for _, zeroth, total in transport.transport_factors(replay, LAGS):
        yield zeroth.mean((0, 1)).numpy(), total.abs().mean((0, 1)).numpy()


@pytest.mark.parametrize("kind", [cells.DiagGate, cells.PaperGRU, cells.LSTM])
def test_torch_is_used_if_a_quotient_would_lose_digits(monkeypatch, kind):
    # Inputs fifty times as large close gates: what is kept of a state is nearly 0, and nothing may be divided by it.
    replay = replayed(kind, torch.float32, swing=50.0)
    compiled, plain = both(monkeypatch, replay, rated=True, order=1)
    for one, other in zip(compiled, plain, strict=True):
        np.testing.assert_array_equal(one, other)
