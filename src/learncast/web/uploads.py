"""Files that were dropped on the page: they are kept in memory under a token, never under a path."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import TypeVar, cast

from learncast._core.errors import InvalidSpec, LearncastError
from learncast._core.limits import allowing

#: Most bytes of a file, most bytes that it may take in memory once it is read, and most files that are kept.
MOST_BYTES, MOST_UNPACKED, MOST_FILES = 20 * 2**20, 256 * 2**20, 6

#: A folder in memory, which Linux has.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None

_Content = TypeVar("_Content")


class Uploads:
    """The latest dropped files, and the objects that were read from them."""

    def __init__(self) -> None:
        self.files: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self.objects: dict[tuple[str, str], object] = {}

    def add(self, name: str, content: bytes) -> str:
        """Keep a file and return its token, a hash of its name and content."""
        name = PurePosixPath(name.replace("\\", "/")).name or "file"
        if len(content) > MOST_BYTES:
            sizes = f"{MOST_BYTES // 2**20} MB, got {len(content) / 2**20:.1f} MB"
            raise InvalidSpec(f"A dropped file must have at most {sizes}. Use `learncast plan` on larger files.")
        token = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()[:32]
        self.store(token, name, content)
        return token

    def store(self, token: str, name: str, content: bytes) -> None:
        """Keep a file under a token and forget the oldest one if there are too many."""
        self.files[token] = (name, content)
        self.files.move_to_end(token)
        while len(self.files) > MOST_FILES:
            oldest, _ = self.files.popitem(last=False)
            self.objects = {key: value for key, value in self.objects.items() if key[0] != oldest}

    def file(self, token: str) -> tuple[str, bytes]:
        """Return the name and the content of a file."""
        if token not in self.files:
            raise InvalidSpec("The dropped file is no longer in memory. Drop it again.", field="data")
        return self.files[token]

    def read(self, token: str, kind: str, load: Callable[[Path], _Content]) -> _Content:
        """Return what `load` reads from a file, which is read once for each `kind`.

        Parameters
        ----------
        token : str
        kind : str
            Name of what is read.
        load : callable
            Reads a path. The file is written to a private temporary folder for as long as it runs.
        """
        if (token, kind) not in self.objects:
            name, content = self.file(token)
            with tempfile.TemporaryDirectory(prefix="learncast-", dir=_MEMORY) as folder, allowing(MOST_UNPACKED):
                suffix = PurePosixPath(name).suffix.lower()
                path = Path(folder) / f"dropped{suffix if suffix[1:].isalnum() and len(suffix) < 10 else ''}"
                path.write_bytes(content)
                try:
                    self.objects[token, kind] = load(path)
                except LearncastError as error:
                    raise type(error)(str(error).replace(str(path), name), **vars(error)) from None
        return cast(_Content, self.objects[token, kind])


#: Dropped files of this process.
UPLOADS = Uploads()
