"""The compiled walk over the lags against the one that carries products from lag to lag; needs the extra `fast`."""

import numpy as np
import pytest

pytest.importorskip("numba")
torch = pytest.importorskip("torch")

from learncast.windows import cells  # noqa: E402
from learncast.windows.replay.capture import replays  # noqa: E402
from learncast.windows.transport import factor  # noqa: E402
from learncast.windows.transport.gathering import Contributions, TransportMeans  # noqa: E402

pytestmark = pytest.mark.slow  # seconds of compilation, once

BATCH, STEPS, HIDDEN = 3, 70, 5
LAGS = [1, 2, 5, 30, 69]
KINDS = [cells.ConstGate, cells.SharedGate, cells.DiagGate, cells.PaperGRU, cells.LSTM]


def drawn(*shape, seed, dtype):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype)


def replayed(kind, dtype, swing=1.0):
    options = {} if kind is cells.ConstGate else {"gate": None}
    cell = kind(3, HIDDEN, generator=torch.Generator().manual_seed(0), dtype=dtype, **options)
    (replay,) = replays(cell, drawn(BATCH, STEPS, 3, seed=8, dtype=dtype) * swing)
    return replay


def walked(replay, *, rated, order, directions=2):
    dtype = replay.hidden.dtype
    rates = drawn(STEPS, BATCH, HIDDEN, seed=3, dtype=dtype).abs() if rated else 0.5
    if rated:
        rates[2, 1] = torch.nan  # nothing is learned from there
    means = TransportMeans(replay, LAGS, rates)
    answers = drawn(directions, STEPS, BATCH, HIDDEN, seed=1, dtype=dtype)
    deltas = drawn(BATCH, STEPS, HIDDEN, seed=2, dtype=dtype)
    gathered = Contributions(replay, LAGS, sensitivities=answers, deltas=deltas, rates=rates)
    factor.walk_lags(replay, LAGS, [means, gathered], order=order, auxiliary=False)
    found = means.transport
    return found.zeroth, found.total, found.effective, gathered.found


def both(monkeypatch, replay, **options):
    fused = walked(replay, **options)
    with monkeypatch.context() as patch:
        patch.setattr(factor, "_fused", lambda: None)
        return fused, walked(replay, **options)


@pytest.mark.parametrize("order", [0, 1])
@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_both_walks_agree(monkeypatch, kind, rated, order):
    # Differences of sums below 1000 are right to 1e-13, and 69 products to 1e-14.
    fused, carried = both(monkeypatch, replayed(kind, torch.float64), rated=rated, order=order)
    for one, other in zip(fused, carried, strict=True):
        assert np.abs(one - other).max() <= 1e-12 * np.abs(other).max()
        assert not np.array_equal(one, other), "the compiled pass was not taken"


@pytest.mark.parametrize("rated", [False, True])
@pytest.mark.parametrize("kind", [cells.DiagGate, cells.LSTM])
def test_sequences_are_walked_a_few_at_a_time_like_all_at_once(monkeypatch, kind, rated):
    """Two of three, and the third: arrays of all sequences are read in place."""
    replay = replayed(kind, torch.float64)
    together = walked(replay, rated=rated, order=1)
    monkeypatch.setattr(factor, "_CACHED", 2 * STEPS * HIDDEN * 8)
    for one, other in zip(walked(replay, rated=rated, order=1), together, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-13, atol=0)


@pytest.mark.parametrize("kind", KINDS)
def test_in_single_precision_it_is_nearer_to_the_truth(monkeypatch, kind):
    replay = replayed(kind, torch.float32)
    fused, carried = both(monkeypatch, replay, rated=False, order=1)
    exact = [np.stack(parts) for parts in zip(*_sizes(replay), strict=True)]
    for one, other, truth in zip(fused[:2], carried[:2], exact, strict=True):
        assert one == pytest.approx(truth, rel=2e-6)  # factors are rounded to 6e-8, and added up in any order
        assert np.abs(one / truth - 1).max() <= 1.5 * np.abs(other / truth - 1).max()


def _sizes(replay):
    for _, zeroth, total in factor.transport_factors(replay, LAGS):
        yield zeroth.mean((0, 1)).numpy(), total.abs().mean((0, 1)).numpy()


@pytest.mark.parametrize("kind", [cells.DiagGate, cells.PaperGRU, cells.LSTM])
def test_where_a_quotient_would_lose_digits_products_are_carried(monkeypatch, kind):
    # Inputs fifty times as large shut gates: what is kept of a state is nearly 0, and nothing may be divided by it.
    replay = replayed(kind, torch.float32, swing=50.0)
    fused, carried = both(monkeypatch, replay, rated=True, order=1)
    for one, other in zip(fused, carried, strict=True):
        np.testing.assert_array_equal(one, other)
