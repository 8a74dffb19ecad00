"""
A tool with a mistake in native code: it reads where there is nothing.

For the demo and the tests: AGENTS_TOOLS=agents.flawed adds it to the agent. No
exception comes of it; the process is gone.
"""

import ctypes
import re
from typing import Final

from .requests import Session
from .tools import Tool


def _appraise(found: re.Match[str], session: Session) -> str:
    return ctypes.string_at(0).decode()


TOOLS: Final = (Tool("appraise", re.compile(r"appraise .+"), _appraise),)
