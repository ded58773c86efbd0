"""The study file: a person's tasks, network and training, read from TOML."""

from learncast.study.files import network_from_file, task_from_file, two_layer_from_file
from learncast.study.study import Study
from learncast.study.tables import to_toml

__all__ = ["Study", "network_from_file", "task_from_file", "to_toml", "two_layer_from_file"]
