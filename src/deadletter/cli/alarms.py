"""dlq alarms: have others watch, with rules and pictures made for them."""

import sys
from typing import Annotated

from cyclopts import App, Parameter

from deadletter.core.alerts import RULES
from deadletter.core.errors import ConfigError
from deadletter.observe.alerts import alarms, prometheus_rules
from deadletter.observe.dashboard import dashboard

from .desk import AtDesk, Desk
from .options import Flag
from .ui import many

Names = Annotated[tuple[str, ...], Parameter(show_default=False)]

app = App(
    name="alarms",
    help="Have others watch: rules for Prometheus, alarms for CloudWatch, a dashboard.",
    help_format="markdown",
)


@app.command
def prometheus(*, desk: AtDesk) -> None:
    """Write the alert rules for Prometheus, a file for its `rule_files`."""
    if desk.as_json:
        for rule in RULES:
            desk.document(rule)
    else:
        sys.stdout.write(prometheus_rules())


@app.command
def grafana(*, desk: AtDesk) -> None:
    """Write a dashboard for Grafana, to be imported there."""
    sys.stdout.write(dashboard())


@app.command
async def cloudwatch(
    *,
    source: Names = (),
    queue: Names = (),
    topic: str | None = None,
    put: Flag = False,
    region: str | None = None,
    endpoint: str | None = None,
    desk: AtDesk,
) -> None:
    """
    Write the alarms for CloudWatch, one JSON document each, or make them there.

    The numbers they watch are published by workers with the observer `CloudWatch`.

    Args:
        source: A mailbox to watch; otherwise all that the office knows.
        queue: A dead-letter queue of SQS that is not to hold anything.
        topic: The ARN of the SNS topic that is told.
        put: Make or change the alarms in CloudWatch.
        region: Where; otherwise as the environment says.
        endpoint: Another address of the service, such as an emulator's.
    """
    sources = source or await _sources(desk)
    wanted = alarms(sources=sources, queues=queue, topic=topic)
    if not put:
        for alarm in wanted:
            desk.document(alarm)
        return
    try:
        from deadletter.observe import cloudwatch as cloud  # noqa: PLC0415 -- an extra
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"CloudWatch needs {error.name}: pip install 'deadletter[sqs]'"
        ) from error
    async with cloud.cloudwatch(region=region, endpoint=endpoint) as client:
        names = await cloud.put_alarms(client, sources=sources, queues=queue, topic=topic)
    if desk.as_json:
        desk.document({"alarms": names})
    else:
        desk.tell(f"{many(len(names), 'alarm')} made or changed.", "green")


async def _sources(desk: Desk) -> tuple[str, ...]:
    async with desk.engine() as engine:
        queues = [queue.options for queue in await engine.broker.queues()]
        counts = await engine.letters.counts() if engine.letters is not None else {}
    dead = {options.dead_queue for options in queues}
    live = {options.name for options in queues} - dead
    return tuple(sorted(live | set(counts)))
