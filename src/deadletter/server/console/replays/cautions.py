"""What somebody should know before letters are sent: who works them, and what is not known."""

import asyncio
from collections.abc import Sequence
from typing import Final

from deadletter.core.campaign import Campaign
from deadletter.core.errors import BackendError
from deadletter.core.text import clean, many
from deadletter.office.mailboxes import list_outages, unworked
from deadletter.office.replay_plans import plan_of
from deadletter.office.workers import live_workers
from deadletter.server.context import ServerContext

from .sentences import span

_PATIENCE: Final = 2.0  # seconds for an answer of the mailboxes
_NAMED: Final = 3
_LOOKED: Final = 20  # mailboxes whose workers are looked for


async def cautions_of(context: ServerContext, campaign: Campaign) -> tuple[str, ...]:
    """Return what may go wrong with a replay, sentence by sentence."""
    plan = campaign.plan
    targets = _targets(campaign)
    said: list[str] = []
    if campaign.through:
        said.append(_without_reports(campaign))
    else:
        said += await _about_workers(context, targets)
        if context.engine.ledger is None and not campaign.through:
            said.append(
                "This engine keeps no ledger, so nobody can tell which of these messages were"
                " processed already: their handler has to notice."
            )
    if plan is not None and plan.more:
        said.append(
            "The limit was reached: more letters match, and stay as they are."
            if plan.limit
            else f"More letters match than one replay can have: the oldest {plan.total:,} are in"
            " it."
        )
    if plan is not None and plan.gone:
        said.append(f"{many(plan.gone, 'letter')} were deleted since the plan was made.")
    return tuple(said)


def _targets(campaign: Campaign) -> tuple[str, ...]:
    if campaign.plan is not None:
        return tuple(plan_of(campaign).targets)
    return () if campaign.to is None else (campaign.to,)


def _without_reports(campaign: Campaign) -> str:
    name, after = clean(campaign.through), campaign.care.presume_after
    text = f"They go back through {name}, whose consumers report nothing."
    if after:
        return f"{text} Letters that do not die again within {span(after)} count as handled."
    return f"{text} No outcome will come: the replay ends when all are sent."


async def _about_workers(context: ServerContext, targets: Sequence[str]) -> list[str]:
    try:
        async with asyncio.timeout(_PATIENCE):
            queues = await context.engine.broker.queues()
            held = await list_outages(context.store, context.clock, only=targets, only_open=True)
    except (TimeoutError, BackendError):
        return ["The mailboxes do not answer: whether a worker runs is not known."]
    claimed = {one.options.name for one in queues if one.claimed}  # somebody holds messages
    workers = {name: await live_workers(context.store, name) for name in targets[:_LOOKED]}
    said = [
        f"No worker of {clean(name)} was heard of lately. Start one with dlq work, or no outcome"
        " will come."
        for name, heard in workers.items()
        if heard == [] and name not in claimed
    ]
    idle = [
        queue
        for queue in unworked(queues, context.clock.now())
        if queue.options.name in targets and workers.get(queue.options.name) is None
    ]
    for queue in idle:
        waiting = many(queue.ready, "message waits", "messages wait")
        said.append(
            f"Nobody seems to work {clean(queue.options.name)}: {waiting} there, and no worker"
            " holds any. Start one with dlq work, or no outcome will come."
        )
    del said[_NAMED:]
    said += [
        f"The brake holds back {clean(outage.window.mailbox)}: letters sent there wait until it"
        " opens."
        for outage in held[:_NAMED]
    ]
    return said
