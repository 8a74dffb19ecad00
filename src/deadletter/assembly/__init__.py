"""
The only place that knows both ends of a port: URLs become engines, handlers
become running loops.
"""

from .app import App
from .engines import open_engine, opened
from .loading import load_app
from .rules import read_rules

__all__ = ["App", "load_app", "open_engine", "opened", "read_rules"]
