"""The bootstraps in `envoy/`; `python -m extproc.envoyconfig.examples envoy` writes them anew."""

from __future__ import annotations

import sys
from pathlib import Path

from extproc.envoyconfig.bootstrap import Bootstrap, render
from extproc.envoyconfig.targets import Tcp, UnixSocket

_OTHERS = (Tcp("10.0.0.12", 9002), Tcp("10.0.0.13", 9002))
_ENGINES = (Tcp("10.0.1.21", 8000), Tcp("10.0.1.22", 8000))

EXAMPLES: dict[str, Bootstrap] = {
    "gateway-tcp.yaml": Bootstrap(
        extproc=(Tcp("127.0.0.1", 9002), *_OTHERS),
        engines=_ENGINES,
        access_log="/dev/stdout",
    ),
    "gateway-unix-socket.yaml": Bootstrap(
        extproc=(UnixSocket("/run/forebay/extproc.sock"), *_OTHERS),
        engines=_ENGINES,
        access_log="/dev/stdout",
    ),
}
"""By file name."""


def main() -> None:
    """Write every example into the folder that the command line names."""
    folder = Path(sys.argv[1])
    for name, bootstrap in EXAMPLES.items():
        (folder / name).write_text(render(bootstrap), encoding="utf-8")


if __name__ == "__main__":
    main()
