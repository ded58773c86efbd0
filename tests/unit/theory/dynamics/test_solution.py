"""What every solution shares: how far a picture of learning goes, and which times it takes."""

from __future__ import annotations

import numpy as np
import pytest

import learncast as lc
from learncast import InvalidSpec
from learncast.results import Status
from learncast.theory import LearningTime, checked_times


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


def test_the_strength_a_flow_comes_to_is_the_task_s():
    task = lc.tasks.static(np.diag([2.0, 1.0]))
    network = lc.TwoLayer.balanced(2, 2, 2, scale=0.3, rng=np.random.default_rng(0))
    flow = lc.solve(task, network, learning_rate=0.01, by="flow")
    np.testing.assert_allclose(np.sort(flow.optimum), [1.0, 2.0], rtol=1e-6)


@pytest.mark.parametrize(("strengths", "said"), [(1.0, "1 mode"), ([2.0, 1.0], "2 modes")])
def test_modes_are_counted_in_words(strengths, said):
    task = lc.tasks.integration(3, target_strength=strengths)
    network = lc.LinearRNN.aligned(recurrence=0.5, initial=0.1, hidden_size=2, task=task)
    assert lc.solve(task, network, learning_rate=0.01).modes.number == said
