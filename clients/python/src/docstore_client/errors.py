"""The errors of the client."""

from __future__ import annotations

from typing import Dict, Type

import grpc


class DocstoreError(Exception):
    """The base of all errors of the client, except TypeError for an argument of a wrong type."""


class Unavailable(DocstoreError):
    """The document exists or may exist, but the servers that were asked cannot read it now."""


class NoServer(DocstoreError):
    """No server answered."""


class InvalidArgument(DocstoreError, ValueError):
    """An id or another argument is invalid. No server was asked, or the server refused it."""


class NoCollection(DocstoreError):
    """The server does not serve the collection."""


class Moved(DocstoreError):
    """The collection is divided into shards, and the server does not have the shard of the id."""


class Overloaded(DocstoreError):
    """The servers refused the call because they have too much load."""


class DeadlineExceeded(DocstoreError, TimeoutError):
    """The time of the call ended."""


class Unauthenticated(DocstoreError):
    """The server does not accept the token or certificate."""


class PermissionDenied(DocstoreError):
    """The client may not read the collection."""


class Closed(DocstoreError):
    """The client is closed."""


class ServerError(DocstoreError):
    """The server failed or its answer is malformed; see its log."""


CODES: Dict[grpc.StatusCode, Type[DocstoreError]] = {
    grpc.StatusCode.UNAVAILABLE: Unavailable,
    grpc.StatusCode.NOT_FOUND: NoCollection,
    grpc.StatusCode.INVALID_ARGUMENT: InvalidArgument,
    grpc.StatusCode.UNAUTHENTICATED: Unauthenticated,
    grpc.StatusCode.PERMISSION_DENIED: PermissionDenied,
    grpc.StatusCode.RESOURCE_EXHAUSTED: Overloaded,
    grpc.StatusCode.DEADLINE_EXCEEDED: DeadlineExceeded,
}
