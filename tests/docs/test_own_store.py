"""The example of a letter store keeps its promises."""

import importlib.util
import sys

from docs.reading import ROOT

EXAMPLE = ROOT / "examples" / "own_store"
sys.path.insert(0, str(EXAMPLE))

_spec = importlib.util.spec_from_file_location("test_journal", EXAMPLE / "test_journal.py")
assert _spec is not None
assert _spec.loader is not None
_module = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(_module)

TestJournal = _module.TestJournal
