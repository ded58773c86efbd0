"""Labelled results of forecasts and training runs, with status, step counts and provenance."""

from learncast.results.files import (
    Provenance,
    Result,
    described,
    load_dataset,
    package_versions,
    save_dataset,
    spec_hash,
    variables,
)
from learncast.results.steps import CLASS_WORDS, FORECAST_CLASSES, PROOFS, Status, Steps
from learncast.results.trajectory import ALWAYS, COORDINATES, SCHEMA, STEPS, Trajectory, labelled

__all__ = [
    "ALWAYS",
    "CLASS_WORDS",
    "COORDINATES",
    "FORECAST_CLASSES",
    "PROOFS",
    "SCHEMA",
    "STEPS",
    "Provenance",
    "Result",
    "Status",
    "Steps",
    "Trajectory",
    "described",
    "labelled",
    "load_dataset",
    "package_versions",
    "save_dataset",
    "spec_hash",
    "variables",
]  # fmt: skip
