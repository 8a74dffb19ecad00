"""dlq work and dlq classify: run the handlers of an App, and classify an error."""

import asyncio
import builtins
import json
import logging
import os
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

from cyclopts import Parameter
from cyclopts.validators import Number
from rich.text import Text

from deadletter.app import App
from deadletter.core.errors import BackendError, ConfigError, NotFound, StoreLost
from deadletter.core.events import Observer
from deadletter.core.failure import Verdict
from deadletter.core.failure.classify import ErrorClassifier
from deadletter.core.failure.rules import DEFAULT
from deadletter.core.policy import DLQPolicy
from deadletter.core.text import clean
from deadletter.loading import load_app
from deadletter.observe.logs import Log, log_events
from deadletter.observe.observers import fan_out, gathered
from deadletter.output import drain
from deadletter.runtime.health import Exposition
from deadletter.runtime.lifeline import PLACE
from deadletter.runtime.supervisor import ChildEnded, answer_probes, supervise
from deadletter.wiring.serving import read_rules

from .app import ExitCode
from .desk import AtDesk, Desk
from .options import Flag, OptionalText
from .reload import code_of, watching
from .streams import never_wait
from .tracebacks import tracebacks

MISSING: Final = "/metrics needs prometheus-client: pip install 'deadletter[metrics]'"


def can_count() -> bool:
    """Return whether the metrics library is installed."""
    return find_spec("prometheus_client") is not None


def metered(observe: Observer) -> tuple[Observer, Exposition]:
    """Return an observer that also counts events, and the exposition of its counts."""
    if not can_count():
        return observe, _no_metrics
    from deadletter.observe.metrics import Counted  # noqa: PLC0415 -- an extra

    counted = Counted()
    return fan_out(counted.observe, observe), counted.text


async def _no_metrics() -> bytes:
    raise NotFound(MISSING)


Count = Annotated[int | None, Parameter(validator=Number(gte=1))]
Port = Annotated[int | None, Parameter(validator=Number(gte=1, lte=65535))]


def work(
    app: str | None = None,
    /,
    *,
    processes: Annotated[Count, Parameter(name=["--processes", "-p"])] = None,
    only: str | None = None,
    health_port: Port = None,
    reload: Flag = False,
    verbose: Annotated[Flag, Parameter(name=["--verbose", "-v"])] = False,
    quiet: Annotated[Flag, Parameter(name=["--quiet", "-q"])] = False,
    desk: AtDesk,
) -> int:
    """
    Run the handlers of an App until interrupted, and log what happens.

    The first interrupt lets running handlers finish; the second does not wait.

    Args:
        app: The App, as module:name (default: `app` in deadletter.toml).
        processes: The number of processes. A supervisor replaces processes that
            die.
        only: Run the handlers of these mailboxes only, such as orders,mails.
        health_port: Answer /health/live, /health/ready, /health/dlq and /metrics on
            this port; with several processes, the supervisor answers.
        reload: For development: start the processes again when the code of the App
            changes. Handlers that run may finish.
        verbose: Also log successes.
        quiet: Log nothing; the observer of the App still gets all events.
    """
    desk.check_here()
    never_wait(desk.clock, as_json=desk.as_json)
    settings = desk.settings
    name = app or settings.app
    if name is None:
        raise ConfigError("name the App to run, as in `dlq work shop:app`")
    count = processes or settings.work.processes
    port = health_port or settings.work.health_port
    if reload:
        with watching(code_of(name), lambda text: desk.err.print(Text(clean(text), "dim"))):
            return _several(
                desk, name, count, port, only=only, verbose=verbose, quiet=quiet, reload=True
            )
    loaded = load_app(name)  # so that an error is printed once, not by every child
    loaded.rules = read_rules(settings.rules)
    if port is not None and not can_count() and PLACE not in os.environ:
        desk.err.print(MISSING)
    if desk.given_url:
        loaded.url = desk.given_url
    if desk.given_url or desk.given_office:
        loaded.office_url = desk.given_office
    mailboxes = _mailboxes(loaded, only)
    if count > 1:
        asyncio.run(_check(loaded))
        return _several(desk, name, count, port, only=only, verbose=verbose, quiet=quiet)
    if not quiet:
        _listen(desk, loaded, logging.DEBUG if verbose else logging.INFO)
    metrics = None
    if port is not None:
        loaded.observe, metrics = metered(loaded.observe)
    try:
        code = loaded.run(
            only=mailboxes,
            health_port=port,
            health_host=settings.work.health_host,
            depth_threshold=settings.depth_threshold,
            metrics=metrics,
            watchdog=settings.work.watchdog or None,
        )
    except StoreLost as error:  # printed here, because _leave() may end the process
        sys.stderr.write(f"dlq: {clean(str(error))}\n")
        code = ExitCode.STORE_LOST
    return _leave(code)


def _mailboxes(app: App, only: str | None) -> list[str] | None:
    """Return the mailboxes named by --only; raise ConfigError for one without a handler."""
    if only is None:
        return None
    names = [name for part in only.split(",") if (name := part.strip())]
    app.check_only(names)
    return names


async def _check(app: App) -> None:
    """Raise ConfigError if no child could open the App, so that it is printed once."""
    with suppress(BackendError):  # the backend may be reachable later
        async with app:
            pass


def _leave(code: int) -> int:
    """
    End the process now if the thread of a handler would keep it alive.

    Its message is not lost: the lease expires, and another worker receives it.
    """
    lingering = [thread for thread in threading.enumerate() if not thread.daemon]
    if len(lingering) > 1:
        drain()
        os._exit(code or 1)
    return code


def _several(
    desk: Desk,
    name: str,
    count: int,
    port: int | None,
    *,
    only: str | None,
    verbose: bool,
    quiet: bool,
    reload: bool = False,
) -> int:
    words = ["work", name, "--processes", "1"]
    words += ["--verbose"] * verbose + ["--quiet"] * quiet + ["--json"] * desk.as_json
    words += ["--only", only] if only is not None else []
    words += ["--url", desk.given_url] if desk.given_url else []
    words += ["--office", desk.given_office] if desk.given_office else []
    words += ["--health-port", str(port)] if port is not None else []
    run = partial(
        supervise,
        [sys.executable, "-m", __package__, *words],
        processes=count,
        clock=desk.clock,
        on_end=lambda ended: _report_end(desk, ended),
        final=(ExitCode.STORE_LOST,),
        on_request=reload,
    )
    if port is None:
        return run()
    settings = desk.settings
    with answer_probes(
        count,
        host=settings.work.health_host,
        port=port,
        depth_threshold=settings.depth_threshold,
        gather=gathered,
    ) as listeners:
        return run(listeners=listeners)


def _listen(desk: Desk, app: App, least: int) -> None:
    log = log_lines(desk, least)
    observers = [log_events(desk.clock, log=log)]
    if desk.err.is_terminal and not desk.as_json:
        observers.append(tracebacks(partial(desk.err.print, soft_wrap=True)))
    app.observe = fan_out(*observers, app.observe)


def log_lines(desk: Desk, least: int = logging.INFO) -> Log:
    """Return a log that writes lines for people, or JSON for programs."""
    return _documents(desk, least) if desk.as_json else _lines(desk, least)


def _lines(desk: Desk, least: int) -> Log:
    def log(level: int, name: str, fields: Mapping[str, Any]) -> None:
        if level < least:
            return
        at = f"{desk.clock.now().astimezone():%H:%M:%S} "
        line = " ".join(f"{key}={_shown(value)}" for key, value in fields.items())
        if not desk.err.is_terminal:  # without colours, which take time
            sys.stderr.write(f"{at}{name:<15} {clean(line)}\n")
            return
        text = Text(at, style="dim")
        text.append(f"{name:<15}", style="red" if level > logging.INFO else "green")
        text.append(f" {clean(line)}")
        desk.err.print(text, soft_wrap=True)

    return log


def _shown(value: object) -> str:
    text = str(value)
    return json.dumps(text, ensure_ascii=False) if " " in text or not text else text


def _documents(desk: Desk, least: int) -> Log:
    def log(level: int, name: str, fields: Mapping[str, Any]) -> None:
        if level >= least:
            at = desk.clock.now()
            level_name = logging.getLevelName(level).lower()
            desk.document({"at": at, "level": level_name, "event": name, **fields})
            sys.stdout.flush()  # so that a log collector gets each line immediately

    return log


def _report_end(desk: Desk, ended: ChildEnded) -> None:
    if ended.is_asked:
        return
    how = f"was killed by signal {-ended.code}" if ended.code < 0 else "ended"
    code = f" with code {ended.code}" if ended.code > 0 else ""
    again = f"; a new one starts in {ended.delay:g} s" if ended.delay is not None else ""
    desk.err.print(f"worker {ended.pid} {how}{code}{again}")


_ANY: Final = "Exception"  # the type of an error for which none is given


async def classify(
    text: OptionalText = "",
    /,
    *,
    type_: Annotated[str, Parameter(name="--type")] = _ANY,
    status: int | None = None,
    code: str | None = None,
    grpc: str | None = None,
    rules: Path | None = None,
    app: str | None = None,
    mailbox: str | None = None,
    desk: AtDesk,
) -> None:
    """
    Show how an error would be classified: its trouble, code, and matching rule.

    Args:
        text: The text of the error, such as "connection refused".
        type_: The type of the error, such as TimeoutError or psycopg.OperationalError.
        status: The HTTP status of the error.
        code: The code of the error, such as ECONNREFUSED or 40P01.
        grpc: The gRPC status of the error, such as UNAVAILABLE.
        rules: A TOML file of rules that are tried first.
        app: The App with rules of its own in Python, as module:name.
        mailbox: Only the rules of this mailbox of the App (default: of all its mailboxes).
    """
    if not text and type_ == _ANY and (status, code, grpc) == (None, None, None):
        raise ConfigError(
            'describe the error: dlq classify "connection refused", or with --type,'
            " --status, --code or --grpc"
        )
    first = read_rules(rules or desk.settings.rules)
    error = _error(text, type_, status=status, code=code, grpc=grpc)
    found: dict[Verdict, list[str]] = {}
    for name, classifier in _classifiers(app, mailbox).items():
        verdict = classifier.extended(*first).classify(error, desk.clock.now())
        found.setdefault(verdict, []).append(name)
    for verdict, names in found.items():
        _show_verdict(desk, verdict, names if len(found) > 1 else [])


def _show_verdict(desk: Desk, verdict: Verdict, mailboxes: Sequence[str]) -> None:
    if desk.as_json:
        desk.document(
            {
                **({"mailboxes": mailboxes} if mailboxes else {}),
                "trouble": verdict.trouble,
                "category": verdict.trouble.category,
                "code": verdict.code,
                "rule": verdict.rule,
                "retry_after": verdict.retry_after,
            }
        )
        return
    retried = "worth" if verdict.trouble.category == "RETRYABLE" else "not worth"
    if mailboxes:
        desk.tell(f"In {', '.join(mailboxes)}:")
    desk.tell(f"trouble  {verdict.trouble} ({retried} retrying)")
    desk.tell(f"code     {verdict.code}")
    desk.tell(f"rule     {verdict.rule or '(none: no rule matches)'}")


def _classifiers(app: str | None, mailbox: str | None) -> dict[str, ErrorClassifier]:
    """Return the classifiers of an App by mailbox; without an App the default one."""
    if app is None:
        if mailbox is not None:
            raise ConfigError("--mailbox needs an App: add --app, such as --app shop:app")
        return {"": DEFAULT}
    loaded = load_app(app)
    if mailbox is not None:
        loaded.check_only([mailbox])
    found = {one.mailbox: one.options.policy.classifier for one in loaded.registrations()}
    if mailbox is not None:
        return {mailbox: found.get(mailbox, DEFAULT)}
    return found or {"": (loaded.policy or DLQPolicy()).classifier}


def _error(
    text: str, type_: str, *, status: int | None, code: str | None, grpc: str | None
) -> BaseException:
    error = _type(type_)(text)
    facts: dict[str, Any] = {
        "status_code": status,
        "code": code,
        "grpc_status_code": grpc.upper() if grpc else None,
    }
    for name, value in facts.items():
        if value is not None:
            setattr(error, name, value)
    return error


def _type(name: str) -> type[Exception]:
    # Built-in errors keep their base classes. Of other errors only the name is known,
    # because their modules are not imported.
    known = getattr(builtins, name, None)
    if isinstance(known, type) and issubclass(known, Exception):
        base: type[Exception] = known
        if _takes_text(base):
            return base
        return type(name, (base,), {"__init__": _init_with_text})
    module, _, last = name.rpartition(".")
    return type(last or "Exception", (Exception,), {"__module__": module or "builtins"})


def _takes_text(kind: type[Exception]) -> bool:
    try:
        kind("")
    except TypeError:  # UnicodeDecodeError, for example, needs more arguments
        return False
    return True


def _init_with_text(self: Exception, text: str) -> None:
    self.args = (text,)
