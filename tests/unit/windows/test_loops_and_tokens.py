"""Models as people write them: loops over a cell, embedded tokens, optimisers before their first step."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

import learncast as lc
from learncast.windows import layers, transport

MEASUREMENT = lc.windows.Measurement(lags=(1, 2, 3))
ROUND_OFF = {"rtol": 1e-9, "atol": 1e-12}
FUSED = {nn.GRUCell: nn.GRU, nn.RNNCell: nn.RNN, nn.LSTMCell: nn.LSTM}


class Loop(nn.Module):
    """A hand-written loop over a cell, read out at the last step or at every step."""

    def __init__(self, kind, every_step=False):
        super().__init__()
        self.cell, self.readout, self.every_step = kind(2, 5), nn.Linear(5, 1), every_step

    def forward(self, x):
        h, states = None, []
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
            states.append(h[0] if isinstance(h, tuple) else h)
        return self.readout(torch.stack(states, 1) if self.every_step else states[-1])


class Layer(nn.Module):
    """A layer of torch with a copy of the weights of a loop."""

    def __init__(self, loop):
        super().__init__()
        self.cell, self.readout = FUSED[type(loop.cell)](2, 5, batch_first=True), copy.deepcopy(loop.readout)
        self.cell.load_state_dict({f"{name}_l0": value for name, value in loop.cell.state_dict().items()})
        self.every_step = loop.every_step

    def forward(self, x):
        states = self.cell(x)[0]
        return self.readout(states if self.every_step else states[:, -1])


def numbers(found):
    return {name: values.values for name, values in found.dataset.items() if values.dtype.kind == "f"}


def assert_same(one, two):
    assert numbers(one).keys() == numbers(two).keys()
    for name, values in numbers(one).items():
        np.testing.assert_allclose(values, numbers(two)[name], **ROUND_OFF, err_msg=name)


@pytest.fixture(autouse=True)
def _double():
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("kind", FUSED)
@pytest.mark.parametrize("every_step", [False, True])
def test_a_loop_over_a_cell_is_diagnosed_as_the_layer_of_torch(kind, every_step):
    loop, x = Loop(kind, every_step), torch.randn(40, 8, 2)
    y = x.cumsum(1)[..., :1] if every_step else x[:, -2, :1]
    layer = Layer(loop)
    found = [
        lc.window(model, x, y, measurement=MEASUREMENT, optimizer=torch.optim.SGD(model.parameters(), 0.1))
        for model in (loop, layer)
    ]
    assert_same(*found)


class OwnCell(nn.Module):
    """A cell of one's own, called at every step as those of torch."""

    def __init__(self, inputs, hidden):
        super().__init__()
        self.input_size, self.hidden_size = inputs, hidden
        self.inner = nn.RNNCell(inputs, hidden)

    def step(self, state, input):
        return self.inner(input, state)

    def forward(self, input, state=None):
        return self.step(input.new_zeros(len(input), self.hidden_size) if state is None else state, input)


def test_a_cell_of_ones_own_in_a_loop_has_the_states_and_gradients_of_the_layer_of_torch():
    loop, x = Loop(nn.RNNCell), torch.randn(6, 7, 2)
    own = Loop(OwnCell)
    own.cell.inner.load_state_dict(loop.cell.state_dict())
    own.readout.load_state_dict(loop.readout.state_dict())
    targets, loss = torch.zeros(6, 1), nn.MSELoss(reduction="none")
    one, two = (layers.capture(model, x, targets, loss) for model in (own, Layer(loop)))
    for mine, theirs in ((one.outputs, two.outputs), (one.deltas, two.deltas), (one.inputs, two.inputs)):
        torch.testing.assert_close(mine[0], theirs[0], rtol=1e-12, atol=1e-14)
    slopes = (1 - two.outputs[0].square()).transpose(0, 1)
    torch.testing.assert_close(one.replay().jacobian, slopes.unsqueeze(-1) * loop.cell.weight_hh.detach())


class Embedded(nn.Module):
    """Tokens, embedded, through a GRU, to a token."""

    def __init__(self, embeds=True):
        super().__init__()
        self.table = nn.Embedding(7, 3) if embeds else None
        self.layer, self.readout = nn.GRU(3, 5, batch_first=True), nn.Linear(5, 7)

    def forward(self, x):
        return self.readout(self.layer(x if self.table is None else self.table(x))[0][:, -1])


@pytest.mark.parametrize("form", [torch.as_tensor, np.int8, np.asarray])
def test_tokens_are_diagnosed_as_their_embedding(form):
    model, tokens = Embedded(), torch.randint(0, 7, (40, 8))
    plain = Embedded(embeds=False)
    plain.load_state_dict({k: v for k, v in model.state_dict().items() if k != "table.weight"})
    found = lc.window(model, form(tokens), tokens[:, -2], measurement=MEASUREMENT)
    assert_same(found, lc.window(plain, model.table(tokens).detach(), tokens[:, -2], measurement=MEASUREMENT))


def test_counts_are_numbers_and_floats_without_channels_are_refused():
    model, counts = Embedded(embeds=False), np.random.default_rng(0).poisson(3.0, size=(40, 8, 3))
    labels = np.arange(40) % 7
    options = {"measurement": MEASUREMENT}
    assert_same(lc.window(model, counts, labels, **options), lc.window(model, counts * 1.0, labels, **options))
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.window(model, counts[..., 0] * 1.0, labels, **options)
    assert caught.value.field == "inputs"


OPTIMISERS = {
    "adam": lambda p: torch.optim.Adam(p, 0.01, weight_decay=0.1),
    "amsgrad": lambda p: torch.optim.Adam(p, 0.01, amsgrad=True),
    "adamw": lambda p: torch.optim.AdamW(p, 0.01, weight_decay=0.1),
    "rmsprop": lambda p: torch.optim.RMSprop(p, 0.01),
    "centred": lambda p: torch.optim.RMSprop(p, 0.01, centered=True, weight_decay=0.1),
}


@pytest.mark.parametrize("name", OPTIMISERS)
def test_an_optimiser_before_its_first_step_has_the_rates_of_that_step(name):
    model, x = Loop(nn.GRUCell), torch.randn(40, 8, 2)
    y = x[:, -2, :1]
    fresh, stepped = (OPTIMISERS[name](model.parameters()) for _ in range(2))
    found = lc.window(model, x, y, optimizer=fresh, measurement=MEASUREMENT)
    assert found.dataset.attrs["optimizer"].startswith("first-step ")
    assert not fresh.state
    assert all(p.grad is None for p in model.parameters())
    weights = copy.deepcopy(model.state_dict())
    ((model(x) - y).square() / 2).sum().div(40).backward()
    stepped.step()
    model.load_state_dict(weights)
    assert_same(found, lc.window(model, x, y, optimizer=stepped, measurement=MEASUREMENT))


def test_rates_before_the_first_step_need_its_gradients():
    model = Loop(nn.GRUCell)
    with pytest.raises(lc.InvalidSpec) as caught:
        transport.parameter_rates(torch.optim.Adam(model.parameters()), layers.recurrent_layers(model)[0].own)
    assert caught.value.field == "optimizer"


class Feedback(Loop):
    def forward(self, x):
        h = x.new_zeros(len(x), 5)
        for t in range(x.shape[1]):
            h = self.cell(x[:, t] + (self.readout(h) if t == 3 else 0), h)
        return self.readout(h)


class Squashed(Loop):
    def forward(self, x):
        h = x.new_zeros(len(x), 5)
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(x[:, t], h))
        return self.readout(h)


class Longer(Loop):
    def forward(self, x):
        return super().forward(torch.cat([x, x, x[:, :1]], 1))


class ReadsCell(Loop):
    def forward(self, x):
        h = None
        for t in range(x.shape[1]):
            h = self.cell(x[:, t], h)
        return self.readout(h[1])


class OwnLoop(Loop):
    def forward(self, x):
        h = x.new_zeros(len(x), 5)
        for t in range(x.shape[1]):
            h = torch.tanh(self.cell(x[:, t]) + h)
        return self.readout(h)


@pytest.mark.parametrize(
    ("model", "kind"),
    [
        (Feedback, nn.GRUCell),
        (Squashed, nn.GRUCell),
        (Longer, nn.GRUCell),
        (ReadsCell, nn.LSTMCell),
        (OwnLoop, nn.Linear),
    ],
)
def test_loops_that_cannot_be_followed_are_refused(model, kind):
    x = torch.randn(40, 8, 2)
    with pytest.raises(lc.UnsupportedModel) as caught:
        lc.window(model(kind), x, x[:, -2, :1], measurement=MEASUREMENT)
    assert caught.value.field in ("model", "loss")


def test_fed_back_outputs_that_are_detached_are_inputs():
    class Detached(Feedback):
        def forward(self, x):
            h = x.new_zeros(len(x), 5)
            for t in range(x.shape[1]):
                h = self.cell(x[:, t] + self.readout(h).detach(), h)
            return self.readout(h)

    x = torch.randn(40, 8, 2)
    assert lc.window(Detached(nn.GRUCell), x, x[:, -2, :1], measurement=MEASUREMENT).layers == 1


def test_training_and_advice_name_the_line_that_embeds_tokens():
    tokens = torch.randint(0, 7, (64, 6))
    target, training = (tokens, tokens[:, -1]), lc.Training(1e-2, batch=32, optimizer="adam", loss="cross_entropy")
    goal = lc.training.DecisionAccuracy(0.5)
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.advise(Embedded(), target, training=training, goal=goal)
    assert caught.value.field == "network"
    assert "self.table(x.long())" in str(caught.value)

    class Cast(Embedded):
        def forward(self, x):
            return super().forward(x.long())

    assert lc.advise(Cast(), target, training=training, goal=goal).learning_rate > 0
    assert lc.window(Cast(), *target, measurement=MEASUREMENT).layers == 1
    assert lc.training.train(target, Cast(), training, steps=3).steps == 3


def test_advice_takes_a_loop_over_a_cell():
    x = torch.randn(64, 6, 2)
    model, target = Loop(nn.GRUCell), (x, x[:, -1, :1])
    training = lc.Training(1e-2, batch=32, optimizer="adam")
    assert lc.advise(model, target, training=training, goal=lc.Loss(0.3)).learning_rate > 0
