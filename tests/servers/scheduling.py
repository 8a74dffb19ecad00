"""
In a parallel run, tests of one server go to one process, so that it is started once.

Which server that is, is told by the names of files and tests. Each of the five systems
has servers of its own: its tests stay together. The marks of xdist would say it better,
but pytest 9.2 no longer has the field that xdist 3.8 writes them to.
"""

import re
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from . import KINDS

_NAMES: Final = "|".join(kind.name for kind in KINDS)
_SERVER: Final = re.compile(rf"(?:test_|drain_|\[)({_NAMES})(?=[_.\]])")
_SYSTEM: Final = re.compile(r"tests/(systems/\w+)/")
_ON_REDIS: Final = ("test_bullmq", "test_redis")
_OWN: Final = "_new_broker.py"  # starts a server for itself


class ByServer(LoadScopeScheduling):
    """One process for each server; tests without one go wherever there is room."""

    def _split_scope(self, nodeid: str) -> str:
        if _OWN in nodeid:
            return nodeid
        found = _SYSTEM.match(nodeid) or _SERVER.search(nodeid.replace(*_ON_REDIS))
        return nodeid if found is None else found[1]
