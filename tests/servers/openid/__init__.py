"""
A certified OpenID provider, with people who sign in by their name alone.

`make services` puts the package oidc-provider into `.servers/openid`, as the lock file here
says. Its keys are new with each start, so a restart changes them.
"""

import json
import shutil
from pathlib import Path
from typing import Any

from servers.common import HOST, INSTALLED, Missing, Server

HERE = Path(__file__).parent
HOME = INSTALLED / "openid"
FILES = ("package.json", "package-lock.json")
READY = HOME / ".ready"

CLIENT = "deadletter"
SECRET = "a secret: of/the client, 100%"  # characters that are escaped on the way
CONSOLE = "http://127.0.0.1:8418"
ACCOUNTS: dict[str, dict[str, Any]] = {
    "anna": {"email": "anna@example.org", "email_verified": True, "groups": ["dlq-admins"]},
    "olaf": {
        "email": "olaf@example.org",
        "email_verified": True,
        "groups": ["staff", "dlq-operators"],
        "mailboxes": ["orders"],
    },
    "rita": {"email": "rita@example.org", "email_verified": True, "groups": ["dlq-readers"]},
    "nobody": {"email": "nobody@example.org", "email_verified": True, "groups": ["staff"]},
    "eve": {"email": "anna@example.org", "email_verified": False, "groups": ["dlq-admins"]},
}


class OpenId(Server):
    """A provider of its own, on a private port."""

    name = "openid"
    ready_within = 60.0

    @classmethod
    def find(cls) -> dict[str, Path]:
        program = shutil.which("node")
        if program is None:
            raise Missing("no node here: install Node 20 or later, and npm")
        if not READY.exists():
            raise Missing("no OpenID provider here: run `make services`")
        return {"server": Path(program)}

    def make_url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def command(self) -> list[str]:
        told = {
            "issuer": self.url,
            "port": self.port,
            "thin": True,
            "accounts": ACCOUNTS,
            "clients": [
                {
                    "client_id": CLIENT,
                    "client_secret": SECRET,
                    "redirect_uris": [f"{CONSOLE}/sign-in/callback"],
                    "application_type": "native",  # may use plain http on this machine
                },
                {
                    "client_id": f"{CLIENT}-public",
                    "token_endpoint_auth_method": "none",
                    "redirect_uris": [f"{CONSOLE}/sign-in/callback"],
                    "application_type": "native",
                },
            ],
        }
        return [str(self.programs["server"]), str(HERE / "provider.mjs"), json.dumps(told)]

    def environment(self) -> dict[str, str]:
        return {"OPENID_HOME": str(HOME)}

    def is_ready(self) -> bool:
        path = "/.well-known/openid-configuration"
        question = f"GET {path} HTTP/1.1\r\nhost: {HOST}\r\nconnection: close\r\n\r\n"
        return self.ask(question.encode()).startswith(b"HTTP/1.1 200")
