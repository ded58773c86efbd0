"""Goals, losses and trials that count in part: against torch itself and plain loops."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import InvalidSpec, Loss, Stage, Training
from learncast.training import (
    CrossEntropy,
    DecisionAccuracy,
    Execution,
    HalfSquaredError,
    Learned,
    Loop,
    LossFunction,
    MeanSquaredError,
    Measured,
    OwnLoss,
    Records,
    gated_module,
    train,
)

RNG = np.random.default_rng(0)
ANSWERS = torch.tensor(RNG.standard_normal((7, 4, 3)))
TARGETS = torch.tensor(RNG.standard_normal((7, 4, 3)))
LABELS = torch.tensor(RNG.integers(0, 3, (7, 4)))
MASK = torch.tensor(RNG.integers(0, 2, (7, 4)).astype(float))


def delayed_choice(trials, rng):
    """Which of two inputs was larger at the first step, asked for at the last of four; class 0 is to wait."""
    x = rng.standard_normal((trials, 4, 2))
    labels = np.zeros((trials, 4), dtype=int)
    labels[:, -1] = 1 + (x[:, 0, 1] > x[:, 0, 0])
    return x, labels


# --- losses -----------------------------------------------------------------------------------------------------------


def test_losses_are_those_of_torch():
    flat, labels = ANSWERS.reshape(-1, 3), LABELS.reshape(-1)
    assert MeanSquaredError()(ANSWERS, TARGETS) == nn.functional.mse_loss(ANSWERS, TARGETS)
    assert float(HalfSquaredError()(ANSWERS, TARGETS)) == pytest.approx(
        float(nn.functional.mse_loss(ANSWERS, TARGETS, reduction="sum")) / 14, rel=1e-14
    )
    plain = nn.functional.cross_entropy(flat, labels)
    assert float(CrossEntropy()(ANSWERS, LABELS)) == pytest.approx(float(plain), rel=1e-14)
    one_hot = nn.functional.one_hot(LABELS, 3).double()
    assert float(CrossEntropy()(ANSWERS, one_hot)) == pytest.approx(float(plain), rel=1e-14)
    weighted = nn.functional.cross_entropy(flat, labels, weight=torch.tensor([1.0, 2.0, 0.5]).double())
    assert float(CrossEntropy(outputs=(1.0, 2.0, 0.5))(ANSWERS, LABELS)) == pytest.approx(float(weighted), rel=1e-14)
    ignored = LABELS.where(MASK > 0, -100)
    ours, theirs = CrossEntropy()(ANSWERS, ignored), nn.functional.cross_entropy(flat, ignored.reshape(-1))
    assert float(ours) == pytest.approx(float(theirs), rel=1e-14)
    assert float(CrossEntropy()(ANSWERS, LABELS, MASK)) == pytest.approx(float(theirs), rel=1e-14)


@pytest.mark.parametrize("at_end", [False, True])
def test_weights_and_masks_count_as_plain_loops_do(at_end):
    a, y, m = (part[:, -1] if at_end else part for part in (ANSWERS, TARGETS, MASK))
    steps = None if at_end else (0.0, 1.0, 2.0, 0.5)
    outputs = (1.0, 0.0, 3.0)
    total, size = 0.0, 0.0
    for k, j, i in np.ndindex(7, 1 if at_end else 4, 3):
        place = (k, i) if at_end else (k, j, i)
        w = float(m[k] if at_end else m[k, j]) * (1.0 if at_end else steps[j]) * outputs[i]
        total, size = total + w * float(a[place] - y[place]) ** 2, size + w
    assert float(HalfSquaredError(steps, outputs)(a, y, m)) == pytest.approx(total / 14, rel=1e-13)
    assert float(MeanSquaredError(steps, outputs)(a, y, m)) == pytest.approx(total / size, rel=1e-13)


def test_a_squared_loss_of_labels_is_of_one_hot_targets():
    one_hot = nn.functional.one_hot(LABELS, 3).double()
    assert HalfSquaredError()(ANSWERS, LABELS) == HalfSquaredError()(ANSWERS, one_hot)


def test_the_factor_of_a_mean_is_what_makes_it_half_the_squared_error():
    from learncast.training.losses import Answered

    for weights in (None, MASK):
        mean, half = (loss()(ANSWERS, TARGETS, weights) for loss in (MeanSquaredError, HalfSquaredError))
        factor = MeanSquaredError().factor(Answered.of(ANSWERS, TARGETS, weights))
        # A mask counts for every output.
        assert float(mean) == pytest.approx(factor * float(half), rel=1e-13)


def test_losses_of_torch_are_read():
    assert LossFunction.read(nn.MSELoss()) == MeanSquaredError()
    assert LossFunction.read("cross_entropy") == CrossEntropy()
    assert LossFunction.read(nn.CrossEntropyLoss(label_smoothing=0.1)) == CrossEntropy(smoothing=0.1)
    smoothed = nn.functional.cross_entropy(ANSWERS.reshape(-1, 3), LABELS.reshape(-1), label_smoothing=0.1)
    assert float(CrossEntropy(smoothing=0.1)(ANSWERS, LABELS)) == pytest.approx(float(smoothed), rel=1e-14)
    with pytest.raises(InvalidSpec):
        CrossEntropy(smoothing=2.0)


class AbsoluteError(nn.Module):
    def forward(self, answers, targets):
        return (answers - targets).abs().mean()


@pytest.mark.parametrize(
    ("module", "function"),
    [
        (nn.BCEWithLogitsLoss(), nn.functional.binary_cross_entropy_with_logits),
        (nn.HuberLoss(delta=0.3), partial(nn.functional.huber_loss, delta=0.3)),
        (AbsoluteError(), nn.functional.l1_loss),
    ],
)
def test_modules_of_answers_and_targets_are_losses_as_functions_are(module, function):
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((20, 3, 2))
    trials = inputs, (inputs[:, -1, :1] > 0).astype(float)
    network = lc.LinearRNN.random(2, 4, 1, scale=0.5, recurrence=0.8, rng=0)
    runs = [
        train(trials, network, Training(0.1, loss=loss), steps=5)["loss"].values
        for loss in (module, lambda answers, targets: function(answers, targets))
    ]
    assert len(runs[0]) == 6
    np.testing.assert_array_equal(*runs)


def test_modules_of_other_settings_are_other_losses():
    weights = [nn.BCEWithLogitsLoss(pos_weight=torch.tensor([w])) for w in (1.0, 2.0)]
    given = [nn.HuberLoss(), nn.HuberLoss(delta=0.3), nn.BCEWithLogitsLoss(), *weights]
    assert len({repr(LossFunction.read(loss)) for loss in given}) == len(given)
    assert repr(LossFunction.read(nn.HuberLoss())) == repr(LossFunction.read(nn.HuberLoss()))


# --- goals ------------------------------------------------------------------------------------------------------------


def test_decisions_are_counted_as_a_plain_loop_counts_them():
    goal = DecisionAccuracy(0.8, steps=slice(1, None), outputs=[0, 2], ignore=2)
    right = size = 0.0
    for k, j in np.ndindex(7, 4):
        if j == 0 or LABELS[k, j] != 0:
            continue  # 1 takes no part, 2 is no decision
        chosen = 0 if ANSWERS[k, j, 0] > ANSWERS[k, j, 2] else 2
        right, size = right + float(MASK[k, j]) * (chosen == LABELS[k, j].item()), size + float(MASK[k, j])
    assert goal.measure(ANSWERS, LABELS, MASK) == pytest.approx(right / size, rel=1e-14)


def test_one_hot_targets_and_labels_decide_alike():
    goal = DecisionAccuracy(0.8, ignore=0)
    one_hot = nn.functional.one_hot(LABELS, 3).double()
    assert goal.measure(ANSWERS, LABELS, MASK) == goal.measure(ANSWERS, one_hot, MASK)
    assert goal.chance(LABELS, MASK) == goal.chance(one_hot, MASK)


def test_one_output_decides_by_its_side():
    a, y = ANSWERS[:, -1, :1], TARGETS[:, -1, :1]
    assert DecisionAccuracy(0.5).measure(a, y) == float(((a > 0) == (y > 0)).double().mean())


def test_chance_is_the_best_answer_that_knows_the_step_alone():
    labels = torch.tensor([[0, 1], [0, 1], [0, 2], [1, 1]])
    assert DecisionAccuracy(0.9).chance(labels) == pytest.approx((3 + 3) / 8)
    assert DecisionAccuracy(0.9, ignore=0).chance(labels) == pytest.approx((1 + 3) / 5)
    best = max(
        DecisionAccuracy(0.9).measure(torch.nn.functional.one_hot(torch.tensor([[i, j]] * 4), 3).double(), labels)
        for i in range(3)
        for j in range(3)
    )
    assert DecisionAccuracy(0.9).chance(labels) == pytest.approx(best)


def test_goals_end_a_training():
    """Until 90% of decisions are right, one look in five steps; later stages by other goals."""
    model = gated_module("rnn", inputs=2, hidden_size=16, outputs=3, every_step=True, seed=0)
    goal = DecisionAccuracy(0.9, ignore=0)
    settings, record = (
        Training(0.02, batch=32, optimizer="adam", loss="cross_entropy"),
        Records(("goal",), evaluation=200),
    )
    run = train(delayed_choice, model, settings, goal=goal, record=record)
    assert run.status is lc.Status.ok
    assert run.steps % goal.every == 0
    x, y, w = lc.training.trials(delayed_choice).held_out(200, (0, 0), torch.float64)
    with torch.no_grad():
        reached = goal.measure(run.module(x), y, w)
    assert goal.met(reached)
    assert float(run["goal"][-1]) == reached
    assert not goal.met(float(run["goal"][0]))
    measured = Measured(lambda a, y: (a.argmax(2) == y)[:, -1].double().mean(), at_least=0.9)
    assert train(delayed_choice, model, settings, goal=measured, record=record).steps == run.steps
    longer = train(delayed_choice, model, settings, goal=Learned(goal, times=1.5), record=record)
    assert longer.steps == int(np.ceil(1.5 * run.steps))


def test_a_stage_ends_by_any_rule_and_the_next_goes_on():
    model = gated_module("gru", inputs=2, hidden_size=8, outputs=3, every_step=True, seed=0)
    settings = Training(0.02, batch=32, optimizer="adam", loss="cross_entropy", most_steps=400)
    stages = [Stage(delayed_choice, steps=7), Stage(delayed_choice, Loss(0.35)), Stage(delayed_choice, Loss(0.3))]
    run = train(stages, model, settings, record=Records(evaluation=100))
    assert run.stage_steps[0] == 7
    loss = run["loss"].groupby(run["stage"]).last()
    assert (loss.values[1:] <= (0.35, 0.3)).all()
    kept = train(stages, model, settings.with_(reset_optimizer=False), record=Records(evaluation=100))
    assert kept.stage_steps[0] == 7
    assert kept.dataset.attrs["optimizer_between_stages"] == "kept"
    assert kept.stage_steps != run.stage_steps


def test_forecasts_refuse_a_rule_of_real_training():
    task = lc.tasks.leaky_integration(steps=5, timescale=4.0)
    network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.2, hidden_size=4)
    for rule in (DecisionAccuracy(0.8), Learned(Loss(0.1)), lc.training.Plateau()):
        with pytest.raises(InvalidSpec) as caught:
            lc.follow([Stage(task, goal=rule)], network, learning_rate=0.01)
        assert caught.value.field == "goal"


@pytest.mark.slow_cases("3")
@pytest.mark.parametrize("cut", [3, 12])
def test_a_goal_with_looks_and_a_schedule_is_taken_up_where_it_stopped(tmp_path, cut):
    model = gated_module("rnn", inputs=2, hidden_size=8, outputs=3, every_step=True, seed=0)
    goal = DecisionAccuracy(0.8, ignore=0, looks=3, every=2)
    schedule = partial(torch.optim.lr_scheduler.StepLR, step_size=5, gamma=0.8)
    base = Training(0.05, batch=16, optimizer="adam", loss="cross_entropy", schedule=schedule, most_steps=300)
    stages = [Stage(delayed_choice, Learned(goal, 1.3)), Stage(delayed_choice, steps=9)]
    record = Records(evaluation=100)
    whole = train(stages, model, base, record=record)
    assert whole.stage_steps[0] > 2 * cut

    class Stopped(Exception):
        pass

    path, calls = tmp_path / "run.pt", []

    def batches(trials, rng):
        calls.append(1)
        if len(calls) > cut + 8:
            raise Stopped
        return delayed_choice(trials, rng)

    batches.__qualname__, batches.__module__ = delayed_choice.__qualname__, delayed_choice.__module__
    execution = Execution(checkpoint=path, checkpoint_every=cut)
    with pytest.raises(Stopped):
        train([Stage(batches, stages[0].goal), stages[1]], model, base, record=record, execution=execution)
    assert path.exists()
    resumed = train(stages, model, base, record=record, execution=execution)
    assert resumed.dataset.identical(whole.dataset)
    for name, w in whole.module.state_dict().items():
        assert torch.equal(w, resumed.module.state_dict()[name])


def test_a_schedule_is_that_of_torch():
    """Compare with a plain torch loop."""
    model = gated_module("rnn", inputs=2, hidden_size=4, outputs=3, every_step=True, seed=0).double()
    x, labels = delayed_choice(16, np.random.default_rng(1))
    schedule = partial(torch.optim.lr_scheduler.CosineAnnealingLR, T_max=6)
    run = train(
        (x, labels), model, Training(0.1, batch=None, loss="cross_entropy", schedule=schedule, clip=0.5), steps=6
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    rate = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, T_max=6)
    for _ in range(6):
        optimizer.zero_grad()
        nn.functional.cross_entropy(model(torch.tensor(x)).transpose(1, 2), torch.tensor(labels)).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        rate.step()
    for name, w in model.state_dict().items():
        torch.testing.assert_close(run.module.state_dict()[name], w, rtol=1e-12, atol=1e-14)


def loop_of(model, optimizer, **options):
    stages = [Stage(delayed_choice, steps=30), Stage(delayed_choice, DecisionAccuracy(0.85, ignore=0))]
    return Loop.of(stages, model, Training(0.02, batch=32, loss="cross_entropy"), optimizer=optimizer, **options)


def led(loop, model, optimizer, most=10_000):
    for taken, (x, y, _) in enumerate(loop, 1):
        optimizer.zero_grad()
        loss = CrossEntropy()(model(x), y)
        loss.backward()
        optimizer.step()
        loop.update(loss)
        if taken == most:
            return


def test_a_loop_of_ones_own_takes_the_steps_of_training():
    """The same batches, resets and looks as `train` has, and the same when it is left and taken up again."""
    models = [gated_module("gru", inputs=2, hidden_size=12, outputs=3, every_step=True, seed=0).double() for _ in "ab"]
    optimizers = [torch.optim.Adam(model.parameters(), 0.02) for model in models]
    said = []
    loop = loop_of(models[0], optimizers[0], log=said.append)
    led(loop, models[0], optimizers[0])
    assert loop.done
    assert loop.status is lc.Status.ok
    assert len(said) == 4
    settings = Training(0.02, batch=32, optimizer="adam", loss="cross_entropy")
    stages = [Stage(delayed_choice, steps=30), Stage(delayed_choice, DecisionAccuracy(0.85, ignore=0))]
    model = gated_module("gru", inputs=2, hidden_size=12, outputs=3, every_step=True, seed=0)
    run = train(stages, model, settings, record=Records((), evaluation=500))
    assert tuple(loop.steps) == run.stage_steps
    for name, w in run.module.state_dict().items():
        torch.testing.assert_close(models[0].state_dict()[name], w, rtol=1e-9, atol=1e-12)
    first = loop_of(models[1], optimizers[1])
    led(first, models[1], optimizers[1], most=40)
    again = loop_of(models[1], optimizers[1])
    again.load_state_dict(first.state_dict())
    led(again, models[1], optimizers[1])
    assert again.steps == loop.steps
    assert "ok" in again.report()


# --- trials -----------------------------------------------------------------------------------------------------------


def test_steps_that_do_not_count_may_hold_anything():
    x, labels = delayed_choice(20, np.random.default_rng(0))
    lengths = np.random.default_rng(1).integers(2, 5, 20)
    spoiled, model = labels.copy(), gated_module("rnn", inputs=2, hidden_size=4, outputs=3, every_step=True)
    spoiled[np.arange(4) >= lengths[:, None]] = 99
    broken = np.where(np.arange(4)[:, None] < lengths[:, None, None], x, np.nan)
    settings = Training(0.1, loss="cross_entropy")
    clean, dirty = (
        train(lc.training.trials(pair, lengths=lengths), model, settings, steps=3)
        for pair in ((x, labels), (broken, spoiled))
    )
    np.testing.assert_array_equal(clean["loss"], dirty["loss"])
    missing = np.full((20, 4, 3), np.nan)
    kept = np.arange(4) < lengths[:, None]
    missing[kept] = np.eye(3)[labels[kept]]
    squared = settings.with_(loss="mse")
    one, other = (train(trials, model, squared, steps=3) for trials in (
        lc.training.trials((x, missing), mask=kept), lc.training.trials((x, labels), lengths=lengths)))  # fmt: skip
    np.testing.assert_allclose(one["loss"], other["loss"], rtol=1e-14)


def test_steps_first_is_the_same_turned():
    x, labels = delayed_choice(12, np.random.default_rng(0))
    first = lc.training.trials((x, labels)).batch(None, (0, 0), 0, torch.float64)
    turned = lc.training.trials((x.swapaxes(0, 1), labels.T), batch_first=False).batch(None, (0, 0), 0, torch.float64)
    assert torch.equal(first.inputs, turned.inputs)
    assert torch.equal(first.targets, turned.targets)


def test_trials_set_aside_are_judged_by_and_not_trained_on():
    x, labels = delayed_choice(50, np.random.default_rng(0))
    source = lc.training.trials((x, labels), held_out=0.2)
    assert torch.equal(source.held_out(5, (0, 0), torch.float64).inputs, torch.tensor(x[40:]))
    assert len(source.batch(None, (0, 0), 0, torch.float64).inputs) == 40


def test_a_task_from_a_loader_is_trained_on_its_own_trials():
    """Trials of +-1 stay +-1; Gaussian ones have to be asked for."""
    signs = np.sign(np.random.default_rng(0).standard_normal((60, 3, 1)))
    loader = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(signs), torch.tensor(signs[:, 0])))
    task = lc.tasks.from_batches(loader, name="signs")
    real = lc.training.trials(task).batch(None, (0, 0), 0, torch.float64).inputs
    assert set(real.unique().tolist()) <= {-1.0, 1.0}
    drawn = lc.training.trials(task, gaussian=True).batch(8, (0, 0), 0, torch.float64).inputs
    assert len(drawn.unique()) == 24


class Env:
    """An environment of trials of two lengths, as neurogym makes them."""

    class action_space:  # noqa: N801
        n = 3

    def seed(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self, seed=None):
        pass

    def new_trial(self):
        steps, side = int(self.rng.integers(3, 6)), int(self.rng.integers(2))
        self.ob = np.zeros((steps, 2))
        self.ob[:-1, 0], self.ob[1, 1] = 1.0, 2 * side - 1
        self.gt = np.zeros(steps)
        self.gt[-1] = 1 + side


def test_an_environment_gives_its_own_trials_and_says_which_steps_count():
    source = lc.training.trials(Env())
    x, y, w = source.batch(40, (0, 0), 3, torch.float64)
    assert not y.is_floating_point()
    lengths = w.sum(1)
    assert set(lengths.tolist()) == {3.0, 4.0, 5.0}
    last = lengths.long() - 1
    assert torch.equal(y[torch.arange(40), last] - 1, (x[:, 1, 1] > 0).long())
    again = source.batch(40, (0, 0), 3, torch.float64)
    assert torch.equal(again.inputs, x)
    task = lc.tasks.from_environment(Env(), trials=50, seed=0)
    assert set(lc.training.trials(task).batch(30, (0, 0), 0, torch.float64).inputs.unique().tolist()) == {
        -1.0,
        0.0,
        1.0,
    }


def test_a_network_learns_an_environment_to_its_decisions():
    model = gated_module("gru", inputs=2, hidden_size=16, outputs=3, every_step=True, seed=0)
    goal = DecisionAccuracy(0.95, ignore=0)
    settings = Training(0.02, batch=32, optimizer="adam", loss="cross_entropy", most_steps=400)
    run = train(Env(), model, settings, goal=goal, record=Records(evaluation=200))
    assert run.status is lc.Status.ok


# --- refusals ---------------------------------------------------------------------------------------------------------

PLAIN = Training(0.1, batch=8)
SMALL = gated_module("rnn", inputs=2, hidden_size=4, outputs=2, every_step=True)


class First(nn.Module):
    def forward(self, pair):
        return pair[0]


def one_step(source=delayed_choice, model=SMALL, **settings):
    return train(source, model, PLAIN.with_(**settings), steps=1)


def tokens(network):
    """Return one step's training on 40 trials whose targets are integers 0 to 29."""
    rng = np.random.default_rng(0)
    pair = (rng.standard_normal((40, 3)), np.arange(40) % 30)
    return lambda **settings: one_step(pair, network, **settings)


def test_integers_of_many_values_are_labels_for_cross_entropy():
    step = tokens(nn.Linear(3, 30))
    assert step(loss="cross_entropy").steps == 1
    with pytest.raises(InvalidSpec) as refusal:
        step(loss="mse")
    assert refusal.value.field == "labels"


REFUSED = {
    "labels out of range": (one_step, "labels"),
    "loss for a number": (lambda: Loss(MeanSquaredError()), "loss"),
    "goal is a loss": (lambda: train(delayed_choice, SMALL, PLAIN, goal=nn.MSELoss()), "goal"),
    "goal of a rule is a number": (lambda: Learned(0.5), "goal"),
    "goal of a rule has no measure": (lambda: Learned(lc.Accuracy(0.5)), "goal"),
    "accuracy in a loop": (lambda: Loop.of([Stage(delayed_choice, 0.9)], SMALL, PLAIN), "goal"),
    "number for a loss": (lambda: one_step(loss=0.05), "loss"),
    "loss of three arguments": (lambda: one_step(loss=nn.CosineEmbeddingLoss()), "loss"),
    "other loss, summed": (lambda: one_step(loss=nn.L1Loss(reduction="sum")), "loss"),
    "summed": (lambda: one_step(loss=nn.CrossEntropyLoss(reduction="sum")), "loss"),
    "plateau schedule": (
        lambda: one_step(
            model=gated_module("rnn", inputs=2, outputs=3, every_step=True),
            schedule=torch.optim.lr_scheduler.ReduceLROnPlateau,
        ),
        "schedule",
    ),
    "no schedule": (
        lambda: one_step(
            model=gated_module("rnn", inputs=2, outputs=3, every_step=True), schedule=lambda optimizer: 0.1
        ),
        "schedule",
    ),
    "weights of steps": (lambda: HalfSquaredError((1.0, 2.0))(ANSWERS, TARGETS), "steps"),
    "negative weights": (lambda: HalfSquaredError((1.0, -2.0)), "steps"),
    "mask for two": (lambda: OwnLoss(function=lambda a, y: a.mean())(ANSWERS, TARGETS, MASK), "function"),
    "mask for a function of torch": (
        lambda: OwnLoss(function=nn.functional.mse_loss)(ANSWERS, TARGETS, MASK),
        "function",
    ),
    "not one number": (lambda: OwnLoss(function=lambda a, y: a)(ANSWERS, TARGETS), "loss"),
    "steps that are not there": (lambda: DecisionAccuracy(0.9, steps=[7]).measure(ANSWERS, LABELS), "steps"),
    "no bound": (lambda: Measured(max), "at_least"),
    "too early": (lambda: Learned(Loss(0.1), times=0.5), "times"),
    "mask of a sampler": (lambda: lc.training.trials(delayed_choice, mask=np.ones(3)), "mask"),
    "time first": (lambda: one_step(model=nn.Sequential(nn.RNN(2, 3), First())), "network"),
    "turned arrays": (lambda: lc.training.trials((np.zeros((4, 9, 2)), np.zeros((9, 4, 3)))), "targets"),
    "all masked": (
        lambda: lc.training.trials((np.zeros((4, 3, 2)), np.zeros((4, 3, 1))), mask=np.zeros((4, 3))),
        "mask",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_invalid_losses_goals_and_trials_are_refused_by_name(name):
    attempt, field = REFUSED[name]
    with pytest.raises(InvalidSpec) as caught:
        attempt()
    assert caught.value.field == field


class Noisy(nn.Module):
    def __init__(self):
        super().__init__()
        self.readout = nn.Linear(2, 3)

    def forward(self, x):
        return self.readout(x + torch.randn_like(x))


def test_noise_of_its_own_is_not_taken_for_another_layout():
    run = one_step(model=Noisy(), loss="cross_entropy")
    assert run.status is lc.Status.ok


def test_a_model_of_steps_first_is_turned():
    model = nn.Sequential(nn.RNN(2, 3), First())
    settings, single = PLAIN.with_(loss="cross_entropy"), Execution(dtype="float32")
    run = train(delayed_choice, lc.training.TimeFirst(model), settings, steps=1, execution=single)
    x, _, _ = lc.training.trials(delayed_choice).batch(5, (0, 0), 0, torch.float32)
    with torch.no_grad():
        torch.testing.assert_close(run.module(x), run.module.module(x.transpose(0, 1)).transpose(0, 1))


@pytest.mark.parametrize("name", ["huber_loss", "l1_loss", "mse_loss", "smooth_l1_loss", "poisson_nll_loss"])
def test_functions_of_torch_are_losses(name):
    function = getattr(nn.functional, name)
    assert OwnLoss(function=function)(ANSWERS, TARGETS) == function(ANSWERS, TARGETS)
