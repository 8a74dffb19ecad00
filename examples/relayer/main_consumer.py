"""The main consumer: hands each transaction to the relayer below."""

from msgspec.structs import replace

from deadletter import App, Context, DLQPolicy, ErrorCategory, Fixed, Ignore
from deadletter.core.failure.capture import capture
from deadletter.ports import Clock

from .downstream import Downstream
from .settings import QUEUE, Settings
from .table import Table
from .values import RelayMessage


def policy_of(settings: Settings) -> DLQPolicy:
    """Three attempts; what will never work fails at once and is no dead letter."""
    policy = settings.profile.policy_for(QUEUE)
    return replace(policy, backoff=Fixed(settings.retry_delay))


class MainConsumer:
    """Works the main queue."""

    def __init__(
        self, settings: Settings, table: Table, downstream: Downstream, clock: Clock
    ) -> None:
        self._policy = policy_of(settings)
        self._lease = settings.lease
        self._table = table
        self._downstream = downstream
        self._clock = clock

    def register(self, app: App) -> None:
        """
        Have an app run it.

        Without a brake: a client waits for the end of its transaction, and is told
        after three attempts that it has failed, also while everything else fails.
        """
        app.handler(QUEUE, policy=self._policy, lease=self._lease, idempotent=True, brake=None)(
            self.relay
        )

    async def relay(self, message: RelayMessage, context: Context) -> None:
        """Submit one transaction."""
        await self._table.add(message)
        if not await self._table.begin(message, context.delivery.message.generation):
            raise Ignore("this transaction is over, or the relayer has it")
        try:
            relayer_id = await self._downstream.submit(message)
        except Exception as error:
            await self._failed(message.transaction_id, error)
            raise
        await self._table.submitted(message.transaction_id, relayer_id)

    async def _failed(self, id: str, error: Exception) -> None:
        """
        Write down what will never work, before its message is deleted.

        If that fails it is the error that counts, and all is tried again.
        """
        failure = capture(error, self._policy.classifier, self._clock.now())
        if failure.category is ErrorCategory.NON_RETRYABLE:
            await self._table.fail(id, failure)
