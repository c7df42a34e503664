"""Both clients against real daemons."""

from __future__ import annotations

import asyncio
import base64
import shutil
import signal
import threading
import time
import unittest
from typing import Any, Callable, List, Union

from docstore_client import (
    AsyncClient,
    Client,
    Closed,
    DeadlineExceeded,
    InvalidArgument,
    NoCollection,
    NoServer,
    Unavailable,
)

from .daemon import Commands, Daemon

DOCUMENTS = 3_000
DAMAGED = b"bytes \0 of a document"

commands: Commands
queue: Any
first: Daemon


def id_of(i: int) -> str:
    return f"job-{i:05d}"


def document(i: int) -> bytes:
    return f'{{"id":"{id_of(i)}","n":{i}}}'.encode()


def calls_of(client: Client) -> List[Callable[[], object]]:
    """Return a call of each method."""
    return [lambda: client.get("a"), lambda: client.get_many(["a"]), lambda: list(client.scan())]


def setUpModule() -> None:
    global commands, queue, first
    commands = Commands()
    unittest.addModuleCleanup(commands.end)
    lines = [document(i).decode() for i in range(DOCUMENTS)]
    lines.append(f'{{"_id_base64":"/w==","_document_base64":"{base64.b64encode(DAMAGED).decode()}"}}')
    lines += ['{"id":"ü","x":1}', '{"id":"gone"}', '{"id":"gone","_delete":true}']
    queue = commands.append("queue", "\n".join(lines) + "\n")
    first = commands.serve(queue, "one")


class ThreadsTest(unittest.TestCase):
    """Client."""

    def test_documents_batches_and_scans(self) -> None:
        with Client([first.address], "jobs") as client:
            client.wait_ready()
            self.assertEqual(client.health(), {first.address: True})
            self.assertEqual(client.get(id_of(7)), document(7))
            self.assertEqual(client.get("ü"), '{"id":"ü","x":1}'.encode())
            self.assertEqual(client.get(b"\xff"), DAMAGED)
            self.assertIsNone(client.get("gone"))
            self.assertIsNone(client.get("missing"))

            numbers = [i * 7 % (2 * DOCUMENTS) for i in range(2 * DOCUMENTS)]
            answers = client.get_many(map(id_of, numbers))
            self.assertEqual([a.id for a in answers], [id_of(n) for n in numbers])
            for n, answer in zip(numbers, answers):
                self.assertIsNone(answer.error)
                self.assertEqual(answer.document, document(n) if n < DOCUMENTS else None)
            self.assertEqual(client.get_many([]), [])

            entries = list(client.scan("job-", after=id_of(9), page_ids=400))
            self.assertEqual([e.id.decode() for e in entries], [id_of(i) for i in range(10, DOCUMENTS)])
            self.assertEqual([e.document for e in entries], [document(i) for i in range(10, DOCUMENTS)])
            self.assertEqual(list(client.scan_ids("ü")), ["ü".encode()])
            self.assertEqual(list(client.scan("none")), [])

    def test_bad_input(self) -> None:
        with Client([first.address], "jobs") as client:
            ids: List[Union[str, bytes]] = ["", b"", "x" * 1025, "a\ud800"]
            for id in ids:
                with self.assertRaises(InvalidArgument):
                    client.get(id)
                good, bad, more = client.get_many([id_of(1), id, id_of(2)])
                self.assertEqual((good.document, more.document), (document(1), document(2)))
                self.assertIsInstance(bad.error, InvalidArgument)
                self.assertIn("ids[1]", str(bad.error))
            for wrong in (None, 5, ["a"]):
                with self.assertRaisesRegex(TypeError, "id is .*: want str or bytes"):
                    client.get(wrong)  # type: ignore[arg-type]
                with self.assertRaisesRegex(TypeError, r"ids\[1\] is "):
                    client.get_many(["a", wrong])  # type: ignore[list-item]
            with self.assertRaisesRegex(TypeError, "ids is str: want an iterable of ids"):
                client.get_many("abc")
            for page_ids in (0, -1, 4_097):
                with self.assertRaisesRegex(InvalidArgument, "page_ids"):
                    client.scan(page_ids=page_ids)
            for timeout in (0, -1, float("nan"), float("inf")):
                with self.assertRaisesRegex(InvalidArgument, "timeout"):
                    client.get("a", timeout=timeout)
                with self.assertRaisesRegex(InvalidArgument, "timeout"):
                    client.scan(timeout=timeout)
            with self.assertRaisesRegex(InvalidArgument, "prefix has 1025 bytes"):
                client.scan("x" * 1025)
            self.assertEqual(client.get(id_of(1)), document(1))
        for call in calls_of(client):
            with self.assertRaises(Closed):
                call()

    def test_errors_of_servers(self) -> None:
        with Client([first.address], "other") as client:
            for call in calls_of(client):
                with self.assertRaisesRegex(NoCollection, "only jobs"):
                    call()
        with Client(["127.0.0.1:1"], "jobs", max_retries=1) as client:
            for call in calls_of(client):
                with self.assertRaises(NoServer):
                    call()
            with self.assertRaises(DeadlineExceeded):
                client.wait_ready(0.05)

    def test_a_request_or_response_that_is_too_large_is_split(self) -> None:
        with Client([first.address], "jobs", batch_ids=16_384, max_retries=0, attempt_timeout=20, timeout=30) as client:
            ids = [id_of(i // 1_000) if i % 1_000 == 0 else str(i).rjust(1024, "x") for i in range(9_000)]
            for i, answer in enumerate(client.get_many(ids)):
                self.assertIsNone(answer.error)
                self.assertEqual(answer.document, document(i // 1_000) if i % 1_000 == 0 else None)
        ids = [f"large-{i}" for i in range(5)]
        lines = [f'{{"id":"{id}","x":"{"x" * (9 << 20)}"}}' for id in ids]
        daemon = commands.serve(commands.append("large", "\n".join(lines) + "\n"), "large-data", "--memory", "512MiB")
        with Client([daemon.address], "jobs", attempt_timeout=20, timeout=60) as client:
            self.assertEqual([a.document for a in client.get_many(ids)], [line.encode() for line in lines])
        daemon.stop()

    def test_a_document_that_one_server_cannot_read_comes_from_another(self) -> None:
        damaged = serve_damaged()
        with Client([damaged.address], "jobs") as client:
            client.wait_ready()
            with self.assertRaises(Unavailable):
                client.get(b"\xff")
            bad, good = client.get_many([b"\xff", id_of(1)])
            self.assertIsInstance(bad.error, Unavailable)
            self.assertEqual(good.document, document(1))
            self.assertIsInstance(client.get_many([b"\xff"])[0].error, Unavailable)
            (entry,) = client.scan(b"\xff")
            self.assertIsInstance(entry.error, Unavailable)
        with Client([damaged.address, first.address], "jobs") as client:
            client.wait_ready()
            for _ in range(5):
                self.assertEqual(client.get(b"\xff"), DAMAGED)
                answers = client.get_many([b"\xff", id_of(1)])
                self.assertEqual([(a.document, a.error) for a in answers], [(DAMAGED, None), (document(1), None)])
        damaged.stop()

    def test_no_call_fails_while_servers_are_killed_stopped_and_started(self) -> None:
        server = commands.serve(queue, "threads")
        with Client([first.address, server.address], "jobs", attempt_timeout=0.5) as client:
            client.wait_ready()
            running = True
            failures: List[BaseException] = []
            calls = [0] * 8

            def load(worker: int) -> None:
                i = worker
                while running:
                    try:
                        if i % 3 == 0:
                            assert client.get(id_of(i)) == document(i)
                        else:
                            assert client.get_many([id_of(i), "missing"])[0].document == document(i)
                    except BaseException as error:
                        failures.append(error)
                    calls[worker] += 1
                    i = (i + 8) % DOCUMENTS
                    time.sleep(0.001)

            threads = [threading.Thread(target=load, args=(worker,)) for worker in range(8)]
            for thread in threads:
                thread.start()
            try:
                for with_signal in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
                    time.sleep(0.2)
                    server.stop(with_signal)
                    time.sleep(0.2)
                    server = commands.serve(queue, "threads", "--grpc", server.address)
                    limit = time.monotonic() + 15
                    while not client.health()[server.address] and time.monotonic() < limit:
                        time.sleep(0.01)
                    self.assertTrue(client.health()[server.address])
                server.process.send_signal(signal.SIGSTOP)  # attempts end, and another server is asked
                time.sleep(1)
                server.process.send_signal(signal.SIGCONT)
            finally:
                running = False
                for thread in threads:
                    thread.join()
            self.assertEqual(failures, [])
            self.assertGreater(sum(calls), 100)
        server.stop()


class AsyncioTest(unittest.IsolatedAsyncioTestCase):
    """AsyncClient."""

    async def test_documents_batches_and_scans(self) -> None:
        async with AsyncClient([first.address], "jobs", timeout=30, attempt_timeout=30) as client:
            await client.wait_ready()
            self.assertEqual(client.health(), {first.address: True})
            self.assertEqual(await client.get(id_of(7)), document(7))
            self.assertIsNone(await client.get("gone"))
            answers = await client.get_many(id_of(i) for i in range(DOCUMENTS + 1))
            self.assertEqual([a.document for a in answers], [document(i) for i in range(DOCUMENTS)] + [None])
            self.assertEqual([a.error for a in answers], [None] * (DOCUMENTS + 1))
            self.assertEqual(await client.get_many([]), [])
            entries = [entry async for entry in client.scan("job-", after=id_of(9), page_ids=400)]
            self.assertEqual([e.document for e in entries], [document(i) for i in range(10, DOCUMENTS)])
            self.assertEqual([id async for id in client.scan_ids("ü")], ["ü".encode()])
            # More calls than may be in flight.
            documents = await asyncio.gather(*(client.get(id_of(i)) for i in range(300)))
            self.assertEqual(documents, [document(i) for i in range(300)])

    async def test_bad_input_and_errors_of_servers(self) -> None:
        async with AsyncClient([first.address], "jobs") as client:
            with self.assertRaises(InvalidArgument):
                await client.get("")
            bad, good = await client.get_many(["x" * 1025, id_of(1)])
            self.assertIsInstance(bad.error, InvalidArgument)
            self.assertEqual(good.document, document(1))
            with self.assertRaises(TypeError):
                await client.get(5)  # type: ignore[arg-type]
            with self.assertRaises(InvalidArgument):
                await client.get("a", timeout=0)
            with self.assertRaises(InvalidArgument):
                [entry async for entry in client.scan(page_ids=0)]
        with self.assertRaises(Closed):
            await client.get("a")
        async with AsyncClient([first.address], "other") as client:
            with self.assertRaisesRegex(NoCollection, "only jobs"):
                await client.get("a")
        async with AsyncClient(["127.0.0.1:1"], "jobs", max_retries=1) as client:
            with self.assertRaises(NoServer):
                await client.get("a")
            with self.assertRaises(DeadlineExceeded):
                await client.wait_ready(0.05)

    async def test_close_and_cancel_end_calls(self) -> None:
        server = commands.serve(queue, "hangs")
        async with AsyncClient([server.address], "jobs", timeout=30, attempt_timeout=30) as client:
            await client.wait_ready()
            server.process.send_signal(signal.SIGSTOP)
            calls = [asyncio.ensure_future(client.get(id_of(i))) for i in range(200)]  # half of them wait
            await asyncio.sleep(0.1)
            for call in calls[:50] + calls[150:]:
                call.cancel()
            await asyncio.sleep(0.1)
            await client.close()
            results = await asyncio.gather(*calls, return_exceptions=True)
            for i, result in enumerate(results):
                self.assertIsInstance(result, asyncio.CancelledError if i < 50 or i >= 150 else Closed)
        server.stop(signal.SIGKILL)

    async def test_no_call_fails_while_servers_are_killed_stopped_and_started(self) -> None:
        server = await asyncio.to_thread(commands.serve, queue, "asyncio")
        address = server.address
        async with AsyncClient([first.address, address], "jobs", attempt_timeout=0.5) as client:
            await client.wait_ready()
            running = True
            failures: List[BaseException] = []
            calls = 0

            async def load(worker: int) -> None:
                nonlocal calls
                i = worker
                while running:
                    try:
                        if i % 3 == 0:
                            assert await client.get(id_of(i)) == document(i)
                        else:
                            assert (await client.get_many([id_of(i), "missing"]))[0].document == document(i)
                    except BaseException as error:
                        failures.append(error)
                    calls += 1
                    i = (i + 8) % DOCUMENTS
                    await asyncio.sleep(0.001)

            tasks = [asyncio.ensure_future(load(worker)) for worker in range(8)]
            for with_signal in (signal.SIGKILL, signal.SIGTERM, signal.SIGKILL):
                await asyncio.sleep(0.2)
                await asyncio.to_thread(server.stop, with_signal)
                await asyncio.sleep(0.2)
                server = await asyncio.to_thread(commands.serve, queue, "asyncio", "--grpc", address)
                limit = time.monotonic() + 15
                while not client.health()[address] and time.monotonic() < limit:
                    await asyncio.sleep(0.01)
                self.assertTrue(client.health()[address])
            server.process.send_signal(signal.SIGSTOP)
            await asyncio.sleep(1)
            server.process.send_signal(signal.SIGCONT)
            running = False
            await asyncio.gather(*tasks)
            self.assertEqual(failures, [])
            self.assertGreater(calls, 100)
        server.stop()


def serve_damaged() -> Daemon:
    """Start a daemon with a copy of the queue in which one document is damaged."""
    copy = commands.directory / "copy"
    shutil.copytree(queue, copy)
    for segment in copy.glob("*.seg"):
        data = bytearray(segment.read_bytes())
        at = data.find(DAMAGED)
        if at >= 0:
            data[at + 1] ^= 0x40
            segment.write_bytes(data)
    return commands.serve(copy, "damaged", "--quarantine=false")
