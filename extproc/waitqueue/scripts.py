"""The Lua scripts, with their includes resolved and their arguments checked at import."""

from __future__ import annotations

import re
from dataclasses import dataclass
from hashlib import sha1
from importlib.resources import files

_INCLUDE = re.compile(r"^-- @include (\w+)$", re.MULTILINE)
_SLOT = re.compile(r"^  ARGV\[(\d+)(\.\.\.)?\]\s+(\w+)", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Script:
    """One verb of the queue.

    Attributes:
        name: the file's name without `.lua`.
        source: Lua with every include in place.
        arguments: names of the fixed ARGV slots, as the file's header gives them.
        takes_more: True where a list follows the fixed slots.
        sha: the name under which Redis caches the source.
    """

    name: str
    source: str
    sha: str
    arguments: tuple[str, ...]
    takes_more: bool

    def arguments_for(self, values: dict[str, str | int], *more: str | int) -> list[str | int]:
        """Return ARGV for named values.

        Raises:
            TypeError: a name is missing or unknown, or a list is given to a script that takes none.
        """
        if values.keys() != set(self.arguments) or (more and not self.takes_more):
            raise TypeError(
                f"{self.name}.lua takes {self.arguments}, not {tuple(values)} and {len(more)} more"
            )
        return [*(values[name] for name in self.arguments), *more]


def load(name: str) -> Script:
    """Read a script and its header.

    Raises:
        ValueError: the header skips a slot or names none.
    """
    room = files("extproc.waitqueue")
    text = (room / f"{name}.lua").read_text(encoding="utf-8")
    header = text[: text.index("]]\n")]
    slots = _SLOT.findall(header)
    if [int(number) for number, _, _ in slots] != list(range(1, len(slots) + 1)) or not slots:
        raise ValueError(
            f"{name}.lua: the header must describe ARGV[1], ARGV[2], ... without a gap, not {slots}"
        )
    fixed = tuple(word for _, more, word in slots if not more)
    source = _INCLUDE.sub(lambda m: (room / "include" / f"{m[1]}.lua").read_text(encoding="utf-8"), text)
    sha = sha1(source.encode(), usedforsecurity=False).hexdigest()
    return Script(name, source, sha, fixed, takes_more=len(fixed) < len(slots))


ENQUEUE = load("enqueue")
LEAVE = load("leave")
RENEW = load("renew")
RESTORE = load("restore")
SWEEP = load("sweep")
SET_CAPACITY = load("set_capacity")
STATE = load("state")
ALL = (ENQUEUE, LEAVE, RENEW, RESTORE, SWEEP, SET_CAPACITY, STATE)
