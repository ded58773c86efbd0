"""Check the built site: links are valid, nothing is loaded from another host, options keep their hyphens, no code is empty.

`make docs` runs it after the build: `python docs/_ext/check_site.py docs/_build/html`.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

#: Tags with an attribute that the browser fetches.
FETCHED = {
    "script": "src", "img": "src", "source": "src", "iframe": "src", "video": "src", "audio": "src", "embed": "src",
    "object": "data", "use": "href",
}  # fmt: skip
#: Kinds of <link> that the browser fetches.
LINKS = {
    "stylesheet",
    "icon",
    "preload",
    "modulepreload",
    "shortcut",
    "manifest",
    "prefetch",
    "preconnect",
    "dns-prefetch",
}
#: An option of a command, such as --out, whose hyphens have become a dash.
DASHED = re.compile(r"(?<!\w)[–—][a-z][\w-]*")


class Page(HTMLParser):
    """Links, fetched addresses, anchors, dashed options and the number of empty blocks of code of a page."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.links: list[str] = []
        self.fetches: list[str] = []
        self.anchors: set[str] = set()
        self.dashed: list[str] = []
        self.empty = 0
        self._block: str | None = None  #: text of the block of code that is open
        self.feed(path.read_text(encoding="utf-8"))

    def handle_data(self, data: str) -> None:
        """Collect options whose hyphens have become a dash."""
        self.dashed += DASHED.findall(data)
        if self._block is not None:
            self._block += data

    def handle_endtag(self, tag: str) -> None:
        """Count blocks of code without a word."""
        if tag == "pre" and self._block is not None:
            self.empty += not self._block.strip()
            self._block = None

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Collect links, fetched addresses and anchors."""
        given = {key: value or "" for key, value in attrs}
        if tag == "pre":
            self._block = ""
        self.anchors |= {given[key] for key in ("id", "name") if given.get(key)}
        if tag == "a" and "href" in given:
            self.links.append(given["href"])
        elif tag == "link" and LINKS & set(given.get("rel", "").split()):
            self.fetches.append(given.get("href", ""))
        elif tag in FETCHED and given.get(FETCHED[tag]):
            self.fetches.append(given[FETCHED[tag]])
        for candidate in given.get("srcset", "").split(","):
            if candidate.strip():
                self.fetches.append(candidate.split()[0])


@cache
def page(path: Path) -> Page:
    """Parse a page once."""
    return Page(path)


def is_external(address: str) -> bool:
    """Whether an address is on another host."""
    return bool(urlsplit(address).netloc) or address.startswith("//")


def faults(site: Path) -> Iterator[str]:
    """Yield one sentence for each fault."""
    for path in sorted(site.rglob("*.html")):
        if "_static" in path.relative_to(site).parts:
            continue
        for address in page(path).fetches:
            if is_external(address):
                yield f"{path.relative_to(site)} fetches {address} from another host"
            elif not address.startswith("data:") and not _target(path, address).exists():
                yield f"{path.relative_to(site)} fetches {address}, which does not exist"
        for option in page(path).dashed:
            yield f"{path.relative_to(site)} shows {option}, an option whose hyphens have become a dash"
        if page(path).empty:
            yield f"{path.relative_to(site)} has {page(path).empty} empty block(s) of code"
        for address in page(path).links:
            yield from _broken(site, path, address)
    for sheet in sorted(site.rglob("*.css")):
        for address in re.findall(
            r"(?:url\(|@import\s+)['\"]?((?:https?:)?//[^'\")]+)", sheet.read_text(encoding="utf-8")
        ):
            yield f"{sheet.relative_to(site)} fetches {address} from another host"
    if not (site / "searchindex.js").exists():
        yield "there is no search index"


def _broken(site: Path, path: Path, address: str) -> Iterator[str]:
    split = urlsplit(address)
    if split.scheme or split.netloc:
        return
    target = _target(path, address) if split.path else path
    if target.is_dir():
        target /= "index.html"
    if not target.exists():
        yield f"{path.relative_to(site)} links to {address}, which does not exist"
    elif "?" in split.fragment:  # a state of the explorer, not an anchor
        return
    elif split.fragment and target.suffix == ".html" and unquote(split.fragment) not in page(target).anchors:
        yield f"{path.relative_to(site)} links to {address}, which has no such anchor"


def _target(path: Path, address: str) -> Path:
    return (path.parent / unquote(urlsplit(address).path)).resolve()


if __name__ == "__main__":
    found = list(faults(Path(sys.argv[1]).resolve()))
    print(*found, sep="\n", file=sys.stderr)
    pages = len(list(Path(sys.argv[1]).rglob("*.html")))
    print(f"{pages} pages checked, {len(found)} faults", file=sys.stderr)
    sys.exit(bool(found))
