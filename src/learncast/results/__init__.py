"""Labelled results of forecasts and training runs, with status, step counts and provenance."""

from learncast.results.files import (
    Provenance,
    Result,
    described,
    load_dataset,
    package_versions,
    save_dataset,
    spec_hash,
)
from learncast.results.steps import FORECAST_CLASSES, Status, Steps
from learncast.results.trajectory import ALWAYS, COORDINATES, SCHEMA, STEPS, Trajectory, labelled

__all__ = [
    "ALWAYS", "COORDINATES", "FORECAST_CLASSES", "SCHEMA", "STEPS", "Provenance", "Result", "Status", "Steps",
    "Trajectory", "described", "labelled", "load_dataset", "package_versions", "save_dataset", "spec_hash",
]  # fmt: skip
