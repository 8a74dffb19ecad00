"""A way of using dead letters, as data."""

from collections.abc import Mapping

from msgspec import Struct
from msgspec.structs import replace

from .brake import BrakePolicy
from .environment import Variable, applied
from .errors import ConfigError
from .policy import DLQPolicy


class ConsumerSettings(Struct, frozen=True, kw_only=True):
    """How a DLQ consumer runs; the names are its own arguments."""

    interval: float = 0.0  # seconds between polls; 0 polls without a pause
    wait: float = 20.0  # seconds of long polling
    visibility_timeout: float = 300.0
    on_failure: float = 3600.0  # seconds a letter waits when its handler failed
    discard_failures: bool = False  # ...or is it deleted, handled or not?


class Retention(Struct, frozen=True, kw_only=True):
    """Seconds things are kept; None is until somebody says otherwise."""

    source: float | None = None
    dead: float | None = None  # letters that are finished; pending ones stay
    ledger: float | None = None


class Profile(Struct, frozen=True, kw_only=True):
    """One way of using dead letters."""

    name: str
    policy: DLQPolicy
    brake: BrakePolicy | None = BrakePolicy()
    naming: str | None = None  # of the dead-letter mailbox; None: always explicit
    dlq_consumer: ConsumerSettings | None = None
    retention: Retention = Retention()
    must_run_together: bool = False  # worker and DLQ consumer, or neither
    environment: tuple[Variable, ...] = ()

    def dead_queue(self, mailbox: str, **names: str) -> str | None:
        """
        The dead-letter mailbox of a mailbox; None when each is named explicitly.

        `{mailbox}` and `{base}` (the mailbox without `-main`) are known; other
        parts of the naming, such as cluster and node, must be given.
        """
        if self.naming is None:
            return None
        known = {"mailbox": mailbox, "base": mailbox.removesuffix("-main"), **names}
        try:
            return self.naming.format_map(known)
        except KeyError as missing:
            raise ConfigError(
                f"The {self.name} profile names dead queues {self.naming}: "
                f"say what {missing} is."
            ) from None

    def policy_for(self, mailbox: str, **names: str) -> DLQPolicy:
        """The policy with its dead-letter mailbox filled in."""
        return replace(self.policy, dead_queue=self.dead_queue(mailbox, **names))

    def with_environment(self, environ: Mapping[str, str]) -> "Profile":
        """The profile as the environment wants it; what it cannot be is refused."""
        return applied(self, self.environment, environ)

    def check_consumers(self, *, worker: bool, dlq_consumer: bool) -> None:
        """Refuse to start only one of two that must run together."""
        if self.must_run_together and worker != dlq_consumer:
            missing = "DLQ consumer" if worker else "worker"
            raise ConfigError(
                f"The {self.name} profile runs worker and DLQ consumer in the same "
                f"process: start the {missing} as well."
            )
