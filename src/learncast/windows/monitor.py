"""The learnability window of a model while it trains."""

from __future__ import annotations

from time import perf_counter
from typing import Any

import xarray as xr
from numpy.typing import ArrayLike
from torch import Tensor, nn, optim

from learncast._core.errors import InvalidSpec
from learncast._core.packages import lightning_package
from learncast._core.validation import between, count
from learncast.windows.checkpoints import combined
from learncast.windows.diagnosis import window
from learncast.windows.options import Batching, DetectionRule, Measurement, Options
from learncast.windows.result import Window

Pair = tuple[ArrayLike | Tensor, ArrayLike | Tensor]
#: Default share of the wall time that diagnoses may take.
SHARE = 0.08


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
        return combined(windows, steps)

    def __repr__(self) -> str:
        pace = f"every {self.every} steps" if self.every is not None else f"at most {self.share:.0%} of the time"
        last = "" if self.latest is None else f", last window {float(self.latest['reach'].isel(layer=0)):g} steps"
        return f"<WindowMonitor: {len(self._windows)} diagnoses in {self._steps} steps ({pace}){last}>"


def lightning_callback(data: Pair, **options: Any) -> object:
    """A Lightning callback that monitors the window of the trained module with its first optimiser.

    Its `monitor` is None until the first batch has been trained on.

    Parameters
    ----------
    data, **options
        As for `WindowMonitor`.

    Returns
    -------
    lightning.Callback
        For ``Trainer(callbacks=[...])``; its `monitor` is a `WindowMonitor`.

    Examples
    --------
    >>> import learncast as lc
    >>> import torch
    >>> inputs = torch.randn(120, 8, 1, generator=torch.Generator().manual_seed(0))
    >>> callback = lc.windows.lightning_callback((inputs, inputs[:, -2]), every=100)
    >>> callback.monitor is None  # until the first batch
    True
    >>> trainer = lightning.Trainer(max_epochs=5, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.fit(module, loader)  # doctest: +SKIP
    >>> print(callback.monitor)  # doctest: +SKIP
    """
    base = lightning_package().Callback

    class WindowCallback(base):  # type: ignore[misc, valid-type]
        """Diagnoses the module after training batches."""

        def __init__(self) -> None:
            super().__init__()
            self.monitor: WindowMonitor | None = None

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: object, **named: object) -> None:
            if self.monitor is None:
                self.monitor = WindowMonitor(pl_module, trainer.optimizers[0], data, **options)
            self.monitor.step()

    return WindowCallback()
