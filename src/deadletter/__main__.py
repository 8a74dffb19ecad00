"""Run `dlq` as `python -m deadletter`."""

from deadletter.cli import main

if __name__ == "__main__":
    main()
