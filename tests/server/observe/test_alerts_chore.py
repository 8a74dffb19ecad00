"""Alerts of the server, as configured in the settings."""

import asyncio
from pathlib import Path

import msgspec

from deadletter.server.context import ServerContext
from deadletter.settings import load_settings
from deadletter.system import SystemClock, SystemDice
from deadletter.testing.fakes import eventually
from deadletter.wiring.chores import chores
from observe.receivers import Hook, listening
from office.making import make_letter

SETTINGS = """
[alerts]
every = 1
growing = 3

[[alerts.targets]]
kind = "webhook"
to = "{url}/in"
secret = "sixteen bytes or more"
"""


async def test_settings_become_alerts_that_arrive(context: ServerContext, tmp_path: Path) -> None:
    hook = Hook()
    async with listening(hook, "http"):
        file = tmp_path / "deadletter.toml"
        file.write_text(SETTINGS.format(url=hook.url))
        loops = chores(
            context.engine,
            context.store,
            context.access,
            load_settings(file, environ={}),
            clock=SystemClock(),
            dice=SystemDice(),
            observe=context.observe,
        )
        [alerting] = [loop for loop in loops if "alert" in loop.name]
        now = context.clock.now()
        await context.store.keep([make_letter(n, now=now) for n in range(3)])

        stop = asyncio.Event()
        running = asyncio.create_task(alerting.run(stop))
        await eventually(lambda: hook.bodies)
        stop.set()
        await running

    told = msgspec.json.decode(hook.bodies[0])["data"]["alerts"]
    assert {alert["kind"] for alert in told} == {"new-group", "growing-group"}
    assert hook.headers[0]["webhook-signature"].startswith("v1,")
