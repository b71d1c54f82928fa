"""The Lua scripts with their includes in place, and what each takes, checked against its header at import."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files
from typing import Any, Generic, NamedTuple, TypeVar

A = TypeVar("A", bound=tuple[str | int, ...])

_INCLUDE = re.compile(r"^ *-- @include (\w+)$", re.MULTILINE)
_SLOT = re.compile(r"^  ARGV\[(\d+)(\.\.\.)?\]\s+(\w+)", re.MULTILINE)
_COMMON = ("now_ms", "epoch")


@dataclass(frozen=True, slots=True)
class Script(Generic[A]):
    """One verb of the queue.

    Attributes:
        name: the file's name without `.lua`.
        source: Lua with every include in place.
        sha: the name under which Redis caches the source.
    """

    name: str
    source: str
    sha: str


class Enqueue(NamedTuple):
    """What enqueue.lua takes."""

    id: str
    attempt: str
    replica: str
    tokens: int
    class_rank: int
    tenant: str
    max_requests: int
    may_wait: int
    lease_ms: int
    heartbeat_ms: int


class Leave(NamedTuple):
    """What leave.lua takes before its pairs of request id and attempt."""

    lease_ms: int


class Renew(NamedTuple):
    """What renew.lua takes before its four words for each holding."""

    replica: str
    lease_ms: int
    heartbeat_ms: int


class Restore(NamedTuple):
    """What restore.lua takes before its eight words for each holding."""

    replica: str
    lease_ms: int
    heartbeat_ms: int


class Sweep(NamedTuple):
    """What sweep.lua takes."""

    lease_ms: int
    heartbeat_ms: int
    max_gap_ms: int


class SetCapacity(NamedTuple):
    """What set_capacity.lua takes; 'none' is no limit."""

    lease_ms: int
    tokens: int | str
    requests: int | str


class State(NamedTuple):
    """What state.lua takes."""


def load(name: str, arguments: type[A]) -> Script[A]:
    """Read a script.

    Raises:
        ValueError: the header does not describe, without a gap, the common arguments and then `arguments`.
    """
    room = files("extproc.waitqueue")
    text = (room / f"{name}.lua").read_text(encoding="utf-8")
    slots = _SLOT.findall(text[: text.index("]]\n")])
    fixed = tuple(word for _, more, word in slots if not more)
    expected = (*_COMMON, *getattr(arguments, "_fields"))  # noqa: B009 - a NamedTuple, which has no type of its own
    if fixed != expected or [int(number) for number, _, _ in slots] != list(range(1, len(slots) + 1)):
        raise ValueError(f"{name}.lua: the header must describe ARGV {expected} in order, not {slots}")
    source = _INCLUDE.sub(lambda m: (room / "include" / f"{m[1]}.lua").read_text(encoding="utf-8"), text)
    return Script(name, source, sha1(source.encode(), usedforsecurity=False).hexdigest())


ENQUEUE = load("enqueue", Enqueue)
LEAVE = load("leave", Leave)
RENEW = load("renew", Renew)
RESTORE = load("restore", Restore)
SWEEP = load("sweep", Sweep)
SET_CAPACITY = load("set_capacity", SetCapacity)
STATE = load("state", State)
ALL: tuple[Script[Any], ...] = (ENQUEUE, LEAVE, RENEW, RESTORE, SWEEP, SET_CAPACITY, STATE)
