"""A Lightning callback for the stages of a loop."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learncast._core.errors import InvalidSpec
from learncast._core.packages import lightning_package
from learncast.training.loop import Loop


class CurriculumCallback:
    """A Lightning callback that leads a trainer through a loop and stops it at the end.

    Fit the module on the loop: ``trainer.fit(module, loop)``. Its `training_step` returns the loss, or for the loop of
    a plan {"loss": loss, "output": output}. Lightning fetches one batch ahead, so each stage is one step longer than
    necessary. Lightning saves the state of the loop in its own checkpoints.

    Parameters
    ----------
    loop : Loop

    Examples
    --------
    >>> import learncast as lc
    >>> target = lc.tasks.integration(steps=10)
    >>> stronger = target.varied(target_strength=1.5).renamed("stronger targets")
    >>> network = lc.LinearRNN.aligned(recurrence=0.9, initial=0.1, hidden_size=4)
    >>> loaders = {task.name: lambda: iter(()) for task in (stronger, target)}  # your DataLoaders
    >>> loop = lc.plan(target, [stronger], network, learning_rate=0.002).loop(loaders)
    >>> loop
    <Loop: stronger targets (0 of 155) -> integration (0 of 0)>
    >>> callback = lc.training.CurriculumCallback(loop)  # doctest: +SKIP
    >>> trainer = lightning.Trainer(max_epochs=-1, callbacks=[callback])  # doctest: +SKIP
    >>> trainer.fit(module, loop)  # doctest: +SKIP
    >>> print(loop.report())  # doctest: +SKIP
    """

    def __new__(cls, loop: Loop) -> CurriculumCallback:
        # The trainer expects a subclass of Lightning's callback, and Lightning is imported only here.
        kind = cls
        if cls is CurriculumCallback:
            lightning = lightning_package()
            kind = type(cls.__name__, (cls, lightning.Callback), {})
        callback: CurriculumCallback = object.__new__(kind)
        return callback

    def __init__(self, loop: Loop) -> None:
        super().__init__()
        self.loop = loop

    def on_train_start(self, trainer: object, pl_module: object) -> None:
        """Find the trainer's optimisers; refuse a trainer that accumulates gradients."""
        accumulated = getattr(trainer, "accumulate_grad_batches", 1)
        if accumulated != 1:
            got = f"accumulate_grad_batches={accumulated}"
            raise InvalidSpec(f"The trainer must step after every batch, got {got}.", field="accumulate_grad_batches")
        if not self.loop.optimizers:
            self.loop.optimizers = list(getattr(trainer, "optimizers", ()))

    def on_train_batch_end(
        self, trainer: Any, pl_module: object, outputs: Any, batch: object, batch_idx: int, *rest: object
    ) -> None:
        """Report a step to the loop, and stop the trainer when the loop is done."""
        loss, output = outputs, None
        if isinstance(outputs, Mapping):
            loss, output = outputs["loss"], outputs.get("output")
        self.loop.update(loss, output)
        if self.loop.done:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, object]:
        """Return the state of the loop."""
        return self.loop.state_dict()

    def load_state_dict(self, state_dict: dict[str, object]) -> None:
        """Restore the state of the loop."""
        self.loop.load_state_dict(state_dict)
