"""What both clients know of gRPC: methods, channel options, messages of the health."""

from __future__ import annotations

from typing import Any, Dict, List, Tuple

import grpc

from . import docservice_pb2 as pb

SERVICE = "docstore.v1.Documents"

METHODS: Dict[str, Tuple[Any, Any]] = {
    "Get": (pb.GetRequest, pb.GetResponse),
    "BatchGet": (pb.BatchGetRequest, pb.BatchGetResponse),
    "Scan": (pb.ScanRequest, pb.ScanResponse),
}

CHANNEL_OPTIONS: List[Tuple[str, Any]] = [
    ("grpc.max_receive_message_length", 33 << 20),  # the server's limit is 32 MiB, that of gRPC 4 MiB
    ("grpc.use_local_subchannel_pool", 1),  # other clients of the process would use streams of the connection
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.min_reconnect_backoff_ms", 1_000),
    ("grpc.max_reconnect_backoff_ms", 5_000),
    ("grpc.keepalive_time_ms", 30_000),  # the server permits 10 s
    ("grpc.keepalive_timeout_ms", 5_000),
    ("grpc.enable_retries", 0),  # the client retries, on other servers
]

# Seconds before the health is watched again: after the end of the stream, and after a refusal.
WATCH_AGAIN = 0.2
REFUSED = 10.0

# Messages of grpc.health.v1. They have one field each. Their generated classes would be those of
# another package of the program, if it has them.
WATCH_METHOD = "/grpc.health.v1.Health/Watch"
WATCH_REQUEST = b"\x0a" + bytes([len(SERVICE)]) + SERVICE.encode()
SERVING = b"\x08\x01"


def stubs(channel: Any) -> Dict[str, Any]:
    """Return the methods of a channel, sync or asyncio."""
    return {
        name: channel.unary_unary(f"/{SERVICE}/{name}", request.SerializeToString, response.FromString)
        for name, (request, response) in METHODS.items()
    }


def watch_delay(code: grpc.StatusCode) -> float:
    """Return the time until the health is watched again, after a stream ended with code."""
    return WATCH_AGAIN if code in (grpc.StatusCode.OK, grpc.StatusCode.UNAVAILABLE) else REFUSED
