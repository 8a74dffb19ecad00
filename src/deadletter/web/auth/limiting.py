"""How often somebody may be wrong: per address and in total."""

from ipaddress import IPv6Address, ip_address
from typing import Final

from deadletter.ports.time import Clock

_ADDRESS_BURST: Final = 10
_ADDRESS_EVERY: Final = 30.0  # seconds until one more is allowed
_TOTAL_BURST: Final = 100
_TOTAL_EVERY: Final = 3.0
_TOTAL: Final = ""  # no address


class Failures:
    """
    Counts failures, and says how long to wait before the next try.

    Each address may fail ten times at once and then once in half a minute; all
    together a hundred times and then once in three seconds. What is over is
    forgotten, so at most a few hundred addresses are remembered at any time.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._clear_at: dict[str, float] = {}  # when all is forgiven

    def spend(self, address: str | None) -> float:
        """
        Count a failure; or the seconds to wait, and it is not counted.
        """
        now = self._clock.monotonic()
        who = _neighbourhood(address)
        self._forget(now)
        wait = max(
            self._clear_at.get(who, now) - now - (_ADDRESS_BURST - 1) * _ADDRESS_EVERY,
            self._clear_at.get(_TOTAL, now) - now - (_TOTAL_BURST - 1) * _TOTAL_EVERY,
        )
        if wait > 0:
            return wait
        self._add(who, _ADDRESS_EVERY, now)
        self._add(_TOTAL, _TOTAL_EVERY, now)
        return 0.0

    def is_spent(self, address: str | None) -> bool:
        """Whether this address may not fail once more right now."""
        left = self._clear_at.get(_neighbourhood(address), 0.0)
        burst = (_ADDRESS_BURST - 1) * _ADDRESS_EVERY
        return left - self._clock.monotonic() > burst

    def __len__(self) -> int:
        """How many addresses are remembered."""
        return len(self._clear_at)

    def _add(self, who: str, seconds: float, now: float) -> None:
        self._clear_at[who] = self._clear_at.get(who, now) + seconds

    def _forget(self, now: float) -> None:
        over = [who for who, clear in self._clear_at.items() if clear <= now]
        for who in over:
            del self._clear_at[who]


def _neighbourhood(address: str | None) -> str:
    """What counts as one address: of IPv6 a /64, since everybody has a whole one."""
    try:
        parsed = ip_address(address or "")
    except ValueError:
        return "unknown"
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return f"{parsed.packed[:8].hex()}::/64"
