"""What a process of the explorer does all day: answer questions that come in by its input."""

from __future__ import annotations

import pickle
import sys
from importlib import import_module
from typing import IO, Any

from learncast._core.errors import LearncastError
from learncast.web.app import rooms, shown
from learncast.web.uploads import UPLOADS
from learncast.web.worker import READY, Stopped, read, write


def work(questions: IO[bytes], answers: IO[bytes]) -> None:
    """Answer questions until there are no more."""
    known = {room.name: room for room in rooms()}
    import_module("xarray")  # which most parts of a room need, and no question should wait for
    write(answers, READY)
    while True:
        try:
            room, part, state, files = pickle.loads(read(questions))
        except Stopped:
            return
        for token, (name, content) in files.items():
            UPLOADS.hold(token, name, content)
        found: Any
        try:
            found = shown(known[room], part)(known[room].state.model_validate_json(state))
        except LearncastError as error:
            write(answers, b"!")
            write(answers, pickle.dumps(error))
            continue
        except Exception as error:  # the server logs it and says no more than that it happened
            write(answers, b"!")
            write(answers, pickle.dumps(RuntimeError(f"{type(error).__name__}: {error}")))
            continue
        write(answers, b"=")
        write(answers, found)


if __name__ == "__main__":
    answers = sys.stdout.buffer
    # What is printed by mistake must not be taken for an answer.
    sys.stdout = sys.stderr
    work(sys.stdin.buffer, answers)
