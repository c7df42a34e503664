"""Checks of arguments."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Callable, Iterable, List, Optional, Sequence, Tuple, Union

import grpc

from .errors import InvalidArgument

ID = Union[str, bytes]
"""An id: text, encoded as UTF-8, or bytes."""

Token = Union[str, Callable[[], str]]
"""A token, or a function that returns the current one."""

MAX_ID_BYTES = 1024
MAX_BATCH_IDS = 16_384  # limit of the server
MAX_PAGE_IDS = 4_096  # limit of the server


@dataclass(frozen=True)
class Options:
    """The arguments of a client, checked."""

    servers: Sequence[str]
    collection: str
    ca: Optional[bytes]
    certificate: Optional[Tuple[bytes, bytes]]
    token: Optional[Token]
    timeout: float
    attempt_timeout: float
    max_retries: int
    batch_ids: int
    priority: str

    def __post_init__(self) -> None:
        if isinstance(self.servers, (str, bytes)) or not isinstance(self.servers, Sequence) or not all(isinstance(s, str) for s in self.servers):
            raise TypeError("servers is not a sequence of HOST:PORT")
        if not self.servers:
            raise InvalidArgument("servers is empty: want at least one HOST:PORT")
        if "" in self.servers:
            raise InvalidArgument("servers has an empty address: want HOST:PORT")
        if len(set(self.servers)) < len(self.servers):
            raise InvalidArgument("servers has an address twice")
        if not isinstance(self.collection, str):
            raise TypeError(f"collection is {kind(self.collection)}: want str")
        if not self.collection:
            raise InvalidArgument("collection is empty: want its name")
        check_timeout("timeout", self.timeout)
        check_timeout("attempt_timeout", self.attempt_timeout)
        check_count("max_retries", self.max_retries, 0, 100)
        check_count("batch_ids", self.batch_ids, 1, MAX_BATCH_IDS)
        if self.priority not in ("interactive", "batch"):
            raise InvalidArgument(f"priority is {self.priority!r}: want 'interactive' or 'batch'")
        if self.ca is None and (self.token is not None or self.certificate is not None):
            raise InvalidArgument("a token or certificate needs ca: it is not sent in plain text")
        if self.token is not None and not callable(self.token):
            check_token(self.token)

    def credentials(self) -> Optional[grpc.ChannelCredentials]:
        """Return the credentials of a connection; None: plain text."""
        if self.ca is None:
            return None
        chain, key = self.certificate or (None, None)
        return grpc.ssl_channel_credentials(self.ca, key, chain)

    def metadata(self) -> List[Tuple[str, str]]:
        """Return the metadata of a call."""
        metadata = []
        if self.priority == "batch":
            metadata.append(("priority", "u=7"))  # RFC 9218
        if self.token is not None:
            token = self.token() if callable(self.token) else self.token
            metadata.append(("authorization", f"Bearer {check_token(token)}"))
        return metadata

    def health_metadata(self) -> List[Tuple[str, str]]:
        """Return the metadata of a health stream, which needs no token: one that cannot be read is left out."""
        try:
            return self.metadata()
        except Exception:
            return []


def kind(value: object) -> str:
    """Return the type of a value, for errors."""
    return type(value).__name__


def check_timeout(name: str, value: object) -> float:
    """Return value, a number of seconds above 0."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise TypeError(f"{name} is {kind(value)}: want a number of seconds")
    if not (value > 0 and math.isfinite(value)):
        raise InvalidArgument(f"{name} is {value}: want a number of seconds above 0")
    return value


def check_count(name: str, value: object, least: int, most: int) -> int:
    """Return value, an integer from least to most."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{name} is {kind(value)}: want int")
    if not least <= value <= most:
        raise InvalidArgument(f"{name} is {value}: want {least} to {most}")
    return value


def check_token(token: object) -> str:
    """Return token, which goes into a header."""
    if not isinstance(token, str):
        raise TypeError(f"token is {kind(token)}: want str")
    if not token or not all("!" <= c <= "~" for c in token):
        raise InvalidArgument("token is empty or has other characters than visible ASCII")
    return token


def part_bytes(name: str, part: object) -> bytes:
    """Return the bytes of an id or of a part of one, which may be empty."""
    if isinstance(part, str):
        try:
            encoded = part.encode()
        except UnicodeEncodeError:
            raise InvalidArgument(f"{name} has half a surrogate pair: give bytes") from None
    elif isinstance(part, (bytes, bytearray, memoryview)):
        encoded = bytes(part)
    else:
        raise TypeError(f"{name} is {kind(part)}: want str or bytes")
    if len(encoded) > MAX_ID_BYTES:
        raise InvalidArgument(f"{name} has {len(encoded)} bytes: want at most {MAX_ID_BYTES}")
    return encoded


def id_bytes(name: str, id: object) -> bytes:
    """Return the bytes of an id."""
    encoded = part_bytes(name, id)
    if not encoded:
        raise InvalidArgument(f"{name} is empty: want 1 to {MAX_ID_BYTES} bytes")
    return encoded


def id_list(ids: Iterable[ID]) -> Sequence[ID]:
    """Return the ids of a batch as a list."""
    if isinstance(ids, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"ids is {kind(ids)}: want an iterable of ids")
    return list(ids)
