"""The questions of a first hour get the numbers of plain numpy and torch."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
_spec = importlib.util.spec_from_file_location("first_hour", Path(__file__).parents[2] / "examples" / "first_hour.py")
first_hour = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(first_hour)


def test_there_are_at_least_thirty_questions():
    assert len(first_hour.TASKS) >= 30


@pytest.mark.slow
@pytest.mark.parametrize(("text", "ask"), first_hour.TASKS, ids=[str(k) for k, _ in enumerate(first_hour.TASKS, 1)])
def test_a_question_of_the_first_hour(text, ask):
    own, other = ask()
    assert np.isfinite(own)
    assert own == pytest.approx(other, rel=1e-9), text
