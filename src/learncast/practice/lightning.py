"""A plan followed by a Lightning trainer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from learncast.errors import InvalidSpec
from learncast.packages import lightning_package
from learncast.practice.training_loop import TrainingLoop

#: What to do without Lightning.
_INSTEAD = "follow the plan in your own training loop with loop.stages(loaders)"


class CurriculumCallback:
    """A Lightning callback that leads a trainer through a plan and stops it at the end.

    The module is trained on `loop.dataloader(loaders)`, which follows the stage in training, and its `training_step`
    returns {"loss": loss, "output": output}; a loop by steps can do without the output. Lightning fetches one batch
    ahead, so each stage is trained one step longer than it need be. Lightning saves the loop's state in its own
    checkpoints.

    Parameters
    ----------
    loop : TrainingLoop

    Examples
    --------
    ::

        loop = plan.training_loop()
        trainer = lightning.Trainer(max_epochs=-1, callbacks=[CurriculumCallback(loop)])
        trainer.fit(module, loop.dataloader(loaders))
        print(loop.report())
    """

    def __new__(cls, loop: TrainingLoop) -> CurriculumCallback:
        # The trainer wants one of Lightning's own callbacks, and Lightning is loaded only now.
        made = cls
        if cls is CurriculumCallback:
            made = type(cls.__name__, (cls, lightning_package(_INSTEAD).Callback), {})
        callback: CurriculumCallback = object.__new__(made)
        return callback

    def __init__(self, loop: TrainingLoop) -> None:
        super().__init__()
        self.loop = loop

    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        """Refuse a trainer that makes several batches one step."""
        together = getattr(trainer, "accumulate_grad_batches", 1)
        if together != 1:
            raise InvalidSpec(
                required="a trainer that follows a plan must take one step for every batch",
                got=f"accumulate_grad_batches={together}",
                why="the plan counts steps",
                remedy="leave it out, and give the loaders larger batches",
            )

    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int, *rest: Any
    ) -> None:
        """Report a step to the loop, and stop when it is done."""
        loss, output = outputs, None
        if isinstance(outputs, Mapping):
            loss, output = outputs["loss"], outputs.get("output")
        self.loop.update(loss, output)
        if self.loop.done:
            trainer.should_stop = True

    def state_dict(self) -> dict[str, Any]:
        """Where the loop stands."""
        return self.loop.state_dict()

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Go on from there."""
        self.loop.load_state_dict(state_dict)
