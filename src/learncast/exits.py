"""How a command ends on bad input."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

import typer


@contextmanager
def plain_errors() -> Iterator[None]:
    """Bad input is one sentence on stderr and exit code 2, never a traceback."""
    from learncast.errors import AssumptionViolated, LearncastError

    try:
        yield
    except AssumptionViolated as error:
        print(f"learncast: {error}", file=sys.stderr)
        raise typer.Exit(1) from error
    except LearncastError as error:
        print(f"learncast: {error}", file=sys.stderr)
        raise typer.Exit(2) from error
    except BrokenPipeError:
        raise
    except OSError as error:
        print(f"learncast: {error.filename or 'a file'}: {error.strerror or error}", file=sys.stderr)
        raise typer.Exit(2) from error
