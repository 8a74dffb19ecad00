"""The main consumer: hands each transaction to the relayer below."""

from msgspec.structs import replace

from deadletter import App, DLQPolicy, ErrorCategory, Failure, Fixed, Ignore, Malformed, Message
from deadletter.core.failure.capture import capture
from deadletter.ports import Clock

from .downstream import Downstream
from .settings import QUEUE, Settings
from .table import Table
from .values import read_message


def policy_of(settings: Settings) -> DLQPolicy:
    """Return the policy: three attempts, and none more after a permanent error."""
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

    async def relay(self, received: Message) -> None:
        """Submit one transaction."""
        message = read_message(received.body)
        if message is None:
            error = Malformed("the body is not a transaction")
            await self._table.reject(received.id, received.body, self._failure(error))
            raise error
        await self._table.add(message)
        if not await self._table.begin(message, received.generation):
            raise Ignore("this transaction is over, or the relayer has it")
        try:
            relayer_id = await self._downstream.submit(message)
        except Exception as error:
            # Record permanent errors before the message is deleted.
            failure = self._failure(error)
            if failure.category is ErrorCategory.NON_RETRYABLE:
                await self._table.fail(message.transaction_id, failure)
            raise
        await self._table.submitted(message.transaction_id, relayer_id)

    def _failure(self, error: Exception) -> Failure:
        return capture(error, self._policy.classifier, self._clock.now())
