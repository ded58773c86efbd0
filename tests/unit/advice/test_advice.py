"""Advice from a surrogate: ranking, recommendation, errors."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast import InvalidSpec, Loss, Training, UnsupportedModel, tasks
from learncast.advice import Advice, AdviceTerms
from learncast.advice.advice import CONDITIONS, DIRECT
from learncast.advice.ranking import remaining
from learncast.advice.request import UpdateRule
from learncast.training import Execution, OptimizerLike, Records


@pytest.fixture(autouse=True)
def one_thread():
    """Small matrices: on a busy machine torch's threads wait for one another."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


TARGET = tasks.integration(6, 1.0, 0.3, name="sum")
STRONGER = tasks.integration(6, 1.0, 0.9, name="stronger sum")
#: The rate is used as given.
AS_GIVEN = AdviceTerms(find_rate=False)
OPPOSITE = tasks.integration(6, 1.0, -0.3, name="opposite")


def small(kind="gru", **keywords):
    return lc.training.gated_module(kind, hidden_size=6, seed=2, **keywords)


def advised(model=None, target=TARGET, candidates=(STRONGER, OPPOSITE), *, rate=0.3, terms=None, **options):
    own = {key: options.pop(key) for key in ("goal", "progress") if key in options}
    training = Training(rate, **{"batch": 32, **options})
    return lc.advise(model or small(), target, candidates, training, terms=terms or AS_GIVEN, **own)


@pytest.fixture(scope="module")
def advice():
    torch.set_num_threads(1)
    shares = []
    model = small()
    before = {name: value.clone() for name, value in model.named_parameters()}
    found = advised(model, progress=shares.append)
    for name, value in model.named_parameters():
        assert torch.equal(value, before[name])
    assert model.training
    assert shares[-1] == 1.0
    assert all(a <= b for a, b in pairwise(shares))
    return found


def test_ranking_is_complete_and_in_order(advice):
    d = advice.dataset
    assert d.sizes["plan"] == 5
    assert (np.diff(d["score"].values) >= 0).all()
    assert float(d["score"].sel(plan=DIRECT)) == 1.0
    assert all("units" in v.attrs and "long_name" in v.attrs for v in d.data_vars.values())


def test_the_shortlist_begins_with_the_recommendation(advice):
    assert advice.recommended.startswith("stronger sum")
    assert advice.score < 1
    assert len(advice.shortlist) == 3
    assert advice.shortlist[0] == advice.recommended
    only = advised(terms=AdviceTerms(find_rate=False, stops=(0.5,)))
    assert not [name for name in only.shortlist if name.endswith("80%")]


def test_no_pretraining_wins_when_nothing_helps():
    found = advised(candidates=[OPPOSITE])
    assert found.recommended == DIRECT
    assert '"sum"' in found.lines["do"]
    assert len(found.stages()) == 1


def test_advice_says_what_it_is(advice):
    assert advice.forecast_class == "surrogate"
    assert advice.warnings == ()
    assert "\n" not in advice.summary
    assert list(advice.lines) == ["do", "goal", "rate", "help", "cost", "expect"]
    assert {v.name for v in advice.validity} == set(CONDITIONS)
    assert advice.pilot_steps == 0
    assert advice.learning_rate == advice.dataset.attrs["given_rate"] == 0.3


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
    found = advised(terms=AdviceTerms(find_rate=False, most_steps=2))
    assert found.forecast_class == "outside"
    assert found.recommended == DIRECT
    assert any(text.startswith("surrogate_learns_target") for text in found.warnings)


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
        model,
        running[0],
        running[1:],
        optimizer=optimizer,
        rate=rate,
        goal=0.4,
        terms=AdviceTerms(find_rate=False, stops=(0.4,)),
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
    "a share of the loss without candidates": ({"candidates": []}, InvalidSpec, "goal"),
    "one candidate outside a list": ({"candidates": STRONGER}, InvalidSpec, "candidates"),
    "target in the pool": ({"candidates": [STRONGER, TARGET.renamed("again")]}, InvalidSpec, "candidates"),
    "other channels": (
        {"candidates": [STRONGER, tasks.integration(6, [1.0, 1.0], 0.3, name="wide")]},
        InvalidSpec,
        "network",
    ),
    "other readout": (
        {"candidates": [tasks.integration(6, targets="every_step", name="running")]},
        InvalidSpec,
        "network",
    ),
    "static trials": ({"candidates": [(np.ones((9, 1)), np.ones((9, 1)))]}, InvalidSpec, "network"),
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
    if field == "network":  # the task that does not fit is named
        assert any(name in str(caught.value) for name in ("wide", "running", "candidate 1"))


@pytest.mark.parametrize("stops", [(), (1.5,)])
def test_stops_that_are_no_shares_are_refused(stops):
    with pytest.raises(InvalidSpec) as caught:
        AdviceTerms(stops=stops)
    assert caught.value.field == "stops"


def test_plans_are_ranked_at_the_given_rate():
    """At the highest rate that a network bears, its surrogate does not describe it."""
    found = advised(terms=AdviceTerms(stops=(0.5,)), optimizer="adam", rate=1e-3, goal=0.6)
    assert found.learning_rate == 1e-3
    assert found.pilot_steps == 0
    assert found.request.training.clip is None


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
