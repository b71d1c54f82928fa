"""Child processes of a demo or a test: started with a log each, ended with their parent, whatever ends it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import sys
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from extproc.domain.errors import ForebayError

# Runs in the child and becomes the program: the kernel ends it with its parent, however that ends. Not a
# `preexec_fn`, which would run in a copy of this process, threads of gRPC and all; they abort there at times.
_DIE_WITH_PARENT = """
import ctypes, os, signal, sys
PR_SET_PDEATHSIG = 1
ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
if os.getppid() == int(sys.argv[1]):
    os.execv(sys.argv[2], sys.argv[2:])
"""


class ChildFailed(ForebayError):
    """A process of the system ended or did not become ready; the message carries the end of its log."""


@dataclass(frozen=True, slots=True)
class Child:
    """One running process.

    Attributes:
        name: for messages.
        process: as asyncio knows it.
        log: where its output goes.
    """

    name: str
    process: asyncio.subprocess.Process
    log: Path

    @property
    def pid(self) -> int:
        """Its process id."""
        return self.process.pid

    @property
    def is_running(self) -> bool:
        """True until it has ended."""
        return self.process.returncode is None

    def log_tail(self, most_lines: int = 12) -> str:
        """Return the end of its output."""
        lines = self.log.read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(lines[-most_lines:])

    async def until(self, is_ready: Callable[[], Awaitable[bool]], *, timeout_s: float = 20.0) -> None:
        """Wait until it is ready.

        Raises:
            ChildFailed: it ended, or was not ready in time.
        """
        loop = asyncio.get_running_loop()
        give_up_at = loop.time() + timeout_s
        while not await is_ready():
            if not self.is_running:
                raise ChildFailed(
                    f"{self.name} ended with status {self.process.returncode}:\n{self.log_tail()}"
                )
            if loop.time() > give_up_at:
                raise ChildFailed(f"{self.name} was not ready within {timeout_s:g} s:\n{self.log_tail()}")
            await asyncio.sleep(0.02)

    async def stop(self, *, grace_s: float = 5.0) -> None:
        """End it: SIGTERM, and SIGKILL when that does not help in time."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            if not self.is_running:
                return
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(grace_s):
                    await self.process.wait()


async def start(
    name: str, command: Sequence[str | Path], *, directory: Path, environment: Mapping[str, str] | None = None
) -> Child:
    """Start a process with its output in `directory`/`name`.log.

    It is in a session of its own, so that Ctrl-C reaches only the parent, which ends its children in order.

    Raises:
        ChildFailed: the program cannot be started.
    """
    log = directory / f"{name}.log"
    with log.open("ab") as output:
        try:
            process = await asyncio.create_subprocess_exec(
                *_with_parent(name, command),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=output,
                stderr=output,
                env={**os.environ, **(environment or {})},
                start_new_session=True,
            )
        except OSError as error:
            raise ChildFailed(f"{name}: cannot start {command[0]}: {error}") from error
    return Child(name, process, log)


def _with_parent(name: str, command: Sequence[str | Path]) -> list[str]:
    """Return a command line that runs the command and ends with this process."""
    program = shutil.which(command[0])
    if program is None:
        raise ChildFailed(f"{name}: cannot start {command[0]}: no such program")
    line = [program, *map(str, command[1:])]
    if sys.platform != "linux":
        return line
    return [sys.executable, "-I", "-S", "-c", _DIE_WITH_PARENT, str(os.getpid()), *line]


def free_ports(number: int, host: str = "127.0.0.1") -> list[int]:
    """Return ports that nobody uses at the moment, all different."""
    sockets = [socket.socket() for _ in range(number)]
    try:
        for sock in sockets:
            sock.bind((host, 0))
        return [sock.getsockname()[1] for sock in sockets]
    finally:
        for sock in sockets:
            sock.close()


def claim_port(port: int, host: str = "127.0.0.1") -> socket.socket | None:
    """Listen on a port (0 for any free one) so that nobody else takes it, or return None where it is in use.

    Close the socket to give the port to the program that is to have it.
    """
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that linger are nobody's claim
    try:
        sock.bind((host, port))
        sock.listen()
    except OSError:
        sock.close()
        return None
    return sock


async def accepts(host: str, port: int) -> bool:
    """Return whether somebody listens."""
    try:
        _, writer = await asyncio.open_connection(host, port)
    except OSError:
        return False
    writer.close()
    return True
