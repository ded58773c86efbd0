"""Tasks from environments with neurogym's interface: seeded, of equal length, with classes as one-hot targets."""

import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from learncast import LearncastError
from learncast.tasks import Task, from_environment, pooled_statistics


class Delayed:
    """A cue, a delay of random length and an answer, in arrays ob and gt as in neurogym."""

    lengths = (3, 4, 5, 6)
    classes = 3

    def __init__(self):
        self.rng = np.random.RandomState()  # unseeded, as in neurogym
        self.action_space = SimpleNamespace(n=self.classes)
        self.resets = []

    @property
    def unwrapped(self):
        return self

    def seed(self, seed=None):
        self.rng = np.random.RandomState(seed)
        return [seed]

    def reset(self, seed=None, options=None):
        self.resets.append(seed)
        self.bias = self.rng.uniform()  # some environments draw a state that lasts
        self.new_trial()
        return self.ob[0], {}

    def new_trial(self, **kwargs):
        steps = self.rng.choice(self.lengths)
        cue = self.rng.randint(1, self.classes)
        self.ob = np.zeros((steps, 2), dtype=np.float32)
        self.ob[:, 0] = self.bias + self.rng.randn(steps)
        self.ob[0, 1] = cue
        self.gt = np.zeros(steps, dtype=np.int64)
        self.gt[-1] = cue


class Continuous(Delayed):
    def __init__(self):
        super().__init__()
        self.action_space = SimpleNamespace(shape=(1,))

    def new_trial(self, **kwargs):
        super().new_trial()
        self.gt = np.cumsum(self.ob[:, :1], axis=0)


class Doubled:
    """A wrapper that draws trials in its own way."""

    def __init__(self, env):
        self.env = env

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def reset(self, seed=None, options=None):
        return self.env.reset(seed=seed)

    def new_trial(self, **kwargs):
        self.env.new_trial()
        self.unwrapped.ob = 2 * self.unwrapped.ob


class Plain:
    """A wrapper that leaves trials alone, and does not pass attributes through."""

    def __init__(self, env):
        self.env = env

    @property
    def unwrapped(self):
        return self.env.unwrapped

    def reset(self, seed=None, options=None):
        return self.env.reset(seed=seed)


def refused(call):
    """The field of the error that a call raises."""
    with pytest.raises(LearncastError) as caught:
        call()
    return caught.value.field


def by_hand(seed, trials):
    """The same trials, drawn without the adapter."""
    env = Delayed()
    env.seed(seed)
    env.bias = env.rng.uniform()
    env.seed(seed)
    drawn = []
    for _ in range(trials):
        env.new_trial()
        drawn.append((env.ob.copy(), env.gt.copy()))
    return drawn


def test_trials_are_padded_in_front_and_classes_are_one_hot():
    drawn = by_hand(4, 60)
    inputs, targets = np.zeros((60, 6, 2)), np.zeros((60, 6, 3))
    for k, (ob, gt) in enumerate(drawn):
        for back in range(1, len(ob) + 1):
            inputs[k, -back] = ob[-back]
            targets[k, -back, gt[-back]] = 1.0
    task = from_environment(Delayed(), trials=60, seed=4)
    wanted = Task.from_samples(inputs, targets)
    np.testing.assert_allclose(task.input_covariance.dense(), wanted.input_covariance.dense(), atol=1e-15)
    np.testing.assert_allclose(task.cross_covariance.dense(), wanted.cross_covariance.dense(), atol=1e-15)
    assert (task.name, task.trials, task.targets) == ("Delayed", 60, "every_step")


def test_the_seed_decides_everything():
    used = Delayed()
    used.seed(99)
    used.reset()
    one, two, other = (from_environment(env, trials=30, seed=s) for env, s in ((used, 1), (Delayed(), 1), (used, 2)))
    assert one.hash == two.hash != other.hash
    assert used.resets[1:] == [1, 2]


def test_longer_trials_lose_their_beginning():
    task = from_environment(Delayed(), trials=40, seed=0, steps=2, at="end", name="short")
    inputs = np.stack([ob[-2:] for ob, _ in by_hand(0, 40)]).astype(float)
    targets = np.stack([np.eye(3)[gt[-1]] for _, gt in by_hand(0, 40)])
    wanted = Task.from_samples(inputs, targets)
    np.testing.assert_allclose(task.cross_covariance.dense(), wanted.cross_covariance.dense(), atol=1e-15)
    assert (task.steps, task.targets, task.name) == (2, "end", "short")


def test_steps_in_front_change_nothing_for_a_network_at_rest():
    short, long = (from_environment(Continuous(), trials=50, seed=3, steps=s) for s in (6, 11))
    for left, right in zip(pooled_statistics(short, 0.9), pooled_statistics(long, 0.9), strict=True):
        np.testing.assert_allclose(left, right, rtol=1e-13)  # zeros more in the same sums


def test_wrappers_that_draw_trials_are_heard_and_others_passed_over():
    plain = from_environment(Plain(Delayed()), trials=20, seed=1)
    doubled = from_environment(Plain(Doubled(Delayed())), trials=20, seed=1)
    assert plain.hash == from_environment(Delayed(), trials=20, seed=1).hash
    np.testing.assert_allclose(doubled.input_covariance.dense(), 4 * plain.input_covariance.dense(), rtol=1e-6)


class Unsupervised(Delayed):
    def new_trial(self, **kwargs):
        self.ob = np.zeros((3, 2))


class Misnumbered(Delayed):
    def new_trial(self, **kwargs):
        super().new_trial()
        self.gt[-1] = 7


class Broken(Delayed):
    def new_trial(self, **kwargs):
        super().new_trial()
        self.gt = self.gt[1:]


@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda: from_environment(object(), trials=5, seed=0), "environment"),
        (lambda: from_environment(Unsupervised(), trials=5, seed=0), "environment"),
        (lambda: from_environment(Misnumbered(), trials=5, seed=0), "environment"),
        (lambda: from_environment(Broken(), trials=5, seed=0), "environment"),
        (lambda: from_environment(Delayed(), trials=1, seed=0), "trials"),
        (lambda: from_environment(Delayed(), trials=5, seed=-1), "seed"),
        (lambda: from_environment(Delayed(), trials=5, seed=0, at="start"), "at"),
        (lambda: from_environment(Delayed(), trials=5, seed=0, options={"dt": 10}), "options"),
    ],
)
def test_invalid_environments_and_arguments_are_refused_by_name(call, field):
    assert refused(call) == field


@pytest.fixture
def neurogym(monkeypatch):
    """A package with neurogym's one function and gymnasium's register."""
    package, registry = ModuleType("neurogym"), ModuleType("gymnasium")
    package.make = lambda name, **options: made(options)
    registry.registry = {"Delayed-v0": None}
    monkeypatch.setitem(sys.modules, "neurogym", package)
    monkeypatch.setitem(sys.modules, "gymnasium", registry)


def made(options):
    env = Delayed()
    env.lengths = options.get("lengths", env.lengths)
    return env


def test_an_id_is_made_by_neurogym(neurogym):
    task = from_environment("Delayed-v0", trials=20, seed=1)
    assert task.name == "Delayed-v0"
    assert task.hash == from_environment(Delayed(), trials=20, seed=1).hash
    assert from_environment("Delayed-v0", trials=20, seed=1, options={"lengths": (3,)}).steps == 3
    with pytest.raises(LearncastError) as caught:
        from_environment("Delay-v0", trials=20, seed=1)
    assert caught.value.field == "environment"
    assert "'Delayed-v0'" in str(caught.value)


def test_an_id_without_a_working_neurogym_is_refused(monkeypatch):
    monkeypatch.setitem(sys.modules, "neurogym", None)
    assert refused(lambda: from_environment("Delayed-v0", trials=20, seed=1)) == "neurogym"
