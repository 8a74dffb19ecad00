"""Tests of an App: its real handlers, on an engine in memory and a clock that jumps."""

from .app_test import AppTest
from .builders import make_letter, make_message
from .entry import Testing
from .leftovers import NotSettled
from .stage import Raised, Sent
from .sync_test import SyncAppTest

__all__ = [
    "AppTest",
    "NotSettled",
    "Raised",
    "Sent",
    "SyncAppTest",
    "Testing",
    "make_letter",
    "make_message",
]
