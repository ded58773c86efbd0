"""Run the command line: `python -m learncast`."""

from learncast.cli import main

if __name__ == "__main__":
    main()
