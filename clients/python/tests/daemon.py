"""Starts real commands for the tests."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import tempfile
import threading
from pathlib import Path
from typing import IO, List

REPOSITORY = Path(__file__).resolve().parents[3]


class Daemon:
    """A docserviced process."""

    def __init__(self, process: subprocess.Popen[str], address: str) -> None:
        self.process = process
        self.address = address  # of gRPC

    def stop(self, with_signal: signal.Signals = signal.SIGTERM) -> None:
        """Stop the process and wait for its end."""
        if self.process.poll() is None:
            self.process.send_signal(with_signal)
        self.process.wait(60)


class Commands:
    """The commands, built in a temporary directory, or those in DOCSTORE_BIN."""

    def __init__(self) -> None:
        self.directory = Path(tempfile.mkdtemp(prefix="docstore-python-"))
        self._daemons: List[Daemon] = []
        self._bin = Path(os.environ.get("DOCSTORE_BIN", self.directory / "bin"))
        if "DOCSTORE_BIN" not in os.environ:
            packages = ["./cmd/docserviced", "./cmd/docstore-updater"]
            subprocess.run(["go", "build", "-o", f"{self._bin}/", *packages], cwd=REPOSITORY, check=True)

    def append(self, name: str, lines: str) -> Path:
        """Append NDJSON to a queue and return its directory."""
        queue = self.directory / name
        subprocess.run([self._bin / "docstore-updater", "append", "--queue", queue, "--quiet"], input=lines, text=True, check=True)
        return queue

    def serve(self, queue: Path, name: str, *flags: str) -> Daemon:
        """Start a daemon and wait until it has read its queue."""
        command = [f"{self._bin}/docserviced", "serve", "--collection", f"jobs={queue}", "--data", f"{self.directory}/{name}"]
        command += ["--quiet", "--boxcar", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0", *flags]
        if "--memory" not in flags:
            command += ["--memory", "64MiB"]
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
        assert process.stderr is not None
        address, ready, lines = "", False, []
        for text in process.stderr:
            lines.append(text)
            line = json.loads(text)
            if line["msg"] == "serving":
                address = line["grpc"]
            ready = ready or line["msg"] == "the queue has been read to its end"
            if address and ready:
                break
        else:
            raise AssertionError("the daemon exited: " + "".join(lines))
        threading.Thread(target=drain, args=(process.stderr,), daemon=True).start()
        daemon = Daemon(process, address)
        self._daemons.append(daemon)
        return daemon

    def end(self) -> None:
        """Stop the daemons and remove the directory."""
        for daemon in self._daemons:
            daemon.stop(signal.SIGKILL)  # a test may have stopped it
        shutil.rmtree(self.directory)


def drain(lines: IO[str]) -> None:
    """Read the log of a daemon until its end."""
    with lines:
        for _ in lines:
            pass
