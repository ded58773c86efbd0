"""Run the command line: `python -m learncast`, or `learncast`."""

import _thread
import signal
import sys
import threading
from types import FrameType

#: Seconds after which Ctrl-C is raised again, if the command still runs.
AGAIN = 3.0


def main() -> None:
    """Run the command line; Ctrl-C ends it with one line, even while modules are imported."""
    pressed = []

    def remember(number: int, frame: FrameType | None) -> None:
        # Compiled modules that are imported may turn the exception into another one, or lose it.
        pressed.append(number)
        timer = threading.Timer(AGAIN, _thread.interrupt_main)
        timer.daemon = True
        timer.start()
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
