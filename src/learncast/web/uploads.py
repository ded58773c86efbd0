"""Files that were dropped on the page: kept in memory, by a token, and never by a path."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from learncast._core.errors import InvalidSpec, LearncastError
from learncast._core.limits import allowing

#: Bytes of a file, and what it may take in memory once it is read; how many are kept.
MOST_BYTES, MOST_UNPACKED, MOST_FILES = 20 * 2**20, 256 * 2**20, 6

#: Where Linux keeps files in memory.
_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


class Uploads:
    """The files, the latest kept; what is made of each is made once."""

    def __init__(self) -> None:
        self.files: OrderedDict[str, tuple[str, bytes]] = OrderedDict()
        self.made: dict[tuple[str, str], Any] = {}

    def keep(self, name: str, content: bytes) -> str:
        """Keep a file and name it by a token, which is a hash of it."""
        name = PurePosixPath(name.replace("\\", "/")).name[:80] or "file"
        if len(content) > MOST_BYTES:
            raise InvalidSpec(
                f"a dropped file must have at most {MOST_BYTES // 2**20} MB, got {len(content) / 2**20:.1f} "
                "MB. Drop fewer trials, or use `learncast plan` on the file."
            )
        token = hashlib.sha256(name.encode() + b"\0" + content).hexdigest()[:32]
        self.hold(token, name, content)
        return token

    def hold(self, token: str, name: str, content: bytes) -> None:
        """Keep a file under a token; the oldest gives way."""
        self.files[token] = (name, content)
        self.files.move_to_end(token)
        while len(self.files) > MOST_FILES:
            gone, _ = self.files.popitem(last=False)
            self.made = {key: value for key, value in self.made.items() if key[0] != gone}

    def name(self, token: str) -> str:
        """What the file was called."""
        return self._file(token)[0]

    def _file(self, token: str) -> tuple[str, bytes]:
        if token not in self.files:
            raise InvalidSpec("the dropped file must still be in memory, got a link to one that is not. Drop it again.")
        return self.files[token]

    def read(self, token: str, kind: str, make: Callable[[Path], Any]) -> Any:
        """What `make` reads from the file, once; the limits of files and memory hold.

        Readers of files take paths: the content lies in a folder of its own that nobody else may enter, for as long as
        it is read; in memory, where the system keeps a folder there.
        """
        if (token, kind) not in self.made:
            name, content = self._file(token)
            with tempfile.TemporaryDirectory(prefix="learncast-", dir=_MEMORY) as folder, allowing(MOST_UNPACKED):
                path = Path(folder) / f"dropped{PurePosixPath(name).suffix.lower()}"
                path.write_bytes(content)
                try:
                    self.made[token, kind] = make(path)
                except LearncastError as error:
                    parts = {key: value.replace(str(path), name) for key, value in vars(error).items()}
                    raise type(error)(**parts) from None
        return self.made[token, kind]


#: Those of this process.
UPLOADS = Uploads()
