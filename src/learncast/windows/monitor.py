"""The learnability window of a model while it trains."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from time import perf_counter

import numpy as np
import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec
from learncast._core.validation import between, count
from learncast.results import STEPS, described
from learncast.windows.diagnosis import window
from learncast.windows.layer_result import LAG
from learncast.windows.options import Batching, DetectionRule, Measurement, Options
from learncast.windows.result import CONDITIONS, Window
from learncast.windows.transport.decay import power_of_lag

Pair = tuple[ArrayLike | Tensor, ArrayLike | Tensor]
#: Default share of the wall time that diagnoses may take.
SHARE = 0.08
#: Variables of a window that a history keeps.
KEPT = (
    "reach", "contiguous_reach", "window", "envelope", "signal", "time_scale", "tail_index", "scale", "critical_score",
    "decay_kind", "decay_rate", "decay_exponent", "sequences",
)  # fmt: skip
#: Quantiles of the units' time scales.
QUANTILES = (0.1, 0.5, 0.9)


class WindowMonitor:
    """Diagnoses the learnability window during training; call `step` once after every step of the optimiser.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer
    data : (inputs, targets)
        Held-out sequences, as for `learncast.windows.window`; 100 or more.
    every : int, optional
        Training steps between diagnoses. By default the first step is diagnosed, and the next diagnosis waits until
        all of them together take at most `share` of the time since then.
    share : float
        Largest share of the wall time for diagnoses.
    measurement, rule, batching : optional
        As for `learncast.windows.window`; by default with one direction and 99 nulls.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(120, 8, 1, generator=torch.Generator().manual_seed(0))
    >>> targets = inputs[:, -2]
    >>> model = lc.training.gated_module("gru", hidden_size=4)
    >>> optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    >>> measurement = lc.windows.Measurement(lags=(1, 2, 3), directions=1)
    >>> monitor = lc.windows.WindowMonitor(model, optimizer, (inputs, targets), every=2, measurement=measurement)
    >>> for _ in range(4):
    ...     optimizer.zero_grad()
    ...     (model(inputs) - targets).pow(2).mean().backward()
    ...     optimizer.step()
    ...     latest = monitor.step()
    >>> monitor.history["step"].values, monitor.history["reach"].dims
    (array([2, 4]), ('step', 'layer'))
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        data: Pair,
        *,
        every: int | None = None,
        share: float = SHARE,
        measurement: Measurement | None = None,
        rule: DetectionRule | None = None,
        batching: Batching | None = None,
    ) -> None:
        self.model, self.optimizer, self.data = model, optimizer, data
        self.every = None if every is None else count("every", every)
        self.share = between("share", share, 1e-6, 1.0)
        self.options: Options = {
            "measurement": measurement or Measurement(directions=1),
            "rule": rule or DetectionRule(nulls=99),
            "batching": batching or Batching(),
        }
        self._begun, self._spent, self._steps = perf_counter(), 0.0, 0
        self._windows: list[tuple[int, Window]] = []

    def step(self) -> Window | None:
        """Count one training step; diagnose and return the window if a diagnosis is due."""
        self._steps += 1
        return self.diagnose() if self._due() else None

    def diagnose(self) -> Window:
        """Diagnose now."""
        begun = perf_counter()
        latest = window(self.model, *self.data, optimizer=self.optimizer, **self.options)
        self._spent += perf_counter() - begun
        self._windows.append((self._steps, latest))
        return latest

    def _due(self) -> bool:
        if self.every is not None:
            return self._steps % self.every == 0
        if not self._windows:
            return True
        # The next diagnosis will cost about as much as the mean so far, and must fit too.
        ahead = self._spent / len(self._windows)
        return self._spent + ahead <= self.share * (perf_counter() - self._begun + ahead)

    @property
    def latest(self) -> Window | None:
        """The last window."""
        return self._windows[-1][1] if self._windows else None

    @property
    def history(self) -> xr.Dataset:
        """All windows over the training step at which they were diagnosed."""
        if not self._windows:
            raise InvalidSpec("a history needs at least one diagnosis. Call step() after every step of the optimiser.")
        steps, windows = zip(*self._windows, strict=True)
        return _combined(windows, steps)

    def __repr__(self) -> str:
        pace = f"every {self.every} steps" if self.every is not None else f"at most {self.share:.0%} of the time"
        last = "" if self.latest is None else f", last window {float(self.latest['reach'].isel(layer=0)):g} steps"
        return f"<WindowMonitor: {len(self._windows)} diagnoses in {self._steps} steps ({pace}){last}>"


def _combined(windows: Sequence[Window], steps: Sequence[int]) -> xr.Dataset:
    """Windows of one model in one dataset over the training step of each."""
    names = [*KEPT, *(f"validity_{name}" for name in CONDITIONS)]
    parts = [one.dataset[[name for name in names if name in one.dataset]] for one in windows]
    dataset = xr.concat(parts, "step", combine_attrs="override", join="exact")
    dataset["step"] = ("step", np.array(steps, dtype=np.int64), described("training step", STEPS))
    slopes = [[power_of_lag(one["lag"].values, f) for f in one["envelope"].values] for one in parts]
    text = "exponent of the envelope as a power of the lag"
    dataset["envelope_exponent"] = (("step", "layer"), np.array(slopes), described(text, "1"))
    with warnings.catch_warnings():  # a layer without any known unit or lag gives nan
        warnings.simplefilter("ignore", RuntimeWarning)
        times = dataset["time_scale"].transpose("step", "layer", "unit").values
        spectrum = np.nanquantile(times, QUANTILES, axis=-1, method="lower")
        middle = np.nanmedian(dataset["tail_index"].transpose("step", "layer", "lag").values, axis=-1)
    dims = ("quantile", "step", "layer")
    dataset["time_scale_quantile"] = (dims, spectrum, described("quantile of the units' time scales", LAG))
    dataset["tail_index_median"] = (dims[1:], middle, described("median tail index over lags", "1"))
    return dataset.assign_coords(quantile=("quantile", list(QUANTILES), described("share of the units", "1")))
