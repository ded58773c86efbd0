"""The learnability window of a model while it trains."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import xarray as xr
from torch import nn, optim

from learncast._core.errors import InvalidSpec
from learncast._core.packages import lightning_package
from learncast._core.validation import between, count
from learncast.windows.checkpoints import followed
from learncast.windows.diagnosis import window
from learncast.windows.learnability_window import LearnabilityWindow
from learncast.windows.question import Batching, DetectionRule, Measurement, refuse_loose

#: Share of the wall time that diagnoses may take when no cadence is given.
SHARE = 0.08


class WindowMonitor:
    """Follows the learnability window during training; call `step` once after every step of the optimiser.

    Parameters
    ----------
    model : torch.nn.Module
    optimizer : torch.optim.Optimizer
    data : (inputs, targets)
        Held-out sequences, as for `learncast.windows.window`; 100 or more.
    every : int, optional
        Training steps between diagnoses. By default the first step is diagnosed, and the next diagnosis waits until
        all of them together take at most `share` of the time since then, so the cadence suits model and machine.
    share : float
        Largest share of the wall time that goes into diagnoses.
    clock : function of nothing
        Seconds.
    measurement, rule, batching : optional
        As for `learncast.windows.window`; by default along one direction and with 99 nulls.

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
    ...     found = monitor.step()
    >>> monitor.history["step"].values, monitor.history["reach"].dims
    (array([2, 4]), ('step', 'layer'))
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: optim.Optimizer,
        data: tuple[Any, Any],
        *,
        every: int | None = None,
        share: float = SHARE,
        measurement: Measurement | None = None,
        rule: DetectionRule | None = None,
        batching: Batching | None = None,
        clock: Callable[[], float] = time.perf_counter,
        **loose: Any,
    ) -> None:
        refuse_loose(loose)
        self.model, self.optimizer, self.data = model, optimizer, data
        self.every = None if every is None else count("every", every)
        self.share = between("share", share, 1e-6, 1.0)
        self.question: dict[str, Any] = {
            "measurement": measurement or Measurement(directions=1),
            "rule": rule or DetectionRule(nulls=99),
            "batching": batching or Batching(),
        }
        self._clock, self._begun, self._spent, self._steps = clock, clock(), 0.0, 0
        self._found: list[tuple[int, LearnabilityWindow]] = []

    def step(self) -> LearnabilityWindow | None:
        """Count one training step; diagnose when it is time to, and return what was found."""
        self._steps += 1
        return self.diagnose() if self._due() else None

    def diagnose(self) -> LearnabilityWindow:
        """Diagnose now."""
        begun = self._clock()
        found = window(self.model, *self.data, optimizer=self.optimizer, **self.question)
        self._spent += self._clock() - begun
        self._found.append((self._steps, found))
        return found

    def _due(self) -> bool:
        if self.every is not None:
            return self._steps % self.every == 0
        if not self._found:
            return True
        # The next one will cost about as much as the mean so far, and must fit too.
        ahead = self._spent / len(self._found)
        return self._spent + ahead <= self.share * (self._clock() - self._begun + ahead)

    @property
    def overhead(self) -> float:
        """Share of the time since the monitor was made that went into diagnoses; nan before any time has passed."""
        passed = self._clock() - self._begun
        return self._spent / passed if passed > 0 else float("nan")

    @property
    def latest(self) -> LearnabilityWindow | None:
        """The last diagnosis."""
        return self._found[-1][1] if self._found else None

    @property
    def history(self) -> xr.Dataset:
        """What the diagnoses found, over the training step at which they were made."""
        if not self._found:
            raise InvalidSpec(
                f"the monitor must have diagnosed the model at least once, got none in {self._steps} steps. Call "
                "step() after every step of the optimiser, or diagnose()."
            )
        steps, found = zip(*self._found, strict=True)
        return followed(found, steps)

    def __repr__(self) -> str:
        pace = f"every {self.every} steps" if self.every is not None else f"at most {self.share:.0%} of the time"
        last = "" if self.latest is None else f", last window {float(self.latest['reach'].isel(layer=0)):g} steps"
        return (
            f"<WindowMonitor: {len(self._found)} diagnoses in {self._steps} steps ({pace}); "
            f"measured overhead {self.overhead:.1%}{last}>"
        )


def lightning_callback(data: tuple[Any, Any], **options: Any) -> Any:
    """A Lightning callback that follows the window of the trained module with its first optimiser.

    Its `monitor` is None until the first batch has been trained on.

    Parameters
    ----------
    data, **options
        As for `WindowMonitor`.

    Returns
    -------
    lightning.Callback
        For ``Trainer(callbacks=[...])``; its `monitor` is a `WindowMonitor`.

    Raises
    ------
    InvalidSpec
        If Lightning is not installed.

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

        def on_train_batch_end(self, trainer: Any, pl_module: Any, *rest: Any, **named: Any) -> None:
            if self.monitor is None:
                self.monitor = WindowMonitor(pl_module, trainer.optimizers[0], data, **options)
            self.monitor.step()

    return WindowCallback()
