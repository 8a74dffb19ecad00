"""The service without consumers of its own: letters wait for another process."""

import sys

from agents.__main__ import log_to_stderr
from agents.service import serve
from agents.settings import Settings

if __name__ == "__main__":
    log_to_stderr()
    sys.exit(serve(Settings.from_environment(), lambda boxes, telemetry: []))
