"""Cards of the gallery and the tutorials: the picture of a figure in a light and a dark version."""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from gallery_figures import versions
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

#: Picture of a card as sphinx-gallery writes it.
THUMBNAIL = re.compile(r"(.*images/)thumb/(sphx_glr_.+)_thumb\.\w+$")


class ExampleCard(SphinxDirective):
    """The figure of a tutorial as the picture of a card: name of the script and number of the figure."""

    required_arguments = 2

    def run(self) -> list[nodes.Node]:
        """Return the picture in both versions."""
        name, number = self.arguments
        path = Path(f"/generated/tutorials/images/sphx_glr_{name}_{int(number):03d}_card")
        return [
            nodes.image(uri=file.as_posix(), alt="", classes=[f"only-{look}"]) for look, file in versions(path).items()
        ]


def use_cards(app: Sphinx, doctree: nodes.document) -> None:
    """Show the pictures of cards in the version of the page."""
    for image in list(doctree.findall(nodes.image)):
        if found := THUMBNAIL.match(image["uri"]):
            folder, name = found.groups()
            dark = image.deepcopy()
            for one, look, ending in ((image, "light", ""), (dark, "dark", "_dark")):
                one["uri"] = f"{folder}{name}_001_card{ending}.svg"
                one["classes"].append(f"only-{look}")
            image.parent.insert(image.parent.index(image) + 1, dark)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and replace pictures of cards before Sphinx collects the pictures of a page."""
    app.add_directive("example-card", ExampleCard)
    app.connect("doctree-read", use_cards, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
