"""`python -m deadletter.cli` is `dlq`."""

from . import main

main()
