"""The directive `lesson`: an example of the explorer in a page, and the explorer's files beside the site.

`{lesson} curriculum / Stop early` shows the example of that name of a panel. The files are those of `learncast explore --export`. Browsers load
them from a web server only, so that a page opened as a file keeps the picture of the example that `python docs/make_images.py` makes.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

FOLDER = "explorer"
BEFORE = '<figure class="lesson" data-explorer="../{folder}/index.html{address}" data-title="{name}: the explorer">'
AFTER = """
  <p class="lesson-link"><a href="../{folder}/index.html{address}">Open it in the whole window</a></p>
</figure>
<script>
  for (const one of document.querySelectorAll(".lesson[data-explorer]")) {{
    if (location.protocol === "file:") {{
      one.querySelector(".lesson-link").innerHTML =
        "A picture. To move it: <code>python -m http.server --directory docs/_build/html</code>.";
    }} else {{
      const frame = Object.assign(document.createElement("iframe"), {{title: one.dataset.title, loading: "lazy"}});
      frame.src = one.dataset.explorer;
      one.querySelectorAll("img").forEach(picture => picture.remove());
      one.prepend(frame);
    }}
    delete one.dataset.explorer;
  }}
</script>
"""


def address(panel: str, example: str) -> str:
    """The part of the explorer's address that opens an example of a panel."""
    from learncast.web.answers import all_panels

    chosen = next(one for one in all_panels() if one.name == panel)
    changes = next(one for one in chosen.examples if one.name == example).changes
    query = {
        key: ",".join(map(_text, value)) if isinstance(value, list | tuple) else _text(value)
        for key, value in changes.items()
    }
    return f"#{panel}" + (f"?{urlencode(query)}" if query else "")


def _text(value: Any) -> str:
    return str(int(value)) if isinstance(value, float) and value.is_integer() else str(value)


class Lesson(SphinxDirective):
    """Inserts one example."""

    required_arguments = 1
    final_argument_whitespace = True

    def run(self) -> list[nodes.Node]:
        """Return pictures of the example, which a script replaces by the explorer if a server is there."""
        panel, example = (part.strip() for part in self.arguments[0].split("/"))
        words = {"folder": FOLDER, "address": address(panel, example), "name": example}
        pictures = [
            nodes.image(uri=f"/images/{picture(panel, example, look)}", alt=example, classes=[f"only-{look}"])
            for look in ("light", "dark")
        ]
        before, after = (nodes.raw("", text.format(**words), format="html") for text in (BEFORE, AFTER))
        return [before, *pictures, after]


def picture(panel: str, example: str, look: str) -> str:
    """File of the picture of an example on a light or dark page, below `docs/images`."""
    return f"lesson-{panel}-{re.sub(r'[^a-z]+', '-', example.lower())}-{look}.png"


def export(app: Sphinx, error: Exception | None) -> None:
    """Write the explorer's files, once for a site."""
    folder = Path(app.outdir) / FOLDER
    if error is None and app.builder.format == "html" and not folder.exists():
        from learncast.web.export import export_site

        export_site(folder)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive and the export."""
    app.add_directive("lesson", Lesson)
    app.connect("build-finished", export)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
