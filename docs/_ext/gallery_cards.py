"""Cards of the gallery and the tutorials: the picture of a figure in a light and a dark version."""

from __future__ import annotations

import posixpath
import re
from pathlib import Path

from docutils import nodes
from gallery_figures import versions
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

#: Picture of a card as sphinx-gallery writes it.
THUMBNAIL = re.compile(r"(.*images/)thumb/(sphx_glr_.+)_thumb\.\w+$")


#: Figure of a script that is its card, as sphinx-gallery reads it; the first by default.
CHOSEN = re.compile(r"^# sphinx_gallery_thumbnail_number = (\d+)$", re.MULTILINE)


def chosen(script: Path) -> int:
    """Number of the figure that is the card of a script."""
    found = CHOSEN.search(script.read_text(encoding="utf-8"))
    return int(found[1]) if found else 1


class ExampleCard(SphinxDirective):
    """The figure of a tutorial as the picture of a card, by the name of the script."""

    required_arguments = 1

    def run(self) -> list[nodes.Node]:
        """Return the picture in both versions."""
        (name,) = self.arguments
        number = chosen(Path(self.env.srcdir, "tutorials", f"{name}.py"))
        base = f"generated/tutorials/images/sphx_glr_{name}_{number:03d}"
        return [
            nodes.image(uri=f"/{file.as_posix()}", alt="", classes=[f"only-{look}"])
            for look, file in card(base).items()
        ]


#: Opening of a card, whose tooltip is the first paragraph of the script, and its title.
TOOLTIP = re.compile(r'<div class="sphx-glr-thumbcontainer" tooltip="([^"]*)">')
TITLE = '<div class="sphx-glr-thumbnail-title">'


def say(doctree: nodes.document) -> None:
    """Write the first sentence of each script below the title of its card."""
    sentence = ""
    for raw in doctree.findall(nodes.raw):
        text = raw.astext()
        if found := TOOLTIP.search(text):
            sentence = re.split(r"(?<=[.?]) ", found[1])[0]
        elif TITLE in text:
            said = f'</div><div class="card-text">{sentence}</div>'
            raw.children[:] = [nodes.Text(text.replace("</div>", said, 1))]


def card(base: str) -> dict[str, Path]:
    """Looks and files of the picture of a card."""
    return versions(Path(f"{base}_card.svg"))


def use_cards(app: Sphinx, doctree: nodes.document) -> None:
    """Show the pictures of cards in the version of the page, and what each shows."""
    say(doctree)
    for image in list(doctree.findall(nodes.image)):
        if found := THUMBNAIL.match(image["uri"]):
            folder, name = found.groups()
            dark = image.deepcopy()
            folder = posixpath.normpath(posixpath.join("/", posixpath.dirname(app.env.docname), folder))
            folder = folder.lstrip("/")
            script = Path(folder.removeprefix("generated/")).parent / f"{name.removeprefix('sphx_glr_')}.py"
            number = chosen(Path(app.srcdir, script))
            pair = card(f"{folder}/{name}_{number:03d}")
            for one, (look, file) in zip((image, dark), pair.items(), strict=True):
                one["uri"] = f"/{file.as_posix()}"
                one["classes"].append(f"only-{look}")
            image.parent.insert(image.parent.index(image) + 1, dark)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive, and replace pictures of cards before Sphinx collects the pictures of a page."""
    app.add_directive("example-card", ExampleCard)
    app.connect("doctree-read", use_cards, priority=400)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
