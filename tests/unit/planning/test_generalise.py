"""Held-out loss: intervals, folds, more trials, noise, sources and bad input."""

from __future__ import annotations

import math
import warnings
from dataclasses import replace
from functools import cache, partial

import numpy as np
import pytest
import scipy

import learncast as lc
from learncast.planning import DependentTrials, Folds, Generalisation
from learncast.planning.generalise.curve import best_stop, loss_factor, stop_grid
from learncast.planning.generalise.folds import mean_error

RATE = 0.02


def drawn(number=40, inputs=6, outputs=2, *, noise=1.0, seed=0, teacher=None):
    rng = np.random.default_rng(seed)
    teacher = rng.standard_normal((outputs, inputs)) * 0.5 if teacher is None else teacher
    x = rng.standard_normal((number, inputs))
    return x, x @ teacher.T + noise * rng.standard_normal((number, len(teacher))), teacher


def population(teacher, noise):
    m, n = teacher.shape
    return lc.Task(np.eye(n)[None, :, None, :], teacher.T[None], teacher @ teacher.T + noise**2 * np.eye(m))


def network(inputs=6, outputs=2, seed=3):
    return lc.TwoLayer.random(inputs, 4, outputs, scale=0.3, rng=np.random.default_rng(seed))


def task_of(x, y, **options):
    return lc.Task.from_samples(x[:, None], y, **options)


def train(net, x, y, steps):
    """Maps of plain descent, (steps + 1, outputs, inputs)."""
    A, C, maps = net.first, net.second, []
    for _ in range(steps + 1):
        maps.append(C @ A)
        G = (x @ (C @ A).T - y).T @ x / len(x)
        A, C = A - RATE * C.T @ G, C - RATE * G @ A.T
    return np.array(maps)


def trial_losses(maps, x, y):
    return ((np.einsum("smn,pn->spm", maps, x) - y) ** 2).sum(axis=2) / 2


def test_the_interval_of_a_loss_near_zero_stays_within_reach():
    x, y, _ = drawn(42, seed=1)
    y = x @ np.linalg.lstsq(x, y, rcond=None)[0]  # without noise
    g = lc.generalise(task_of(x, y), network(), learning_rate=RATE, most_steps=400)
    assert g.loss_interval[0] < g.loss < g.loss_interval[1] < g.values("zero_loss")
    for ratio, factor in ((0.5, np.exp(0.98)), (1.0, np.exp(1.96)), (30.0, (30 * np.e) ** 1.96)):
        assert loss_factor(ratio) == pytest.approx(factor)


@pytest.mark.equation("generalise Eq. (3)")
@pytest.mark.equation("generalise Eq. (4)")
@pytest.mark.equation("generalise Eq. (5)")
@pytest.mark.parametrize("seed", [6, 7])
def test_intervals_are_those_of_the_formulas_on_plain_training(seed):
    x, y, _ = drawn(42, seed=seed)
    steps, k, net = 400, 5, network()
    g = lc.generalise(task_of(x, y), net, learning_rate=RATE, most_steps=steps, folds=k)
    folds, grid, K = g.asked.samples.folds, g.curve["steps"].values, g.stop
    P = len(x)

    @cache
    def losses(*left):
        kept = ~np.isin(folds, left)
        return trial_losses(train(net, x[kept], y[kept], steps), x, y)

    def curve(excluded):  # the corrected curve of the data without some folds
        inside = ~np.isin(folds, excluded)
        full = losses(*excluded)[:, inside]
        total = full.mean(axis=1)
        for f in set(range(k)) - set(excluded):
            own = losses(*excluded, f)
            weight = (folds[inside] == f).mean()
            total = total + weight * (own[:, folds == f].mean(axis=1) - own[:, inside].mean(axis=1))
        return total

    whole = curve(())
    by_trial = np.empty((steps + 1, P))
    for f in range(k):
        by_trial[:, folds == f] = losses(f)[:, folds == f]

    def nested_error(number):  # of losses (steps, trials), for each trial
        se = number(by_trial).std(ddof=1) / math.sqrt(P)
        gaps, noise = [], []
        for j in range(k):
            inner = np.concatenate([number(losses(j, g)[:, folds == g]) for g in range(k) if g != j]).mean()
            outer = number(by_trial[:, folds == j])
            gaps.append((inner - outer.mean()) ** 2)
            noise.append(outer.var(ddof=1) / len(outer))
        nested = math.sqrt(max((k - 1) / k * (np.mean(gaps) - np.mean(noise)), 0.0))
        return np.clip(nested, se, math.sqrt(k) * se)

    nested = nested_error(lambda losses: losses[K])
    without = np.array([curve((j,))[grid] for j in range(k)])
    best = without.min(axis=1)
    jackknife = math.sqrt((k - 1) / k * ((best - best.mean()) ** 2).sum())
    assert (nested > jackknife) == (seed == 7)  # one case for each error
    error = max(nested, jackknife)
    L = whole[K]
    np.testing.assert_allclose(g.loss_interval, L * np.exp(np.array([-1, 1]) * 1.96 * error / L), rtol=1e-8)
    spread = (by_trial[grid] - by_trial[K]).std(axis=1, ddof=1) / math.sqrt(P)
    alike = np.flatnonzero(whole[grid] - L <= 1.96 * spread)
    low, high = max(alike.min() - 1, min(alike.min(), 1)), min(alike.max() + 1, len(grid) - 1)
    assert g.stop_set == (grid[low], grid[high])
    logs = np.log(without[:, -1] / best)
    least = math.sqrt((k - 1) / k * ((logs - logs.mean()) ** 2).sum()) * scipy.stats.t.ppf(0.975, k - 1) / 1.96

    def error_from(stop):
        return max(nested_error(lambda losses: losses[-1] / whole[-1] - losses[stop] / whole[stop]), least)

    lower = whole[-1] / L * math.exp(-1.96 * error_from(K))
    upper = max(whole[-1] / whole[t] * math.exp(1.96 * error_from(t)) for t in grid[low : high + 1])
    np.testing.assert_allclose(g.rise_interval, (lower, upper), rtol=1e-8)


def test_the_search_finds_the_deeper_of_two_dips_to_the_step():
    def curve(stops):
        t = np.asarray(stops, dtype=float) + 1
        return 1 - 0.5 * np.exp(-(np.log(t / 311) ** 2) * 20) - 0.51 * np.exp(-(np.log(t / 51_089) ** 2) * 20)

    grid = stop_grid(200_000)
    assert best_stop(grid, curve(grid), curve) == np.argmin(curve(range(200_001)))


def test_an_exact_test_that_only_falls_says_no_and_trials_never_do():
    x, y, teacher = drawn(2000, noise=0.01)
    x_new, y_new, _ = drawn(200, noise=0.01, seed=4, teacher=teacher)
    task, net = task_of(x, y), network()
    exact = lc.generalise(task, net, learning_rate=RATE, most_steps=50, test=population(teacher, 0.01))
    assert (exact.overfits, exact.stop, exact.rise) == ("no", 50, 1.0)
    for other in ({"test": task_of(x_new, y_new)}, {}):
        assert lc.generalise(task, net, learning_rate=RATE, most_steps=50, **other).overfits == "unclear"


def test_groups_and_blocks_are_held_out_together():
    x, y, _ = drawn(60)
    names = [f"animal {k % 12}" for k in range(60)]
    for folds, units in ((Folds(4, groups=names), np.arange(60) % 12), (Folds(4, blocks=5), np.arange(60) // 5)):
        g = lc.generalise(task_of(x, y), network(), learning_rate=RATE, most_steps=20, folds=folds)
        for unit in range(12):
            assert len(set(g.asked.samples.folds[units == unit])) == 1
        sizes = np.bincount(g.asked.samples.folds)
        assert sizes.tolist() == [15] * 4


def test_standard_errors_of_groups_count_groups_not_trials():
    values = np.random.default_rng(0).standard_normal((40, 3))
    single = mean_error(values, np.arange(40))
    np.testing.assert_allclose(single, values.std(axis=0, ddof=1) / math.sqrt(40))
    np.testing.assert_allclose(mean_error(np.tile(values, (2, 1)), np.tile(np.arange(40), 2)), single)


def test_dependent_neighbours_warn_unless_blocks_are_held_out():
    rng, x = np.random.default_rng(0), np.empty((120, 6))
    x[0] = rng.standard_normal(6)
    for k in range(1, 120):
        x[k] = 0.9 * x[k - 1] + math.sqrt(0.19) * rng.standard_normal(6)
    y = x[:, :2] + rng.standard_normal((120, 2))
    with pytest.warns(DependentTrials):
        lc.generalise(task_of(x, y), network(), learning_rate=RATE, most_steps=20)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        lc.generalise(task_of(x, y), network(), learning_rate=RATE, most_steps=20, folds=Folds(blocks=12))
        order = rng.permutation(120)
        lc.generalise(task_of(x[order], y[order]), network(), learning_rate=RATE, most_steps=20)


BAD = {
    "fewer than 20 trials": ("task", {"number": 19}),
    "too few groups": ("folds", {"folds": Folds(10, groups=["a", "b"] * 20)}),
    "groups of another length": ("groups", {"folds": Folds(3, groups=["a", "b", "c"])}),
    "other channels": ("test", {"test": {"inputs": 5}}),
    "other outputs": ("test", {"test": {"outputs": 3}}),
    "no steps": ("most_steps", {"most_steps": 0}),
    "diverging descent": ("learning_rate", {"rate": 50.0}),
    "source with other channels": ("after", {"after": {"inputs": 5}}),
    "long batches": ("most_steps", {"batch": 4, "most_steps": 50_000}),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_input_is_refused_with_its_field(case):
    field, given = BAD[case]
    x, y, _ = drawn(given.get("number", 40))
    options = {key: given[key] for key in ("folds", "most_steps") if key in given}
    for key in ("test", "after"):
        if key in given:
            options[key] = task_of(*drawn(30, **given[key])[:2], name="other")
    training = lc.Training(given.get("rate", RATE), batch=given.get("batch"))
    with pytest.raises(lc.InvalidSpec) as error:
        lc.generalise(task_of(x, y), network(), training, **{"most_steps": 30, **options})
    assert error.value.field == field


def test_a_class_in_one_fold_only_is_refused_and_classes_are_spread_otherwise():
    rng = np.random.default_rng(0)
    x, labels = rng.standard_normal((40, 1, 6)), np.repeat([0, 1], [30, 10])
    net = network()
    g = lc.generalise(lc.Task.from_samples(x, labels), net, learning_rate=RATE, most_steps=10)
    assert np.bincount(g.asked.samples.folds[labels == 1]).tolist() == [1] * 10
    with pytest.raises(lc.InvalidSpec) as error:
        lc.generalise(lc.Task.from_samples(x, np.repeat([0, 1], [39, 1])), net, learning_rate=RATE, most_steps=10)
    assert error.value.field == "folds"


def test_a_task_without_trials_needs_a_test():
    family = population(np.ones((2, 6)), 1.0)
    with pytest.raises(lc.InvalidSpec):
        lc.generalise(family, network(), learning_rate=RATE)
    assert lc.generalise(family, network(), learning_rate=RATE, test=family, most_steps=100).overfits == "no"


def test_about_as_many_trials_as_inputs_is_remarked():
    x, y, _ = drawn(24, inputs=22)
    g = lc.generalise(task_of(x, y), network(22), learning_rate=RATE, most_steps=20)
    x, y, _ = drawn(100, inputs=22)
    many = lc.generalise(task_of(x, y), network(22), learning_rate=RATE, most_steps=20)
    assert (len(g.remarks), len(many.remarks)) == (1, 0)


def test_inputs_of_zero_are_held_out_without_a_word_on_input_directions():
    rng = np.random.default_rng(0)
    task = lc.Task.from_samples(np.zeros((40, 5, 2)), rng.standard_normal((40, 1)))
    network = lc.LinearRNN.random(2, 3, 1, scale=0.2, recurrence=0.9, rng=3)
    found = lc.generalise(task, network, lc.Training(2e-3), most_steps=100)
    assert found.stop == 0
    assert np.ptp(found.dataset["loss"].values) == 0.0


@pytest.mark.parametrize("options", [{}, {"centre": True, "scale": "channel"}])
def test_test_trials_that_are_training_trials_are_remarked(options):
    x, y, _ = drawn(60)
    both = [task_of(x[rows], y[rows], **options) for rows in (slice(0, 40), slice(33, 60))]
    g = lc.generalise(both[0], network(), learning_rate=RATE, most_steps=20, test=both[1])
    assert len(g.remarks) == 1
    assert int(g.remarks[0].split()[0]) == 7
    assert g.report().values["remarks"] == list(g.remarks)
    same_inputs = task_of(x[:40], y[20:], **options)
    assert lc.generalise(both[0], network(), learning_rate=RATE, most_steps=20, test=same_inputs).remarks == ()


def test_folds_that_diverge_count_as_infinite_and_are_remarked():
    x = np.repeat([0.0, 1.0], [36, 24])[:, None]
    groups = ["silent"] * 36 + ["one"] * 12 + ["two"] * 12
    net = lc.TwoLayer(np.array([[0.5]]), np.array([[0.5]]))
    g = lc.generalise(task_of(x, x), net, learning_rate=2.4, most_steps=200, folds=Folds(3, groups=groups))
    assert math.isinf(float(g.curve["held_out"][-1]))
    assert math.isfinite(g.loss)
    assert g.overfits == "unclear"
    assert g.remarks


def test_results_are_saved_and_displayed(tmp_path):
    x, y, _ = drawn()
    g = lc.generalise(task_of(x, y), network(), learning_rate=RATE, most_steps=100)
    again = Generalisation.load(g.save(tmp_path / "g.nc"))
    assert (again.stop, again.stop_set, again.loss_interval) == (g.stop, g.stop_set, g.loss_interval)
    assert again.curve.equals(g.curve)
    assert again.overfits == g.overfits
    with pytest.raises(lc.InvalidSpec):
        again.trials(100)
    assert again._repr_html_().startswith("<div")
    assert g.report().values["stop"] == g.stop
    assert set(g.report().write(tmp_path / "out"))


def test_modes_above_the_edge_are_signal():
    teacher = np.zeros((3, 10))
    teacher[0, 0] = 2.0
    x, y, _ = drawn(200, 10, 3, teacher=teacher)
    g = lc.generalise(task_of(x, y), network(10, 3), learning_rate=RATE, most_steps=2000)
    assert g.modes["signal"].values.tolist() == [True, False, False]
    assert float(g.modes["strength"][0]) == pytest.approx(2.0, rel=0.15)
    assert 0 < float(g.modes["learned"][0]) < g.stop


def test_a_mode_without_strength_has_no_step_at_which_it_is_learned():
    x, y, _ = drawn(200, 10, 3)
    labels = y.argmax(axis=1)
    g = lc.generalise(
        lc.Task.from_samples(x[:, np.newaxis], labels, classes=3, centre=True),
        network(10, 3),
        learning_rate=RATE,
        most_steps=2000,
    )
    assert float(g.modes["strength"][2]) == pytest.approx(0, abs=1e-10)  # labels sum to one
    assert np.isfinite(g.modes["learned"].values).tolist() == [True, True, False]


# More trials


@pytest.mark.equation("generalise Eq. (9)")
@pytest.mark.parametrize("number", [60, 120])
def test_losses_of_more_trials_are_close_to_those_of_the_population(number):
    x, y, teacher = drawn(4 * number, 10, 2, seed=1)
    net = network(10)
    g = lc.generalise(task_of(x[:number], y[:number]), net, learning_rate=RATE, most_steps=1000)
    truth = lc.generalise(task_of(x, y), net, learning_rate=RATE, most_steps=1000, test=population(teacher, 1.0))
    told = g.trials(4 * number)
    assert told.low <= truth.loss <= told.high
    assert told.value == pytest.approx(truth.loss, rel=0.15)
    assert g.trials(2 * number).value > told.value
    back = g.trials_for(loss=told.value)
    assert back.low <= back.value <= back.high
    assert back.value == pytest.approx(4 * number, rel=0.01)
    assert math.isinf(g.trials_for(loss=0.5 * float(g.dataset["least_loss"])).value)


def test_nothing_is_claimed_beyond_twice_the_trials_if_unlimited_trials_are_unknown():
    x, y, _ = drawn(24, inputs=22, noise=0.5)
    g = lc.generalise(task_of(x, y), network(22), learning_rate=RATE, most_steps=500)
    assert not g.trial_curve.known
    assert g.trials(48).value < g.loss * 1.05
    with pytest.raises(lc.InvalidSpec) as error:
        g.trials(49)
    assert error.value.field == "trials"
    assert math.isnan(g.trials_for(loss=1e-6).value)


# Noise


@pytest.mark.equation("generalise Eq. (11)")
@pytest.mark.parametrize("correlation", [0.0, 0.6])
@pytest.mark.parametrize("learn", [("input", "output"), ("input", "recurrent", "output")])
@pytest.mark.parametrize("every_step", [False, True])
def test_noise_adds_the_loss_that_a_simulation_finds(learn, correlation, every_step):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((30, 4, 3))
    y = np.cumsum(x, axis=1)[:, :, :2]
    net = lc.LinearRNN.random(3, 5, 2, recurrence=0.8, scale=0.4, rng=1)
    task = lc.Task.from_samples(x, y if every_step else y[:, -1])
    g = lc.generalise(task, net, lc.Training(0.05, learn=learn), most_steps=40)
    found = g.noise(input=0.3, hidden=0.2, correlation=correlation)
    end = lc.descend(task, net, lc.Training(0.05, learn=learn), steps=40).network_at(40)
    runs = 40_000
    pulses = np.linalg.cholesky(correlation ** np.abs(np.subtract.outer(range(4), range(4))))
    for name, size, channels in (("input", 0.3, 3), ("hidden", 0.2, 5)):
        noise = size * np.einsum("ts,psc->ptc", pulses, rng.standard_normal((runs, 4, channels)))
        h, total = np.zeros((runs, 5)), np.zeros(runs)
        for t in range(4):
            step = noise[:, t] @ end.input_weights.T if name == "input" else noise[:, t]
            h = h @ end.recurrent_weights.T + step
            if every_step or t == 3:
                total += ((h @ end.output_weights.T) ** 2).sum(axis=1) / 2
        assert abs(float(found[name][-1]) - total.mean()) < 4 * total.std() / math.sqrt(runs)  # false alarm 6e-5


@pytest.mark.equation("generalise Eq. (12)")
def test_noise_of_weights_adds_the_loss_that_a_simulation_finds():
    x, y, teacher = drawn()
    net, rng = network(), np.random.default_rng(0)
    g = lc.generalise(task_of(x, y), net, learning_rate=RATE, most_steps=60, test=population(teacher, 1.0))
    end = lc.descend(task_of(x, y), net, learning_rate=RATE, steps=60).network_at(60)
    size, runs = 0.3, 40_000
    A = end.first + size * rng.standard_normal((runs, *end.first.shape))
    C = end.second + size * rng.standard_normal((runs, *end.second.shape))
    losses = ((C @ A - teacher) ** 2).sum(axis=(1, 2)) / 2 - ((end.second @ end.first - teacher) ** 2).sum() / 2
    added = float(g.noise(weights=size)["weights"][-1])
    assert abs(added - losses.mean()) < 4 * losses.std() / math.sqrt(runs)  # false alarm 6e-5


def test_another_session_is_a_test_set_and_noise_may_stop_earlier():
    x, y, teacher = drawn()
    other = task_of(*drawn(50, seed=7, teacher=1.2 * teacher)[:2])
    g = lc.generalise(task_of(x, y), network(), learning_rate=RATE, most_steps=300)
    exact = lc.generalise(task_of(x, y), network(), learning_rate=RATE, most_steps=300, test=other)
    total = g.noise(session=other)["total"]
    shared = np.intersect1d(total["steps"], exact.curve["steps"])
    np.testing.assert_allclose(total.sel(steps=shared), exact.curve["held_out"].sel(steps=shared), rtol=1e-10)
    assert int(g.noise(input=3.0)["stop"]) < g.stop
    with pytest.raises(lc.InvalidSpec):
        g.noise()


# A source before the target


def test_a_source_that_shares_trials_leaves_their_fold_out_too():
    x, y, _ = drawn(40)
    net, steps = network(), 100
    target, source = task_of(x, y), task_of(x[:30], 2 * y[:30], name="doubled")
    g = lc.generalise(target, net, learning_rate=RATE, most_steps=steps, folds=4, after=source)
    folds, n1 = g.asked.samples.folds, g.transfer.source_stop

    def losses(left):
        first = np.flatnonzero(folds[:30] != left)
        M = _after(net, x[first], 2 * y[first], n1)
        kept = folds != left
        return trial_losses(train(M, x[kept], y[kept], steps), x, y)

    full = losses(-1)
    curve = full.mean(axis=1)
    for f in range(4):
        own = losses(f)
        curve = curve + (folds == f).mean() * (own[:, folds == f].mean(axis=1) - own.mean(axis=1))
    np.testing.assert_allclose(g.curve["held_out"], curve[g.curve["steps"]], rtol=1e-8)
    assert g.stop == np.argmin(curve)
    row = g.transfer.table.sel(source_steps=n1)
    np.testing.assert_allclose(row, curve[row["steps"]], rtol=1e-8)


def _after(net, x, y, steps):
    A, C = net.first, net.second
    for _ in range(steps):
        G = (x @ (C @ A).T - y).T @ x / len(x)
        A, C = A - RATE * C.T @ G, C - RATE * G @ A.T
    return lc.TwoLayer(A, C)


def test_a_source_of_three_times_the_amplitude_helps_and_an_opposite_one_hurts():
    x, y, teacher = drawn(30, 12, 3, noise=1.5, seed=2)
    rng, exact = np.random.default_rng(0), population(teacher, 1.5)
    net = lc.TwoLayer.balanced(12, 8, 3, scale=0.05, rng=rng)
    found = {}
    for name, factor in (("three times", 3.0), ("opposite", -1.0)):
        source = task_of(*drawn(400, 12, noise=0.2, seed=9, teacher=factor * teacher)[:2], name=name)
        g = lc.generalise(task_of(x, y), net, learning_rate=RATE, most_steps=1000, after=source, test=exact)
        found[name] = g.transfer
    assert found["three times"].verdict == "helps"
    assert found["three times"].gain > 0.05
    assert found["three times"].distance > 1
    assert found["three times"].last_gain < found["three times"].gain
    assert found["opposite"].gain < 1e-3
    assert found["opposite"].last_gain < -0.05
    assert found["three times"].worth is None  # the trials are not in folds


def test_a_source_is_worth_the_trials_after_which_direct_training_has_its_loss():
    x, y, teacher = drawn(40, 12, 3, noise=1.5, seed=2)
    source = task_of(*drawn(400, 12, noise=0.2, seed=9, teacher=teacher)[:2], name="same")
    found = lc.generalise(task_of(x, y), network(12, 3), learning_rate=RATE, most_steps=300, after=source, folds=4)
    transfer = found.transfer
    curve = transfer.direct.trial_curve
    for gain, number in zip((transfer.gain, *transfer.gain_interval), transfer.worth, strict=True):
        if math.isfinite(number):
            expected = float(curve.at(40)[0]) * (1 - gain)
            assert float(curve.at(40 + number)[0]) == pytest.approx(expected, rel=1e-9)
    assert transfer.worth.value > 0
    assert found.report().values["after"]["worth"] == list(transfer.worth)


@pytest.mark.slow
def test_one_layer_pretraining_is_worth_the_trials_of_the_formula():
    n, m, P, sigma, far, near = 20, 1, 200, 1.0, 1.0, 0.4  # the formula holds for many more trials than inputs
    worth = n * m * sigma**2 * (1 / near**2 - 1 / far**2)
    rng, losses = np.random.default_rng(0), {"pretrained": [], "more trials": []}
    for _ in range(150):
        teacher, away = (v / np.linalg.norm(v) for v in rng.standard_normal((2, m, n)))
        for name, trials, start in (
            ("pretrained", P, teacher + near * away),
            ("more trials", P + round(worth), teacher + far * away),
        ):
            x, y, _ = drawn(trials, n, m, noise=sigma, seed=int(rng.integers(2**31)), teacher=teacher)
            net = lc.LinearRNN(start, np.zeros((m, m)), np.eye(m))
            g = lc.generalise(task_of(x, y), net, lc.Training(RATE, learn=("input",)), test=population(teacher, sigma),
                              most_steps=2000)  # fmt: skip
            losses[name].append(g.loss - m * sigma**2 / 2)
    first, second = (np.array(losses[name]) for name in losses)
    error = math.sqrt(first.var() / len(first) + second.var() / len(second))
    assert abs(first.mean() - second.mean()) < 3 * error + 0.03 * second.mean()  # false alarm 3e-3
    assert error < 0.05 * second.mean()


def test_an_untrained_network_is_not_called_as_good_as_the_best_stop():
    rng = np.random.default_rng(2)
    x = rng.poisson(2.0, (40, 10, 5)).astype(float)
    y = x[:, :, :1].sum(1) * 0.2 + rng.normal(size=(40, 1))
    net = lc.LinearRNN.random(5, 64, 1, scale="torch", recurrence=0.9)
    rate = lc.forecast(x, y).safe_rate.largest / 2
    found = lc.generalise(lc.Task.from_samples(x, y), net, learning_rate=rate)
    assert found.dataset["held_out"].values[0] > 5 * found.loss
    assert found.stop_set[0] == 1  # the first stop of the grid that passes the test


def test_a_plan_for_the_held_out_loss_trains_the_task_that_is_sure_to_help():
    x, y, teacher = drawn(60, 12, 3, noise=1.5, seed=2)
    net = lc.TwoLayer.balanced(12, 8, 3, scale=0.05, rng=np.random.default_rng(0))
    pool = [task_of(*drawn(400, 12, noise=0.2, seed=9, teacher=factor * teacher)[:2], name=name)
            for name, factor in (("same", 1.0), ("opposite", -1.0))]  # fmt: skip
    target = task_of(x, y, name="target")
    plan = lc.plan(target, pool, net, learning_rate=RATE, terms=lc.Terms(goal="generalise"))
    alone = lc.generalise(target, net, learning_rate=RATE)
    assert [stage.task.name for stage in plan.stages] == ["same", "target"]
    assert plan.total == plan.chosen.transfer.source_stop + plan.chosen.stop
    assert plan.direct_total == alone.stop
    assert plan.chosen.loss < alone.loss
    assert [row[0] for row in plan.ranking_table.rows] == ["same", "opposite", "direct training"]
    assert plan.fastest.total <= alone.stop
    unsure = replace(plan.after[0], transfer=replace(plan.after[0].transfer, gain_interval=(-0.1, 0.3)))
    assert replace(plan, after=(unsure,)).chosen is plan.held_out


def test_only_a_held_out_loss_without_sampling_error_is_called_exact():
    x, y, teacher = drawn(40)
    how = partial(lc.generalise, task_of(x, y), network(), learning_rate=RATE, most_steps=20)
    new_x, new_y, _ = drawn(40, seed=4, teacher=teacher)
    for sampled in (how(), how(test=task_of(new_x, new_y))):
        assert sampled.loss_interval[0] < sampled.loss < sampled.loss_interval[1]
        assert sampled.trust.forecast_class == "estimated"
    known = how(test=population(teacher, 0.01))
    assert known.loss_interval == (known.loss, known.loss)
    assert known.trust.forecast_class == "exact"


@pytest.mark.parametrize("rate", [0.003, 0.02, 0.3])
def test_the_default_horizon_is_ten_times_the_steps_that_learn_99_percent_of_the_fall(rate, monkeypatch):
    most = 20_000
    monkeypatch.setattr("learncast.planning.generalise.learners.PooledLearner.most_steps", most)
    (x, y, _), net = drawn(42, seed=1), network()
    A, C, losses = net.first, net.second, []
    for _ in range(most + 1):
        gap = x @ (C @ A).T - y
        losses.append((gap**2).sum() / (2 * len(x)))
        G = gap.T @ x / len(x)
        A, C = A - rate * C.T @ G, C - rate * G @ A.T
    fall = losses[0] - np.array(losses)
    learned = next(n for n in stop_grid(most) if fall[n] >= 0.99 * fall[-1])
    assert lc.generalise(task_of(x, y), net, learning_rate=rate).most_steps == 10 * learned


@pytest.mark.parametrize(("rate", "forecast_class"), [(0.2, "exact"), (0.7, "outside")])
def test_a_rate_at_which_the_training_loss_rises_is_reported_as_its_condition(rate, forecast_class):
    """Rate x curvature of the Gauss-Newton matrix, largest over the stops of descent in plain numpy."""
    x, y, teacher = drawn(40, seed=2)
    net, test = network(), population(teacher, 1.0)
    found = lc.generalise(task_of(x, y), net, learning_rate=rate, test=test, most_steps=60)
    A, C, S, sharp, losses = net.first, net.second, x.T @ x / len(x), {}, []
    for step in range(61):
        jacobian = np.concatenate([np.kron(C, np.eye(6)), np.kron(np.eye(2), A.T)], axis=1)
        H = jacobian.T @ np.kron(np.eye(2), S) @ jacobian
        sharp[step] = rate * np.linalg.eigvalsh(H)[-1]
        losses.append(((x @ (C @ A).T - y) ** 2).sum() / (2 * len(x)))
        G = (x @ (C @ A).T - y).T @ x / len(x)
        A, C = A - rate * C.T @ G, C - rate * G @ A.T
    assert (max(np.diff(losses)) > 0) == (forecast_class == "outside")
    assert found.trust.forecast_class == forecast_class
    measured = {a.name: a.measured for a in found.trust.assumptions}
    largest = max(sharp[step] for step in found.values("steps").tolist())
    expected = {} if forecast_class == "exact" else {"stable_learning_rate": pytest.approx(largest, rel=1e-6)}
    assert measured == expected
