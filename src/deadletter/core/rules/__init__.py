"""
Ready-made rules, as data: put together what you need, most particular first.

    ErrorClassifier((*my_rules, *HTTP, *NETWORK))      or  DEFAULT.extended(*my_rules)
"""

from typing import Final

from ..classify import ErrorClassifier
from .agent import AGENT
from .courier import COURIER
from .evm import EVM
from .general import GENERAL
from .grpc import GRPC
from .http import HTTP
from .network import NETWORK
from .pipeline import PIPELINE

DEFAULT: Final = ErrorClassifier((*GENERAL, *HTTP, *GRPC, *NETWORK))
"""What is asked when nothing else is said."""

__all__ = [
    "AGENT",
    "COURIER",
    "DEFAULT",
    "EVM",
    "GENERAL",
    "GRPC",
    "HTTP",
    "NETWORK",
    "PIPELINE",
]
