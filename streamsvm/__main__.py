"""`python -m streamsvm` is the command `streamsvm`."""

from streamsvm.cli import main

if __name__ == "__main__":
    main()
