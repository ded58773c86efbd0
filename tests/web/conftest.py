"""A running explorer and a real browser."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

#: Folder for screenshots, if any.
PICTURES = os.environ.get("EXPLORER_PICTURES")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.web)


STUDY = """
name = "small"
[model]
kind = "diag-gate"
hidden_size = 6
[training]
steps = 10
batch = 16
learning_rate = 0.01
[task]
steps = 16
inputs = 2
lags = [2, 5]
coefficients = [1.0, 0.8]
sequences = 64
[window]
lags = [1, 2, 3, 4, 5, 6]
sequences = 160
sample_sizes = [4, 64, 160, 4096, 65536]
nulls = 19
"""


@pytest.fixture(scope="session")
def saved_window(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small learnability window, measured and saved."""
    from learncast.report.window import window_report
    from learncast.study import WindowStudy

    folder = tmp_path_factory.mktemp("window")
    (folder / "study.toml").write_text(STUDY, encoding="utf-8")
    window_report(WindowStudy.load(folder / "study.toml")).write(folder / "out")
    return folder / "out" / "window.nc"


@dataclass
class Server:
    """A running explorer."""

    address: str
    process: subprocess.Popen[str]


@pytest.fixture(scope="session")
def server(saved_window: Path) -> Iterator[Server]:
    command = [Path(sys.executable).with_name("learncast"), "explore", "--port", "0", "--no-browser"]
    process = subprocess.Popen(
        [*command, "--window", saved_window], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    )
    assert process.stdout is not None
    line = process.stdout.readline()
    found = re.search(r"http://127\.0\.0\.1:\d+/", line)
    assert found, line + process.stdout.read()
    yield Server(found[0], process)
    process.terminate()
    process.communicate(timeout=10)


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    program = shutil.which("chromium")
    assert program, "Chromium must be installed; `make test-web` does that"
    with sync_playwright() as playwright:
        # A browser that root runs has no sandbox, and a container may have little shared memory.
        browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


@dataclass
class Visit:
    """A page of the explorer, with its console errors and requests."""

    page: Any
    server: Server
    errors: list[str] = field(default_factory=list)
    requests: list[tuple[str, str]] = field(default_factory=list)

    def open(self, where: str) -> Visit:
        self.page.goto(self.server.address + where)
        return self.settled()

    def settled(self) -> Visit:
        """Wait until every part shows the answer to the state in the address."""
        self.page.wait_for_selector(".part[aria-busy]")
        self.page.wait_for_function("() => document.body.dataset.address === location.hash")
        self.page.wait_for_function("() => ![...document.querySelectorAll('.part')].some(p => p.ariaBusy === 'true')")
        return self

    def follow(self, link: str) -> Visit:
        """Click a link to another state of the page, and wait for its answer."""
        address = self.page.locator(link).get_attribute("href")
        self.page.click(link)
        self.page.wait_for_function("address => location.hash === address", arg=address)
        return self.settled()

    @property
    def part_requests(self) -> int:
        """How often the page has requested a part."""
        return len([1 for method, url in self.requests if method == "POST" and not url.endswith("/doing")])

    def reading(self, label: str, part: str | None = None) -> float:
        within = f'[data-part="{part}"] ' if part else ""
        return float(self.page.locator(f'{within}[data-reading="{label}"]').first.get_attribute("data-value"))

    def plot(self, chart: str) -> Any:
        return self.page.locator(f'[data-chart="{chart}"] .plot')

    def numbers(self, chart: str, kind: str = "heatmap", which: str = "z") -> Any:
        """The data that plotly draws."""
        return self.plot(chart).evaluate(
            "(plot, [kind, which]) => plot.data.find(trace => trace.type === kind)[which]", [kind, which]
        )

    def screenshot(self, name: str) -> None:
        if PICTURES:
            Path(PICTURES).mkdir(parents=True, exist_ok=True)
            self.page.screenshot(path=Path(PICTURES) / f"{name}.png", full_page=True)


@pytest.fixture
def visit(browser: Any, server: Server, request: pytest.FixtureRequest) -> Iterator[Visit]:
    """A new page; a test may set its width and colours by `visit` parameters."""
    options = getattr(request, "param", {})
    phone = options.get("width", 1280) < 500
    context = browser.new_context(
        viewport={"width": options.get("width", 1280), "height": 900 if not phone else 780},
        has_touch=phone,
        is_mobile=phone,
        color_scheme=options.get("colours", "light"),
        accept_downloads=True,
        permissions=["clipboard-read", "clipboard-write"],
    )
    page = context.new_page()
    visit = Visit(page, server)
    page.on("console", lambda entry: visit.errors.append(entry.text) if entry.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: visit.errors.append(str(error)))
    page.on("request", lambda sent: visit.requests.append((sent.method, sent.url)))
    yield visit
    context.close()


@pytest.fixture(scope="session")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an exported page on Python's own web server."""
    folder = tmp_path_factory.mktemp("export") / "lab" / "page"
    made = subprocess.run([Path(sys.executable).with_name("learncast"), "explore", "--export", folder], check=False)
    assert made.returncode == 0
    server = [sys.executable, "-u", "-m", "http.server", "0", "--bind", "127.0.0.1", "--directory", folder.parents[1]]
    process = subprocess.Popen(server, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    assert process.stdout is not None
    port = re.search(r"port (\d+)", process.stdout.readline())
    assert port
    yield f"http://127.0.0.1:{port[1]}/lab/page/"
    process.terminate()
    process.communicate(timeout=10)
