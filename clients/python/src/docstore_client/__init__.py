"""Client of docserviced over gRPC: Client for threads, AsyncClient for asyncio.

    with Client(["docs-1:7072", "docs-2:7072"], "jobs") as jobs:
        jobs.get("4711")  # bytes, or None if it does not exist
        for answer in jobs.get_many(ids): ...
        for entry in jobs.scan("acme-"): ...
"""

from .aio import AsyncClient
from .client import Client
from .errors import (
    Closed,
    DeadlineExceeded,
    DocstoreError,
    InvalidArgument,
    Moved,
    NoCollection,
    NoServer,
    Overloaded,
    PermissionDenied,
    ServerError,
    Unauthenticated,
    Unavailable,
)
from .steps import Answer, Entry

__all__ = [
    "Answer",
    "AsyncClient",
    "Client",
    "Closed",
    "DeadlineExceeded",
    "DocstoreError",
    "Entry",
    "InvalidArgument",
    "Moved",
    "NoCollection",
    "NoServer",
    "Overloaded",
    "PermissionDenied",
    "ServerError",
    "Unauthenticated",
    "Unavailable",
]
