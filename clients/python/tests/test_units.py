"""The parts that do no I/O."""

from __future__ import annotations

import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from typing import Any, Dict, List, Tuple

import docstore_client
from docstore_client import Client, InvalidArgument
from docstore_client import docservice_pb2 as pb
from docstore_client.balance import Balancer, RetryBudget
from docstore_client.steps import MAX_REQUEST_BYTES, batches
from google.protobuf import descriptor_pb2

from .daemon import REPOSITORY


class PackageTest(unittest.TestCase):
    def test_the_tests_are_those_of_the_wheel(self) -> None:
        directory = Path(docstore_client.__file__ or "").parent
        self.assertEqual(directory.parent, Path(os.environ["DOCSTORE_SITE"]), "run python3 -m tests")
        self.assertTrue((directory / "py.typed").exists() and (directory / "docservice_pb2.pyi").exists())

    def test_the_messages_are_those_of_the_server(self) -> None:
        proto = REPOSITORY / "docservice/docservicepb/docservice.proto"
        with tempfile.TemporaryDirectory() as directory:
            out = Path(directory, "set")
            subprocess.run(["protoc", f"--proto_path={proto.parent}", f"--descriptor_set_out={out}", proto.name], check=True)
            want = descriptor_pb2.FileDescriptorSet.FromString(out.read_bytes()).file[0]
        want.ClearField("source_code_info")
        for message in want.message_type:
            for field in (*message.field, *(f for nested in message.nested_type for f in nested.field)):
                field.ClearField("json_name")
        got = descriptor_pb2.FileDescriptorProto()
        pb.DESCRIPTOR.CopyToProto(got)
        self.assertEqual(got, want, "run make proto")


class ArgumentsTest(unittest.TestCase):
    def test_wrong_arguments_of_a_client_are_refused(self) -> None:
        cases: List[Tuple[Dict[str, Any], type, str]] = [
            ({"servers": []}, InvalidArgument, "servers is empty"),
            ({"servers": ["a:1", "a:1"]}, InvalidArgument, "twice"),
            ({"servers": [""]}, InvalidArgument, "empty address"),
            ({"servers": "a:1"}, TypeError, "not a sequence"),
            ({"servers": None}, TypeError, "not a sequence"),
            ({"servers": [1]}, TypeError, "not a sequence"),
            ({"collection": ""}, InvalidArgument, "collection is empty"),
            ({"collection": 5}, TypeError, "collection is int: want str"),
            ({"timeout": 0}, InvalidArgument, "timeout is 0: want"),
            ({"timeout": float("nan")}, InvalidArgument, "timeout is nan"),
            ({"timeout": "5"}, TypeError, "timeout is str"),
            ({"attempt_timeout": -1}, InvalidArgument, "attempt_timeout"),
            ({"max_retries": -1}, InvalidArgument, "max_retries is -1: want 0 to 100"),
            ({"batch_ids": 0}, InvalidArgument, "batch_ids is 0: want 1 to 16384"),
            ({"batch_ids": 16_385}, InvalidArgument, "batch_ids"),
            ({"batch_ids": 1.5}, TypeError, "batch_ids is float: want int"),
            ({"priority": "low"}, InvalidArgument, "priority is 'low'"),
            ({"token": "secret"}, InvalidArgument, "not sent in plain text"),
            ({"certificate": (b"", b"")}, InvalidArgument, "needs ca"),
            ({"ca": b"x", "token": "a\nb"}, InvalidArgument, "visible ASCII"),
            ({"ca": b"x", "token": 5}, TypeError, "token is int"),
        ]
        valid: Dict[str, Any] = {"servers": ["a:1"], "collection": "jobs"}
        for arguments, kind, message in cases:
            with self.subTest(arguments), self.assertRaisesRegex(kind, message):
                Client(**{**valid, **arguments})


class BatchesTest(unittest.TestCase):
    def test_batches_split_by_ids_and_by_bytes_and_keep_the_order(self) -> None:
        short, long = b"x", b"x" * 1024
        per_request = MAX_REQUEST_BYTES // (len(long) + 3)
        cases: List[Tuple[List[bytes], int, List[int]]] = [
            ([], 5, []),
            ([short] * 5, 5, [5]),
            ([short] * 11, 5, [5, 5, 1]),
            ([long] * per_request, 16_384, [per_request]),
            ([long] * (2 * per_request + 1), 16_384, [per_request, per_request, 1]),
        ]
        for ids, batch_ids, want in cases:
            got = list(batches(ids, range(len(ids)), batch_ids))
            self.assertEqual([i for batch in got for i in batch], list(range(len(ids))))
            self.assertEqual([len(batch) for batch in got], want)


class BalanceTest(unittest.TestCase):
    def setUp(self) -> None:
        self.now = 0.0
        self.draw = 0.0

    def balancer(self, *addresses: str) -> Balancer:
        return Balancer(addresses, lambda: self.now, lambda: self.draw)

    def test_healthy_untried_and_idle_servers_are_preferred(self) -> None:
        balancer = self.balancer("good", "unknown", "bad", "paused")
        good, unknown, bad, paused = balancer.servers
        good.in_flight = 9
        balancer.set_health(good, True)
        balancer.set_health(bad, False)
        balancer.set_health(paused, True)
        balancer.failed(paused)
        for self.draw in (0.0, 0.3, 0.6, 0.99):
            self.assertIs(balancer.begin(set()), good)
            self.assertIs(balancer.begin({good}), unknown)
            self.assertIn(balancer.begin({good, unknown}), (bad, paused))
            self.assertIs(balancer.begin({good, unknown, bad, paused}), good, "all have been tried")
        self.now = 1.0
        self.assertIs(balancer.begin({good}), paused, "the pause has ended")
        balancer.failed(paused)
        balancer.set_health(paused, True)
        self.assertIs(balancer.begin({good}), paused, "its health ended the pause")

    def test_the_less_busy_server_is_used(self) -> None:
        balancer = self.balancer("a", "b")
        a, b = balancer.servers
        for self.draw in (0.0, 0.6):
            a.in_flight, b.in_flight = 3, 2
            self.assertIs(balancer.begin(set()), b)
            self.assertEqual(b.in_flight, 3)
            balancer.end(b)
            self.assertEqual(b.in_flight, 2)

    def test_pauses_grow_to_a_limit(self) -> None:
        balancer = self.balancer("a")
        (server,) = balancer.servers
        self.draw = 0.5
        for want in (0.1, 0.2, 0.4):
            balancer.failed(server)
            self.assertAlmostEqual(server.paused_until, want)
        for _ in range(100):
            balancer.failed(server)
        self.assertEqual(server.paused_until, 5.0)
        balancer.answered(server)
        self.assertEqual((server.failures, server.paused_until), (0, 0.0))

    def test_retries_are_limited(self) -> None:
        budget = RetryBudget(0.0)
        granted = 0
        while budget.take(0.0):
            granted += 1
        self.assertEqual(granted, 64)
        for _ in range(11):
            budget.call()
        self.assertEqual([budget.take(0.0) for _ in range(3)], [True, True, False], "a fifth of the calls")
        self.assertEqual([budget.take(0.1) for _ in range(2)], [True, False], "ten a second")
        self.assertFalse(budget.take(0.05), "the clock went back")
