"""
In a parallel run, tests of one server go to one process, so that it is started once.

Which server that is, is told by the names of files and tests. The marks of xdist would
say it better, but pytest 9.2 no longer has the field that xdist 3.8 writes them to.
"""

import re
from typing import Final

from xdist.scheduler import LoadScopeScheduling

from . import KINDS

_NAMES: Final = "|".join(kind.name for kind in KINDS)
_SERVER: Final = re.compile(rf"(?:test_|drain_|\[)({_NAMES})(?=[_.\]])")
_OWN: Final = "_new_broker.py"  # starts a server for itself


class ByServer(LoadScopeScheduling):
    """One process for each server; tests without one go wherever there is room."""

    def _split_scope(self, nodeid: str) -> str:
        found = None if _OWN in nodeid else _SERVER.search(nodeid)
        return nodeid if found is None else found[1]
