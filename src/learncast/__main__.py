"""Run the command line: `python -m learncast`, or `learncast`."""

import signal
import sys
from types import FrameType


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line, even while modules are imported."""
    pressed = []

    def remember(number: int, frame: FrameType | None) -> None:
        # Compiled modules that are imported may turn the exception into another one, or lose it.
        pressed.append(number)
        signal.default_int_handler(number, frame)

    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, remember)
    try:
        from learncast._core.system import interruptible

        with interruptible():
            from learncast.cli import main as run

            run()
    except (KeyboardInterrupt, Exception) as error:
        if not pressed and not isinstance(error, KeyboardInterrupt):
            raise
        print("learncast: interrupted", file=sys.stderr)
        raise SystemExit(130) from None


if __name__ == "__main__":
    main()
