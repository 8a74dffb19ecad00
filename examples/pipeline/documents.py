"""
The repository: documents in a directory, one file for each version.

Streams name documents, and streams come from anywhere: a name is never used as a
path, only its digest is.
"""

import os
from hashlib import sha256
from pathlib import Path
from uuid import uuid4

from google.protobuf.message import DecodeError

from .errors import DocumentMissing, MalformedDocument
from .pipestream_pb2 import DocumentReference, PipeDoc


class Repository:
    """Keeps documents; what was put is there before `put` returns."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        directory.mkdir(parents=True, exist_ok=True)

    def put(
        self, document: PipeDoc, *, account_id: str = "", node_id: str = ""
    ) -> DocumentReference:
        """Keep a document as it came in, or as a node made it; where it is."""
        reference = DocumentReference(
            doc_id=document.doc_id, source_node_id=node_id, account_id=account_id
        )
        path = self._path(reference)
        half = path.with_name(f"{path.name}.{uuid4().hex}")  # never seen half written
        with half.open("wb") as file:
            file.write(document.SerializeToString())
            file.flush()
            os.fsync(file.fileno())
        half.rename(path)
        return reference

    def get(self, reference: DocumentReference) -> PipeDoc:
        """The document that is meant; one that is missing or another is an error."""
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
