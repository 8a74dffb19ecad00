"""
The service and its commands.

    python -m agents                          run the service
    python -m agents ask "What is 6 * 7?"     ask questions and wait for the answers
    python -m agents evaluate samples.jsonl   score a dataset
    python -m agents dead                     list the dead requests that are still open
    python -m agents replay --error NAME      replay dead requests by error type
    python -m agents retention                apply retention now
"""

import argparse
import sys
from uuid import uuid4

import structlog

from .backend import Backend
from .commands import apply_retention, ask, evaluate, list_dead, replay
from .errors import MailboxError
from .service import mailboxes, serve
from .settings import Settings


def main(arguments: list[str] | None = None) -> int:
    """Run the service or one of its commands; return the exit code."""
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        settings = Settings.from_environment()
        return serve(settings) if given.command is None else _run(given, settings)
    except (ValueError, MailboxError) as error:
        parser.error(str(error))


def _run(given: argparse.Namespace, settings: Settings) -> int:
    with Backend(settings.url, office=settings.office) as backend:
        boxes = mailboxes(backend)
        name = f"client-{uuid4().hex[:12]}"
        match given.command:
            case "ask":
                return ask(boxes, given.questions, name, wait=given.wait)
            case "evaluate":
                return evaluate(boxes, given.dataset, name, wait=given.wait)
            case "dead":
                return list_dead(boxes)
            case "retention":
                return apply_retention(boxes)
            case _:
                return replay(boxes, given.error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agents", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    asking = commands.add_parser("ask", help="ask questions and wait for the answers")
    asking.add_argument("questions", nargs="+")
    asking.add_argument("--wait", type=float, default=60.0)
    evaluating = commands.add_parser("evaluate", help="score a dataset")
    evaluating.add_argument("dataset")
    evaluating.add_argument("--wait", type=float, default=60.0)
    commands.add_parser("dead", help="list the dead requests that are still open")
    commands.add_parser("retention", help="apply retention now")
    replaying = commands.add_parser("replay", help="replay dead requests by error type")
    replaying.add_argument("--error", required=True, help="part of the error's type")
    return parser


def log_to_stderr() -> None:
    """Write log lines to standard error, so that standard output has only answers."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


if __name__ == "__main__":
    log_to_stderr()
    sys.exit(main())
