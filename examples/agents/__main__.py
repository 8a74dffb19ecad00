"""
The service, and what a person does with it.

    python -m agents                          answer questions, score samples
    python -m agents ask "What is 6 * 7?"     ask, and wait for the answer
    python -m agents evaluate samples.jsonl   have a dataset scored
    python -m agents dead                     what lies in the dead-letter mailbox
    python -m agents replay --error NAME      send back what died of it
    python -m agents tidy                     let go of what is older than 30 days
"""

import argparse
import sys
from uuid import uuid4

import structlog

from .client import ask, evaluate, replay, show_dead, throw_away
from .errors import MailboxError
from .post import Post
from .service import mailboxes, serve
from .settings import Settings


def main(arguments: list[str] | None = None) -> int:
    parser = _parser()
    given = parser.parse_args(arguments)
    try:
        settings = Settings.from_environment()
        return serve(settings) if given.command is None else _told(given, settings)
    except (ValueError, MailboxError) as error:
        parser.error(str(error))


def _told(given: argparse.Namespace, settings: Settings) -> int:
    with Post(settings.url, office=settings.office) as post:
        boxes = mailboxes(post)
        name = f"client-{uuid4().hex[:12]}"
        match given.command:
            case "ask":
                return ask(boxes, given.questions, name, wait=given.wait)
            case "evaluate":
                return evaluate(boxes, given.dataset, name, wait=given.wait)
            case "dead":
                return show_dead(boxes)
            case "tidy":
                return throw_away(boxes)
            case _:
                return replay(boxes, given.error)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="agents", description=__doc__)
    commands = parser.add_subparsers(dest="command")
    asking = commands.add_parser("ask", help="ask, and wait for the answer")
    asking.add_argument("questions", nargs="+")
    asking.add_argument("--wait", type=float, default=60.0)
    evaluating = commands.add_parser("evaluate", help="have a dataset scored")
    evaluating.add_argument("dataset")
    evaluating.add_argument("--wait", type=float, default=60.0)
    commands.add_parser("dead", help="what lies in the dead-letter mailbox")
    commands.add_parser("tidy", help="let go of what is older than 30 days")
    replaying = commands.add_parser("replay", help="send back what died of an error")
    replaying.add_argument("--error", required=True, help="part of the error's type")
    return parser


def speak_on_stderr() -> None:
    """Log lines are not what was asked for: they go elsewhere than answers."""
    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))


if __name__ == "__main__":
    speak_on_stderr()
    sys.exit(main())
