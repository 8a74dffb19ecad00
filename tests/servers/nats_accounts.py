"""NATS with signed names: an operator vouches for an account, that one for a user."""

import json
import os
from base64 import urlsafe_b64encode
from pathlib import Path

import nkeys

from .common import HOST
from .nats import Nats

COUNTED = (
    *("subs", "data", "payload", "imports", "exports", "conn", "leaf"),
    *("mem_storage", "disk_storage", "streams", "consumer"),
)
NO_LIMITS = dict.fromkeys(COUNTED, -1)


class NatsWithAccounts(Nats):
    """Lets in whoever shows a name that was signed: `creds` is the file with one."""

    @classmethod
    def variable(cls) -> str:
        return "DLQ_TEST_NATS_ACCOUNTS_URL"

    def make_url(self) -> str:
        return f"nats://{HOST}:{self.port}?creds={self.creds}"

    @property
    def creds(self) -> Path:
        return self.directory / "user.creds"

    def prepare(self) -> None:
        operator = Key(nkeys.PREFIX_BYTE_OPERATOR)
        account = Key(nkeys.PREFIX_BYTE_ACCOUNT)
        user = Key(nkeys.PREFIX_BYTE_USER)
        system = Key(nkeys.PREFIX_BYTE_ACCOUNT)  # the server's own, without streams
        limits = {**NO_LIMITS, "wildcards": True}
        known = {
            account.name: operator.sign(account, type="account", limits=limits),
            system.name: operator.sign(system, type="account"),
        }
        (self.directory / "nats.conf").write_text(
            f'listen: "{HOST}:{self.port}"\n'
            f"operator: {operator.sign(operator, type='operator')}\n"
            "resolver: MEMORY\n"
            f"system_account: {system.name}\n"
            f"resolver_preload: {json.dumps(known)}\n"
            f'jetstream {{ store_dir: "{self.directory}" }}\n'
        )
        free = {"subs": -1, "data": -1, "payload": -1}
        signed = account.sign(user, type="user", pub={}, sub={}, **free)
        self.creds.write_text(
            f"-----BEGIN NATS USER JWT-----\n{signed}\n"
            "------END NATS USER JWT------\n\n"
            f"-----BEGIN USER NKEY SEED-----\n{user.seed.decode()}\n"
            "------END USER NKEY SEED------\n"
        )


class Key:
    """Somebody's key; the name is its public half."""

    def __init__(self, kind: int) -> None:
        self.seed = nkeys.encode_seed(os.urandom(32), kind)
        self._pair = nkeys.from_seed(bytearray(self.seed))
        self.name = self._pair.public_key.decode()

    def sign(self, whom: "Key", **claims: object) -> str:
        """Vouch for somebody, as a JWT."""
        body = {
            "jti": whom.name,
            "iat": 1_700_000_000,
            "iss": self.name,
            "name": "test",
            "sub": whom.name,
            "nats": {**claims, "version": 2},
        }
        said = f"{_packed({'typ': 'JWT', 'alg': 'ed25519-nkey'})}.{_packed(body)}"
        return f"{said}.{_web64(self._pair.sign(said.encode()))}"


def _packed(part: object) -> str:
    return _web64(json.dumps(part).encode())


def _web64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()
