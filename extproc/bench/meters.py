"""Processor time of processes and of the machine, as Linux accounts for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Self

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_IDLE, _IO_WAIT, _STOLEN = 3, 4, 7


@dataclass(frozen=True, slots=True)
class Reading:
    """Processor time since some moment long ago.

    Attributes:
        processes_s: of each process, all its threads together, by name.
        machine_s: of everything that ran on the machine.
    """

    processes_s: Mapping[str, float]
    machine_s: float

    @classmethod
    def take(cls, pids: Mapping[str, int]) -> Self:
        """Read the processes with these ids; accounted in steps of 10 ms on most kernels."""
        return cls({name: _process_s(pid) for name, pid in pids.items()}, _machine_s())

    def since(self, earlier: Self) -> Reading:
        """Return what was used between two readings."""
        used = {name: now_s - earlier.processes_s[name] for name, now_s in self.processes_s.items()}
        return Reading(used, self.machine_s - earlier.machine_s)

    @property
    def others_s(self) -> float:
        """Used by processes that were not read."""
        return max(0.0, self.machine_s - sum(self.processes_s.values()))


def _process_s(pid: int) -> float:
    text = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    # The name, in parentheses, may hold anything; of what follows, two fields are user and system time.
    _, _, fields = text.rpartition(")")
    user, system = fields.split()[11:13]
    return (int(user) + int(system)) / _TICKS_PER_S


def _machine_s() -> float:
    first = Path("/proc/stat").read_text(encoding="utf-8").partition("\n")[0]
    ticks = [int(field) for field in first.split()[1:9]]
    return sum(t for i, t in enumerate(ticks) if i not in (_IDLE, _IO_WAIT, _STOLEN)) / _TICKS_PER_S
