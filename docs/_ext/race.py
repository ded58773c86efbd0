"""The directive `race`: the picture of the front page, in which the reader chooses where the first task stops.

The numbers are in `_static/race.json`, written by `docs/make_race.py`. The page holds them itself, so that it also works from
a folder; `_static/race.js` draws them.
"""

from __future__ import annotations

import json
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

STORED = Path(__file__).parents[1] / "_static" / "race.json"
HTML = """
<figure class="race" id="race">
  <p class="race-answer" id="race-answer" aria-live="polite">Stop the first task at {best}% learned: <b>{total} steps</b>
  instead of {direct}.</p>
  <div class="race-keys" aria-hidden="true"><span class="key curriculum">curriculum</span><span
  class="key direct">direct training</span><span class="key first">first task, stronger targets</span></div>
  <div class="race-picture" id="race-picture" role="img" aria-label="Output of the network against gradient steps.
  Direct training reaches the target after {direct} steps, the curriculum after {total}."></div>
  <div class="race-controls">
    <button type="button" id="race-play">&#9654; Play</button>
    <label for="race-stop">Stop the first task at <output id="race-percent" for="race-stop">{best}%</output> learned</label>
    <div class="race-slider"><div class="race-saved" id="race-saved" aria-hidden="true"></div>
    <input type="range" id="race-stop" min="1" max="99" value="{best}"></div>
  </div>
  <figcaption>The network integrates evidence over 50 time steps. <i>66% learned</i> means that its output
  is 66% of the way from zero to the best output that it can reach for this task. The first task asks for 1.5 times the
  strength of the target. The bars show what every other stop saves.</figcaption>
  <noscript><p>The slider needs JavaScript.</p></noscript>
  <script type="application/json" id="race-numbers">{numbers}</script>
</figure>
"""


def html() -> str:
    """The picture with its controls and numbers."""
    numbers = STORED.read_text(encoding="utf-8").strip()
    race = json.loads(numbers)
    best = next(stop for stop in race["stops"] if stop["percent"] == race["best"])
    total = best["first"] + best["second"]
    return HTML.format(best=race["best"], direct=race["direct"], total=total, numbers=numbers)


class Race(SphinxDirective):
    """Inserts the picture and its script."""

    def run(self) -> list[nodes.Node]:
        """Return the picture as HTML."""
        self.env.note_dependency(str(STORED))
        return [nodes.raw("", html(), format="html")]


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and its script on the front page."""
    app.add_directive("race", Race)
    app.connect("html-page-context", _with_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}


def _with_script(app: Sphinx, page: str, *_: object) -> None:
    if page == "index":
        app.add_js_file("race.js", loading_method="defer")
