"""The client for threads."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from types import TracebackType
from typing import Any, Dict, Iterable, Iterator, List, Optional, Sequence, Tuple, Type

import grpc

from .arguments import ID, Options, Token, id_bytes, id_list
from .balance import Server
from .errors import Closed, DeadlineExceeded
from .steps import CONCURRENCY, MAX_IN_FLIGHT, Acquire, Answer, Calls, Effect, Entry, Failure, Send, Steps, T, prepare
from .transport import CHANNEL_OPTIONS, SERVING, WATCH_METHOD, WATCH_REQUEST, stubs, watch_delay


class Client:
    """Fetches the documents of one collection from several servers. It sends a call to a healthy
    server with few calls in flight. A call that a server refuses, cannot answer or does not answer
    in time is sent to another one: all methods only read. Retries have a budget, a fifth of the
    calls and ten a second.

    Create one client per process and collection, after a fork, and keep it. Threads may share it.
    All methods raise a DocstoreError, or TypeError for an argument of a wrong type.

    servers are addresses, HOST:PORT, of docserviced --grpc; each serves the whole collection. With
    ca, the PEM of the authority of their certificates, connections use TLS; certificate is the PEM
    of the client's own certificate chain and key. timeout is that of a method, retries included;
    attempt_timeout that of one attempt. Servers with too much load refuse calls of the priority
    "batch" before those of "interactive".
    """

    def __init__(
        self,
        servers: Sequence[str],
        collection: str,
        *,
        ca: Optional[bytes] = None,
        certificate: Optional[Tuple[bytes, bytes]] = None,
        token: Optional[Token] = None,
        timeout: float = 5.0,
        attempt_timeout: float = 1.0,
        max_retries: int = 3,
        batch_ids: int = 500,
        priority: str = "interactive",
    ) -> None:
        self._options = Options(servers, collection, ca, certificate, token, timeout, attempt_timeout, max_retries, batch_ids, priority)
        self._places = threading.Semaphore(MAX_IN_FLIGHT)
        self._calls = Calls(self._options, self._places.release)
        self._changed = threading.Condition()
        self._end = threading.Event()
        self._channels: List[Any] = []
        self._stubs: Dict[Server, Dict[str, Any]] = {}
        self._connectivity: Dict[Server, grpc.ChannelConnectivity] = {}
        credentials = self._options.credentials()
        for server in self._calls.balancer.servers:
            if credentials is None:
                channel = grpc.insecure_channel(server.address, CHANNEL_OPTIONS)
            else:
                channel = grpc.secure_channel(server.address, credentials, CHANNEL_OPTIONS)
            self._channels.append(channel)
            self._stubs[server] = stubs(channel)
            channel.subscribe(partial(self._connectivity.__setitem__, server))
            threading.Thread(target=self._watch, args=(server, channel), name=f"docstore health {server.address}", daemon=True).start()

    def get(self, id: ID, *, timeout: Optional[float] = None) -> Optional[bytes]:
        """Return a document, or None if it does not exist."""
        return self._run(self._calls.get(id_bytes("id", id), self._deadline(timeout)))

    def get_many(self, ids: Iterable[ID], *, timeout: Optional[float] = None) -> List[Answer]:
        """Return an answer for each id, in order. An invalid id and a document that is unavailable
        have an answer with an error; an error of the call itself is raised."""
        encoded, answers, requests = prepare(id_list(ids), self._options.batch_ids)
        deadline = self._deadline(timeout)

        def fetch(indexes: List[int]) -> None:
            self._run(self._calls.fetch(encoded, indexes, answers, deadline))

        if len(requests) == 1:
            fetch(requests[0])
        elif requests:
            with ThreadPoolExecutor(min(CONCURRENCY, len(requests)), "docstore get_many") as pool:
                results = [pool.submit(fetch, indexes) for indexes in requests]
                try:
                    for result in results:
                        result.result()
                finally:
                    for result in results:
                        result.cancel()
        return answers

    def scan(self, prefix: ID = b"", *, after: ID = b"", page_ids: int = 1_000, timeout: Optional[float] = None) -> Iterator[Entry]:
        """Return the documents whose ids begin with prefix, and are after the id after, in the
        order of the bytes of their ids. Each page may come from another server; timeout is that of a page."""
        return (entry for page in self._pages(prefix, after, page_ids, False, timeout) for entry in page)

    def scan_ids(self, prefix: ID = b"", *, after: ID = b"", page_ids: int = 1_000, timeout: Optional[float] = None) -> Iterator[bytes]:
        """Return the ids that scan returns, without the documents."""
        return (entry.id for page in self._pages(prefix, after, page_ids, True, timeout) for entry in page)

    def _pages(self, prefix: ID, after: ID, page_ids: int, ids_only: bool, timeout: Optional[float]) -> Iterator[List[Entry]]:
        request = self._calls.scan_request(prefix, after, page_ids, ids_only)
        self._deadline(timeout)  # checks it now

        def pages() -> Iterator[List[Entry]]:
            while True:
                entries, request.after = self._run(self._calls.page(request, self._deadline(timeout)))
                yield entries
                if not request.after:
                    return

        return pages()

    def health(self) -> Dict[str, Optional[bool]]:
        """Return the health of each server as it reports it; None: unknown."""
        return self._calls.balancer.health()

    def wait_ready(self, timeout: Optional[float] = None) -> None:
        """Wait until a server reports that it serves."""
        deadline = self._deadline(timeout)
        with self._changed:
            while not self._calls.balancer.ready():
                self._calls.check(deadline)
                self._changed.wait(deadline - time.monotonic())

    def close(self) -> None:
        """End the connections. Calls in progress and later calls raise Closed."""
        self._calls.closed = True
        self._end.set()
        for channel in self._channels:
            channel.close()
        with self._changed:
            self._changed.notify_all()

    def __enter__(self) -> Client:
        return self

    def __exit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        self.close()

    def _deadline(self, timeout: Optional[float]) -> float:
        return self._calls.deadline(timeout)

    def _run(self, steps: Steps[T]) -> T:
        """Perform the effects of a call and return its result."""
        try:
            effect = next(steps)
            while True:
                try:
                    result = self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return self._send(effect)
        if isinstance(effect, Acquire):
            if not self._places.acquire(timeout=max(0.0, effect.deadline - time.monotonic())):
                raise DeadlineExceeded("the time of the call ended before others had been answered")
        else:
            self._end.wait(effect.seconds)
        return None

    def _send(self, send: Send) -> Any:
        metadata = self._options.metadata()
        try:
            return self._stubs[send.server][send.method](send.request, timeout=send.timeout, metadata=metadata)
        except (grpc.RpcError, ValueError) as error:  # ValueError: the channel is closed
            if self._calls.closed:
                raise Closed("the client is closed") from error
            if isinstance(error, ValueError):
                raise
            answered = self._connectivity.get(send.server) is grpc.ChannelConnectivity.READY
            raise Failure(error.code(), error.details(), answered) from error

    def _watch(self, server: Server, channel: Any) -> None:
        """Watch the health of a server until close."""
        watch = channel.unary_stream(WATCH_METHOD)
        while not self._end.is_set():
            code = grpc.StatusCode.OK
            try:
                for message in watch(WATCH_REQUEST, metadata=self._options.health_metadata(), wait_for_ready=True):
                    self._set_health(server, message == SERVING)
            except grpc.RpcError as error:
                code = error.code()
            except ValueError:  # the channel is closed
                return
            self._set_health(server, None)
            self._end.wait(watch_delay(code))

    def _set_health(self, server: Server, serving: Optional[bool]) -> None:
        self._calls.balancer.set_health(server, serving)
        with self._changed:
            self._changed.notify_all()
