"""Make the README's pictures: python docs/make_images.py."""

from __future__ import annotations

from pathlib import Path

from learncast.answers.plan import planned
from learncast.figures import save
from learncast.study import Study

ROOT = Path(__file__).parents[1]

if __name__ == "__main__":
    answer = planned(Study.load(ROOT / "examples" / "two_integration_tasks.toml"))
    save(answer.draw(), ROOT / "docs" / "images" / "plan.png", dpi=110)
