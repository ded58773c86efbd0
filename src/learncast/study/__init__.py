"""The study file: tasks, network and training, read from TOML.

The names load on first use, so that the keys of a file are checked before the objects it describes are imported.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from learncast._core.lazy import exported

if TYPE_CHECKING:
    from learncast.study.advice_study import AdviceStudy as AdviceStudy
    from learncast.study.study import Study as Study
    from learncast.study.study_file import to_toml as to_toml
    from learncast.study.template import new_study as new_study
    from learncast.study.window_study import WindowStudy as WindowStudy

__all__, __getattr__, __dir__ = exported(
    __name__,
    {
        "advice_study": "AdviceStudy",
        "study": "Study",
        "study_file": "to_toml",
        "template": "new_study",
        "window_study": "WindowStudy",
    },
)
