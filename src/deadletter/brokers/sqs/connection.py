"""URLs of SQS, errors of the client library, and calls of the service."""

import asyncio
import re
from collections.abc import Callable, Iterator, Sequence
from hashlib import md5
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar
from urllib.parse import urlsplit

from aiobotocore.config import AioConfig  # type: ignore[import-untyped]
from botocore import exceptions as theirs  # type: ignore[import-untyped]
from msgspec import Meta, Struct

from deadletter.core.errors import BackendError, ConfigError, PartlySent, Refused, Unavailable
from deadletter.kit import ErrorKey, ErrorRow, ErrorTable, NoAnswer, ServerUrl, UrlForm, error_text

_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d+")
_FORMS: Final = "sqs://, sqs://eu-west-1 or sqs+http://localhost:4566"


class Options(Struct, frozen=True, kw_only=True):
    """Parameters of the URLs."""

    account: Annotated[str, Meta(pattern=r"\A(\d{12})?\Z", description="12 digits")] = ""
    claim_check: str | None = None
    create: Literal["yes", "no"] = "yes"  # queues that are missing
    prefix: Annotated[
        str,
        Meta(pattern=r"\A[A-Za-z0-9_-]{0,40}\Z", description="up to 40 letters, digits, - and _"),
    ] = ""
    region: str | None = None
    retry: Literal["copy", "visibility"] = "copy"


OptionsT = TypeVar("OptionsT", bound=Options)


def url_form(options: type[OptionsT]) -> UrlForm[OptionsT]:
    """Return the form of URLs with these parameters."""
    schemes = ("sqs", "sqs+http", "sqs+https")
    ports = dict.fromkeys(schemes)
    return UrlForm("SQS", ports, options, example=_FORMS, default_host=None)


class Address(Struct, frozen=True, kw_only=True):
    """Location of a service."""

    region: str | None = None  # None: the environment says
    endpoint: str | None = None  # None: Amazon's own
    keys: tuple[str, str] | None = None  # None: the usual chain

    @property
    def where(self) -> str:
        """The service, without keys, for people."""
        return self.endpoint or f"SQS in {self.region or 'the configured region'}"

    @property
    def is_amazon(self) -> bool:
        """Whether it is the real service, judging by the address."""
        host = urlsplit(self.endpoint or "").hostname
        return host is None or host.endswith((".amazonaws.com", ".amazonaws.com.cn"))


def address_of(url: ServerUrl[OptionsT]) -> Address:
    """Return where the service of a URL is."""
    if url.path.strip("/"):
        raise ConfigError(
            f"{url.path!a} in the SQS URL has no meaning: mailboxes are named where they"
            " are used; a common beginning of their names is ?prefix="
        )
    if url.scheme == "sqs":
        return Address(region=_region(url))
    if not url.hosts:
        raise ConfigError(f"write the SQS URL as {_FORMS}")
    keys = (url.user, url.password) if url.user and url.password else None
    scheme = url.scheme.removeprefix("sqs+")
    return Address(region=url.options.region, endpoint=f"{scheme}://{url.where}", keys=keys)


def _region(url: ServerUrl[OptionsT]) -> str | None:
    region = url.options.region
    if url.user is not None or url.password is not None:
        raise ConfigError(
            "AWS keys do not belong in an sqs:// URL: use the usual AWS places, such as"
            " AWS_ACCESS_KEY_ID, a profile or a role"
        )
    if not url.hosts:
        return region
    if url.host.port is not None or not _REGION.fullmatch(url.host.name):
        raise ConfigError(
            f"{url.where!a} is not an AWS region: write sqs://eu-west-1, or"
            f" sqs+http://{url.where} for another endpoint"
        )
    if region not in {None, url.host.name}:
        raise ConfigError(f"the SQS URL names two regions, {url.host.name} and {region}")
    return url.host.name


class SomeRefused(PartlySent, Refused):
    """SQS refused some messages of a batch."""


class SomeUnsent(PartlySent, Unavailable):
    """SQS could not accept some messages of a batch for now."""


class NoQueue(Unavailable):
    """The queue does not exist, or was deleted."""


class Gone(BackendError):
    """The claim on a message has ended; another receiver may have it."""


_THROTTLED: Final[ErrorRow] = (Unavailable, "the service asks us to slow down")
_NO_QUEUE: Final[ErrorRow] = (NoQueue, "there is no such queue")
_DENIED: Final[ErrorRow] = (
    Refused,
    (
        "our identity may not do this: allow it sqs:SendMessage, ReceiveMessage,"
        " DeleteMessage, ChangeMessageVisibility, GetQueueUrl, GetQueueAttributes,"
        " ListQueues and ListQueueTags; CreateQueue, SetQueueAttributes, TagQueue,"
        " UntagQueue and DeleteQueue to make queues"
    ),
)
_EXPIRED: Final[ErrorRow] = (
    Unavailable,
    "our credentials have expired: renew them (aws sso login, or a new role session)",
)
_UNKNOWN_KEY: Final[ErrorRow] = (
    Unavailable,
    "the service does not know our access key: check AWS_ACCESS_KEY_ID",
)
_WRONG_SIGNATURE: Final[ErrorRow] = (
    Unavailable,
    "our signature is wrong: check AWS_SECRET_ACCESS_KEY and this machine's clock",
)
_NO_CREDENTIALS: Final[ErrorRow] = (
    ConfigError,
    (
        "there are no AWS credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY,"
        " AWS_PROFILE, or run where a role gives them"
    ),
)

# An answer without a row of its own is final if the service blames us (4xx), and
# temporary otherwise.
_ANSWERS: Final[dict[ErrorKey, ErrorRow]] = {
    "NonExistentQueue": _NO_QUEUE,
    "QueueDoesNotExist": _NO_QUEUE,
    "QueueDeletedRecently": (
        Unavailable,
        "the queue was deleted a moment ago: SQS makes it again after 60 seconds",
    ),
    "InvalidAddress": (Refused, "the queue's address is not of this account or region"),
    "AccessDenied": _DENIED,
    "AccessDeniedException": _DENIED,
    "OverLimit": (
        Unavailable,
        "too many messages are claimed at once (120,000; FIFO 20,000): settle some",
    ),
    "RequestThrottled": _THROTTLED,
    "ThrottlingException": _THROTTLED,
    "Throttling": _THROTTLED,
    "KmsThrottled": (Unavailable, "the key service asks SQS to slow down"),
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "InvalidClientTokenId": _UNKNOWN_KEY,
    "UnrecognizedClientException": _UNKNOWN_KEY,
    "SignatureDoesNotMatch": _WRONG_SIGNATURE,
    "RequestExpired": (Unavailable, "our clock is wrong: set this machine's clock"),
    "InvalidMessageContents": (Refused, "the message has characters that SQS does not take"),
    "4xx": (Refused, "SQS refused"),
    "5xx": (Unavailable, "SQS cannot do this now"),
}
_OPENING: Final = ("InvalidClientTokenId", "UnrecognizedClientException", "SignatureDoesNotMatch")
_GONE: Final = frozenset({"ReceiptHandleIsInvalid", "InvalidParameterValue", "MessageNotInflight"})


def code_of(error: Exception) -> str:
    """Return the service's name for an error, without its decorations."""
    if not isinstance(error, theirs.ClientError):
        return ""
    return _plain(error.response.get("Error", {}).get("Code", ""))


def _plain(code: object) -> str:
    return str(code).rpartition(".")[2].rpartition("#")[2]


def _codes(error: Exception) -> tuple[str, ...]:
    if not isinstance(error, theirs.ClientError):
        return ()
    status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 500)
    return code_of(error), "4xx" if 400 <= status < 500 else "5xx"


def _text(error: BaseException) -> str:
    if not isinstance(error, theirs.ClientError):
        return error_text(error)
    code = code_of(error)
    text = str(error.response.get("Error", {}).get("Message", "")) or code
    return text if code in _ANSWERS else f"{code}: {text}"


ERRORS: Final = ErrorTable(
    "the service",
    {
        **_ANSWERS,
        theirs.NoRegionError: (
            ConfigError,
            "no AWS region is set: write it into the URL, as in sqs://eu-west-1, or set AWS_REGION",
        ),
        theirs.NoCredentialsError: _NO_CREDENTIALS,
        theirs.PartialCredentialsError: _NO_CREDENTIALS,
        theirs.CredentialRetrievalError: (
            Unavailable,
            "could not load AWS credentials: check AWS_PROFILE or AWS_ACCESS_KEY_ID",
        ),
        theirs.TokenRetrievalError: (
            Unavailable,
            "could not load AWS credentials: check AWS_PROFILE or AWS_ACCESS_KEY_ID",
        ),
        theirs.ProfileNotFound: (ConfigError, "there is no such profile: check AWS_PROFILE"),
        theirs.ParamValidationError: (Refused, "the client refused"),
        theirs.BotoCoreError: (NoAnswer, "SQS cannot be reached"),
        theirs.ClientError: (Unavailable, "SQS cannot do this now"),
        OSError: (NoAnswer, "SQS cannot be reached"),
    },
    opening={
        code: (ConfigError, f"{{where}} refuses us: {_ANSWERS[code][1]}") for code in _OPENING
    },
    codes=_codes,
    text=_text,
)


def entry_error(failed: dict[str, Any]) -> BackendError:
    """Return our error for one entry of a batch that was not done."""
    code = _plain(failed.get("Code", ""))
    text = str(failed.get("Message", "") or code)
    if code in _GONE:
        return Gone(text)
    codes = (code, "4xx" if failed.get("SenderFault") else "5xx")
    ours = ERRORS.translate_answer(codes, text)
    assert isinstance(ours, BackendError)
    return ours


Entry: TypeAlias = dict[str, Any]

BATCH: Final = 10  # entries
_CONNECT: Final = 10.0  # seconds
_BATCH_BYTES: Final = 786_432  # SQS takes 1 MiB, but JSON makes more of it
_PAUSE: Final = 0.1  # seconds, doubled from try to try
_LIMIT: Final = 30.0  # seconds for a whole call, with its wait for a connection


def client(
    session: Any,
    address: Address,
    service: str = "sqs",
    *,
    connections: int = BATCH,
    patience: float,
    attempts: int = 1,
) -> Any:
    """
    Return a client of the library, as a context manager.

    `patience` is the time to wait for an answer. Callers that know how to tell a
    repetition from a first call leave `attempts` at 1.
    """
    keys = address.keys or (None, None)
    try:
        return session.create_client(
            service,
            region_name=address.region,
            endpoint_url=address.endpoint,
            aws_access_key_id=keys[0],
            aws_secret_access_key=keys[1],
            config=AioConfig(
                max_pool_connections=connections,
                connect_timeout=_CONNECT,
                read_timeout=patience,
                retries={"mode": "standard", "total_max_attempts": attempts},
                tcp_keepalive=True,
            ),
        )
    except ValueError as error:  # the library's word for an invalid endpoint
        raise ConfigError(f"the SQS URL cannot be used: {error}") from error


async def check(calling: Any, address: Address, prefix: str = "") -> None:
    """Call the service once; raise if it does not answer or does not know our keys."""
    try:
        await calling.list_queues(QueueNamePrefix=prefix or "dlq", MaxResults=1)
    except ERRORS.known as error:
        ours = ERRORS.translate_opening(error, address.where, "Is the region right?")
        if not isinstance(ours, Refused):  # not everybody may list queues
            raise ours from error


class SqsService:
    """Calls of one service, on two clients: long polls must not delay other calls."""

    def __init__(self, calling: Any, waiting: Any) -> None:
        self._calling = calling
        self._waiting = waiting

    async def call(self, verb: str, **arguments: Any) -> Any:
        """Call the service."""
        return await _called(self._calling, verb, arguments)

    async def wait(self, verb: str, **arguments: Any) -> Any:
        """Call the service with a long poll."""
        wait = float(arguments.get("WaitTimeSeconds", 0))
        return await _called(self._waiting, verb, arguments, wait)

    async def batch(
        self,
        verb: str,
        url: str,
        entries: Sequence[Entry],
        *,
        size: Callable[[Entry], int] = lambda _: 0,
        in_order: bool = False,
        tries: int = 1,
    ) -> list[BackendError | None]:
        """
        Send entries in batches of ten, concurrently unless `in_order`.

        Returns the error of each entry, or None. Temporary failures are tried `tries`
        times. With `in_order`, nothing overtakes a batch that failed.
        """
        failures: list[BackendError | None] = [None] * len(entries)
        left = list(range(len(entries)))
        for again in range(tries):
            if again:
                await asyncio.sleep(_PAUSE * 2**again)
            groups = list(_grouped(left, lambda i: size(entries[i])))
            if in_order:
                await self._one_by_one(verb, url, entries, groups, failures)
            else:
                calls = [self._some(verb, url, entries, g, failures) for g in groups]
                await asyncio.gather(*calls)
            left = [i for i in left if isinstance(failures[i], Unavailable)]
            if not left:
                break
        return failures

    async def _one_by_one(
        self,
        verb: str,
        url: str,
        entries: Sequence[Entry],
        groups: Sequence[Sequence[int]],
        failures: list[BackendError | None],
    ) -> None:
        for number, group in enumerate(groups):
            await self._some(verb, url, entries, group, failures)
            failed = next((failures[i] for i in group if failures[i]), None)
            if failed is not None:
                for later in groups[number + 1 :]:
                    for i in later:
                        failures[i] = failed
                return

    async def _some(
        self,
        verb: str,
        url: str,
        entries: Sequence[Entry],
        group: Sequence[int],
        failures: list[BackendError | None],
    ) -> None:
        asked = [{**entries[i], "Id": str(i)} for i in group]
        try:
            answer = await self.call(verb, QueueUrl=url, Entries=asked)
        except BackendError as error:
            for i in group:
                failures[i] = error
            return
        for i in group:
            failures[i] = None
        for done in answer.get("Successful", ()):
            i = int(done["Id"])
            body = entries[i].get("MessageBody")
            if body is not None and is_other(done.get("MD5OfMessageBody"), body):
                failures[i] = Unavailable("SQS stored a damaged body (its checksum differs)")
        for failed in answer.get("Failed", ()):
            failures[int(failed["Id"])] = entry_error(failed)


def is_other(digest: str | None, body: str) -> bool:
    """Return whether the digest is of another body; botocore does not check it."""
    if digest is None:
        return False
    data = body.encode("utf-8", "surrogatepass")
    return md5(data, usedforsecurity=False).hexdigest() != digest


async def _called(client: Any, verb: str, arguments: dict[str, Any], wait: float = 0.0) -> Any:
    try:
        # The library's own timeouts are for each piece that is read.
        async with asyncio.timeout(_LIMIT + wait):
            return await getattr(client, verb)(**arguments)
    except ERRORS.known as error:
        raise ERRORS.translate(error) from error


def _grouped(numbers: Sequence[int], size: Callable[[int], int]) -> Iterator[Sequence[int]]:
    group: list[int] = []
    room = _BATCH_BYTES
    for number in numbers:
        if group and (len(group) == BATCH or size(number) > room):
            yield group
            group, room = [], _BATCH_BYTES
        group.append(number)
        room -= size(number)
    if group:
        yield group
