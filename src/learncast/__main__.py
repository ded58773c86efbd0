"""Run the command line: `python -m learncast`, or `learncast`."""

import sys


def main() -> None:
    """Run it; Ctrl-C ends it with one line, even before a command has begun."""
    try:
        from learncast.system import interruptible

        with interruptible():
            from learncast.cli import main as run

            run()
    except KeyboardInterrupt:
        print("learncast: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
