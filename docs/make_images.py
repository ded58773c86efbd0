"""Make the README's pictures: python docs/make_images.py."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

from learncast.answers.plan import planned
from learncast.figures import save
from learncast.study import Study

ROOT = Path(__file__).parents[1]
IMAGES = ROOT / "docs" / "images"
PINNED = "#curriculum?pin_value=1.8&pin_accuracy=0.55"


def plan_picture() -> None:
    """The plan of the example study."""
    answer = planned(Study.load(ROOT / "examples" / "two_integration_tasks.toml"))
    save(answer.draw(), IMAGES / "plan.png", dpi=150)


def explorer_picture() -> None:
    """The explorer's first room with a pinned curriculum, as a browser shows it."""
    program = shutil.which("chromium")
    if program is None:
        print("explorer.png stays as it is: Chromium is not installed")
        return
    from playwright.sync_api import sync_playwright

    command = [Path(sys.executable).with_name("learncast"), "explore", "--port", "0", "--no-browser"]
    server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    address = re.search(r"http://\S+", server.stdout.readline())[0]
    try:
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
            page = browser.new_page(viewport={"width": 1280, "height": 1250})
            page.goto(address + PINNED)
            page.wait_for_selector('[data-reading="both stages"]')
            page.wait_for_timeout(500)
            page.screenshot(path=IMAGES / "explorer.png")
            browser.close()
    finally:
        server.terminate()
        server.communicate()


if __name__ == "__main__":
    plan_picture()
    explorer_picture()
