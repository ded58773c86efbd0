"""Make the figures of the README, at twice the size at which they are shown: python docs/make_images.py."""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import product
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.figure import Figure

import learncast as lc
from learncast.figures import look, save, style
from learncast.figures.look import GREY, STAGED, read_tokens

ROOT = Path(__file__).parents[1]
sys.path[:0] = [str(ROOT / "docs"), str(ROOT / "docs" / "_ext")]

import drawings  # noqa: E402
import lesson  # noqa: E402
import pictures  # noqa: E402
from gallery_figures import save_versions  # noqa: E402
from make_race import DIRECT, FIRST, GOAL, NETWORK, PLAN, TARGET, output  # noqa: E402

IMAGES = ROOT / "docs" / "images"
PINNED = "#curriculum"
LEARNING = "#prior-knowledge"


def hero_figure() -> None:
    """The race of the front page as one panel: direct training, and training that sees stronger targets first."""
    first, direct, goal = int(PLAN.best.stages[0].steps.value), int(DIRECT.steps.value), 100 * GOAL
    with style(), mpl.rc_context({"font.size": 10, "lines.linewidth": 2.2}):
        figure = Figure(figsize=(7.1, 2.7), layout="constrained")
        ax = figure.subplots()
        curves = {"first": 100 * output(FIRST, NETWORK, 260), "direct": 100 * output(TARGET, NETWORK, direct)}
        ax.axhline(goal, color=GREY, linewidth=0.8, linestyle="--")
        ax.plot(curves["direct"], color=look.DIRECT)
        ax.axvspan(0, first, color=look.FIRST, alpha=0.1, linewidth=0)
        ax.plot(curves["first"][: first + 1], color=STAGED)
        ax.plot(range(first, 261), curves["first"][first:], color=STAGED, linewidth=1, linestyle=":")
        ax.annotate("", (first, goal), (direct, goal), arrowprops={"arrowstyle": "<->", "color": STAGED, "lw": 1.4})
        ax.plot(first, goal, "o", color=STAGED, markersize=8)
        ax.plot(direct, goal, "o", color=look.DIRECT, markersize=8)
        words = {"ha": "center", "va": "bottom"}
        ax.text(
            (first + direct) / 2 + 12, goal + 3, f"{direct - first} steps saved", color=STAGED, weight="bold", **words
        )
        ax.text(
            first - 8, goal + 4, f"stronger targets first,\nstopped after {first} steps", color=STAGED, ha="right"
        )
        ax.text(direct - 22, goal - 8, f"target only:\n{direct} steps", color=look.DIRECT, va="top")
        ax.text(252, 147, "without the stop", color=STAGED, ha="left", va="top")
        ax.set(xlabel="gradient steps", ylabel="output (% of the target)", yticks=[0, 50, 100, 150])
        ax.set(xlim=(0, 390), ylim=(0, 152))
        save_versions(figure, IMAGES / "hero.svg")


def forecast_figure() -> None:
    """The forecast of the first recipe on the page about recordings."""
    rng = np.random.default_rng(0)
    rates = rng.normal(size=(200, 30, 12))
    reach = 0.1 * rates.sum(axis=1) @ rng.normal(size=(12, 2)) + rng.normal(size=(200, 2))
    save(lc.forecast(rates, reach).report().draw(), IMAGES / "forecast.png", dpi=200)


def agreement_figure() -> None:
    """The figure of the page about trust, for readers of the README."""
    with style(), mpl.rc_context({"font.size": 10}):
        figure, axes = drawings.empty(pictures.forecast_and_trained)
        pictures.forecast_and_trained(axes)
        save(figure, IMAGES / "agreement.png", dpi=150)


def badges() -> None:
    """Facts of pyproject.toml as a row of badges, drawn here so that no page asks another host."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    pythons = [one.rpartition(" ")[2] for one in project["classifiers"] if re.search(r"Python :: 3\.\d+$", one)]
    facts = {"version": project["version"]}
    facts |= {"Python": ", ".join(pythons), "licence": project["license"], "types": "mypy strict", "telemetry": "none"}
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
    """Screenshots of the explorer's first panel and its answer, light and dark, and an animation of two tasks."""
    program = shutil.which("chromium")
    if program is None:
        print("Pictures of the explorer are not updated: Chromium is not installed")
        return
    from playwright.sync_api import sync_playwright

    command = [Path(sys.executable).with_name("learncast"), "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", server.stdout.readline())[0]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            for theme, name in (("light", "explorer.png"), ("dark", "explorer_dark.png")):
                view = {"viewport": {"width": 1280, "height": 900}, "color_scheme": theme, "device_scale_factor": 2}
                sharp = browser.new_page(**view)
                sharp.goto(f"{address}{PINNED}")
                settled(sharp)
                sharp.screenshot(path=IMAGES / name)
                sharp.screenshot(path=IMAGES / name.replace("explorer", "answer"), clip=answer_box(sharp))
                sharp.close()
            page = browser.new_page(viewport={"width": 1280, "height": 1070})
            page.goto(f"{address}{LEARNING}")
            settled(page)
            animation(page)
            lesson_images(browser, address)
            browser.close()
    finally:
        server.terminate()
        server.communicate()


def answer_box(page: Any) -> dict[str, float]:
    """Area of the sentence, of the race and of the portrait, without the settings around them."""
    boxes = [page.locator(part).bounding_box() for part in ("#answer", "#race", "#side-chart")]
    left, top = (min(box[side] for box in boxes) for side in ("x", "y"))
    right = max(box["x"] + box["width"] for box in boxes)
    bottom = max(box["y"] + box["height"] for box in boxes)
    return {"x": left - 4, "y": top - 6, "width": right - left + 8, "height": bottom - top + 14}


def lesson_images(browser: Any, address: str) -> None:
    """Pictures of the lessons, for pages that are read without a web server."""
    from PIL import Image

    lessons = re.findall(
        r"^```{lesson} (.+) / (.+)$", (ROOT / "docs/start/lessons.md").read_text(encoding="utf-8"), re.M
    )
    for theme, (panel, example) in product(("light", "dark"), lessons):
        page = browser.new_page(viewport={"width": 800, "height": 760}, color_scheme=theme, device_scale_factor=1.5)
        page.goto(f"{address}{lesson.address(panel, example)}")
        settled(page)
        picture = Image.open(io.BytesIO(page.screenshot())).convert("RGB").quantize(64)
        picture.save(IMAGES / lesson.picture(panel, example, theme), optimize=True)
        page.close()


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
    hero_figure()
    forecast_figure()
    agreement_figure()
    badges()
    explorer_images()
