"""dlq serve: the console, the HTTP API, the queue server, health and metrics, in one process."""

import logging
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Annotated, Any, Final, Literal

from cyclopts import Parameter
from cyclopts.validators import Number
from msgspec import structs

from deadletter.app import App
from deadletter.core.errors import ConfigError
from deadletter.core.redact import redact
from deadletter.loading import load_app
from deadletter.observe.logs import Log, line, log_events
from deadletter.office.doctor import Check, Health
from deadletter.settings import Settings

from .app import ExitCode
from .browser import open_page
from .checks import show_checks
from .desk import AtDesk, Desk
from .options import Flag
from .streams import never_wait
from .work import log_lines

_FRAMES: Final = 12

Port = Annotated[int | None, Parameter(validator=Number(gte=0, lte=65535))]


async def serve(
    app: str | None = None,
    /,
    *,
    host: str | None = None,
    port: Port = None,
    access: Literal["on", "off"] | None = None,
    check: Flag = False,
    open: Flag = False,
    verbose: Annotated[Flag, Parameter(name=["--verbose", "-v"])] = False,
    quiet: Annotated[Flag, Parameter(name=["--quiet", "-q"])] = False,
    desk: AtDesk,
) -> ExitCode:
    """
    Serve the web console, the HTTP API, the queue server, health and metrics.

    By default the server listens on this machine only. The first run prints the token of the
    first administrator, once, and a link to the console that signs in with it. The first
    interrupt lets requests in progress finish; the second does not wait.

    Args:
        app: The App, as module:name (default: `app` in deadletter.toml). Replay plans
            check bodies against its handlers, which do not run here.
        host: The address to listen on (default: `serve.host`, 127.0.0.1).
        port: The port; 0 means a free one (default: `serve.port`, 8418).
        access: Require tokens; `off` is allowed only on a local address.
        check: Only check the configuration.
        open: Open the console in a browser of this machine, signed in as an administrator.
        verbose: Also log less important requests, such as health checks.
        quiet: Log nothing except the address.
    """
    desk.check_unnamed()
    settings = _with_options(desk.settings, host=host, port=port, access=access)
    least = logging.WARNING if quiet else logging.DEBUG if verbose else logging.INFO
    log = log_lines(desk, least)
    parts: dict[str, Any] = {
        "url": desk.given_url,
        "office": desk.given_office,
        "clock": desk.clock,
        "dice": desk.dice,
        "observe": log_events(desk.clock, log=log),
    }
    with _extra():
        from deadletter.server import server, startup  # noqa: PLC0415 -- an extra
    known = desk.app if app is None else load_app(app)
    if check:
        found = await startup.check(settings, file=desk.file(), **parts)
        return show_checks(desk, [*found, _bodies(app or settings.app, known)])
    never_wait(desk.clock, as_json=desk.as_json)
    with _library_logs(log):
        ending = await server.serve(
            settings,
            fits=known.fits if known is not None else None,
            log=None if quiet else log,
            tell=lambda listening: _announce(desk, listening, in_browser=open),
            with_door=open,
            **parts,
        )
    return {
        server.Ending.WELL: ExitCode.OK,
        server.Ending.BADLY: ExitCode.UNEXPECTED,
        server.Ending.HURRIED: ExitCode.INTERRUPTED,
    }[ending]


def _bodies(name: str | None, known: App | None) -> Check:
    """Return a check that says whether replay plans check bodies against handlers."""
    if known is not None:
        text = f"replay plans check bodies against the handlers of {name}."
        return Check("bodies", Health.OK, text)
    text = "replay plans do not check bodies against handlers: "
    if name is None:
        return Check("bodies", Health.OK, f"{text}no App is named.")
    return Check("bodies", Health.WARN, f"{text}{name} is not loaded.")


def _with_options(settings: Settings, **given: Any) -> Settings:
    """Return the settings, changed by options of the command line."""
    changes = {name: value for name, value in given.items() if value is not None}
    return structs.replace(settings, serve=structs.replace(settings.serve, **changes))


@contextmanager
def _extra() -> Iterator[None]:
    try:
        yield
    except ModuleNotFoundError as error:
        if (error.name or "").startswith("deadletter"):
            raise
        raise ConfigError(f"dlq serve needs {error.name}: pip install 'deadletter[web]'") from error


def _announce(desk: Desk, listening: Any, *, in_browser: bool) -> None:
    is_headless = bool(in_browser and listening.door and not open_page(listening.door))
    if desk.as_json:
        desk.document({"event": "listening", "url": listening.url})
        if listening.token:
            desk.document({"event": "first-token", "token": listening.token})
        if listening.door:
            desk.document({"event": "console", "url": listening.door})
    else:
        desk.tell(f"Listening on {listening.url} over {redact(desk.url)}")
        if listening.token:
            desk.tell(f"First token, valid for a day, not shown again: {listening.token}")
        if listening.door:
            once = " (works once, within ten minutes)" if "#" in listening.door else ""
            desk.tell(f"Console{once}: {listening.door}")
        if is_headless:
            desk.hint("No browser with windows was found here: open the link in one.")
    sys.stdout.flush()


@contextmanager
def _library_logs(log: Log) -> Iterator[None]:
    """Also write the log records of libraries and request handlers to the log."""
    handler = _Handler(log)
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)


class _Handler(logging.Handler):
    """A handler that logs warnings and errors as lines, with the stack of an error."""

    def __init__(self, log: Log) -> None:
        super().__init__(logging.WARNING)
        self._log = log

    def emit(self, record: logging.LogRecord) -> None:
        """Log one record as one line."""
        fields = {"text": line(redact(record.getMessage()))}
        if record.exc_info and record.exc_info[1] is not None:
            fields["error"] = line(redact(repr(record.exc_info[1])))
            fields["stack"] = redact(_stack(record.exc_info[1]))
        with suppress(OSError):  # the reader of the log has gone away
            self._log(record.levelno, record.name, fields)


def _stack(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)[-_FRAMES:]
    return " < ".join(f"{f.filename}:{f.lineno} {f.name}" for f in reversed(frames))
