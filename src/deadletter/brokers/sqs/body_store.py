"""
Storage of bodies that are too large for SQS: a directory, or a bucket on S3.

The message then carries only a key that we made. A body is deleted when its message is
acknowledged.
"""

import asyncio
import os
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import unquote, urlsplit

from deadletter.core.errors import ConfigError, NotFound, Unavailable

from .connection import ERRORS, code_of

_ABSENT: Final = frozenset({"NoSuchKey", "404", "NotFound"})


class BodyStore(Protocol):
    """Storage of bodies by key."""

    async def put(self, key: str, body: bytes) -> None:
        """Store a body durably."""

    async def get(self, key: str) -> bytes:
        """Return the body of a key; raise NotFound if it is gone."""

    async def delete(self, key: str) -> None:
        """Delete a body, if it exists."""


class DirectoryBodyStore:
    """Files in a directory that all processes share."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    async def put(self, key: str, body: bytes) -> None:
        """Store a body durably."""
        await _on_thread(lambda: _write(self._directory / key, body))

    async def get(self, key: str) -> bytes:
        """Return the body of a key; raise NotFound if it is gone."""
        try:
            return await asyncio.to_thread((self._directory / key).read_bytes)
        except FileNotFoundError as error:
            raise NotFound(f"{key} is gone from {self._directory}") from error
        except OSError as error:
            raise Unavailable(f"{self._directory}: {error}") from error

    async def delete(self, key: str) -> None:
        """Delete a body, if it exists."""
        await _on_thread(lambda: (self._directory / key).unlink(missing_ok=True))


class S3BodyStore:
    """Objects in a bucket."""

    def __init__(self, client: Any, bucket: str, prefix: str) -> None:
        self._client = client
        self._bucket = bucket
        self._prefix = prefix

    async def put(self, key: str, body: bytes) -> None:
        """Store a body durably."""
        await self._call("put_object", key, Body=body)

    async def get(self, key: str) -> bytes:
        """Return the body of a key; raise NotFound if it is gone."""
        answer = await self._call("get_object", key)
        try:
            async with answer["Body"] as stream:
                return bytes(await stream.read())
        except ERRORS.known as error:
            raise ERRORS.translate(error) from error

    async def delete(self, key: str) -> None:
        """Delete a body, if it exists."""
        await self._call("delete_object", key)

    async def _call(self, verb: str, key: str, **more: Any) -> Any:
        place = {"Bucket": self._bucket, "Key": self._prefix + key}
        try:
            return await getattr(self._client, verb)(**place, **more)
        except ERRORS.known as error:
            if code_of(error) in _ABSENT:
                raise NotFound(f"{key} is gone from {self._bucket}") from error
            raise ERRORS.translate(error) from error


async def open_body_store(url: str, make_s3: Any, stack: AsyncExitStack) -> BodyStore:
    """Open the storage of a URL; `make_s3` returns a client if one is needed."""
    parts = urlsplit(url)
    if parts.scheme == "file" and not parts.netloc and parts.path:
        directory = Path(unquote(parts.path))
        await _on_thread(lambda: directory.mkdir(parents=True, exist_ok=True))
        return DirectoryBodyStore(directory)
    if parts.scheme == "s3" and parts.netloc:
        prefix = parts.path.strip("/")
        client = await stack.enter_async_context(make_s3())
        return S3BodyStore(client, parts.netloc, f"{prefix}/" if prefix else "")
    raise ConfigError(f"claim_check must be s3://bucket/prefix or file:///a/directory, got {url!a}")


async def _on_thread(work: Any) -> None:
    try:
        await asyncio.to_thread(work)
    except OSError as error:
        raise Unavailable(f"the directory for large bodies: {error}") from error


def _write(path: Path, body: bytes) -> None:
    # Whole or not at all: a reader never sees half of it.
    draft = path.with_name(f"{path.name}.part")
    with draft.open("wb") as file:
        file.write(body)
        file.flush()
        os.fsync(file.fileno())
    draft.replace(path)
