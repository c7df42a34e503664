"""The calls of a client as generators, which do no I/O.

A generator yields an effect, which the client performs: Client with threads, AsyncClient with
asyncio. So both have the same retries. The client throws Failure into the generator if a call
failed, and any other exception if the call has ended.
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass
from typing import AbstractSet, Any, Callable, Generator, Iterator, List, NamedTuple, Optional, Sequence, Set, Tuple, TypeVar, Union

import grpc

from . import docservice_pb2 as pb
from .arguments import ID, MAX_PAGE_IDS, Options, check_count, check_timeout, id_bytes, part_bytes
from .balance import Balancer, Server
from .errors import CODES, Closed, DeadlineExceeded, DocstoreError, InvalidArgument, Moved, NoServer, ServerError, Unavailable

MAX_IN_FLIGHT = 99
"""Calls in flight of a client. A daemon permits 128 streams of a connection, other servers at
least 100 (RFC 9113), one of them for the health: more calls would wait in gRPC while the time of
their attempt passes."""

CONCURRENCY = 4  # concurrent requests of one get_many
RETRY_DELAY = 0.025  # seconds before the servers are asked a second time; doubles
MAX_REQUEST_BYTES = (4 << 20) - (64 << 10)  # limit of the server, less the other fields
ID_FIELD_BYTES = 3  # tag and length of an id in a request

RETRIED = frozenset((grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.RESOURCE_EXHAUSTED, grpc.StatusCode.DEADLINE_EXCEEDED))
"""The errors of calls that another server may answer: all methods only read."""


@dataclass(frozen=True)
class Answer:
    """The answer for one id of get_many. Without a document and an error, the document does not exist."""

    id: ID
    document: Optional[bytes] = None
    error: Optional[DocstoreError] = None


@dataclass(frozen=True)
class Entry:
    """A document of scan, or the error why it cannot be read."""

    id: bytes
    document: Optional[bytes] = None
    error: Optional[DocstoreError] = None


class Acquire(NamedTuple):
    """Wait for a place among the calls in flight, at most until the deadline."""

    deadline: float


class Send(NamedTuple):
    """Send a request and return the response, or raise Failure."""

    server: Server
    method: str
    request: Any
    timeout: float


class Sleep(NamedTuple):
    """Sleep for seconds."""

    seconds: float


Effect = Union[Acquire, Send, Sleep]
T = TypeVar("T")
Steps = Generator[Effect, Any, T]


class Failure(Exception):
    """A call failed with a status of gRPC. answered: the connection is up, so the server sent it."""

    def __init__(self, code: grpc.StatusCode, details: Optional[str], answered: bool) -> None:
        super().__init__(code, details)
        self.code = code
        self.answered = answered
        self.details = details or code.name


class Calls:
    """The calls of one client. release ends what Acquire began."""

    def __init__(self, options: Options, release: Callable[[], None]) -> None:
        self.options = options
        self.balancer = Balancer(options.servers, time.monotonic, random.random)
        self.closed = False
        self._release = release

    def deadline(self, timeout: Optional[float]) -> float:
        """Return the deadline of a method."""
        return time.monotonic() + (self.options.timeout if timeout is None else check_timeout("timeout", timeout))

    def check(self, deadline: float) -> None:
        """Raise the error of a call that has ended."""
        if self.closed:
            raise Closed("the client is closed")
        if time.monotonic() >= deadline:
            raise DeadlineExceeded("the time of the call has ended")

    def get(self, id: bytes, deadline: float) -> Steps[Optional[bytes]]:
        """Return a document, or None if it does not exist."""
        request = pb.GetRequest(collection=self.options.collection, id=id)
        response, _ = yield from self._call("Get", request, deadline)
        return document_of(response)

    def fetch(self, ids: Sequence[bytes], indexes: Sequence[int], answers: List[Answer], deadline: float) -> Steps[None]:
        """Set the answers for the ids at the indexes. Ids that a server cannot read are requested
        from another one."""
        avoid: Set[Server] = set()
        for attempt in range(self.options.max_retries + 1):
            unavailable: List[int] = []
            asked: Set[Server] = set()
            while indexes:
                indexes = yield from self._fetch_some(ids, indexes, answers, deadline, avoid, asked, unavailable)
            if not unavailable or len(self.balancer.servers) == 1 or time.monotonic() >= deadline:
                return
            if attempt == self.options.max_retries or not self.balancer.may_retry():
                return
            indexes, avoid = unavailable, asked

    def _fetch_some(
        self,
        ids: Sequence[bytes],
        indexes: Sequence[int],
        answers: List[Answer],
        deadline: float,
        avoid: Set[Server],
        asked: Set[Server],
        unavailable: List[int],
    ) -> Steps[Sequence[int]]:
        """Make one request and return the indexes without an answer. Add the server to asked, and
        the indexes of unavailable documents to unavailable."""
        request = pb.BatchGetRequest(collection=self.options.collection, ids=[ids[i] for i in indexes])
        try:
            response, server = yield from self._call("BatchGet", request, deadline, avoid)
        except Unavailable as error:
            for i in indexes:  # no server has any of them
                answers[i] = Answer(answers[i].id, error=error)
            return []
        asked.add(server)
        got = len(response.answers)
        if got == 0 or got + response.left_out != len(indexes):
            raise ServerError(f"{server.address}: {got} answers and {response.left_out} left out for {len(indexes)} ids")
        for i, one in zip(indexes, response.answers):
            try:
                answers[i] = Answer(answers[i].id, document_of(one))
            except DocstoreError as error:
                answers[i] = Answer(answers[i].id, error=error)
                if isinstance(error, Unavailable):
                    unavailable.append(i)
        return indexes[got:]

    def scan_request(self, prefix: ID, after: ID, page_ids: int, ids_only: bool) -> pb.ScanRequest:
        """Return the request of the first page of a scan."""
        return pb.ScanRequest(
            collection=self.options.collection,
            prefix=part_bytes("prefix", prefix),
            after=part_bytes("after", after),
            limit=check_count("page_ids", page_ids, 1, MAX_PAGE_IDS),
            ids_only=ids_only,
        )

    def page(self, request: pb.ScanRequest, deadline: float) -> Steps[Tuple[List[Entry], bytes]]:
        """Return a page of a scan, and the id after which the next one begins; empty: it is the last."""
        response, _ = yield from self._call("Scan", request, deadline)
        entries = []
        for one in response.entries:
            try:
                entries.append(Entry(one.id, None if request.ids_only else document_of(one)))
            except DocstoreError as error:
                entries.append(Entry(one.id, error=error))
        return entries, response.next

    def _call(self, method: str, request: Any, deadline: float, avoid: AbstractSet[Server] = frozenset()) -> Steps[Tuple[Any, Server]]:
        """Send a request to the servers, not to those in avoid if there are others. Return the
        response and its server."""
        tried = set(avoid)
        self.balancer.count_call()
        for attempt in itertools.count():
            self.check(deadline)
            yield Acquire(deadline)
            server = self.balancer.begin(tried)
            timeout = min(self.options.attempt_timeout, deadline - time.monotonic())
            try:
                response = yield Send(server, method, request, timeout)
                self.balancer.answered(server)
                return response, server
            except Failure as failure:
                hangs = failure.code is grpc.StatusCode.DEADLINE_EXCEEDED and timeout == self.options.attempt_timeout
                lost = failure.code is grpc.StatusCode.UNAVAILABLE and not failure.answered
                if hangs or lost or failure.code is grpc.StatusCode.RESOURCE_EXHAUSTED:
                    self.balancer.failed(server)
                retry = failure.code in RETRIED and attempt < self.options.max_retries and time.monotonic() < deadline
                if not retry or not self.balancer.may_retry():
                    raise error_of(failure, server) from failure
            finally:
                self.balancer.end(server)
                self._release()
            tried.add(server)
            if len(tried) >= len(self.balancer.servers):
                tried.clear()
                delay = RETRY_DELAY * 2.0**attempt * (0.5 + random.random())
                yield Sleep(min(delay, max(0.0, deadline - time.monotonic())))
        raise AssertionError("unreachable")


def error_of(failure: Failure, server: Server) -> DocstoreError:
    """Return the error of a call that failed."""
    kind = CODES.get(failure.code, ServerError)
    if kind is Unavailable and not failure.answered:
        kind = NoServer
    return kind(f"{server.address}: {failure.details}")


def document_of(answer: Any) -> Optional[bytes]:
    """Return the document of an answer, or None, or raise its error."""
    if answer.status == pb.STATUS_FOUND:
        document: bytes = answer.document
        return document
    if answer.status == pb.STATUS_NOT_FOUND:
        return None
    if answer.status == pb.STATUS_UNAVAILABLE:
        raise Unavailable("the servers that were asked cannot read the document now")
    if answer.status == pb.STATUS_MOVED:
        raise Moved("the server does not have the shard of the id")
    raise ServerError("the server failed to read the document; see its log")


def batches(ids: Sequence[bytes], indexes: Sequence[int], batch_ids: int) -> Iterator[List[int]]:
    """Split the indexes of ids into requests of at most batch_ids ids and MAX_REQUEST_BYTES."""
    batch: List[int] = []
    size = 0
    for i in indexes:
        more = len(ids[i]) + ID_FIELD_BYTES
        if len(batch) == batch_ids or size + more > MAX_REQUEST_BYTES:
            yield batch
            batch, size = [], 0
        batch.append(i)
        size += more
    if batch:
        yield batch


def prepare(ids: Sequence[ID], batch_ids: int) -> Tuple[List[bytes], List[Answer], List[List[int]]]:
    """Return the encoded ids, their answers so far and the requests of get_many. An invalid id
    has an error and is in no request."""
    encoded: List[bytes] = []
    answers: List[Answer] = []
    valid: List[int] = []
    for i, id in enumerate(ids):
        try:
            encoded.append(id_bytes(f"ids[{i}]", id))
            answers.append(Answer(id))
            valid.append(i)
        except InvalidArgument as error:
            encoded.append(b"")
            answers.append(Answer(id, error=error))
    return encoded, answers, list(batches(encoded, valid, batch_ids))
