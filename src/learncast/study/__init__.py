"""The study file: a person's tasks, network and training, read from TOML."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from learncast.study.advice_study import AdviceStudy
    from learncast.study.study import Study
    from learncast.study.study_file import to_toml
    from learncast.study.window_study import WindowStudy

#: Loaded on first use: keys are checked before what a study is built of is there.
_HOME = {"AdviceStudy": "advice_study", "Study": "study", "WindowStudy": "window_study", "to_toml": "study_file"}

__all__ = ["AdviceStudy", "Study", "WindowStudy", "to_toml"]


def __getattr__(name: str) -> Any:
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
