"""
A tool with an error in native code, for the demo and the tests.

AGENTS_TOOLS=agents.crashing_tool adds it to the agent. It reads invalid memory, which
raises no exception but ends the process.
"""

import ctypes
import re
from typing import Final

from .requests import Session
from .tools import Tool


def _appraise(found: re.Match[str], session: Session) -> str:
    return ctypes.string_at(0).decode()


TOOLS: Final = (Tool("appraise", re.compile(r"appraise .+"), _appraise),)
