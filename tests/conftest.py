"""Cases of a test that only `make test-all` runs, named where the test stands."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("slow_cases")
        if marker is not None and item.name.partition("[")[2].removesuffix("]") in marker.args:
            item.add_marker(pytest.mark.slow)
