"""Recorded data against plain numpy on all trials: loss and gradients of a linear network, computed trial by trial."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

import learncast as lc
from learncast import Task, tasks
from learncast.tasks import halves, pooled_recording, pooled_statistics, resampled
from learncast.theory import lag_statistics, loss_and_gradient

#: Sums of a few thousand products in another order: a few hundred times the round-off of one.
CLOSE = {"rtol": 1e-10, "atol": 1e-12}


def trial_losses(network, inputs, targets, counted=None, lengths=None):
    """Half the squared error of each trial, step by step in plain numpy; targets at the end are (trials, outputs)."""
    found = np.zeros(len(inputs))
    for p, (x, y) in enumerate(zip(inputs, targets, strict=True)):
        h = np.zeros(network.hidden_size)
        steps = len(x) if lengths is None else lengths[p]
        for t in range(steps):
            h = network.recurrent_weights @ h + network.input_weights @ x[t]
            if y.ndim == 2 and (counted is None or counted[p, t]):
                found[p] += 0.5 * ((network.output_weights @ h - y[t]) ** 2).sum()
        if y.ndim == 1:
            found[p] += 0.5 * ((network.output_weights @ h - y) ** 2).sum()
    return found


def task_loss(task, network):
    weights = network.input_weights, network.recurrent_weights, network.output_weights
    return loss_and_gradient(lag_statistics(task), *weights, learn=())[0]


@pytest.fixture
def network():
    """A network with full recurrent weights."""
    rng = np.random.default_rng(5)
    return lc.LinearRNN(rng.normal(size=(4, 3)), 0.4 * rng.normal(size=(4, 4)), rng.normal(size=(2, 4)))


@pytest.fixture
def trials():
    rng = np.random.default_rng(11)
    x = rng.normal([0.5, -1.0, 2.0], size=(90, 6, 3))
    return x, np.cumsum(x[:, :, :2], axis=1) + rng.normal(size=(90, 6, 2))


MASKS = {
    "the same steps in every trial": lambda rng: np.broadcast_to([False, True, True, False, True, False], (90, 6)),
    "the end only": lambda rng: np.broadcast_to(np.arange(6) == 5, (90, 6)),
    "a middle step only": lambda rng: np.broadcast_to(np.arange(6) == 2, (90, 6)),
    "different steps in every trial": lambda rng: rng.random((90, 6)) < 0.5,
    "a few patterns": lambda rng: (rng.random((3, 6)) < 0.6)[np.arange(90) % 3],
    "trials without a target": lambda rng: (rng.random((90, 6)) < 0.5) & (np.arange(90) > 8)[:, None],
}


@pytest.mark.parametrize("mask", MASKS)
def test_the_loss_of_a_masked_task_is_that_of_the_targets_that_count(trials, network, mask):
    x, y = trials
    counted = np.array(MASKS[mask](np.random.default_rng(2)))
    missing = np.where(counted[:, :, None], y, np.nan)  # targets that do not count may be missing
    task = Task.from_samples(x, missing, mask=counted)
    np.testing.assert_allclose(task_loss(task, network), trial_losses(network, x, y, counted).mean(), **CLOSE)
    assert task.trials == 90


@pytest.mark.parametrize("mask", MASKS)
def test_descent_on_a_masked_task_is_descent_on_its_trials(trials, mask):
    x, y = trials
    counted = np.array(MASKS[mask](np.random.default_rng(2)))
    start = lc.LinearRNN.random(3, 4, 2, recurrence=0.6, scale=0.2, rng=4)
    task = Task.from_samples(x, y, mask=counted)
    A, C, b, rate = start.input_weights.copy(), start.output_weights.copy(), 0.6, 1e-4
    z = np.zeros_like(x)
    for t in range(6):
        z[:, t] = x[:, t] + (b * z[:, t - 1] if t else 0)
    losses = []
    for _ in range(6):
        error = np.where(counted[:, :, None], z @ A.T @ C.T - y, 0.0)
        losses.append(0.5 * (error**2).sum() / len(x))
        G = np.einsum("pto,ptc->oc", error, z) / len(x)
        A, C = A - rate * C.T @ G, C - rate * G @ A.T
    found = lc.descend(task, start, learning_rate=rate, steps=5).loss
    np.testing.assert_allclose(found, losses, rtol=1e-9)


def test_a_mask_of_trials_leaves_them_out(trials, network):
    x, y = (np.array(part) for part in trials)
    keep = np.arange(90) % 3 > 0
    x[0], y[3] = np.nan, np.inf  # trials that are left out may have any values
    task = Task.from_samples(x, y, mask=keep)
    assert (task.trials, task.recording.given) == (60, 90)
    np.testing.assert_allclose(task_loss(task, network), trial_losses(network, x[keep], y[keep]).mean(), **CLOSE)
    assert "60 of 90" in task.recording.sentences(60)[0]


@pytest.mark.parametrize("form", ["lengths", "list"])
@pytest.mark.parametrize("every_step", [False, True])
def test_trials_of_different_length(trials, network, every_step, form):
    x, y = trials
    lengths = np.random.default_rng(8).integers(1, 7, size=90)
    targets = y if every_step else np.stack([y[p, n - 1] for p, n in enumerate(lengths)])
    wanted = trial_losses(network, x, targets, lengths=lengths).mean()
    if form == "list":
        listed = [row[:n] for row, n in zip(x, lengths, strict=True)]
        goals = [row[:n] for row, n in zip(y, lengths, strict=True)] if every_step else targets
        task = Task.from_samples(listed, goals)
    else:
        padded = np.where(
            np.arange(6)[None, :, None] < lengths[:, None, None], x, np.nan
        )  # padding may have any values
        task = Task.from_samples(padded, targets, lengths=lengths)
    np.testing.assert_allclose(task_loss(task, network), wanted, **CLOSE)
    assert task.recording.lengths == (1, 6)
    assert "1 to 6" in " ".join(task.recording.sentences(task.trials))


def plain_centred(values, live):
    """Subtract the mean at each step over the trials that have it; 0 at other steps."""
    found = np.zeros_like(values)
    for t in range(values.shape[1]):
        found[live[:, t], t] = values[live[:, t], t] - values[live[:, t], t].mean(axis=0)
    return found


@pytest.mark.parametrize("number", [90, 12], ids=["many trials", "fewer trials than values"])
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("scale", ["none", "channel"])
@pytest.mark.parametrize("kind", ["end", "every step", "mask", "lengths", "lengths, every step"])
def test_centring_and_scaling(trials, network, number, centre, scale, kind):
    x, y = trials[0][:number], trials[1][:number]
    lengths = np.random.default_rng(8).integers(2, 7, size=number) if "lengths" in kind else np.full(number, 6)
    live = np.arange(6) < lengths[:, None]
    counted = live & (np.random.default_rng(3).random((number, 6)) < 0.5) if kind == "mask" else live
    task = Task.from_samples(
        x,
        y if kind in ("every step", "mask", "lengths, every step") else y[np.arange(number), lengths - 1],
        centre=centre,
        scale=scale,
        mask=counted if kind == "mask" else None,
        lengths=lengths if "lengths" in kind else None,
    )
    if kind in ("every step", "mask", "lengths, every step"):
        moved = plain_centred(x, live) if centre else x
        goals = plain_centred(y, counted) if centre else y
    else:
        # aligned at the end: means are over trials at the same distance from the end
        late = np.zeros_like(x)
        there = np.zeros((number, 6), dtype=bool)
        for p, n in enumerate(lengths):
            late[p, 6 - n :], there[p, 6 - n :] = x[p, :n], True
        moved, goals = late, y[np.arange(number), lengths - 1]
        if centre:
            moved, goals = plain_centred(late, there), goals - goals.mean(axis=0)
        lengths, live = np.full(number, 6), there
    scales = np.ones(3)
    if scale == "channel":
        scales = np.sqrt(np.array([(moved[:, :, i][live] ** 2).mean() for i in range(3)]))
    wanted = trial_losses(network, moved / scales, goals, counted, lengths).mean()
    np.testing.assert_allclose(task_loss(task, network), wanted, **CLOSE)
    np.testing.assert_allclose(task.recording.scales, scales, rtol=1e-12)
    text = " ".join(task.recording.sentences(task.trials))
    assert ("subtracted" in text, "root mean square" in text) == (centre, scale == "channel")
    assert (", centred" in repr(task), ", scaled" in repr(task)) == (centre, scale == "channel")


@pytest.mark.parametrize("kind", ["kept trials", "blocks", "masked"])
def test_resamples_are_centred_and_scaled_by_their_own_means_and_scales(trials, kind):
    x, y = trials
    x, y = (x[:12], y[:12]) if kind == "kept trials" else (x, y)
    mask = np.random.default_rng(1).random((90, 6)) < 0.5 if kind == "masked" else None
    task = Task.from_samples(x, y, centre=True, scale="channel", mask=mask)
    for seed in range(3):
        found = tasks.resampled(task, np.random.default_rng(seed))
        rng = np.random.default_rng(seed)
        if kind == "blocks":
            counts = task.recording.blocks.counts.astype(int)
            repeats = rng.multinomial(len(counts), np.full(len(counts), 1 / len(counts)))
            cuts = np.split(np.arange(len(x)), np.cumsum(counts)[:-1])
            chosen = np.concatenate([cut for cut, k in zip(cuts, repeats, strict=True) for _ in range(k)])
        else:
            chosen = rng.integers(len(x), size=len(x))
        again = Task.from_samples(
            x[chosen], y[chosen], centre=True, scale="channel", mask=None if mask is None else mask[chosen]
        )
        for key in ("input_covariance", "cross_covariance", "target_covariance"):
            np.testing.assert_allclose(getattr(found, key).dense(), getattr(again, key).dense(), rtol=1e-9, atol=1e-10)
        assert (found.recording.blocks, found.recording.masked) == (None, None)


def test_reversing_a_masked_task_reverses_its_resamples(trials):
    x, y = trials
    task = Task.from_samples(x, y, mask=np.random.default_rng(1).random((90, 6)) < 0.5)
    one = tasks.resampled(tasks.reversed(task), np.random.default_rng(0))
    other = tasks.resampled(task, np.random.default_rng(0))
    np.testing.assert_allclose(one.cross_covariance.dense(), -other.cross_covariance.dense(), rtol=1e-12)


MEMORY = """
from pathlib import Path
import numpy as np
from learncast.tasks import Task
rng = np.random.default_rng(0)
x = np.empty(({trials}, 200, 32), dtype=np.{kind})
for part in np.array_split(np.arange(len(x)), 50):
    x[part] = rng.standard_normal((len(part), 200, 32), dtype=np.float32)
y = x[:, -1, :2].astype(float)
task = Task.from_samples(x, y, centre={centre}, scale="{scale}", mask={mask})
assert task.input_covariance.shape == (200, 32, 200, 32)
# The resource module would also count the parent process.
print(int(Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]) // 1024)
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("trials", "kind", "centre", "scale"),
    [(5000, "float64", False, "none"), (5000, "float32", True, "channel"), (7000, "float32", True, "none")],
)
def test_a_large_recording_stays_below_a_gigabyte(trials, kind, centre, scale):
    """5,000 trials of 200 steps and 32 channels, including their own memory; 7,000 are summed, not stored."""
    code = MEMORY.format(trials=trials, kind=kind, centre=centre, scale=scale, mask=None)
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(run.stdout) < 1000


# --- the summary of recorded data -------------------------------------------------------------------------------------


def plain_pool(x, b):
    """The pooled input sum_t b^(T-t) x_t of each trial."""
    z = np.zeros((len(x), x.shape[2]))
    for t in range(x.shape[1]):
        z = b * z + x[:, t]
    return z


def plain_shares(z, y, *, intercept):
    """Share of the targets' power explained in sample, and on each trial by a fit to the others."""
    free = np.concatenate([z, np.ones((len(z), 1))], axis=1) if intercept else z
    missed = y - free @ np.linalg.lstsq(free, y, rcond=None)[0]
    power = ((y - y.mean(axis=0)) ** 2).sum() if intercept else (y**2).sum()
    left = 0.0
    for p in range(len(z)):
        others = np.arange(len(z)) != p
        left += ((y[p] - free[p] @ np.linalg.lstsq(free[others], y[others], rcond=None)[0]) ** 2).sum()
    return 1 - (missed**2).sum() / power, 1 - left / power


@pytest.mark.parametrize("centre", [False, True])
def test_explained_shares_are_those_of_least_squares_fits(centre):
    rng = np.random.default_rng(3)
    x = rng.normal(0.7, 1.0, size=(30, 12, 5))
    y = plain_pool(x, 0.8)[:, :2] + 3 * rng.normal(size=(30, 2))
    found = tasks.summary(Task.from_samples(x, y, centre=centre), recurrence=0.8)
    explained, left_out = plain_shares(plain_pool(x, 0.8), y, intercept=centre)
    np.testing.assert_allclose([found.explained, found.left_out], [explained, left_out], rtol=1e-9)
    free = 30 - centre
    np.testing.assert_allclose(found.adjusted, 1 - (1 - explained) * free / (free - 5), rtol=1e-12)
    assert found.groups == 30
    np.testing.assert_allclose(
        (found.modes**2).sum() / (y.var(axis=0) if centre else (y**2).mean(axis=0)).sum(), explained
    )


def test_the_adjusted_share_is_that_of_unlimited_trials():
    """200 recordings of 40 trials: in sample too high, cross-validated too low, adjusted right within its error."""
    rng, shares = np.random.default_rng(1), []
    weights = rng.normal(size=(10, 3))
    noise = 2.0
    truth = (weights**2).sum() / ((weights**2).sum() + 3 * noise**2)
    for _ in range(200):
        x = rng.normal(size=(40, 1, 10))
        y = x[:, 0] @ weights + noise * rng.normal(size=(40, 3))
        found = tasks.summary(Task.from_samples(x, y), recurrence=0.0, permutations=1)
        shares.append([found.explained, found.adjusted, found.left_out])
    mean, error = np.mean(shares, axis=0), np.std(shares, axis=0) / np.sqrt(200)
    assert mean[0] - truth > 6 * error[0]
    assert abs(mean[1] - truth) < 4 * error[1] + 0.01  # a ratio of means has a bias of its own of order 1 / 40^2
    assert truth - mean[2] > 6 * error[2]


@pytest.mark.parametrize("number", [600, 60], ids=["blocks", "kept trials"])
def test_cross_validation_leaves_out_blocks_or_trials(number):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(number, 4, 20))
    y = plain_pool(x, 0.5)[:, :2] + 3 * rng.normal(size=(number, 2))
    task = Task.from_samples(x, y)
    found = tasks.summary(task, recurrence=0.5)
    z, left = plain_pool(x, 0.5), 0.0
    sizes = np.ones(number, int) if number == 60 else task.recording.blocks.counts.astype(int)
    for own in np.split(np.arange(number), np.cumsum(sizes)[:-1]):
        others = np.setdiff1d(np.arange(number), own)
        left += ((y[own] - z[own] @ np.linalg.lstsq(z[others], y[others], rcond=None)[0]) ** 2).sum()
    np.testing.assert_allclose(found.left_out, 1 - left / (y**2).sum(), rtol=1e-9)
    assert found.groups == len(sizes)


@pytest.mark.parametrize("mask", [False, True])
def test_several_readouts_are_left_out_trial_by_trial(mask):
    rng = np.random.default_rng(3)
    x = rng.normal(size=(30, 6, 4))
    counted = rng.random((30, 6)) < 0.6 if mask else np.ones((30, 6), dtype=bool)
    z = np.zeros_like(x)
    for t in range(6):
        z[:, t] = x[:, t] + (0.5 * z[:, t - 1] if t else 0)
    y = z[:, :, :2] + rng.normal(size=(30, 6, 2))
    found = tasks.summary(Task.from_samples(x, y, mask=counted if mask else None), recurrence=0.5)
    left = 0.0
    for p in range(30):
        others = counted & (np.arange(30) != p)[:, None]
        fit = np.linalg.lstsq(z[others], y[others], rcond=None)[0]
        left += ((y[p][counted[p]] - z[p][counted[p]] @ fit) ** 2).sum()
    np.testing.assert_allclose(found.left_out, 1 - left / (y[counted] ** 2).sum(), rtol=1e-9)
    fit = np.linalg.lstsq(z[counted], y[counted], rcond=None)[0]
    np.testing.assert_allclose(
        found.explained, 1 - ((y[counted] - z[counted] @ fit) ** 2).sum() / (y[counted] ** 2).sum(), rtol=1e-9
    )
    assert np.isnan(found.adjusted)


@pytest.mark.parametrize("number", [400, 60], ids=["Gaussian", "permutations"])
@pytest.mark.parametrize("offset", [0.0, 3.0])
def test_modes_of_noise_are_identified(number, offset):
    """One strong mode and one of noise; means of inputs and targets do not matter."""
    rng = np.random.default_rng(6)
    x = offset + rng.normal(size=(number, 5, 24))
    z = plain_pool(x, 0.6)
    centred = (z[:, 0] - z[:, 0].mean()) / z[:, 0].std()
    y = offset + np.stack([2 * centred, np.zeros(number)], axis=1) + rng.normal(size=(number, 2))
    task = Task.from_samples(x, y, centre=True)
    found = tasks.summary(task, recurrence=0.6)
    assert found.noise == (False, True)
    assert "2 of 2" in " ".join(found.sentences)
    # the null in plain numpy: permutations of centred targets, whitened inputs
    values, vectors = np.linalg.eigh(np.cov(z.T, bias=True))
    white = (z - z.mean(axis=0)) @ vectors / np.sqrt(values)
    gap = y - y.mean(axis=0)
    draws = [np.linalg.norm(rng.permutation(gap).T @ white / number, 2) for _ in range(400)]
    # two quantiles of 200 and 400 draws with a spread of some 5%
    assert abs(found.null / np.quantile(draws, 0.95) - 1) < 0.05


def test_the_mean_and_the_condition_number():
    rng = np.random.default_rng(2)
    x = 5 + rng.normal(size=(300, 20, 6))
    y = plain_pool(x, 0.9)[:, :1]
    z = plain_pool(x, 0.9)
    S, mu = z.T @ z / 300, z.mean(axis=0)
    values, vectors = np.linalg.eigh(S)
    inside = np.linalg.eigvalsh(np.cov(z.T, bias=True))
    raw = tasks.summary(Task.from_samples(x, y), recurrence=0.9)
    np.testing.assert_allclose(raw.condition, values[-1] / values[0], rtol=1e-8)
    np.testing.assert_allclose(raw.mean_share, (vectors[:, -1] @ mu) ** 2 / values[-1], rtol=1e-10)
    assert f"{raw.mean_share:.1%}" in " ".join(raw.sentences)
    centred = tasks.summary(Task.from_samples(x, y, centre=True), recurrence=0.9)
    np.testing.assert_allclose(centred.condition, inside[-1] / inside[0], rtol=1e-8)
    np.testing.assert_allclose([centred.raw_condition, centred.mean_share], [raw.condition, raw.mean_share], rtol=1e-6)
    assert f"{centred.raw_condition:.3g} without centring" in " ".join(centred.sentences)


def test_constant_and_duplicate_channels_are_no_directions():
    rng = np.random.default_rng(2)
    x = rng.normal(size=(60, 4, 3))
    y = x.sum(axis=1)
    odd = np.concatenate([x, x[:, :, :1] * -2, np.full((60, 4, 1), 0.3)], axis=2)
    targets = np.stack([y[:, 0], 2 * y[:, 0]], axis=1)
    for centre, scale in ((False, "none"), (True, "channel")):
        found = tasks.summary(Task.from_samples(odd, targets, centre=centre, scale=scale), recurrence=1.0)
        assert found.rank == (3 if centre else 4)
        np.testing.assert_allclose([found.explained, found.left_out], 1, atol=1e-9)
    wide = tasks.summary(Task.from_samples(rng.normal(size=(20, 3, 50)), rng.normal(size=(20, 1))), recurrence=0.5)
    assert (wide.rank, round(wide.explained, 9)) == (20, 1.0)
    assert np.isnan(wide.adjusted)
    assert "trials (20)" in " ".join(wide.sentences)


def test_a_task_without_trials_has_no_summary():
    with pytest.raises(lc.InvalidSpec) as caught:
        tasks.summary(tasks.integration(5), recurrence=0.5)
    assert caught.value.field == "task"


# --- real data --------------------------------------------------------------------------------------------------------


def plain_steps(z, y, A, C, rate, accuracy, most=20_000):
    """Steps of descent on all trials until the excess loss is (1 - accuracy)^2 of that of the zero map."""
    best = y - z @ np.linalg.lstsq(z, y, rcond=None)[0]
    floor = 0.5 * (best**2).sum() / len(z)
    goal = (1 - accuracy) ** 2 * (0.5 * (y**2).sum() / len(z) - floor)
    for n in range(most):
        error = z @ A.T @ C.T - y
        if 0.5 * (error**2).sum() / len(z) - floor <= goal:
            return n
        G = error.T @ z / len(z)
        A, C = A - rate * C.T @ G, C - rate * G @ A.T
    raise AssertionError("not learned")


def test_sequential_digits_take_the_steps_of_descent_on_their_images():
    datasets = pytest.importorskip("sklearn.datasets")
    digits = datasets.load_digits()
    x, b = digits.images / 16, 0.9
    task = Task.from_samples(x, digits.target, centre=True, scale="channel")
    assert (task.trials, task.steps, task.inputs, task.outputs) == (1797, 8, 8, 10)
    x = x - x.mean(axis=0)
    x /= np.sqrt((x**2).mean(axis=(0, 1)))
    y = np.eye(10)[digits.target]
    y -= y.mean(axis=0)
    start = lc.LinearRNN.random(8, 12, 10, recurrence=b, scale=0.05, rng=1)
    z = plain_pool(x, b)
    wanted = plain_steps(z, y, start.input_weights, start.output_weights, 0.02, 0.6)
    found = lc.descend(task, start, learning_rate=0.02, goal=lc.Accuracy(0.6))
    assert found.steps == wanted
    found = tasks.summary(task, recurrence=b)
    fit = z @ np.linalg.lstsq(z, y, rcond=None)[0]
    np.testing.assert_allclose(found.explained, 1 - ((y - fit) ** 2).sum() / (y**2).sum(), rtol=1e-9)


@pytest.mark.parametrize("name", ["load_iris", "load_wine"])
def test_static_pairs_take_the_steps_of_descent_on_the_pairs(name):
    datasets = pytest.importorskip("sklearn.datasets")
    loaded = getattr(datasets, name)()
    x, y = loaded.data, np.eye(3)[loaded.target]
    task = tasks.from_pairs(x, loaded.target, centre=True, scale="channel")
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    y = y - y.mean(axis=0)
    np.testing.assert_allclose(task.input_covariance.dense()[0, :, 0], z.T @ z / len(z), atol=1e-12)
    np.testing.assert_allclose(task.cross_covariance.dense()[0, :, 0], z.T @ y / len(z), atol=1e-12)
    start = lc.TwoLayer.random(x.shape[1], 6, 3, scale=0.1, rng=np.random.default_rng(0))
    wanted = plain_steps(z, y, start.first, start.second, 0.05, 0.7)
    assert lc.descend(task, start, learning_rate=0.05, goal=lc.Accuracy(0.7)).steps == wanted
    found = tasks.summary(task, recurrence=0.0)
    np.testing.assert_allclose(found.explained, plain_shares(z, y, intercept=True)[0], rtol=1e-9)
    assert found.left_out < found.explained


@pytest.mark.parametrize("number", [40, 400])
@pytest.mark.parametrize("centre", [True, False])
def test_pooling_commutes_with_resampling(number, centre):
    """Fewer trials than values are stored as trials, more as blocks; both are pooled to the same statistics."""
    rng = np.random.default_rng(5)
    x = 2 + rng.normal(size=(number, 12, 6))
    y = x[:, -3:].sum(axis=1) @ rng.normal(size=(6, 2))
    task = Task.from_samples(x, y, centre=centre)
    pooled = pooled_recording(task, 0.8)
    assert pooled.steps == 1
    resamples = [[resampled(t, np.random.default_rng(k)) for t in (task, pooled)] for k in range(3)]
    for one, other in [(task, pooled), *resamples]:
        for found, due in zip(pooled_statistics(other, 0.0), pooled_statistics(one, 0.8), strict=True):
            np.testing.assert_allclose(found, due, rtol=1e-10, atol=1e-10 * np.abs(due).max())


def test_halves_contain_every_trial_once():
    rng = np.random.default_rng(6)
    x = rng.normal(size=(30, 9, 4))
    task = Task.from_samples(x, x.sum(axis=1))
    one, other = halves(task, np.random.default_rng(0))
    mean = (one.cross_covariance.dense() + other.cross_covariance.dense()) / 2
    np.testing.assert_allclose(mean, task.cross_covariance.dense(), atol=1e-12)
    assert one.trials == other.trials == 15


@pytest.mark.parametrize("shape", ["end", "every step", "mask", "lengths", "centred"])
def test_the_mean_target_has_the_r2_of_numpy(shape):
    rng = np.random.default_rng(3)
    x = rng.poisson(1.5, (80, 9, 4)).astype(float)
    y = np.cumsum(x[:, :, :2], axis=1) + np.array([2.0, -1.0])
    mask, lengths = rng.random((80, 9)) < 0.6, rng.integers(2, 10, 80)
    given, counted = {
        "end": ({"targets": y[:, -1]}, y[:, -1]),
        "every step": ({"targets": y}, y.reshape(-1, 2)),
        "mask": ({"targets": y, "mask": mask.astype(float)}, y[mask]),
        "lengths": ({"targets": y, "lengths": lengths}, y[np.arange(9) < lengths[:, None]]),
        "centred": ({"targets": y[:, -1], "centre": True}, y[:, -1] - y[:, -1].mean(axis=0)),
    }[shape]
    task = lc.Task.from_samples(x, **given)
    expected = 1 - ((counted - counted.mean(axis=0)) ** 2).sum() / (counted**2).sum()
    found = task.recording.constant_r2(task.target_power)
    assert found == pytest.approx(expected, rel=1e-9, abs=1e-12)
    remarks = lc.forecast(task, lc.LinearRNN.random(4, 3, 2, rng=0), learning_rate=1e-4).remarks
    assert any(f"{found:.3g}" in remark for remark in remarks) == (shape != "centred")
