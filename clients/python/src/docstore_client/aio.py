"""The client for asyncio."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType
from typing import Any, AsyncIterator, Dict, Iterable, List, Optional, Sequence, Tuple, Type

import grpc
import grpc.aio

from .arguments import ID, Options, Token, id_bytes, id_list
from .balance import Server
from .errors import Closed, DeadlineExceeded
from .steps import CONCURRENCY, MAX_IN_FLIGHT, Acquire, Answer, Calls, Effect, Entry, Failure, Send, Steps, T, prepare
from .transport import CHANNEL_OPTIONS, SERVING, WATCH_METHOD, WATCH_REQUEST, stubs, watch_delay


class AsyncClient:
    """Client for asyncio: the same arguments and methods, as coroutines. It belongs to the event loop in
    which it is created. Use it with "async with", or call close."""

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
        loop = asyncio.get_running_loop()
        self._options = Options(servers, collection, ca, certificate, token, timeout, attempt_timeout, max_retries, batch_ids, priority)
        self._places = asyncio.Semaphore(MAX_IN_FLIGHT)
        self._calls = Calls(self._options, self._places.release)
        self._changed = asyncio.Event()
        self._channels: Dict[Server, Any] = {}
        self._stubs: Dict[Server, Dict[str, Any]] = {}
        self._watches: List[asyncio.Task[None]] = []
        credentials = self._options.credentials()
        for server in self._calls.balancer.servers:
            if credentials is None:
                channel = grpc.aio.insecure_channel(server.address, CHANNEL_OPTIONS)
            else:
                channel = grpc.aio.secure_channel(server.address, credentials, CHANNEL_OPTIONS)
            self._channels[server] = channel
            self._stubs[server] = stubs(channel)
            self._watches.append(loop.create_task(self._watch(server, channel)))

    async def get(self, id: ID, *, timeout: Optional[float] = None) -> Optional[bytes]:
        """Return a document, or None if it does not exist."""
        return await self._run(self._calls.get(id_bytes("id", id), self._deadline(timeout)))

    async def get_many(self, ids: Iterable[ID], *, timeout: Optional[float] = None) -> List[Answer]:
        """Return an answer for each id, in order. An invalid id and a document that is unavailable
        have an answer with an error; an error of the call itself is raised."""
        encoded, answers, requests = prepare(id_list(ids), self._options.batch_ids)
        deadline = self._deadline(timeout)
        rest = iter(requests)

        async def work() -> None:
            for indexes in rest:
                await self._run(self._calls.fetch(encoded, indexes, answers, deadline))

        tasks = [asyncio.ensure_future(work()) for _ in range(min(CONCURRENCY, len(requests)))]
        try:
            await asyncio.gather(*tasks)
        finally:
            for task in tasks:
                task.cancel()
        return answers

    async def scan(
        self, prefix: ID = b"", *, after: ID = b"", page_ids: int = 1_000, timeout: Optional[float] = None
    ) -> AsyncIterator[Entry]:
        """Return the documents whose ids begin with prefix, and are after the id after, in the
        order of the bytes of their ids. Each page may come from another server; timeout is that of a page."""
        async for page in self._pages(prefix, after, page_ids, False, timeout):
            for entry in page:
                yield entry

    async def scan_ids(
        self, prefix: ID = b"", *, after: ID = b"", page_ids: int = 1_000, timeout: Optional[float] = None
    ) -> AsyncIterator[bytes]:
        """Return the ids that scan returns, without the documents."""
        async for page in self._pages(prefix, after, page_ids, True, timeout):
            for entry in page:
                yield entry.id

    async def _pages(
        self, prefix: ID, after: ID, page_ids: int, ids_only: bool, timeout: Optional[float]
    ) -> AsyncIterator[List[Entry]]:
        request = self._calls.scan_request(prefix, after, page_ids, ids_only)
        while True:
            entries, request.after = await self._run(self._calls.page(request, self._deadline(timeout)))
            yield entries
            if not request.after:
                return

    def health(self) -> Dict[str, Optional[bool]]:
        """Return the health of each server as it reports it; None: unknown."""
        return self._calls.balancer.health()

    async def wait_ready(self, timeout: Optional[float] = None) -> None:
        """Wait until a server reports that it serves."""
        deadline = self._deadline(timeout)
        while not self._calls.balancer.ready():
            self._calls.check(deadline)
            self._changed.clear()
            try:
                await asyncio.wait_for(self._changed.wait(), deadline - time.monotonic())
            except asyncio.TimeoutError:
                pass  # check raises

    async def close(self) -> None:
        """End the connections. Calls in progress and later calls raise Closed."""
        self._calls.closed = True
        for watch in self._watches:
            watch.cancel()
        await asyncio.gather(*self._watches, return_exceptions=True)
        for channel in self._channels.values():
            await channel.close()
        self._changed.set()

    async def __aenter__(self) -> AsyncClient:
        return self

    async def __aexit__(self, kind: Optional[Type[BaseException]], error: Optional[BaseException], traceback: Optional[TracebackType]) -> None:
        await self.close()

    def _deadline(self, timeout: Optional[float]) -> float:
        return self._calls.deadline(timeout)

    async def _run(self, steps: Steps[T]) -> T:
        """Perform the effects of a call and return its result."""
        try:
            effect = next(steps)
            while True:
                try:
                    result = await self._perform(effect)
                except BaseException as error:
                    effect = steps.throw(error)
                else:
                    effect = steps.send(result)
        except StopIteration as end:
            value: T = end.value
            return value

    async def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Send):
            return await self._send(effect)
        if isinstance(effect, Acquire):
            if not self._places.locked():
                return await self._places.acquire()
            try:
                await asyncio.wait_for(self._places.acquire(), effect.deadline - time.monotonic())
            except asyncio.TimeoutError:
                raise DeadlineExceeded("the time of the call ended before others had been answered") from None
        else:
            await asyncio.sleep(effect.seconds)
        return None

    async def _send(self, send: Send) -> Any:
        metadata = self._options.metadata()
        try:
            return await self._stubs[send.server][send.method](send.request, timeout=send.timeout, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            if self._calls.closed:
                raise Closed("the client is closed") from error
            answered = self._channels[send.server].get_state() is grpc.ChannelConnectivity.READY
            raise Failure(error.code(), error.details(), answered) from error
        except (asyncio.CancelledError, grpc.aio.UsageError) as error:
            if self._calls.closed:  # the channel cancels its calls
                raise Closed("the client is closed") from error
            raise

    async def _watch(self, server: Server, channel: Any) -> None:
        """Watch the health of a server until close."""
        watch = channel.unary_stream(WATCH_METHOD)
        while True:
            code = grpc.StatusCode.OK
            try:
                async for message in watch(WATCH_REQUEST, metadata=self._options.health_metadata(), wait_for_ready=True):
                    self._set_health(server, message == SERVING)
            except grpc.aio.AioRpcError as error:
                code = error.code()
            self._set_health(server, None)
            await asyncio.sleep(watch_delay(code))

    def _set_health(self, server: Server, serving: Optional[bool]) -> None:
        self._calls.balancer.set_health(server, serving)
        self._changed.set()
