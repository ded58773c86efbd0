"""Run the command line: `python -m learncast`, or `learncast`."""

import sys


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line, even while modules are imported."""
    try:
        from learncast._core.system import interruptible

        with interruptible():
            from learncast.cli import main as run

            run()
    except (KeyboardInterrupt, Exception) as error:
        if not _interrupted(error):
            raise
        print("learncast: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


def _interrupted(error: BaseException | None) -> bool:
    """Return whether Ctrl-C caused the error: compiled modules convert it to an ImportError."""
    seen = set()
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


if __name__ == "__main__":
    main()
