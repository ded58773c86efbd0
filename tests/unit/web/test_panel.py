"""Functions of a panel's state that are computed once."""

import pytest

from learncast.web import State, control
from learncast.web.panel import remembered


class Settings(State):
    rate: float = control(0.1, "rate", (0.0, 1.0))
    units: int = control(3, "units", (1, 9))
    time: float = control(0.0, "time shown", (0.0, 1.0), kind="hidden")


@pytest.mark.parametrize("options", [{"fields": "rate units"}, {"except_for": "time"}])
def test_a_state_is_computed_once_for_the_fields_that_matter(options):
    computed = []

    @remembered(4, **options)
    def product(state: Settings) -> float:
        computed.append(state)
        return state.rate * state.units

    states = [Settings(rate=0.5, time=time) for time in (0.0, 0.5, 1.0)]
    assert [product(state) for state in states] == [1.5, 1.5, 1.5]
    assert product(Settings(rate=0.5, units=4)) == 2.0
    assert computed == [Settings(rate=0.5), Settings(rate=0.5, units=4)]


def test_old_results_are_forgotten():
    computed = []
    double = remembered(1, "rate")(lambda state: computed.append(state.rate) or 2 * state.rate)
    assert [double(Settings(rate=rate)) for rate in (0.1, 0.1, 0.2, 0.1)] == [0.2, 0.2, 0.4, 0.2]
    assert computed == [0.1, 0.2, 0.1]
