"""
RQ: jobs that fail for good are filed by their own workers.

    rq worker --worker-class deadletter.integrations.rq.DeadLetterWorker shop

The worker files what RQ has put into its failed registry, and takes it out there, as
`dlq drain` does: the office has it. So does whatever another worker left there, which was
killed for example. Without the office jobs stay in the registry, and are filed later.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from msgspec import structs
from rq.job import Job
from rq.queue import Queue
from rq.registry import FailedJobRegistry
from rq.worker import Worker

from deadletter.brokers.redis.frameworks.rq import FAILED_FOR, STORY_FIELD, found_in
from deadletter.core.events import Observer
from deadletter.core.origin import REPLAY_OF
from deadletter.intake.dialects import Found
from deadletter.intake.dialects.frameworks import STORY

from .reporter import TIMEOUT, Counts, Reporter, redis_label
from .stories import Stories

if TYPE_CHECKING:
    _Base = Worker
else:
    _Base = object

_FOR_EVER: Final = -1  # as Redis tells that a key has no expiry
_BATCH: Final = 100  # jobs of a registry that are filed at a time
_JOB: Final = "rq:job:"


class DeadLetters(_Base):
    """
    Part of a worker that files what fails; put it before the class of your worker.

    Args:
        office: The URL of the office (default: that of the settings).
        server: The name of the Redis server in the settings of `dlq`, by which letters find
            the way back (default: its URL without its secrets).
        office_timeout: Seconds that a failed job may wait for the office (default 10).
        observe: A function that is called with every event (default: they are logged).
    """

    def __init__(
        self,
        *args: Any,
        office: str | None = None,
        server: str = "",
        office_timeout: float = TIMEOUT,
        observe: Observer | None = None,
        **more: Any,
    ) -> None:
        super().__init__(*args, **more)
        self._reporter = Reporter(
            office,
            server=lambda: server or redis_label(self.connection),
            timeout=office_timeout,
            observe=observe,
            holds=False,
        )
        self._stories = Stories(self._reporter, "rq-story")

    @property
    def counts(self) -> Counts:
        """What became of the reports of this process."""
        return self._reporter.counts

    def handle_job_failure(
        self, job: Job, queue: Queue, started_job_registry: Any = None, exc_string: str = ""
    ) -> None:
        """File a job that failed for good, or note the error of an attempt in it."""
        super().handle_job_failure(job, queue, started_job_registry, exc_string)
        registry = job.failed_job_registry
        if self.connection.zscore(registry.key, job.id) is not None:
            self._file(registry, [job.id])
        self._let_go()

    def handle_exception(self, job: Job, *exc_info: Any) -> None:
        """Note the error of an attempt that will be retried, for the letter of the last."""
        super().handle_exception(job, *exc_info)
        error = exc_info[1] if len(exc_info) > 1 else None
        if not isinstance(error, BaseException) or not job.should_retry:
            return
        name = f"{_JOB}{job.id}"
        told = self.connection.hget(name, STORY_FIELD)
        earlier = self._stories.read(job.id, _text(told))
        number = (job.number_of_retries or 0) + 1
        longer = self._stories.longer(job.id, earlier, error, number=number)
        if longer:
            self.connection.hset(name, STORY_FIELD, longer)

    def handle_job_retry(self, job: Job, *args: Any, **more: Any) -> None:
        """File a job that asked for one retry more than it may have."""
        super().handle_job_retry(job, *args, **more)
        registry = job.failed_job_registry
        if self.connection.zscore(registry.key, job.id) is not None:
            self._file(registry, [job.id])
        self._let_go()

    def handle_job_success(self, job: Job, *args: Any, **more: Any) -> None:
        """Confirm the copy of a replay."""
        is_copy = self.connection.hexists(f"{_JOB}{job.id}", REPLAY_OF)
        found = self._read(job.origin, [job.id]) if is_copy else ()
        super().handle_job_success(job, *args, **more)
        for one in found:
            self._reporter.handled(one)
        self._let_go()

    def clean_registries(self) -> None:
        """File what lies in the failed registries: its worker was killed, or had no office."""
        super().clean_registries()  # type: ignore[no-untyped-call]
        for queue in self.queues:
            registry = queue.failed_job_registry
            while ids := registry.get_job_ids(0, _BATCH - 1):
                if not self._file(registry, ids):
                    break
        self._let_go()

    def teardown(self) -> None:
        """Close the office."""
        super().teardown()  # type: ignore[no-untyped-call]
        self._reporter.close()

    def _file(self, registry: FailedJobRegistry, ids: Sequence[str]) -> bool:
        """File jobs of a failed registry and take them out; return whether all are filed."""
        for found in self._read(registry.name, ids):
            if not self._reporter.died(found):
                return False
            key = f"{_JOB}{found.id}"
            if self.connection.ttl(key) == _FOR_EVER:  # nothing else would ever remove it
                self.connection.expire(key, FAILED_FOR)
            self.connection.zrem(registry.key, found.id)
        return True

    def _read(self, queue: str, ids: Sequence[str]) -> list[Found]:
        """Return jobs as a drain would have found them."""
        with self.connection.pipeline(transaction=False) as pipe:
            for id_ in ids:
                pipe.hgetall(f"{_JOB}{id_}")
                pipe.xrevrange(f"rq:results:{id_}", count=1)
            said = pipe.execute()
        found: list[Found] = []
        for id_, fields, results in zip(ids, said[::2], said[1::2], strict=True):
            one = found_in(queue, id_.encode(), fields, results)
            story = self._stories.read(id_, _text(fields.get(STORY_FIELD.encode())))
            found.append(structs.replace(one, about={**one.about, STORY: story}))
        return found

    def _let_go(self) -> None:
        """Have no thread in a process that forks for each job."""
        if not self.is_horse:
            self._reporter.rest()


class DeadLetterWorker(DeadLetters, Worker):
    """A worker of RQ that files what fails for good."""


def _text(told: bytes | str | None) -> str:
    return told.decode("utf-8", "replace") if isinstance(told, bytes) else told or ""
