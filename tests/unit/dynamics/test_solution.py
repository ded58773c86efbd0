"""What every solution shares: how far a picture of learning goes, and which times it takes."""

from __future__ import annotations

import numpy as np
import pytest

from learncast.dynamics.solution import LearningTime, checked_times
from learncast.errors import InvalidSpec
from learncast.trajectory import Status


@pytest.mark.parametrize(
    ("steps", "shown"), [([8.0, 4.0], 10.0), ([0.4, np.inf], 0.5), ([np.inf, np.nan], 1000.0), ([0.0, 0.0], 1000.0)]
)
def test_a_picture_goes_a_little_beyond_the_slowest_mode_that_is_learned(steps, shown):
    times = np.array(steps)
    assert LearningTime(0.9, times, times, (Status.ok, Status.ok)).horizon == pytest.approx(shown, rel=1e-15)


@pytest.mark.parametrize(
    ("times", "said"),
    [([[0.0, 1.0]], "shape (1, 2)"), ([2.0, -3.0, -4.0], "-3"), ([1.0, np.nan], "nan"), ("soon", "'soon'")],
)
def test_times_that_are_none_are_shown(times, said):
    with pytest.raises(InvalidSpec) as error:
        checked_times(times)
    assert f"got {said}" in str(error.value)
