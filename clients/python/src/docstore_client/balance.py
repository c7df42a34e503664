"""The choice of a server, and the limits of retries."""

from __future__ import annotations

import threading
from typing import AbstractSet, Callable, Dict, Optional, Sequence

PAUSE = 0.1  # seconds after the first failure; doubles up to MAX_PAUSE
MAX_PAUSE = 5.0


class Server:
    """What the balancer knows of a server."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.serving: Optional[bool] = None  # its health as it reports it; None: unknown
        self.in_flight = 0
        self.failures = 0  # in a row
        self.paused_until = 0.0

    def rank(self, now: float) -> int:
        """Order servers: 0 healthy, 1 of unknown health, 2 not serving or paused."""
        if self.serving is False or now < self.paused_until:
            return 2
        return 0 if self.serving else 1


class RetryBudget:
    """Limits retries to a fifth of the calls and ten a second, so that retries do not multiply
    the load of servers that fail."""

    RATIO = 0.2
    PER_SECOND = 10.0
    MOST = 64.0

    def __init__(self, now: float) -> None:
        self._tokens = self.MOST
        self._at = now

    def call(self) -> None:
        """Count a call."""
        self._tokens = min(self.MOST, self._tokens + self.RATIO)

    def take(self, now: float) -> bool:
        """Report whether a call may be tried again, and count the retry."""
        self._tokens = min(self.MOST, self._tokens + max(0.0, now - self._at) * self.PER_SECOND)
        self._at = now
        if self._tokens < 1:
            return False
        self._tokens -= 1
        return True


class Balancer:
    """Chooses the servers of calls. Its methods may be called by several threads."""

    def __init__(self, addresses: Sequence[str], clock: Callable[[], float], random: Callable[[], float]) -> None:
        self.servers = [Server(address) for address in addresses]
        self._clock = clock
        self._random = random
        self._budget = RetryBudget(clock())
        self._lock = threading.Lock()

    def begin(self, tried: AbstractSet[Server]) -> Server:
        """Return the server of a call: of two random ones of the best rank that with fewer calls
        in flight. Servers in tried are used if there is no other one. The caller calls end."""
        with self._lock:
            now = self._clock()
            candidates = [s for s in self.servers if s not in tried] or self.servers
            best = min(s.rank(now) for s in candidates)
            among = [s for s in candidates if s.rank(now) == best]
            first = int(self._random() * len(among))
            second = (first + 1 + int(self._random() * (len(among) - 1))) % len(among)
            server = min(among[first], among[second], key=lambda s: s.in_flight)
            server.in_flight += 1
            return server

    def end(self, server: Server) -> None:
        """End a call that began."""
        with self._lock:
            server.in_flight -= 1

    def answered(self, server: Server) -> None:
        """Note that a server answered a call."""
        with self._lock:
            server.failures = 0
            server.paused_until = 0.0

    def failed(self, server: Server) -> None:
        """Pause a server that refused a call because of its load, was not reached or did not answer in time."""
        with self._lock:
            pause = min(MAX_PAUSE, PAUSE * 2.0 ** min(server.failures, 10))
            server.failures += 1
            server.paused_until = self._clock() + pause * (0.75 + self._random() / 2)

    def set_health(self, server: Server, serving: Optional[bool]) -> None:
        """Note the health of a server."""
        with self._lock:
            server.serving = serving
            if serving:
                server.paused_until = 0.0

    def health(self) -> Dict[str, Optional[bool]]:
        """Return the health of each server."""
        return {s.address: s.serving for s in self.servers}

    def ready(self) -> bool:
        """Report whether a server reports that it serves."""
        return any(s.serving for s in self.servers)

    def count_call(self) -> None:
        """Count a call for the budget of retries."""
        with self._lock:
            self._budget.call()

    def may_retry(self) -> bool:
        """Report whether the budget permits a retry, and count it."""
        with self._lock:
            return self._budget.take(self._clock())
