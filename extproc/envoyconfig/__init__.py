"""Envoy in front of the engines: where its binary is, and the bootstrap that puts Forebay into its path.

docs/envoy.md tells what the configuration relies on, and what was measured.
"""

from extproc.envoyconfig.binary import find_envoy
from extproc.envoyconfig.bootstrap import MAX_HOLD_S, REQUEST_ATTRIBUTES, Bootstrap, render
from extproc.envoyconfig.targets import Target, Tcp, UnixSocket, parse_target
from extproc.envoyconfig.usage import UsageFilter

__all__ = [
    "MAX_HOLD_S",
    "REQUEST_ATTRIBUTES",
    "Bootstrap",
    "Target",
    "Tcp",
    "UnixSocket",
    "UsageFilter",
    "find_envoy",
    "parse_target",
    "render",
]
