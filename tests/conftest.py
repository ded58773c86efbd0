"""Cases of a test that only `make test-all` runs, named where the test stands, and what is left out without torch."""

from __future__ import annotations

import gc
from collections.abc import Generator
from importlib.util import find_spec

import pytest
from hypothesis import settings

TORCH = find_spec("torch") is not None


#: Of the examples that a property names, the fast suite tries a third; with the slow tests, all are tried.
settings.register_profile("fast", max_examples=100)
settings.register_profile("all", max_examples=300)


def pytest_configure(config: pytest.Config) -> None:
    settings.load_profile("fast" if "not slow" in config.option.markexpr else "all")


def pytest_collection_finish() -> None:
    """Look for garbage seldom, and never among the million objects of loaded packages: it took a tenth of the time."""
    gc.freeze()
    gc.set_threshold(50_000, 20, 50)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        marker = item.get_closest_marker("slow_cases")
        if marker is not None and item.name.partition("[")[2].removesuffix("]") in marker.args:
            item.add_marker(pytest.mark.slow)
        if not TORCH and item.get_closest_marker("torch") is not None:
            item.add_marker(pytest.mark.skip(reason="torch is not installed"))


def _lacks_torch(error: BaseException | None) -> bool:
    """Whether nothing but the absence of torch led to this."""
    while error is not None:
        if isinstance(error, ImportError) and (error.name or "").partition(".")[0] == "torch":
            return True
        error = error.__cause__
    return False


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report(
    collector: pytest.Collector,
) -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    """Leave out a file that loads torch, where there is none."""
    report = yield
    call = getattr(report, "call", None)
    if not TORCH and report.failed and call is not None and _lacks_torch(call.excinfo.value):
        report.outcome = "skipped"
        report.longrepr = (str(collector.path), 0, "Skipped: torch is not installed")
    return report


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(call: pytest.CallInfo) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Leave out a test that came to load torch, where there is none; which rooms may is tested with it."""
    report = yield
    if not TORCH and report.failed and call.excinfo is not None and _lacks_torch(call.excinfo.value):
        report.outcome = "skipped"
        path, line, _ = report.location
        report.longrepr = (path, line or 0, "Skipped: torch is not installed")
    return report
