"""Tasks: valid statistics in any form, estimated, made by families, sampled and compared."""

import tracemalloc

import numpy as np
import pytest
import xarray as xr

from learncast import InvalidSpec, Task, tasks
from learncast.tasks import Dense, Kronecker, Sampled

# Sums of at most a few hundred products of order one, so round-off is far below this.
CLOSE = {"rtol": 1e-12, "atol": 1e-12}


def refused(call):
    """The field of the InvalidSpec that a call raises."""
    with pytest.raises(InvalidSpec) as caught:
        call()
    return caught.value.field


# --- every form of a covariance behaves as its dense array ------------------------------------------------------------


def dense_form(shape, rng):
    array = rng.normal(size=shape)
    return Dense(array), array


def kronecker_form(shape, rng):
    t, n, s, m = shape
    time, channel = rng.normal(size=(3, t, s)), rng.normal(size=(3, n, m))
    return Kronecker(time, channel), sum(
        np.multiply.outer(a, b).transpose(0, 2, 1, 3) for a, b in zip(time, channel, strict=True)
    )


def sampled_form(shape, rng):
    t, n, s, m = shape
    left, right = rng.normal(size=(7, t, n)), rng.normal(size=(7, s, m))
    return Sampled(left, right), np.mean([np.multiply.outer(a, b) for a, b in zip(left, right, strict=True)], axis=0)


FORMS = [dense_form, kronecker_form, sampled_form]
SHAPES = [(4, 3, 4, 3), (5, 2, 1, 4), (3, 4, 6, 2), (1, 1, 1, 1)]


@pytest.fixture(params=FORMS, ids=lambda form: form.__name__)
def form(request):
    return request.param


@pytest.fixture(params=SHAPES, ids=str)
def pair(request, form):
    """A covariance and its dense array."""
    return form(request.param, np.random.default_rng(7))


def test_shape_and_dense_form(pair):
    covariance, array = pair
    assert covariance.shape == array.shape
    np.testing.assert_allclose(covariance.dense(), array, **CLOSE)
    np.testing.assert_allclose(np.asarray(covariance), array, **CLOSE)
    assert np.asarray(covariance, dtype=np.float32).dtype == np.float32


def test_contraction_sums_over_both_times(pair):
    covariance, array = pair
    kernel = np.random.default_rng(1).normal(size=array.shape[::2])
    expected = sum(kernel[t, s] * array[t, :, s, :] for t in range(array.shape[0]) for s in range(array.shape[2]))
    np.testing.assert_allclose(covariance.contracted(kernel), expected, **CLOSE)


def test_rotation_acts_on_channels(pair):
    covariance, array = pair
    rng = np.random.default_rng(2)
    left, right = rng.normal(size=(array.shape[1], 2)), rng.normal(size=(array.shape[3], 3))
    rotated = covariance.rotated(left, right)
    assert isinstance(rotated, type(covariance))
    np.testing.assert_allclose(rotated.dense(), np.einsum("tnsm,na,mb->tasb", array, left, right), **CLOSE)


def test_transposition_exchanges_the_sides(pair):
    covariance, array = pair
    np.testing.assert_allclose(covariance.transposed().dense(), array.transpose(2, 3, 0, 1), **CLOSE)


def test_diagonal_pairs_equal_channels(pair):
    covariance, array = pair
    channels = min(array.shape[1], array.shape[3])
    expected = np.stack([array[:, k, :, k] for k in range(channels)])
    np.testing.assert_allclose(covariance.diagonal(), expected, **CLOSE)


def test_gram_and_norms(pair):
    covariance, array = pair
    factor = covariance.left_factor()
    np.testing.assert_allclose(factor @ factor.T, np.einsum("tnsm,tksm->nk", array, array), **CLOSE)
    np.testing.assert_allclose(covariance.norm(), np.sqrt((array**2).sum()), **CLOSE)
    between = array.copy()
    for k in range(min(array.shape[1], array.shape[3])):
        between[:, k, :, k] = 0.0
    # relative to the norm: a 1 x 1 covariance has no off-diagonal part
    assert abs(covariance.off_diagonal_norm() - np.sqrt((between**2).sum())) <= 1e-12 * covariance.norm()


def test_independent_channels_have_exactly_no_off_diagonal_part():
    covariance = Kronecker(np.random.default_rng(0).normal(size=(2, 30, 30)), np.stack([np.eye(3), np.diag([1, 2, 3])]))
    assert covariance.off_diagonal_norm() == 0.0


def test_terms_that_cancel_between_channels_leave_only_round_off():
    each = np.eye(16)[:, :, None] * np.eye(16)[:, None, :]  # sixteen patterns that add up to the identity
    covariance = Kronecker(np.broadcast_to(np.eye(10), (16, 10, 10)), each)
    shares = []
    for seed in range(12):
        turned = np.linalg.qr(np.random.default_rng(seed).normal(size=(16, 16)))[0]
        shares.append(covariance.rotated(turned, turned).off_diagonal_norm() / covariance.norm())
    assert max(shares) < 1e-13  # 16 x 16 entries, each a sum of 16 numbers of order one


@pytest.mark.parametrize(
    "covariance",
    [
        Kronecker(np.broadcast_to(0.0, (1, 1000, 1000)), np.eye(16)[None]),
        Sampled(np.broadcast_to(0.0, (2, 1000, 16)), np.broadcast_to(0.0, (2, 1000, 16))),
    ],
    ids=["kronecker", "sampled"],
)
def test_a_dense_covariance_above_the_memory_limit_is_refused(covariance):
    with pytest.raises(InvalidSpec) as caught:
        covariance.dense()
    assert "1.91 GiB" in str(caught.value)


def test_the_memory_limit_of_a_dense_covariance_is_an_argument():
    covariance = Dense(np.zeros((4, 1, 4, 1)))
    assert covariance.dense(limit=128).shape == (4, 1, 4, 1)  # 16 numbers of 8 bytes
    with pytest.raises(InvalidSpec):
        covariance.dense(limit=127)


# --- statistics that no data can have are refused --------------------------------------------------------------------

WHITE = np.eye(6).reshape(3, 2, 3, 2)
EVEN = np.ones((3, 2, 1))


def with_entry(array, index, value):
    changed = np.array(array, dtype=float)
    changed[index] = value
    return changed


@pytest.mark.parametrize(
    ("statistics", "field"),
    [
        ((np.eye(6), EVEN), "input_covariance"),
        ((WHITE, np.ones((3, 2))), "cross_covariance"),
        ((WHITE[:, :, :2], EVEN), "input_covariance"),
        ((WHITE, np.ones((4, 2, 1))), "cross_covariance"),
        ((WHITE, np.ones((3, 2, 2, 1))), "cross_covariance"),
        ((WHITE, EVEN, np.eye(2)), "target_covariance"),
        ((WHITE, EVEN, np.ones(1)), "target_covariance"),
        ((np.zeros((0, 2, 0, 2)), np.zeros((0, 2, 1))), "input_covariance"),
        ((with_entry(WHITE, (0, 1, 2, 0), np.nan), EVEN), "input_covariance"),
        ((WHITE, with_entry(EVEN, (1, 1, 0), np.inf)), "cross_covariance"),
        ((WHITE, EVEN, [[np.nan]]), "target_covariance"),
        ((with_entry(WHITE, (0, 0, 1, 0), 0.5), EVEN), "input_covariance"),  # not symmetric
        ((WHITE, 0.1 * np.ones((3, 2, 2)), [[1.0, 0.5], [0.0, 1.0]]), "target_covariance"),  # not symmetric
        ((-WHITE, EVEN), "input_covariance"),
        ((1j * WHITE, EVEN), "input_covariance"),
        ((WHITE, EVEN, [[1.0]]), "cross_covariance"),  # a variance of 1 allows no covariance of 1 with 6 inputs
        ((with_entry(WHITE, (2, 1, 2, 1), 0.0), EVEN), "cross_covariance"),  # covariance with a constant input
    ],
)
def test_impossible_statistics_are_refused_by_name(statistics, field):
    assert refused(lambda: Task(*statistics)) == field


def test_correlations_that_are_inconsistent_only_together_are_refused():
    correlation = np.array([[1.0, 0.9, -0.9], [0.9, 1.0, 0.9], [-0.9, 0.9, 1.0]])
    with pytest.raises(InvalidSpec) as caught:
        Task(correlation.reshape(3, 1, 3, 1), np.ones((3, 1, 1)))
    assert caught.value.field == "input_covariance"
    assert f"{np.linalg.eigvalsh(correlation)[0]:.3g}" in str(caught.value)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_statistics_in_single_precision_are_accepted(scale):
    rng = np.random.default_rng(0)
    x = rng.normal(size=(10, 3, 2)) * scale  # fewer trials than values: singular, so round-off shows
    joint = np.einsum("ptn,psm->tnsm", x, x).astype(np.float32) / 10
    joint = (joint + joint.transpose(2, 3, 0, 1)) / 2
    assert Task(joint, joint[:, :, -1, :], joint[-1, :, -1, :]).steps == 3


def test_a_target_as_strong_as_the_input_allows_is_accepted():
    assert Task(WHITE, EVEN, [[6.0]]).target_power == 6.0
    assert refused(lambda: Task(WHITE, EVEN, [[6.0 - 1e-4]])) == "cross_covariance"


@pytest.mark.parametrize(
    ("covariance", "field"),
    [
        (Kronecker(np.tri(3)[None], np.eye(2)[None]), "input_covariance"),
        (Kronecker(-np.eye(3)[None], np.eye(2)[None]), "input_covariance"),
        (Sampled(np.ones((4, 3, 2)), np.zeros((4, 3, 2))), "input_covariance"),
        (Kronecker(np.full((1, 3, 3), np.nan), np.eye(2)[None]), "input_covariance.time"),
        (Dense(with_entry(WHITE, (0, 0, 0, 0), np.inf)), "input_covariance.values"),
    ],
    ids=["kronecker asymmetric", "kronecker negative", "sampled asymmetric", "kronecker nan", "dense inf"],
)
def test_impossible_structured_statistics_are_refused_by_name(covariance, field):
    assert refused(lambda: Task(covariance, EVEN)) == field


def test_a_large_structured_covariance_is_checked_pattern_by_pattern():
    time, channel = np.eye(300)[None], np.eye(40)[None]
    cross = Kronecker(np.ones((1, 300, 1)), np.eye(40)[None])
    assert 8 * (300 * 40) ** 2 > 2**30  # too large for a dense array
    assert Task(Kronecker(time, channel), cross).steps == 300
    assert refused(lambda: Task(Kronecker(-time, channel), cross)) == "input_covariance"


def test_the_repr_gives_name_sizes_and_source():
    end = Task(WHITE, EVEN, name="mine")
    assert repr(end) == "<Task 'mine': 3 steps, 2 inputs, 1 output at the end; given statistics>"
    every = Task(WHITE, np.ones((3, 2, 3, 1)))
    assert every.targets == "every_step"
    assert "at every step" in repr(every)
    assert "integration family" in repr(tasks.integration(4))
    assert "from 9 trials" in repr(Task.from_samples(np.ones((9, 2, 1)), np.ones((9, 1))))
    assert np.isnan(end.target_power)


def test_renaming_keeps_everything_else():
    task = tasks.integration(4, target_strength=2.0)
    other = task.renamed("other")
    assert (other.name, other.hash, other.recipe) == ("other", task.hash, task.recipe)
    assert other.varied(steps=6).steps == 6


def test_tasks_with_equal_statistics_have_equal_hashes():
    assert tasks.integration(4).hash == tasks.integration(4, name="again").hash
    assert tasks.integration(4).hash != tasks.integration(4, target_strength=1.1).hash


def test_changing_the_array_afterwards_does_not_change_the_task():
    covariance = WHITE.copy()
    task = Task(covariance, EVEN)
    covariance[:] = -1.0
    np.testing.assert_array_equal(task.input_covariance.dense(), WHITE)


# --- from recorded trials --------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def recorded():
    rng = np.random.default_rng(11)
    inputs = rng.normal(size=(300, 5, 2)) + 0.4
    return inputs, np.stack([inputs.sum(axis=(1, 2)), inputs[:, -1, 0] + 1.0], axis=1)


def moments(left, right):
    return np.einsum("ptn,psm->tnsm", left, right) / len(left)


def assert_same_statistics(one, other, **tolerance):
    for name in ("input_covariance", "cross_covariance", "target_covariance"):
        np.testing.assert_allclose(getattr(one, name).dense(), getattr(other, name).dense(), **tolerance)


@pytest.mark.parametrize("trials", [300, 8], ids=["many trials", "fewer trials than values"])
@pytest.mark.parametrize("every_step", [False, True])
def test_estimates_are_second_moments_about_zero(recorded, trials, every_step):
    inputs, targets = recorded[0][:trials], recorded[1][:trials]
    if every_step:
        targets = np.cumsum(inputs, axis=1)
    task = Task.from_samples(inputs, targets)
    y = targets if every_step else targets[:, None, :]
    np.testing.assert_allclose(task.input_covariance.dense(), moments(inputs, inputs), **CLOSE)
    np.testing.assert_allclose(task.cross_covariance.dense(), moments(inputs, y), **CLOSE)
    np.testing.assert_allclose(task.target_covariance.dense(), moments(y, y), **CLOSE)
    assert (task.trials, task.targets) == (trials, "every_step" if every_step else "end")


def test_few_trials_are_kept_as_they_are(recorded):
    assert isinstance(Task.from_samples(recorded[0][:8], recorded[1][:8]).input_covariance, Sampled)
    assert isinstance(Task.from_samples(*recorded).input_covariance, Dense)


@pytest.mark.parametrize("trials", [300, 8])
def test_centring_is_off_unless_asked_for(recorded, trials):
    inputs, targets = recorded[0][:trials], recorded[1][:trials]
    centred = Task.from_samples(inputs - inputs.mean(axis=0), targets - targets.mean(axis=0))
    assert_same_statistics(Task.from_samples(inputs, targets, centre=True), centred, **CLOSE)
    as_is = Task.from_samples(inputs, targets)
    gap = np.einsum("tn,sm->tnsm", inputs.mean(axis=0), inputs.mean(axis=0))
    np.testing.assert_allclose(as_is.input_covariance.dense() - centred.input_covariance.dense(), gap, **CLOSE)
    assert np.abs(gap).max() > 0.1  # the mean of these inputs matters


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("chunk", [1, 7, 299, 300, 1000])
def test_the_chunk_size_does_not_change_the_statistics(recorded, chunk, centre):
    default = Task.from_samples(*recorded, centre=centre)
    assert_same_statistics(Task.from_samples(*recorded, centre=centre, chunk=chunk), default, **CLOSE)


@pytest.mark.parametrize("chunk", [-3, 2.5, "many"])
def test_an_invalid_chunk_is_refused(recorded, chunk):
    assert refused(lambda: Task.from_samples(*recorded, chunk=chunk)) == "chunk"


def test_arrays_of_every_kind_give_the_same_task(recorded, tmp_path):
    torch = pytest.importorskip("torch")
    inputs, targets = (array.astype(np.float32) for array in recorded)
    wanted = Task.from_samples(inputs.astype(float), targets.astype(float))
    np.save(tmp_path / "inputs.npy", inputs)
    for x, y in (
        (inputs, targets),
        (torch.tensor(inputs), torch.tensor(targets, requires_grad=True)),
        (np.load(tmp_path / "inputs.npy", mmap_mode="r"), targets),
        (np.asfortranarray(inputs), targets[::-1][::-1]),
    ):
        # exact, because sums run in double precision for any type of array
        assert_same_statistics(Task.from_samples(x, y, chunk=50), wanted, **CLOSE)


def test_half_precision_tensors_are_read_or_refused(recorded):
    torch = pytest.importorskip("torch")
    inputs, targets = (torch.tensor(array, dtype=torch.bfloat16) for array in recorded)
    try:
        task = Task.from_samples(inputs, targets)
    except InvalidSpec:
        return
    # bfloat16 keeps 8 bits: products of two are off by up to 2 x 2^-9, relative to the largest moment
    wanted = Task.from_samples(*recorded)
    scale = np.abs(wanted.target_covariance.dense()).max()
    assert_same_statistics(task, wanted, rtol=0, atol=scale / 2**8)


def test_labelled_arrays_are_read_or_refused(recorded):
    try:
        task = Task.from_samples(xr.DataArray(recorded[0]), xr.DataArray(recorded[1]))
    except InvalidSpec:
        return
    assert_same_statistics(task, Task.from_samples(*recorded), **CLOSE)


@pytest.fixture(scope="module")
def long_recording(tmp_path_factory):
    """200,000 trials of 20 steps and 4 inputs in single precision: 64 MB on disk."""
    path = tmp_path_factory.mktemp("recording") / "inputs.npy"
    file = np.lib.format.open_memmap(path, "w+", dtype=np.float32, shape=(200_000, 20, 4))
    rng = np.random.default_rng(3)
    for start in range(0, len(file), 20_000):
        file[start : start + 20_000] = rng.standard_normal((20_000, 20, 4), dtype=np.float32)
    file.flush()
    del file
    return np.load(path, mmap_mode="r")


def peak_memory(call):
    tracemalloc.start()
    try:
        made = call()
        return tracemalloc.get_traced_memory()[1], made
    finally:
        tracemalloc.stop()


def test_a_memory_map_is_read_a_chunk_at_a_time(long_recording):
    peak, task = peak_memory(lambda: Task.from_samples(long_recording, long_recording[:, -1], chunk=2000))
    # a chunk is 1.3 MB in double precision with a few copies in memory; the data are 64 MB
    assert peak < long_recording.nbytes / 8
    # variances of unit Gaussians from 200,000 trials: s.d. sqrt(2 / 200,000) = 0.0032, 80 of them; 6 s.d. fails
    # by chance less than once in 10^6 runs
    variances = np.einsum("tntn->tn", task.input_covariance.dense())
    assert np.abs(variances - 1).max() < 6 * 0.0032
    assert task.trials == 200_000


def test_the_default_chunk_keeps_temporary_arrays_below_64_megabytes(long_recording):
    peak, _ = peak_memory(lambda: Task.from_samples(long_recording, long_recording[:, -1]))
    assert peak < 1.1 * 2**26


@pytest.mark.parametrize(
    ("change", "field"),
    [
        (lambda x, y: (x[:1], y[:1]), "inputs"),
        (lambda x, y: (x[:0], y[:0]), "inputs"),
        (lambda x, y: (x, y[:-1]), "targets"),
        (lambda x, y: (x, np.ones((300, 4, 2))), "targets"),
        (lambda x, y: (x[:, :, 0], y), "inputs"),
        (lambda x, y: (x, y[:, None, :, None]), "targets"),
        (lambda x, y: ([x[0].tolist(), x[1, :3].tolist()], y[:2]), "inputs"),
        (lambda x, y: (x[:, :0], y), "inputs"),
        (lambda x, y: (with_entry(x, (7, 1, 0), np.nan), y), "inputs"),
        (lambda x, y: (x, with_entry(y, (3, 1), -np.inf)), "targets"),
        (lambda x, y: (x.astype(complex), y), "inputs"),
        (lambda x, y: (x.astype(str), np.full(y.shape, "a")), "targets"),
    ],
)
def test_invalid_recordings_are_refused_by_name(recorded, change, field):
    assert refused(lambda: Task.from_samples(*change(*recorded))) == field


def test_a_bad_entry_is_reported_by_its_index_in_the_recording(recorded):
    inputs = with_entry(recorded[0], (207, 1, 0), np.nan)
    with pytest.raises(InvalidSpec) as caught:
        Task.from_samples(inputs, recorded[1], chunk=50)
    assert "(207, 1, 0)" in str(caught.value)


# --- families --------------------------------------------------------------------------------------------------------


def ar1_covariance(steps, correlation, variance):
    """Cov of x_t = K x_{t-1} + w_t from x_0 = 0, through the matrix that maps the noise to the input."""
    response = np.zeros((steps, steps))
    for s in range(steps):
        state = 1.0
        for t in range(s, steps):
            response[t, s] = state
            state *= correlation
    return variance * response @ response.T


@pytest.mark.parametrize("correlation", [-1.3, -1.0, -0.6, 0.0, 0.5, 1.0, 1.2])
@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_leaky_integration_at_any_correlation(correlation, targets):
    steps, timescale, variance, gain = 7, 3.0, 1.7, 0.8
    task = tasks.leaky_integration(steps, timescale, correlation, variance, gain, targets=targets)
    covariance = ar1_covariance(steps, correlation, variance)
    window = np.array(
        [[gain * np.exp(-(r - t) / timescale) if t <= r else 0.0 for t in range(steps)] for r in range(steps)]
    )
    window = window if targets == "every_step" else window[-1:]
    np.testing.assert_allclose(task.input_covariance.dense()[:, 0, :, 0], covariance, **CLOSE)
    np.testing.assert_allclose(task.cross_covariance.dense()[:, 0, :, 0], covariance @ window.T, **CLOSE)
    np.testing.assert_allclose(task.target_covariance.dense()[:, 0, :, 0], window @ covariance @ window.T, **CLOSE)
    # and it is data somebody could record: the validating constructor takes it
    assert Task(*(getattr(task, k).dense() for k in ("input_covariance", "cross_covariance", "target_covariance")))


@pytest.mark.parametrize("targets", ["end", "every_step"])
def test_integration_sums_white_noise(targets):
    task = tasks.integration(4, input_strength=2.0, target_strength=3.0, targets=targets)
    sums = np.tri(4) if targets == "every_step" else np.ones((1, 4))
    np.testing.assert_allclose(task.input_covariance.dense()[:, 0, :, 0], 2.0 * np.eye(4), **CLOSE)
    np.testing.assert_allclose(task.cross_covariance.dense()[:, 0, :, 0], 3.0 * sums.T, **CLOSE)
    np.testing.assert_allclose(task.target_covariance.dense()[:, 0, :, 0], 4.5 * sums @ sums.T, **CLOSE)
    assert task.targets == targets


def test_each_channel_has_its_own_keywords():
    correlations, timescales = [-0.5, 0.0, 0.9], [2.0, 5.0, 9.0]
    task = tasks.leaky_integration(6, timescales, correlations, gain=0.5)
    assert (task.inputs, task.outputs) == (3, 3)
    for k, (correlation, timescale) in enumerate(zip(correlations, timescales, strict=True)):
        alone = tasks.leaky_integration(6, timescale, correlation, gain=0.5)
        for name in ("input_covariance", "cross_covariance", "target_covariance"):
            np.testing.assert_allclose(
                getattr(task, name).dense()[:, k, :, k], getattr(alone, name).dense()[:, 0, :, 0], **CLOSE
            )
    assert task.input_covariance.off_diagonal_norm() == 0.0


@pytest.mark.parametrize("targets", ["end", "every_step"])
@pytest.mark.parametrize("strengths", [1.5, [1.0, 2.0, 0.5]], ids=["equal channels", "own channels"])
def test_mixing_adds_channels_up_to_outputs(strengths, targets):
    mixing = np.array([[1.0, -2.0, 0.5], [0.0, 1.0, 3.0]])
    mixed = tasks.integration(4, input_strength=strengths, mixing=mixing, targets=targets)
    apart = tasks.integration(4, input_strength=np.broadcast_to(strengths, 3), targets=targets)
    cross, target = apart.cross_covariance.dense(), apart.target_covariance.dense()
    np.testing.assert_allclose(mixed.input_covariance.dense(), apart.input_covariance.dense(), **CLOSE)
    np.testing.assert_allclose(mixed.cross_covariance.dense(), np.einsum("tnri,oi->tnro", cross, mixing), **CLOSE)
    np.testing.assert_allclose(
        mixed.target_covariance.dense(), np.einsum("risj,oi,pj->rosp", target, mixing, mixing), **CLOSE
    )
    assert (mixed.inputs, mixed.outputs) == (3, 2)


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: tasks.integration(0), "steps"),
        (lambda: tasks.integration(2.5), "steps"),
        (lambda: tasks.integration(5, input_strength=0.0), "input_strength"),
        (lambda: tasks.integration(5, input_strength=[1.0, -2.0]), "input_strength"),
        (lambda: tasks.integration(5, target_strength=np.nan), "target_strength"),
        (lambda: tasks.integration(5, target_strength=[[1.0, 2.0]]), "target_strength"),
        (lambda: tasks.integration(5, [1, 2], [1, 2, 3]), "input_strength"),
        (lambda: tasks.integration(5, [1, 2], mixing=np.ones((2, 3))), "input_strength"),
        (lambda: tasks.integration(5, mixing=[1, 2]), "mixing"),
        (lambda: tasks.integration(5, targets="every"), "targets"),
        (lambda: tasks.leaky_integration(5, timescale=0), "timescale"),
        (lambda: tasks.leaky_integration(5, noise_strength=-1), "noise_strength"),
        (lambda: tasks.leaky_integration(5, correlation="high"), "correlation"),
        (lambda: tasks.integration(5, input_strength=[]), "mixing"),
        (lambda: tasks.integration(5, mixing=np.ones((0, 3))), "mixing"),
        (lambda: tasks.integration(5, mixing=np.ones((3, 0))), "mixing"),
        (lambda: tasks.integration(3).sample(0, np.random.default_rng(0)), "trials"),
    ],
)
def test_invalid_arguments_are_refused_by_name(call, field):
    assert refused(call) == field


def test_an_overflow_is_reported_with_the_keywords_of_the_family():
    with pytest.raises(InvalidSpec) as leaky:
        tasks.leaky_integration(1000, correlation=3.0)
    assert "correlation 3" in str(leaky.value)
    with pytest.raises(InvalidSpec) as even:
        tasks.integration(5, target_strength=1e300)
    assert "correlation" not in str(even.value)


def test_a_trial_too_long_for_memory_is_refused_before_it_is_made():
    # its covariance exceeds any address space, so that an unguarded attempt fails with a MemoryError
    peak, _ = peak_memory(lambda: refused(lambda: tasks.integration(10_000_000)))
    assert peak < 2**20


def test_a_varied_task_is_made_again_with_one_change():
    task = tasks.leaky_integration(6, 4.0, 0.3, targets="every_step", name="mine")
    varied = task.varied(timescale=8.0)
    assert varied.hash == tasks.leaky_integration(6, 8.0, 0.3, targets="every_step").hash
    assert varied.name == "mine"
    with pytest.raises(InvalidSpec) as caught:
        task.varied(time_scale=8.0)
    assert caught.value.field == "time_scale"
    assert "'timescale'" in str(caught.value)
    with pytest.raises(InvalidSpec):
        Task(WHITE, EVEN, name="given").varied(steps=3)


# --- sampling --------------------------------------------------------------------------------------------------------


def test_a_long_task_is_sampled_without_a_dense_covariance():
    mixing = np.random.default_rng(0).normal(size=(3, 4))
    timescales = np.array([5.0, 10.0, 20.0, 30.0])
    task = tasks.leaky_integration(1000, timescales, [0.0, 0.2, -0.5, 0.9], mixing=mixing)
    peak, (inputs, targets) = peak_memory(lambda: task.sample(20, np.random.default_rng(1)))
    assert inputs.shape == (20, 1000, 4)
    assert targets.shape == (20, 3)
    assert peak < 8 * (1000 * 4) ** 2  # the covariance of all steps and inputs: 128 MB
    # the target of this family is a function of the input, so each trial can be checked
    window = np.exp(-(999 - np.arange(1000))[:, None] / timescales)
    expected = np.einsum("pti,ti,oi->po", inputs, window, mixing)
    # 1000 x 1000 eigenvectors, whose condition number of a few hundred multiplies round-off
    np.testing.assert_allclose(targets, expected, rtol=1e-9, atol=1e-9 * np.abs(expected).max())


def test_the_same_generator_draws_the_same_trials():
    task = tasks.integration(5, [1.0, 2.0])
    first, again, other = (task.sample(4, np.random.default_rng(seed)) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first[0], again[0])
    np.testing.assert_array_equal(first[1], again[1])
    assert not np.array_equal(first[0], other[0])


@pytest.mark.parametrize("form", ["given", "given, correlated channels", "recorded", "family"])
def test_samples_have_the_statistics_of_the_task(form):
    rng = np.random.default_rng(5)
    if form == "family":
        task = tasks.leaky_integration(3, [2.0, 4.0], [0.5, -0.5], targets="every_step")
    else:
        x = rng.normal(size=(6 if form == "recorded" else 60, 3, 2))
        x[..., 1] += 0.5 * x[..., 0] if "correlated" in form else 0.0
        y = x.sum(axis=1) + rng.normal(size=(len(x), 2))
        task = Task.from_samples(x, y)
        if form != "recorded":
            task = Task(task.input_covariance, task.cross_covariance, task.target_covariance)
    trials = 40_000
    inputs, targets = task.sample(trials, rng)
    assert targets.ndim == (3 if task.targets == "every_step" else 2)
    result = Task.from_samples(inputs, targets)
    for name in ("input_covariance", "cross_covariance", "target_covariance"):
        wanted, got = getattr(task, name).dense(), getattr(result, name).dense()
        # The standard error of a product of Gaussians is at most sqrt(2 Var Var / trials). With fewer than 1000
        # entries in all, 6 standard errors are exceeded by chance less than once in 10^5 runs.
        largest = max(np.abs(task.input_covariance.dense()).max(), np.abs(task.target_covariance.dense()).max())
        assert np.abs(got - wanted).max() < 6 * np.sqrt(2 / trials) * largest


def test_without_a_target_covariance_the_target_has_no_noise():
    task = Task(WHITE, EVEN)
    inputs, targets = task.sample(50, np.random.default_rng(0))
    np.testing.assert_allclose(targets[:, 0], inputs.sum(axis=(1, 2)), rtol=1e-12, atol=1e-12)
