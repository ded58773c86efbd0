"""The worker process: computes parts of panels for requests from standard input."""

from __future__ import annotations

import pickle
import sys
from typing import IO

import xarray  # noqa: F401  (most computations need it, so it is loaded before the first request)

from learncast._core.errors import LearncastError
from learncast.web.app import all_panels, part_json
from learncast.web.uploads import UPLOADS


def work(requests: IO[bytes], answers: IO[bytes]) -> None:
    """Answer requests until the stream ends; the first message, True, says that everything is loaded."""
    panels = {panel.name: panel for panel in all_panels()}
    result: object = True
    while True:
        pickle.dump(result, answers)
        answers.flush()
        try:
            name, part, state, files = pickle.load(requests)
        except EOFError:
            return
        for token, file in files.items():
            UPLOADS.store(token, *file)
        try:
            result = part_json(panels[name], part)(panels[name].state.model_validate_json(state))
        except LearncastError as error:
            result = error
        except Exception as error:  # the server logs it
            result = RuntimeError(f"{type(error).__name__}: {error}")


if __name__ == "__main__":
    output = sys.stdout.buffer
    sys.stdout = sys.stderr  # printed text must not mix with the answers
    work(sys.stdin.buffer, output)
