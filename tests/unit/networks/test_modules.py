"""Two-layer networks from torch modules."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc

torch = pytest.importorskip("torch")


def linear(*sizes, bias=False):
    return torch.nn.Linear(*sizes, bias=bias)


class Named(torch.nn.Module):
    """Layers under names, with the first of them wrapped."""

    def __init__(self):
        super().__init__()
        self.encoder = torch.nn.Sequential(linear(3, 4), torch.nn.Identity())
        self.decoder = linear(4, 2)

    def forward(self, x):
        return self.decoder(self.encoder(x))


@pytest.mark.parametrize("make", [lambda: torch.nn.Sequential(linear(3, 4), linear(4, 2)), Named])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_a_torch_module_becomes_a_network(make, dtype):
    module = make().to(dtype)
    network = lc.TwoLayer.from_module(module)
    inputs = torch.randn(5, 3, dtype=dtype, generator=torch.Generator().manual_seed(0))
    answers = module(inputs).detach().double().numpy()
    # as exact as the module itself: 8 bits for bfloat16, 24 for float32
    allowed = {torch.float32: 1e-6, torch.float64: 1e-14, torch.bfloat16: 3e-2}[dtype]
    np.testing.assert_allclose(inputs.double().numpy() @ network.function.T, answers, rtol=0, atol=allowed)
    # a copy: training on does not change it
    before = network.first.copy()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.zero_()
    np.testing.assert_array_equal(network.first, before)


@pytest.mark.parametrize(
    "module",
    [
        torch.nn.Sequential(linear(3, 4, bias=True), linear(4, 2)),
        torch.nn.Sequential(linear(3, 4), torch.nn.ReLU(), linear(4, 2)),
        torch.nn.Sequential(linear(3, 4), linear(4, 4), linear(4, 2)),
        linear(3, 2),
        torch.nn.RNN(3, 4),
        torch.nn.Sequential(),
        "weights.pt",
    ],
    ids=["bias", "relu", "three", "one", "rnn", "empty", "text"],
)
def test_other_modules_are_refused(module):
    with pytest.raises(lc.UnsupportedModel) as caught:
        lc.TwoLayer.from_module(module)
    assert caught.value.field == "module"


def test_layers_with_different_hidden_units_are_refused():
    with pytest.raises(lc.InvalidSpec) as caught:
        lc.TwoLayer.from_module(torch.nn.Sequential(linear(3, 4), linear(5, 2)))
    assert caught.value.field == "weights"
