"""
Turns whose owner has gone silent.

A process that is killed in its turn leaves a transaction behind that nobody will
ever end, and the server waits a minute before it does. Whoever is next does not:
the transaction is ended for it. Should its owner only have been frozen, it finds
nothing changed, and takes its turn anew.
"""

from typing import Any, Final

from pymongo import AsyncMongoClient

APP: Final = "deadletter"  # how our connections are known to the server
SILENT: Final = 5.0  # seconds without a word

_IDLE: Final = {"allUsers": False, "idleSessions": True, "idleConnections": False}


async def end_silent(client: AsyncMongoClient[dict[str, Any]]) -> int:
    """End the transactions of silent ones; how many there were."""
    pipeline: list[dict[str, Any]] = [
        {"$currentOp": _IDLE},
        {
            "$match": {
                "type": "idleSession",
                "appName": APP,
                "transaction.timeInactiveMicros": {"$gt": int(SILENT * 1_000_000)},
            }
        },
    ]
    found = await (await client.admin.aggregate(pipeline)).to_list()
    sessions = [{"id": one["lsid"]["id"]} for one in found]
    if sessions:
        await client.admin.command("killSessions", sessions)
    return len(sessions)
