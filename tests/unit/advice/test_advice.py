"""Advice from a surrogate: ranking, recommendation, pilot race, errors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import InvalidSpec, Loss, Stage, Training, UnsupportedModel, tasks
from learncast.advice import Advice, AdviceTerms, run_race
from learncast.advice.advice import CONDITIONS, DIRECT
from learncast.advice.adviser import remaining
from learncast.advice.request import UpdateRule
from learncast.training import Execution, OptimizerLike, Records, Source


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices: on a busy machine torch's threads wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def quiet(text):
    """Say nothing."""


TARGET = tasks.integration(6, 1.0, 0.3, name="sum")
STRONGER = tasks.integration(6, 1.0, 0.9, name="stronger sum")
OPPOSITE = tasks.integration(6, 1.0, -0.3, name="opposite")


def small(kind="gru", **keywords):
    return lc.training.gated_module(kind, hidden_size=6, seed=2, **keywords)


def advised(model=None, target=TARGET, candidates=(STRONGER, OPPOSITE), *, rate=0.3, terms=None, **options):
    names = ("goal", "progress", "log")
    own = {"log": quiet, **{key: options.pop(key) for key in names if key in options}}
    training = Training(rate, **{"batch": 32, **options})
    return lc.advise(model or small(), target, candidates, training, terms=terms or AdviceTerms(), **own)


@pytest.fixture(scope="module")
def advice():
    torch.set_num_threads(1)
    said, shares = [], []
    model = small()
    before = {name: value.clone() for name, value in model.named_parameters()}
    found = advised(model, log=lambda text: said.append((text, len(shares))), progress=shares.append)
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name])
    assert model.training
    assert said[0][0] == found.cost_estimate
    assert said[0][1] == 0, "the cost is logged first"
    assert "s" in found.cost_estimate.split()[-1]
    assert shares[-1] == 1.0
    assert all(a <= b for a, b in pairwise(shares))
    return found


def test_ranking_is_complete_and_in_order(advice):
    d = advice.dataset
    assert d.sizes["plan"] == 7
    assert (np.diff(d["score"].values) >= 0).all()
    assert d["rank"].values.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert float(d["score"].sel(plan=DIRECT)) == 1.0
    assert not d["within_cap"].sel(plan="stronger sum to 95%")
    assert all("units" in v.attrs and "long_name" in v.attrs for v in d.data_vars.values())


def test_recommendation_and_shortlist_are_within_the_cap(advice):
    assert advice.recommended.startswith("stronger sum")
    assert advice.score < 1
    assert len(advice.shortlist) == 3
    assert advice.shortlist[0] == advice.recommended
    assert bool(advice["within_cap"].sel(plan=list(advice.shortlist)).all())
    only = advised(terms=AdviceTerms(cap=0.5))
    assert not [name for name in only.shortlist if name.endswith(("80%", "95%"))]


def test_no_pretraining_wins_when_nothing_helps():
    found = advised(candidates=[OPPOSITE])
    assert found.recommended == DIRECT
    assert found.summary.startswith("Train on sum directly")
    assert len(found.stages()) == 1


def test_advice_says_what_it_is(advice):
    assert advice.forecast_class == "surrogate"
    assert advice.warnings == ()
    assert "no step counts" in advice.summary
    assert "\n" not in advice.summary
    assert "stronger sum" in repr(advice)
    assert {v.name for v in advice.validity} == set(CONDITIONS) - {"linear_decides"}  # asked of goals of decisions
    assert not [name for name in advice.dataset.data_vars if "steps" in name]


def test_advice_survives_its_file(advice, tmp_path):
    loaded = Advice.load(advice.save(tmp_path / "advice.nc"))
    assert loaded.summary == advice.summary
    assert loaded.shortlist == advice.shortlist
    assert loaded.dataset.equals(advice.dataset)
    with pytest.raises(InvalidSpec):
        loaded.stages()


def test_stages_are_what_train_carries_out(advice):
    model = small()
    training, single = Training(0.3, batch=32, most_steps=2000), Execution(dtype="float32")
    run = lc.training.train(advice.stages(), model, training, record=Records(evaluation=200), execution=single)
    assert run.status.name == "ok"
    assert len(run.stage_steps) == 2
    with pytest.raises(InvalidSpec):
        advice.stages("stronger sum to 42%")


def test_relu_with_sgd_is_outside_and_warned_of():
    found = advised(small("rnn", nonlinearity="relu"), rate=0.1)
    assert found.forecast_class == "outside"
    assert any(text.startswith("smooth_descent") for text in found.warnings)
    adaptive = advised(small("rnn", nonlinearity="relu"), optimizer="adam", rate=0.01)
    assert adaptive.forecast_class == "surrogate"


def test_surrogate_that_never_learns_is_an_outcome():
    found = advised(terms=AdviceTerms(most_steps=2))
    assert found.forecast_class == "outside"
    assert found.recommended == DIRECT
    assert any(text.startswith("surrogate_learns_target") for text in found.warnings)
    assert advised(terms=AdviceTerms(most_steps=2, pilot=True)).pilot is None, "there is nothing to race"


def as_arrays(task, n=600):
    return task.sample(n, np.random.default_rng(1))


def as_dataset(task):
    return torch.utils.data.TensorDataset(*(torch.tensor(part, dtype=torch.float32) for part in as_arrays(task)))


def as_loader(task):
    return torch.utils.data.DataLoader(as_dataset(task), batch_size=64)


@pytest.mark.parametrize("form", [as_arrays, as_loader, as_dataset, lambda task: task.sample])
def test_trials_in_any_form_give_the_same_advice(advice, form):
    found = advised(target=form(TARGET), candidates={"a": form(STRONGER), "b": form(OPPOSITE)})
    expected = advice["score"].sel(plan="stronger sum to 80%")
    # 600 or 4000 trials estimate second moments to about 4%, and times follow them; 5 standard errors.
    assert float(found["score"].sel(plan="a to 80%")) == pytest.approx(float(expected), rel=0.2)
    assert found.recommended.startswith("a to")


@pytest.mark.parametrize(("optimizer", "rate"), [("gd", 0.15), ("adam", 0.03)])
def test_deep_models_that_answer_at_every_step_are_advised_too(optimizer, rate):
    running = [tasks.integration(5, 1.0, s, targets="every_step", name=f"strength {s}") for s in (0.3, 0.9, -0.3)]
    model = small("lstm", every_step=True, num_layers=2)
    found = advised(
        model, running[0], running[1:], optimizer=optimizer, rate=rate, goal=0.4, terms=AdviceTerms(stops=(0.4,))
    )
    assert found.forecast_class == "surrogate"
    scores = {name: float(found["score"].sel(plan=name)) for name in found["plan"].values}
    assert scores["strength 0.9 to 40%"] < scores["strength -0.3 to 40%"]


def test_names_are_told_apart():
    twins = [STRONGER, tasks.integration(6, 1.0, 0.6, name="stronger sum")]
    assert "stronger sum (2) to 50%" in advised(candidates=twins)["plan"].values


def test_loss_may_be_given_instead_of_an_accuracy():
    start = TARGET.target_power / 2
    found = advised(goal=Loss(0.1 * start))
    assert float(found.dataset.attrs["target_loss"]) == 0.1 * start
    for options, field in (({"goal": Loss(10.0)}, "goal"), ({"loss": 10.0}, "loss"), ({"goal": 10.0}, "goal")):
        with pytest.raises(InvalidSpec) as caught:
            advised(**options)
        assert caught.value.field == field


def test_adaptive_optimizers_see_batches_and_repeat_exactly():
    first, second = (advised(optimizer="adam", rate=0.03) for _ in range(2))
    assert first.dataset.equals(second.dataset)
    other = advised(optimizer="adam", rate=0.03, batch=4)
    assert not np.array_equal(np.sort(first["score"]), np.sort(other["score"]))


class BentReadout(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.GRU(1, 4, batch_first=True), nn.Linear(4, 1)
        for k, weight in enumerate(self.parameters()):  # the same whatever torch's own generator has given out
            nn.init.normal_(weight, std=0.5, generator=torch.Generator().manual_seed(k))

    def forward(self, x):
        return torch.tanh(self.out(self.layer(x)[0][:, -1]))


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.out = nn.GRU(1, 4, batch_first=True, bidirectional=True), nn.Linear(8, 1)

    def forward(self, x):
        return self.out(self.layer(x)[0][:, -1])


def spoiled():
    model = small()
    with torch.no_grad():
        model.layer.weight_hh_l0[0, 0] = float("nan")
    return model


def empty_loader():
    nothing = torch.utils.data.TensorDataset(torch.zeros(0, 6, 1), torch.zeros(0, 1))
    return torch.utils.data.DataLoader(nothing, batch_size=4)


BAD = {
    "empty pool": ({"candidates": []}, InvalidSpec, "candidates"),
    "one candidate outside a list": ({"candidates": STRONGER}, InvalidSpec, "candidates"),
    "target in the pool": ({"candidates": [STRONGER, TARGET.renamed("again")]}, InvalidSpec, "candidates"),
    "other channels": (
        {"candidates": [STRONGER, tasks.integration(6, [1.0, 1.0], 0.3, name="wide")]},
        InvalidSpec,
        "wide",
    ),
    "other readout": (
        {"candidates": [tasks.integration(6, targets="every_step", name="running")]},
        InvalidSpec,
        "running",
    ),
    "static trials": ({"candidates": [(np.ones((9, 1)), np.ones((9, 1)))]}, InvalidSpec, "candidate 1"),
    "empty loader": ({"candidates": [empty_loader()]}, InvalidSpec, "trials"),
    "not finite": ({"model": spoiled()}, InvalidSpec, "model"),
    "no recurrent layer": ({"model": nn.Linear(1, 1)}, UnsupportedModel, "model"),
    "two directions": ({"model": Both()}, UnsupportedModel, "model"),
    "bent readout": ({"model": BentReadout()}, UnsupportedModel, "model"),
    "no module": ({"model": 3}, UnsupportedModel, "model"),
    "misspelt optimiser": ({"optimizer": "adm"}, InvalidSpec, "optimizer"),
    "coupled optimiser": ({"optimizer": torch.optim.LBFGS}, InvalidSpec, "optimizer"),
    "goal without surrogate": ({"goal": lc.Accuracy(0.9)}, InvalidSpec, "goal"),
}


@pytest.mark.parametrize("case", list(BAD))
def test_invalid_requests_are_refused_by_name(case):
    options, error, field = BAD[case]
    with pytest.raises(error) as caught:
        advised(**options)
    assert caught.value.field == field


@pytest.mark.parametrize("stops", [(0.9,), (1.5,)])
def test_stops_beyond_the_cap_are_refused(stops):
    with pytest.raises(InvalidSpec) as caught:
        AdviceTerms(stops=stops)
    assert caught.value.field == "stops"


class Needle(nn.Module):
    """One number that is the answer: trained on y = 1 by plain descent it takes known steps."""

    def __init__(self):
        super().__init__()
        self.value = nn.Parameter(torch.zeros(1))

    def forward(self, x):
        return self.value.expand(len(x), 1)


def pointing(where, noise=0.0):
    """Trials that ask for one answer."""
    return Source.of(lambda n, rng: (np.zeros((n, 1, 1)), where + noise * rng.standard_normal((n, 1))))


def to(where, loss, noise=0.0):
    return Stage(pointing(where, noise), Loss(loss))


def test_race_finds_the_shorter_way_and_stops_when_it_is_clear():
    # From 0 to within 0.1 of 1 by factors 0.9 takes 22 steps, looked at every 5; by way of -1 more than twice that.
    straight, detour = to(1.0, 0.005), to(-1.0, 0.005)
    shares = []
    race = run_race(
        Needle(),
        {"detour": [detour, straight], "direct": [straight]},
        Training(0.1, batch=2),
        budget=900,
        progress=shares.append,
    )
    assert race.winner == "direct"
    assert race.decided
    assert race.dataset["race_steps"].sel(lane="direct").values.tolist() == [25.0]
    assert np.isinf(race.dataset["race_steps"].sel(lane="detour").values).all()
    assert race.steps_spent <= 2 * 40
    assert shares[-1] == 1.0
    assert "decided" in repr(race)


def test_race_halves_the_field_and_says_how_sure_it_is():
    # Three ways to the same goal, all but the first a little longer: told apart by seeds, not by one look.
    goal = to(1.0, 0.012, 0.05)
    plans = {"a": [goal], "b": [to(0.5, 0.06, 0.05), goal], "c": [to(-0.3, 0.005, 0.05), goal]}
    race = run_race(Needle(), plans, Training(0.1, batch=50), budget=5000, seeds=4)
    table = race.dataset["race_steps"]
    assert race.winner == "a"
    assert table.shape[0] == 3
    if table.shape[1] > 1:
        assert np.isnan(table[:, 1].values).sum() == 1, "half of three, rounded up, goes on"
    assert race.decided or np.isnan(race.confidence) or 0 <= race.confidence <= 1


def test_race_without_budget_says_so():
    far, training = to(1.0, 1e-9), Training(0.1, batch=2)
    race = run_race(Needle(), {"a": [far], "b": [far, far]}, training, budget=20)
    assert race.winner is None
    assert not race.decided
    assert race.steps_spent <= 20
    with pytest.raises(InvalidSpec):
        run_race(Needle(), {"a": [far]}, training, budget=20)


def test_pilot_race_is_part_of_the_advice(tmp_path):
    state = torch.random.get_rng_state()
    found = advised(goal=0.6, terms=AdviceTerms(pilot=True, seeds=1, budget=4000))
    assert torch.equal(torch.random.get_rng_state(), state)
    assert "4000" in found.cost_estimate
    assert found.pilot is not None
    assert found.recommended == found.pilot.winner
    assert DIRECT in found.pilot.dataset["lane"].values
    loaded = Advice.load(found.save(tmp_path / "advice.nc"))
    assert loaded.pilot is not None
    assert loaded.pilot.winner == found.pilot.winner


def test_optimizer_that_exists_keeps_the_settings_of_its_groups():
    model = small()
    existing = torch.optim.Adam(
        [{"params": model.layer.parameters(), "lr": 0.1}, {"params": model.readout.parameters()}],
        lr=0.2,
        betas=(0.5, 0.9),
    )
    like = OptimizerLike(existing, model)
    rule = UpdateRule.of(Training(like.learning_rate, optimizer=like), model)
    made = rule.made({"layer.bias_ih_l0": torch.zeros(2, 3), "readout.bias": torch.zeros(2, 1)})
    assert [group["lr"] for group in made.param_groups] == [0.1, 0.2]
    assert all(group["betas"] == (0.5, 0.9) for group in made.param_groups)
    assert rule.adaptive
    plain = Training(0.1, optimizer=lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    assert not UpdateRule.of(plain, model).adaptive
    with pytest.raises(InvalidSpec) as caught:
        OptimizerLike(torch.optim.SGD(small().parameters(), lr=0.1), model)
    assert caught.value.field == "optimizer"


def test_a_class_of_optimiser_gets_the_learning_rate():
    rule = UpdateRule.of(Training(0.07, optimizer=torch.optim.NAdam), small())
    assert (rule.name, rule.learning_rate) == ("nadam", 0.07)


def test_share_of_what_can_be_learned():
    assert remaining(4.0, 2.0, 0.75) == 2.5
