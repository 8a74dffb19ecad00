"""
Relaying transactions to an EVM chain.

What the chain or the relayer says for good comes first, by words and then by
status; then what may pass: statuses, timeouts, refused connections.
"""

from typing import Final

from ..classify import Rule
from ..failure import Trouble
from .network import NETWORK


def _says(code: str, *texts: str) -> Rule:
    return Rule(
        id=f"evm-{code.lower().replace('_', '-')}",
        trouble=Trouble.PERMANENT,
        code=code,
        texts=texts,
    )


EVM: Final = (
    _says("INSUFFICIENT_FUNDS", "insufficient funds", "insufficient balance"),
    _says("GAS_LIMIT_EXCEEDED", "gas required exceeds allowance"),
    _says("GAS_TOO_LOW", "intrinsic gas too low"),
    _says("OUT_OF_GAS", "out of gas"),
    _says("NONCE_TOO_LOW", "nonce too low"),
    _says("NONCE_USED", "nonce already used"),
    _says("EXECUTION_REVERTED", "execution reverted"),
    _says("WOULD_REVERT", "transaction would revert"),
    Rule(
        id="evm-http-refused",
        trouble=Trouble.PERMANENT,
        statuses=frozenset({400, 401, 403, 422}),
    ),
    Rule(
        id="evm-http-try-later",
        trouble=Trouble.TRANSIENT,
        statuses=frozenset({408, 429, 500, 502, 503, 504}),
    ),
    *NETWORK,
)
