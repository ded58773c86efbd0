"""Make the figures of the README, at twice the size at which they are shown: python docs/make_images.py."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np

import learncast as lc
from learncast.figures import save
from learncast.figures.look import read_tokens
from learncast.report.plan import plan_report
from learncast.study import Study

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PINNED = "#curriculum"
LEARNING = "#prior-knowledge"


def plan_figure() -> None:
    """The plan of the example study."""
    report = plan_report(Study.load(ROOT / "examples" / "two_integration_tasks.toml"))
    save(report.draw(), IMAGES / "plan.png", dpi=240)


def forecast_figure() -> None:
    """The forecast of the first recipe on the page about recordings."""
    rng = np.random.default_rng(0)
    rates = rng.normal(size=(200, 30, 12))
    reach = 0.1 * rates.sum(axis=1) @ rng.normal(size=(12, 2)) + rng.normal(size=(200, 2))
    save(lc.forecast(rates, reach).report().draw(), IMAGES / "forecast.png", dpi=200)


def badges() -> None:
    """Facts of pyproject.toml as a row of badges, drawn here so that no page asks another host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    facts = {"Python": ", ".join(pythons), "licence": project["license"], "types": "mypy strict", "telemetry": "none"}
    parts, x, tokens = [], 0, read_tokens()
    for name, value in facts.items():
        left, right = (round(6.6 * len(text)) + 16 for text in (name, value))
        parts += [
            f'<rect x="{x}" width="{left + right}" height="20" rx="4" fill="{tokens["faint"]}"/>',
            f'<path d="M{x + left} 0h{right - 4}a4 4 0 0 1 4 4v12a4 4 0 0 1-4 4H{x + left}z" fill="{tokens["curriculum"]}"/>',
            f'<text x="{x + left / 2}" y="14">{name}</text><text x="{x + left + right / 2}" y="14">{value}</text>',
        ]
        x += left + right + 6
    size = f'width="{x - 6}" height="20" font-size="11" font-family="Verdana, DejaVu Sans, sans-serif"'
    head = f'<svg xmlns="http://www.w3.org/2000/svg" {size} fill="white" text-anchor="middle">'
    text = f"{head}{''.join(parts)}</svg>\n"
    (IMAGES / "badges.svg").write_text(text, encoding="utf-8")


#: Number of frames of the explorer's animation, and milliseconds per frame.
FRAMES, BETWEEN = 25, 180


def explorer_images() -> None:
    """A screenshot of the explorer's first panel, and an animation of learning task A and then task B."""
    program = shutil.which("chromium")
    if program is None:
        print("explorer.png and explorer.gif are not updated: Chromium is not installed")
        return
    from playwright.sync_api import sync_playwright

    command = [Path(sys.executable).with_name("learncast"), "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", server.stdout.readline())[0]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            sharp = browser.new_page(viewport={"width": 1280, "height": 900}, device_scale_factor=2)
            sharp.goto(f"{address}{PINNED}")
            settled(sharp)
            sharp.screenshot(path=IMAGES / "explorer.png")
            page = browser.new_page(viewport={"width": 1280, "height": 1070})
            page.goto(f"{address}{LEARNING}")
            settled(page)
            animation(page)
            browser.close()
    finally:
        server.terminate()
        server.communicate()


def settled(page: Any) -> None:
    """Wait until every part of the page shows the last state."""
    page.wait_for_selector(".part[aria-busy]")
    page.wait_for_function("() => ![...document.querySelectorAll('.part')].some(p => p.ariaBusy === 'true')")
    page.wait_for_timeout(800)


def animation(page: Any) -> None:
    """Move the time slider and save the frames as a GIF."""
    from PIL import Image

    frames = []
    bar = page.locator("#player input")
    for k in range(FRAMES + 1):
        bar.evaluate("(e, share) => { e.value = share; e.dispatchEvent(new Event('input')); }", k / FRAMES)
        page.wait_for_timeout(60)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB")
        # A smaller image is still legible.
        frames.append(picture.resize((picture.width * 9 // 16, picture.height * 9 // 16)).quantize(128))
    frames[0].save(
        IMAGES / "explorer.gif", save_all=True, append_images=frames[1:], duration=BETWEEN, loop=0, optimize=True
    )


if __name__ == "__main__":
    plan_figure()
    forecast_figure()
    badges()
    explorer_images()
