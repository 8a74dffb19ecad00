"""
The repository: documents in a directory, one file for each version.

Streams name documents, and anybody can write a stream: a name is never used as a path, only its
digest is.
"""

import os
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from google.protobuf.message import DecodeError

from .errors import DocumentMissing, MalformedDocument
from .pipestream_pb2 import DocumentReference, PipeDoc


class Repository:
    """Documents on disk; `put` returns once the document is durable."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def put(
        self, document: PipeDoc, *, account_id: str = "", node_id: str = ""
    ) -> DocumentReference:
        """Store a document as submitted, or as a node made it; return its reference."""
        reference = DocumentReference(
            doc_id=document.doc_id, source_node_id=node_id, account_id=account_id
        )
        path = self._path(reference)
        half = path.with_name(f"{path.name}.{uuid4().hex}")  # readers never see half a file
        with half.open("wb") as file:
            file.write(document.SerializeToString())
            file.flush()
            os.fsync(file.fileno())
        half.rename(path)
        return reference

    def get(self, reference: DocumentReference) -> PipeDoc:
        """
        Return a document.

        Raises `DocumentMissing` if there is none, `MalformedDocument` if it is another one.
        """
        try:
            body = self._path(reference).read_bytes()
        except FileNotFoundError:
            raise DocumentMissing(f"the repository has no document {reference.doc_id!r}") from None
        document = PipeDoc()
        try:
            document.ParseFromString(body)
        except DecodeError as error:
            raise MalformedDocument(f"document {reference.doc_id!r} cannot be read") from error
        if document.doc_id != reference.doc_id:
            raise MalformedDocument(
                f"document {reference.doc_id!r} says that it is {document.doc_id!r}"
            )
        return document

    def _path(self, reference: DocumentReference) -> Path:
        name = sha256(reference.SerializeToString(deterministic=True)).hexdigest()
        return self._directory / name
