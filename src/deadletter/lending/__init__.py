"""The queue server without its wire: items lent to clients who wait for them."""

from .errors import TryAgain
from .lending import Counts, Lending

__all__ = ["Counts", "Lending", "TryAgain"]
