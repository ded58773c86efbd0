"""Updates: one step of training after the other, by a loss, an optimiser, clipping and a schedule."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from learncast._core.errors import InvalidSpec
from learncast.training.sources import Batch
from learncast.training.training import SGD, Training


class Updates:
    """Moves a module's parameters, batch by batch.

    Parameters
    ----------
    module : nn.Module
        Changed in place.
    training : Training
        Says the loss, the optimiser, clipping and the schedule of its rate.
    make : callable, optional
        Of nothing, to a fresh optimiser of the module's parameters; the training's own by default.

    Attributes
    ----------
    optimizer : torch optimiser
    taken : int
        Steps since the optimiser was made.
    """

    def __init__(
        self, module: nn.Module, training: Training, *, make: Callable[[], torch.optim.Optimizer | SGD] | None = None
    ) -> None:
        self.module, self.training, self.loss = module, training, training.loss_object
        self.parameters = [p for p in module.parameters() if p.requires_grad]
        self._make = make or (lambda: training.made_update(self.parameters))
        self.begin()

    def begin(self) -> None:
        """Start with a fresh optimiser, and the schedule at its first step."""
        self.optimizer, self.taken = self._make(), 0
        self.schedule = self.training.made_schedule(self.optimizer)

    def step(self, batch: Batch) -> float | None:
        """One update, and the loss before it; None, and the weights as they were, when a number is not finite."""
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.loss(self.module(batch.inputs), batch.targets, batch.weights)
        loss.backward()  # type: ignore[no-untyped-call]
        value, clip = float(loss.detach()), self.training.clip
        if clip is not None:
            size = float(nn.utils.clip_grad_norm_(self.parameters, clip))
        else:
            size = _size([p.grad for p in self.parameters if p.grad is not None])
        if not (np.isfinite(value) and np.isfinite(size)):
            return None
        before = [p.detach().clone() for p in self.parameters]
        self.optimizer.step()
        if not np.isfinite(_size(self.parameters)):
            with torch.no_grad():
                for parameter, old in zip(self.parameters, before, strict=True):
                    parameter.copy_(old)
            return None
        if self.schedule is not None:
            self.schedule.step()
        self.taken += 1
        return value

    def tensors(self) -> dict[str, Tensor]:
        """The optimiser's state as named tensors."""
        found: dict[str, Tensor] = {}
        for k, state in self.optimizer.state_dict()["state"].items():
            for key, value in state.items():
                if value is not None:
                    found[f"optimizer.{k}.{key}"] = torch.as_tensor(value).clone()
        return found

    def facts(self) -> dict[str, Any]:
        """What else is needed to go on, in what JSON can hold: a schedule and the rates that it has set."""
        if self.schedule is None:
            return {}
        groups = [{k: v for k, v in group.items() if k != "params"} for group in self.optimizer.param_groups]
        found = {"schedule": self.schedule.state_dict(), "groups": groups, "taken": self.taken}
        try:
            json.dumps(found)
        except TypeError as error:
            name = type(self.schedule).__name__
            raise InvalidSpec(
                f"a schedule must have a state of plain numbers where checkpoints are written, got {name} "
                f"({error}). Leave checkpoint out, or use another schedule."
            ) from error
        return found

    def restore(self, tensors: dict[str, Tensor], facts: dict[str, Any]) -> None:
        """Go on from such a state; names without their beginning."""
        state: dict[int, dict[str, Any]] = {}
        for name, value in tensors.items():
            k, key = name.split(".", 1)
            state.setdefault(int(k), {})[key] = value
        self.optimizer.load_state_dict({**self.optimizer.state_dict(), "state": state})
        if self.schedule is not None and facts:
            self.schedule.load_state_dict(facts["schedule"])
            self.taken = int(facts["taken"])
            for group, saved in zip(self.optimizer.param_groups, facts["groups"], strict=True):
                group.update({k: tuple(v) if isinstance(group.get(k), tuple) else v for k, v in saved.items()})


def _size(tensors: Sequence[Any]) -> float:
    return sum(float(t.detach().abs().sum()) for t in tensors)
