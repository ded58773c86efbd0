"""Files of a release agree with each other."""

from __future__ import annotations

import runpy
from pathlib import Path

import pytest

import learncast

ROOT = Path(__file__).parents[2]
RELEASE = runpy.run_path(str(ROOT / ".github" / "release_notes.py"))


def test_every_file_that_states_the_version_states_the_same():
    assert set(RELEASE["stated"]().values()) == {learncast.__version__}


def test_a_version_without_a_dated_section_has_no_release_notes():
    with pytest.raises(SystemExit):
        RELEASE["notes"]("99.0.0")


def test_release_notes_are_read_in_two_minutes_and_lead_to_old_and_new_names():
    notes = RELEASE["notes"](learncast.__version__)
    assert len(notes.partition("<details>")[0].split()) < 400
    names = notes.partition("### Old and new names")[2]
    assert names.count("\n| `") > 60


def test_authors_are_the_contributors_everywhere():
    for name in ("CITATION.cff", "pyproject.toml"):
        assert "learncast contributors" in (ROOT / name).read_text(encoding="utf-8")


@pytest.mark.parametrize("path", sorted((ROOT / ".github").rglob("*.yml")), ids=lambda path: path.name)
def test_workflows_and_forms_are_yaml(path):
    yaml = pytest.importorskip("yaml")
    assert isinstance(yaml.safe_load(path.read_text(encoding="utf-8")), dict)
