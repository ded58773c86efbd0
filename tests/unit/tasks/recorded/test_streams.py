"""Tasks from batches: the same as from all trials at once, with a sampling error, whatever gives the batches."""

import subprocess
import sys

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

import learncast as lc
from learncast import tasks
from learncast._core.errors import InvalidSpec
from learncast.networks.linear_rnn import LinearRNN
from learncast.tasks import Task, from_batches, resampled, standard_errors
from learncast.tasks.covariance import Dense, Sampled
from learncast.tasks.recorded import blocks
from learncast.tasks.recorded.blocks import MOST_BLOCKS, BlockSums

#: The sums of both ways run over the same products of order one in another order.
CLOSE = {"rtol": 1e-13, "atol": 1e-13}


def refused(call):
    with pytest.raises(InvalidSpec) as caught:
        call()
    error = caught.value
    assert all(len(part.strip()) > 0 for part in (error.required, error.got, error.why, error.remedy))
    return str(error)


@pytest.fixture(scope="module")
def trials():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((500, 4, 2)) + 0.5
    targets = np.cumsum(inputs, axis=1) + 0.3 * rng.standard_normal((500, 4, 2))
    return inputs, targets


def cut(inputs, targets, sizes):
    """The trials in batches whose sizes go round."""
    start, k = 0, 0
    while start < len(inputs):
        yield inputs[start : start + sizes[k % len(sizes)]], targets[start : start + sizes[k % len(sizes)]]
        start, k = start + sizes[k % len(sizes)], k + 1


def parts(task):
    return [np.asarray(c.dense()) for c in (task.input_covariance, task.cross_covariance, task.target_covariance)]


def assert_same(one, other):
    assert (one.trials, one.targets) == (other.trials, other.targets)
    for left, right in zip(parts(one), parts(other), strict=True):
        np.testing.assert_allclose(left, right, **CLOSE)


class Numbered(Dataset):
    """Single trials, by number."""

    def __init__(self, inputs, targets):
        self.inputs, self.targets = inputs, targets

    def __len__(self):
        return len(self.inputs)

    def __getitem__(self, k):
        return self.inputs[k], self.targets[k]


SOURCES = {
    "a generator": lambda x, y: cut(x, y, (7, 1, 30)),
    "a list": lambda x, y: list(cut(x, y, (64,))),
    "a function": lambda x, y: lambda: cut(x, y, (50,)),
    "mappings": lambda x, y: ({"inputs": a, "targets": b} for a, b in cut(x, y, (33,))),
    "tensors": lambda x, y: ((torch.tensor(a), torch.tensor(b)) for a, b in cut(x, y, (100,))),
    "a loader": lambda x, y: DataLoader(TensorDataset(torch.tensor(x), torch.tensor(y)), batch_size=48, shuffle=True),
    "a data set": Numbered,
    "one batch": lambda x, y: [(x, y)],
    "single trials": lambda x, y: cut(x, y, (1,)),
}


@pytest.mark.parametrize("source", SOURCES, ids=str)
@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("at", ["end", "every step"])
@pytest.mark.parametrize("number", [500, 9], ids=["summed", "kept"])
def test_batches_give_what_all_trials_give_at_once(trials, source, centre, at, number):
    x, y = trials[0][:number], trials[1][:number] if at == "every step" else trials[1][:number, -1]
    streamed, whole = from_batches(SOURCES[source](x, y), centre=centre), Task.from_samples(x, y, centre=centre)
    assert isinstance(streamed.input_covariance, Sampled if number == 9 else Dense)
    assert_same(streamed, whole)
    if source == "a generator":
        assert_same(whole, obvious(x, y, centre))


def obvious(x, y, centre):
    """Second moments in three lines."""
    y = y if y.ndim == 3 else y[:, None, :]
    x, y = (x - x.mean(axis=0), y - y.mean(axis=0)) if centre else (x, y)
    inputs, cross, target = (np.einsum("pti,psj->tisj", a, b) / len(x) for a, b in ((x, x), (x, y), (y, y)))
    return Task.trusted(Dense(inputs), Dense(cross), Dense(target), name="obvious", trials=len(x))


def test_inputs_without_time_make_a_static_task(trials):
    x, y = trials[0][:, 0], trials[1][:, 0]
    assert_same(from_batches(cut(x, y, (60,))), tasks.from_pairs(x, y))


def test_a_large_mean_costs_no_digits():
    rng = np.random.default_rng(1)
    deviations = rng.standard_normal((400, 3, 1))
    x, y = deviations + 1e6, deviations[:, -1] + 1e6
    found = from_batches(cut(x, y, (9,)), centre=True)
    wanted = obvious(deviations, deviations[:, -1], centre=True)
    # 1e6 leaves 1e-10 of each deviation's digits; sums of squares about zero would leave 1e-4
    np.testing.assert_allclose(found.input_covariance.dense(), wanted.input_covariance.dense(), atol=1e-9)


@pytest.mark.parametrize("centred", [False, True])
def test_inputs_and_targets_are_summed_beside_each_other(centred):
    """Three parts as one row: the products of every part with every other, those beyond a slab of columns too."""
    rng = np.random.default_rng(1)
    rows = 7 + rng.standard_normal((500, 6))
    whole, parts = (BlockSums((5, 1), (1, 1), centred=centred, size=90) for _ in range(2))
    for some in np.array_split(rows, 7):
        whole.add(some)
        parts.add(some[:, :2], some[:, 2:5], some[:, 5:])
    np.testing.assert_allclose(parts.blocks().scatters, whole.blocks().scatters, rtol=1e-12)
    np.testing.assert_allclose(parts.blocks().means, whole.blocks().means, rtol=1e-14)
    total = np.zeros((6, 6))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(blocks, "CHUNK_SIZE", 12)  # two columns to a slab
        blocks.add_products(total, rows[:, :5], rows[:, 5:])
    np.testing.assert_allclose(total, rows.T @ rows, rtol=1e-13)


def test_memory_is_that_of_the_statistics():
    sums = BlockSums((3, 1), (1, 1), centred=True)
    rng, rows = np.random.default_rng(0), []
    for size in (1, 5, 300, 2, 1000, 77):
        rows.append(rng.standard_normal((size, 4)))
        sums.add(rows[-1])
    kept = sums.blocks()
    assert MOST_BLOCKS // 2 <= len(kept) <= MOST_BLOCKS
    assert kept.trials == 1385
    assert len(set(kept.counts[:-1])) == 1
    np.testing.assert_allclose(kept.moment(), np.cov(np.concatenate(rows).T, bias=True), **CLOSE)
    # every block is what it says: the covariance of its own consecutive trials
    first = np.concatenate(rows)[: int(kept.counts[0])]
    np.testing.assert_allclose(kept.scatters[0] / len(first), np.cov(first.T, bias=True), **CLOSE)


def test_only_as_many_batches_are_drawn_as_asked_for(trials):
    drawn = []

    def without_end():
        while True:
            drawn.append(1)
            yield trials[0][:10], trials[1][:10]

    shares = []
    assert from_batches(without_end, most_batches=6, progress=shares.append).trials == 60
    assert len(drawn) == 6
    np.testing.assert_allclose(shares, [*(np.arange(6) + 1) / 6, 1.0])


def test_the_name_and_the_renamed_task_keep_the_recording(trials):
    task = from_batches(cut(*trials, (50,)), name="mine")
    assert task.name == "mine"
    assert task.renamed("other").recording is task.recording
    assert from_batches(cut(*trials, (50,))).name == "recorded"


class Stream(IterableDataset):
    def __iter__(self):
        return iter(())


@pytest.mark.parametrize(
    ("source", "words"),
    [
        (lambda x, y: [], "at least two trials are needed, but got a source that yields nothing"),
        (lambda x, y: [(x[:1], y[:1])], "at least two trials are needed, but got one trial"),
        (
            lambda x, y: [(x[:5], y[:5]), (x[:5, :3], y[:5, :3])],
            "a trial in batch 1 must have the shapes of those in batch 0, inputs (4, 2) and targets (4, 2), but got "
            "(3, 2) and (3, 2)",
        ),
        (lambda x, y: [(x[:5], y[:5])] * 2 + [(x[:5] * np.nan, y[:5])], "inputs of batch 2 must be finite"),
        (
            lambda x, y: [x],
            "batch 0 must be a pair (inputs, targets) or a mapping with these two keys, but got ndarray",
        ),
        (lambda x, y: [(x, y, y)], "but got tuple of 3"),
        (lambda x, y: [{"inputs": x}], "but got a mapping of 'inputs'"),
        (
            lambda x, y: [(x, y[:, -1, 0])],
            "add an axis of one channel to a single number, and write classes as one-hot",
        ),
        (lambda x, y: [(x[:3], y[:4])], "batch 0 must pair inputs"),
        (lambda x, y: [(x[:, 0], y)], "batch 0 must pair inputs"),
        (lambda x, y: 3, "batches must be an iterable of (inputs, targets)"),
        (lambda x, y: "trials.csv", "files to tasks.from_table"),
        (lambda x, y: Stream(), "wrap it in a DataLoader"),
        (lambda x, y: Numbered([x[0], x[0], x[0, :2]], [y[0]] * 3), "trial 2 must have the shapes of trial 0"),
    ],
)
def test_unusable_batches_are_refused(trials, source, words):
    assert words in refused(lambda: from_batches(source(*trials)))


def test_the_number_of_batches_is_a_number(trials):
    assert "most_batches must be a whole number" in refused(lambda: from_batches([trials], most_batches=0))


def test_torch_is_not_loaded():
    code = (
        "import sys, numpy as np; from learncast.tasks import from_batches;"
        "x = np.ones((3, 2, 1)); from_batches([(x, x)]); assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


# --- the sampling error ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("number", [400, 12], ids=["blocks", "trials"])
def test_standard_errors_are_the_scatter_over_recordings(centre, number):
    rng, made, told = np.random.default_rng(2), [], []
    for _ in range(60):
        x = rng.standard_normal((number, 6, 2)) + 0.7
        task = Task.from_samples(x, x.sum(axis=1) + rng.standard_normal((number, 2)), centre=centre)
        made.append(task.cross_covariance.dense())
        told.append(standard_errors(task).cross)
    ratio = np.mean(told) / np.mean(np.std(made, axis=0))
    # 60 recordings know their scatter to 9% an entry and 24 entries average it to about 3%; twelve centred trials
    # have 8% less spread than the population. 15% fails by chance about once in 10^4 runs, and the seed is fixed.
    assert abs(ratio - 1) < 0.15


@pytest.mark.parametrize("centre", [False, True])
@pytest.mark.parametrize("number", [500, 9], ids=["blocks", "trials"])
def test_replicates_scatter_by_the_standard_error(trials, centre, number):
    task = Task.from_samples(trials[0][:number], trials[1][:number], centre=centre)
    rng = np.random.default_rng(3)
    drawn = [resampled(task, rng) for _ in range(300)]
    assert all(one.name == task.name for one in drawn)
    scatter = np.std([one.cross_covariance.dense() for one in drawn], axis=0)
    ratio = np.mean(scatter) / np.mean(standard_errors(task).cross)
    # 300 replicates of 64 correlated entries: under 2% of Monte Carlo error; resampling n things spreads by
    # sqrt(1 - 1/n), which is 6% less for nine, and centring them anew takes as much again.
    assert 0.85 < ratio < 1.06


@pytest.mark.parametrize("centre", [False, True])
def test_a_replicate_of_trials_is_made_of_trials(trials, centre):
    task = Task.from_samples(trials[0][:9], trials[1][:9], centre=centre)
    chosen = np.random.default_rng(5).integers(9, size=9)
    assert_same(
        resampled(task, np.random.default_rng(5)),
        Task.from_samples(trials[0][chosen], trials[1][chosen], centre=centre),
    )


@pytest.mark.parametrize("centre", [False, True])
def test_a_replicate_of_blocks_is_the_task_of_their_trials(trials, centre):
    task = Task.from_samples(*trials, centre=centre)
    ends = np.cumsum(task.recording.blocks.counts).astype(int)
    starts, number = [0, *ends[:-1]], len(ends)
    repeats = np.random.default_rng(5).multinomial(number, np.full(number, 1 / number))
    chosen = np.concatenate([np.arange(a, b) for a, b, n in zip(starts, ends, repeats, strict=True) for _ in range(n)])
    assert_same(
        resampled(task, np.random.default_rng(5)),
        Task.from_samples(trials[0][chosen], trials[1][chosen], centre=centre),
    )


@pytest.mark.parametrize("number", [500, 9], ids=["blocks", "trials"])
def test_a_reversed_task_is_drawn_again_reversed(trials, number):
    task = Task.from_samples(trials[0][:number], trials[1][:number])
    straight = resampled(task, np.random.default_rng(7))
    turned = resampled(tasks.reversed(task), np.random.default_rng(7))
    np.testing.assert_allclose(turned.cross_covariance.dense(), -straight.cross_covariance.dense(), **CLOSE)
    np.testing.assert_allclose(turned.target_covariance.dense(), straight.target_covariance.dense(), **CLOSE)


def test_what_was_not_recorded_cannot_be_drawn_again(trials):
    rng = np.random.default_rng(0)
    assert "must come from recorded trials" in refused(lambda: resampled(tasks.integration(5), rng))
    replicate = resampled(Task.from_samples(*trials), rng)
    assert "it is a replicate itself" in refused(lambda: resampled(replicate, rng))


# --- training on them ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network():
    return LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4, task=tasks.integration(6))


def as_dataset(task, number, rng):
    return TensorDataset(*(torch.tensor(part) for part in task.sample(number, rng)))


def test_a_loader_of_all_trials_trains_like_the_arrays(network):
    data = as_dataset(tasks.integration(6), 40, np.random.default_rng(0))
    settings = lc.Training(1e-2, learn=("input", "recurrent", "output"))
    arrays = lc.training.train(tuple(part.numpy() for part in data.tensors), network, settings, steps=20)
    for source in (DataLoader(data, batch_size=40), data, lambda: [data.tensors]):
        # the same sums in the same order
        run = lc.training.train(source, network, settings, steps=20)
        np.testing.assert_allclose(run.dataset.loss, arrays.dataset.loss)


def test_a_loader_is_passed_through_again_and_judged_on_its_first_batches():
    given = []

    def passes():
        for k in range(3):
            given.append(k)
            yield np.full((5, 2), float(k)), np.zeros((5, 1))

    source = lc.training.Source.of(passes)
    held, *_ = source.held_out(7, (0, 0), torch.float64)
    assert held[:, 0].tolist() == [0.0] * 5 + [1.0] * 2
    batches = [float(source.batch(1000, (0, 0), step, torch.float64)[0][0, 0]) for step in range(5)]
    assert batches == [2.0, 0.0, 1.0, 2.0, 0.0]
    assert len(source.held_out(2000, (0, 0), torch.float64)[0]) == 10  # what was trained on since is not held out


def test_a_loader_cannot_be_taken_up_again(network, tmp_path):
    loader = DataLoader(as_dataset(tasks.integration(6), 40, np.random.default_rng(0)), batch_size=8)
    settings, execution = lc.Training(1e-2), lc.training.Execution(checkpoint=tmp_path / "run.safetensors")
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.training.train(loader, network, settings, steps=3, execution=execution)
    assert caught.value.field == "checkpoint"
    assert not list(tmp_path.iterdir())
    assert lc.training.train(loader, network, settings, steps=3).steps == 3


def test_sources_that_run_dry_are_refused(network):
    settings = lc.Training(1e-2)
    batches = cut(*tasks.integration(6).sample(20, np.random.default_rng(0)), (10,))
    for source in (lambda: batches, 3):
        with pytest.raises(lc.InvalidSpec) as caught:
            lc.training.train(source, network, settings, steps=30)
        assert caught.value.field == "trials"
