"""Forecasts of data alone: default network, goal and learning rate, held to plain descent on the raw trials."""

import json

import numpy as np
import pytest

import learncast as lc
from learncast.cli import app
from learncast.planning.defaults import default_network
from learncast.planning.learning_rate import suggest_rate


def recording(steps=8, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(80, steps, 5)) + 0.3
    y = np.cumsum(x, axis=1)[:, -1] @ rng.normal(size=(5, 2)) + rng.normal(size=(80, 2))
    return (x, y) if steps > 1 else (x[:, 0], y)


def plain_steps(x, y, network, rate, share):
    """Full-batch descent on the raw trials until the share of the explainable variance is learned."""
    x = x[:, None, :] if x.ndim == 2 else x
    memory = 0.0 if isinstance(network, lc.TwoLayer) else network.scalar_recurrence
    pooled = np.einsum("ptc,t->pc", x, memory ** np.arange(x.shape[1])[::-1])
    first, second = (w.copy() for w in network.maps)

    def loss(m):
        return 0.5 * ((pooled @ m.T - y) ** 2).sum(axis=1).mean()

    least = loss(np.linalg.lstsq(pooled, y, rcond=None)[0].T)
    goal = least + (1 - share) * (loss(np.zeros((y.shape[1], x.shape[2]))) - least)
    for n in range(20_000):
        now = loss(second @ first)
        if now <= goal or not np.isfinite(now):
            return n if now <= goal else np.inf
        slope = (pooled @ first.T @ second.T - y).T @ pooled / len(x)
        first, second = first - rate * second.T @ slope, second - rate * slope @ first.T
    return np.inf


@pytest.mark.parametrize("steps", [1, 8])
def test_steps_of_data_alone_are_those_of_plain_descent_on_the_trials(steps):
    x, y = recording(steps)
    found = lc.forecast(x, y)
    network = found.method.network
    assert isinstance(network, lc.TwoLayer if steps == 1 else lc.LinearRNN)
    assert found.goal == lc.Explained(0.95)
    assert found.steps.descent == plain_steps(x, y, network, found.learning_rate, 0.95)
    assert [choice.setting for choice in found.chosen] == ["goal", "network", "learning rate"]
    assert lc.forecast((x, y), network, goal=0.95, learning_rate=found.learning_rate).steps == found.steps


def with_torch(x, y):
    torch = pytest.importorskip("torch")
    return torch, torch.tensor(x), torch.tensor(y)


def test_tensors_datasets_and_loaders_give_the_steps_of_arrays():
    x, y = recording(steps=1)
    torch, a, b = with_torch(x, y)
    trials = torch.utils.data.TensorDataset(a, b)
    wanted = lc.forecast(x, y).steps
    assert lc.forecast(a, b).steps == lc.forecast(x, b).steps == wanted
    assert lc.forecast(a, b[:, 0]).steps == lc.forecast(x, y[:, 0]).steps
    batches = iter([(x[:30], y[:30]), (x[30:], y[30:])])
    for data in (trials, torch.utils.data.DataLoader(trials, batch_size=16), batches):
        assert lc.forecast(data).steps.descent == pytest.approx(wanted.descent, abs=1)


@pytest.mark.parametrize(
    "question",
    [
        lambda pair, **how: lc.descend(pair, **how),
        lambda pair, **how: lc.forget([pair], steps=[1], **how),
        lambda pair, **how: lc.follow([lc.Stage(pair, steps=1)], **how),
        lambda pair, **how: lc.plan(pair, [pair], **how),
    ],
)
def test_trials_that_are_not_a_task_are_refused(question):
    network = lc.TwoLayer.random(5, 4, 2, scale=0.1, rng=0)
    with pytest.raises(lc.InvalidSpec) as refusal:
        question(recording(steps=1), network=network, learning_rate=0.01)
    assert refusal.value.field in ("task", "target")


def test_the_default_goal_of_recordings_is_the_same_in_every_interface(tmp_path, capsys):
    x, y = recording()
    task = lc.Task.from_samples(x, y)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=5, task=task)
    how = {"learning_rate": 1e-3}
    wanted = lc.forecast((x, y), network, **how).steps
    assert wanted == lc.forecast(task, network, goal=lc.Explained(0.95), **how).steps
    assert lc.forecast(task, network, **how).steps == wanted
    assert lc.plan(task, [], network, terms=lc.Terms(max_stages=1), **how).direct == wanted
    np.savez(tmp_path / "mine.npz", inputs=x, targets=y)
    text = "[network]\nrecurrence = 0.9\ninitial = 0.1\nhidden_size = 5\n[training]\nlearning_rate = 1e-3\n"
    (tmp_path / "mine.toml").write_text(f'{text}[target]\ndata = "mine.npz"\n')
    app(["forecast", str(tmp_path / "mine.toml"), "--json"], standalone_mode=False)
    found = json.loads(capsys.readouterr().out)
    assert (found["explained"], found["descent_steps"]) == (0.95, wanted.descent)
    family, small = lc.tasks.integration(steps=5), lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=5)
    assert lc.plan(family, [], small, terms=lc.Terms(max_stages=1), **how).goal == lc.Accuracy(0.99)


@pytest.mark.parametrize("zero", ["inputs", "targets", "both"])
def test_data_of_zeros_have_nothing_to_learn(zero):
    x, y = recording()
    found = lc.forecast(x * (zero == "targets"), y * (zero == "inputs"))
    assert (found.steps.descent, found.steps.status.name, found.steps.interval) == (0.0, "ok", None)


@pytest.mark.parametrize("goal", [1.0, lc.Accuracy(1), lc.Explained(1)])
def test_a_goal_that_descent_only_approaches_is_refused_by_every_question(goal):
    x, y = recording()
    task, family = lc.Task.from_samples(x, y), lc.tasks.integration(steps=5)
    network, small = default_network(task), lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    questions = [
        lambda: lc.forecast(x, y, goal=goal),
        lambda: lc.forecast(task, network, goal=goal, learning_rate=1e-3),
        lambda: lc.forecast(family, small, goal=goal, learning_rate=1e-3),
        lambda: lc.plan(task, [], network, learning_rate=1e-3, terms=lc.Terms(goal, max_stages=1)),
    ]
    for ask in questions:
        with pytest.raises(lc.InvalidSpec) as caught:
            ask()
        assert caught.value.field == "goal"


@pytest.mark.parametrize("part", ["inputs", "targets"])
@pytest.mark.parametrize("unit", [1e-200, 1e-100, 1e100, 1e200])
def test_units_beyond_the_range_of_statistics_are_refused_by_name(part, unit):
    x, y = recording()
    scaled = {"inputs": x, "targets": y} | {part: unit * (x if part == "inputs" else y)}
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.forecast(scaled["inputs"], scaled["targets"])
    assert caught.value.field == part


@pytest.mark.parametrize("unit", [1e-18, 1e18])
def test_steps_do_not_depend_on_the_unit_of_inputs_and_targets(unit):
    x, y = recording()
    network = default_network(lc.Task.from_samples(x, y))
    wanted = lc.forecast((x, y), network, learning_rate=1e-3).steps.descent
    assert lc.forecast((unit * x, unit * y), network, learning_rate=1e-3 / unit**2).steps.descent == wanted


def test_the_largest_safe_rate_settles_and_a_few_times_it_does_not():
    x, y = recording()
    found = lc.forecast(x, y)
    safe = found.safe_rate
    assert safe.learning_rate == pytest.approx(safe.largest / 2)
    assert np.isfinite(plain_steps(x, y, found.method.network, 0.9 * safe.largest, 0.95))
    with np.errstate(all="ignore"):
        assert np.isinf(plain_steps(x, y, found.method.network, 4 * safe.largest, 0.95))


def test_an_unstable_rate_raises_with_a_safe_one_and_its_steps():
    x, y = recording()
    network = default_network(lc.Task.from_samples(x, y))
    with pytest.raises(lc.AssumptionViolated) as caught:
        lc.forecast((x, y), network, goal=0.95, learning_rate=10.0)
    assert caught.value.field == "learning_rate"
    rate = caught.value.learning_rate
    assert caught.value.steps == plain_steps(x, y, network, rate, 0.95)


@pytest.mark.slow
def test_the_command_gives_the_numbers_of_python(tmp_path, capsys):
    x, y = recording()
    np.savez(tmp_path / "mine.npz", rates=x, movement=y)
    ask = ["forecast", str(tmp_path / "mine.npz"), "--json", "--set", "target.inputs=rates"]
    ask += ["--set", "target.targets=movement"]
    app(ask, standalone_mode=False)
    answer, own = json.loads(capsys.readouterr().out), lc.forecast(x, y)
    assert lc.forecast(tmp_path / "mine.npz", inputs="rates", targets="movement").steps == own.steps
    assert answer["descent_steps"] == own.steps.descent
    assert answer["learning_rate"] == own.learning_rate
    assert answer["interval"] == list(own.steps.interval)
    assert {choice["setting"] for choice in answer["chosen"]} == {"network", "goal", "learning rate"}
    app([*ask, "--set", "training.learning_rate=9"], standalone_mode=False)
    unstable = json.loads(capsys.readouterr().out)
    assert unstable["safe_rate"]["learning_rate"] == pytest.approx(own.learning_rate)
    assert unstable["safe_rate"]["descent_steps"] == own.steps.descent


def test_the_last_axis_of_targets_is_outputs_and_one_axis_is_one_number_per_trial():
    x, _ = recording()
    shapes = {(80,): (1, "end"), (80, 8): (8, "end"), (80, 8, 1): (1, "every_step")}
    for shape, meaning in shapes.items():
        task = lc.tasks.from_data(x, x[:, : (*shape, 1)[1], 0].reshape(shape))
        assert (task.outputs, task.targets) == meaning


@pytest.mark.parametrize(("keyword", "meant"), [("lr", "learning_rate"), ("centr", "centre"), ("net", "network")])
def test_a_keyword_of_other_libraries_is_explained(keyword, meant):
    with pytest.raises(TypeError) as caught:
        lc.forecast(*recording(), **{keyword: 1.0})
    assert caught.value.field == keyword
    assert meant in str(caught.value)


def test_a_rate_is_suggested_for_several_stages():
    task = lc.tasks.integration(steps=20)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.05, hidden_size=4)
    stages = [lc.Stage(task.varied(target_strength=2.0), 0.5), lc.Stage(task, 0.99)]
    found = suggest_rate(stages, network)
    assert found.largest <= suggest_rate(stages[1:], network).largest
    assert lc.follow(stages, network, learning_rate=found.learning_rate).steps.descent == found.steps.descent


@pytest.mark.parametrize("steps", [1, 8])
def test_the_effect_of_biases_is_that_of_plain_descent_without_them(steps, tmp_path, capsys):
    x, y = recording(steps)
    y = y + 3
    found = lc.forecast(x, y, bias=True)
    first, second = found.method.network.maps
    network = found.method.network.with_layers(first[:, :-1], second)
    assert found.without_bias.steps.descent == plain_steps(x, y, network, found.learning_rate, 0.95)
    memory = 0.0 if steps == 1 else network.scalar_recurrence
    pooled = np.einsum("ptc,t->pc", x.reshape(80, steps, 5), memory ** np.arange(steps)[::-1])
    constant = (memory ** np.arange(steps)).sum() * np.ones((80, 1))
    for one, features in ((found.without_bias, pooled), (found, np.hstack([pooled, constant]))):
        left = np.linalg.lstsq(features, y, rcond=None)[1].sum()
        assert one.best_r2 == pytest.approx(1 - left / (y**2).sum())
    assert lc.forecast(x, y).without_bias is None
    np.savez(tmp_path / "day.npz", inputs=x, targets=y)
    app(["forecast", str(tmp_path / "day.npz"), "--set", "target.bias=true", "--json"], standalone_mode=False)
    answer = json.loads(capsys.readouterr().out)["without_bias"]
    assert answer["descent_steps"] == found.without_bias.steps.descent
    assert (answer["best_r2"], answer["best_r2_with_bias"]) == (found.without_bias.best_r2, found.best_r2)


def held_out_trials():
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((40, 4, 3))
    targets = inputs.sum(axis=1)[:, :2] + rng.standard_normal((40, 2))
    return inputs, targets, lc.LinearRNN.random(3, 5, 2, recurrence=0.9, scale=0.2, rng=0)


def test_held_out_losses_take_trials_as_forecasts_do():
    inputs, targets, network = held_out_trials()
    halves = [(inputs[k::2], targets[k::2]) for k in range(2)]
    source = np.random.default_rng(1).standard_normal(inputs.shape), targets
    first, second, other = (lc.Task.from_samples(*pair) for pair in (*halves, source))
    options = {"learning_rate": 0.02, "most_steps": 200}
    expected, found = lc.generalise(first, network, **options), lc.generalise(halves[0], network, **options)
    assert (found.stop, found.loss) == (expected.stop, expected.loss)
    expected = lc.generalise(first, network, test=second, after=other, **options)
    found = lc.generalise(halves[0], network, test=halves[1], after=source, **options)
    assert (found.stop, found.loss) == (expected.stop, expected.loss)
    centred = lc.Task.from_samples(*halves[0], centre=True)
    assert (
        lc.generalise(halves[0], network, centre=True, **options).loss
        == lc.generalise(centred, network, **options).loss
    )


def test_held_out_losses_of_data_alone_are_those_of_the_command(tmp_path, capsys):
    inputs, targets, _ = held_out_trials()
    found = lc.generalise(inputs, targets)
    forecast = lc.forecast(inputs, targets)
    expected = lc.generalise((inputs, targets), forecast.method.network, learning_rate=forecast.learning_rate)
    assert (found.stop, found.loss) == (expected.stop, expected.loss)
    assert [choice.setting for choice in found.chosen] == ["network", "learning rate"]
    assert expected.chosen == ()
    np.savez(tmp_path / "day.npz", inputs=inputs, targets=targets)
    app(["generalise", str(tmp_path / "day.npz"), "--json"], standalone_mode=False)
    values = json.loads(capsys.readouterr().out)
    assert (values["stop"], values["loss"]) == (found.stop, found.loss)
    assert [choice["setting"] for choice in values["chosen"]] == ["network", "learning rate"]


@pytest.mark.parametrize("function", [lc.forecast, lc.generalise])
@pytest.mark.parametrize(
    ("call", "field"),
    [
        (lambda f, x, y, network: f(x, y, network, learning_rate=0.02), "training"),
        (lambda f, x, y, network: f(x, y, network=network, learning_rate=0.02), "network"),
        (lambda f, x, y, network: f(lc.Task.from_samples(x, y), network, learning_rate=0.02, bias=True), "bias"),
    ],
)
def test_trials_and_a_network_in_the_wrong_places_are_refused_by_name(function, call, field):
    with pytest.raises(lc.InvalidSpec) as caught:
        call(function, *held_out_trials())
    assert caught.value.field == field
