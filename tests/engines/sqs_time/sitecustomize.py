"""
Loaded by the SQS emulator as it starts: its clock shows what a file says.

Only who waits for messages goes by the true time, and looks as often as the real
service would wake it.
"""

import asyncio
import mmap
import os
import struct
import sys
import time
from pathlib import Path

_WAITING = "_act_receive_message"
_true_time, _true_sleep = time.time, asyncio.sleep
with Path(os.environ["SQS_TIME"]).open("r+b") as _file:
    _shown = mmap.mmap(_file.fileno(), 8)


def _time() -> float:
    (shown,) = struct.unpack("d", _shown[:8])
    waits = sys._getframe(1).f_code.co_name == _WAITING
    return _true_time() if waits or not shown else shown


async def _sleep(seconds: float, *more: object) -> object:
    waits = sys._getframe(1).f_code.co_name == _WAITING
    return await _true_sleep(min(seconds, 0.005) if waits else seconds, *more)


time.time = _time
asyncio.sleep = _sleep
