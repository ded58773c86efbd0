"""The study file: a person's tasks, network and training, read from TOML."""

from learncast.study.study import Study
from learncast.study.study_file import to_toml
from learncast.study.window_study import WindowStudy

__all__ = ["Study", "WindowStudy", "to_toml"]
